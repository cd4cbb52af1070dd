"""FedGKD: Local-Global Knowledge Distillation in Heterogeneous Federated Learning with Non-IID Data.

Yao, Pan, Dai, Wan, Ding, Yu, Jin, Xu, Sun 2021, section 4. https://arxiv.org/abs/2107.00051
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from algorithms.base import (
    Algorithm,
    Batch,
    Cohort,
    Fed,
    Local,
    Memory,
    Message,
    Net,
    Params,
    Plan,
    Server,
    Upload,
    hyper,
)
from algorithms.forward import logits_of
from algorithms.losses import cross_entropy, kl
from algorithms.params import mean_of


@dataclass(frozen=True)
class FedGKD(Algorithm):
    """Clients distil from the mean of the last M global models.

    Loss: CE + gamma/2 KL( p(wbar_t; x) || p(w; x) ), wbar_t = mean(w_t, ..., w_{t-M+1}), temperature 1 (Eq. 4).
    Server state: `fedgkd_history`, the last M aggregated models, oldest first.

    Args:
        gamma: distillation weight, >= 0; 0 is FedAvg. The authors' `distillation_coefficient` is gamma / 2.
        buffer: M >= 1, global models in the teacher; 1 distils from the received model, which costs no traffic.
        distance: `kl`, or `mse`: the squared difference of logits, its mean over batch and classes (Table 9).

    Differences from the paper:
        1. No distillation in round 1, and w_0 never enters the buffer, as in the authors' code; the text is silent.
        2. While fewer than M models exist, the mean of those available is the teacher.
        3. FedGKD-MSE's weight is not printed: gamma's is taken. It is said to be over the logits, while the analysis
           treats them as probabilities: logits are used.
        4. M of FedGKD+ is not printed: 5 is the default.
    """

    gamma: float = hyper(0.2, 0)
    buffer: int = hyper(5, 1, packable=False)
    distance: str = hyper("kl", choices=("kl", "mse"), packable=False)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """An empty buffer."""
        return Server(params, extra={"fedgkd_history": ()})

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """The model and its teacher: the same tensors until a second model is in the buffer."""
        history = server.extra["fedgkd_history"]
        return {"params": server.params, "teacher": mean_of(history or (server.params,))}

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """FedAvg's mean, kept in the buffer."""
        params = cohort.mean(uploads["params"])
        return server.next(params, fedgkd_history=(*server.extra["fedgkd_history"], params)[-self.buffer :])

    def teachers(self, message: Message, memory: Memory) -> dict[str, Params]:
        """The buffer's mean."""
        return {"global": message["teacher"]}

    def local_loss(self, net: Net, local: Local, batch: Batch, message: Message, memory: Memory, plan: Plan) -> Tensor:
        """Eq. 4, from round 2 on."""
        student, teacher = net(local["params"], batch.x).logits, batch.teacher["global"].logits
        term = kl(teacher, student) if self.distance == "kl" else (student - teacher).square().mean(-1)
        return cross_entropy(student, batch.y) + (plan.round > 1) * self.gamma / 2 * term


def fedgkd(gamma: float = 0.2, buffer: int = 5) -> FedGKD:
    """FedGKD as printed."""
    return FedGKD(gamma, buffer)


def fedgkd_plus(gamma: float = 0.2, buffer: int = 5) -> FedGKD:
    """FedGKD+: the same objective on MOON's model, whose projection head the registry asks for."""
    return FedGKD(gamma, buffer)


def fedgkd_mse(gamma: float = 0.2, buffer: int = 1) -> FedGKD:
    """FedGKD with the squared difference of logits."""
    return FedGKD(gamma, buffer, "mse")


@dataclass(frozen=True)
class FedGKDVote(Algorithm):
    """Clients distil from each of the last M global models, by how well each does on the server's validation samples.

    Loss: CE + sum_m gamma_m/2 KL( p(w_{t-m+1}; x) || p(w; x) ) with gamma_m/2 = lambda softmax_m(-L_m / beta), L_m the
    mean cross entropy of model m on the validation samples (Eq. 5). Server state: `fedgkd_voters`, the last M
    aggregated models and their L_m, oldest first.

    Args:
        distillation_weight: lambda >= 0, the sum of all gamma_m / 2; 0 is FedAvg.
        buffer: M >= 1, global models that vote; 1 is FedGKD with gamma = 2 lambda and M = 1.
        beta: temperature > 0 of the vote; none takes 1/M, as printed.

    Differences from the paper:
        1. Before M models exist those available vote, with beta = 1/M all the same; round 1 has none.
        2. The authors' code takes this term inside a block without gradients, which would make it FedAvg: not so here.
        3. lambda is not printed for ResNet-50: 0.1 is the default.
    """

    needs = frozenset({"validation"})

    distillation_weight: float = hyper(0.1, 0)
    buffer: int = hyper(5, 1, packable=False)
    beta: float | None = hyper(None, 0, open_low=True, packable=False)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Nobody to vote."""
        return Server(params, extra={"fedgkd_voters": ()})

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """The model, and the last M with their validation losses; the model itself is one of them."""
        return {"params": server.params, "voters": server.extra["fedgkd_voters"]}

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """FedAvg's mean, judged once on the validation samples."""
        params = cohort.mean(uploads["params"])
        logits = logits_of(fed.net, params, fed.validation.x)
        voter = {"params": params, "loss": cross_entropy(logits, fed.validation.y).mean()}
        return server.next(params, fedgkd_voters=(*server.extra["fedgkd_voters"], voter)[-self.buffer :])

    def teachers(self, message: Message, memory: Memory) -> dict[str, Params]:
        """Each model that votes."""
        return {f"voter {m}": voter["params"] for m, voter in enumerate(message["voters"])}

    def local_loss(self, net: Net, local: Local, batch: Batch, message: Message, memory: Memory, plan: Plan) -> Tensor:
        """Eq. 5, from round 2 on."""
        student = net(local["params"], batch.x).logits
        loss = cross_entropy(student, batch.y)
        if not message["voters"]:
            return loss
        beta = 1 / self.buffer if self.beta is None else self.beta
        votes = (-torch.stack([voter["loss"] for voter in message["voters"]]) / beta).softmax(0)
        teachers = torch.stack([batch.teacher[f"voter {m}"].logits for m in range(len(votes))])
        return loss + self.distillation_weight * (votes @ kl(teachers, student))  # (M,) @ (M, B)
