"""Local-Global Knowledge Distillation in Heterogeneous Federated Learning with Non-IID Data.

Yao, Pan, Dai, Wan, Ding, Jin, Xu, Sun 2021, section 3.2. https://arxiv.org/abs/2107.00051
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from algorithms.base import (
    Algorithm,
    Batch,
    Cohort,
    Fed,
    Local,
    LocalPlan,
    Memory,
    Message,
    Net,
    Params,
    Server,
    Upload,
    hyper,
)
from algorithms.entry import About
from algorithms.forward import logits_of
from algorithms.losses import cross_entropy, kl
from algorithms.params import mean_of
from algorithms.variant import Variant


@dataclass(frozen=True)
class FedGKD(Algorithm):
    """Clients distil from the mean of the last M global models.

    Loss: CE + gamma/2 KL( p(wbar_t; x) || p(w; x) ), wbar_t = mean(w_t, ..., w_{t-M+1}),
    temperature 1 (Eq. 4). Server state: `fedgkd_history`, the last M global models, oldest first.

    Args:
        gamma: distillation weight, halved in the loss; 0 is FedAvg. The authors'
            `distillation_coefficient` is gamma / 2.
        buffer: M, global models in the teacher; 1 distils from the received model, which costs no
            traffic.
        buffer_start: contents of the buffer before round 1. `empty` (the authors' code): nothing,
            so round 1 has no distillation and w_0 is never a teacher. `w0` (Algorithm 1): w_0,
            which round 1 distils from; a second model then goes down from round 2 on.
        distance: `kl`, or `mse`: the squared difference of logits, its mean over batch and classes
            (Table 9).

    Differences from the paper:
        1. While fewer than M models exist, the mean of those available is the teacher.
        2. FedGKD-MSE's weight is not printed: gamma's is taken. Nor is it printed whether squares
           are summed or averaged over classes: they are averaged, and taken of logits, as the text
           says "over the logit".
        3. M of FedGKD+ is not printed: 5 is the default, and 1 on text, as section 3.2 advises for
           FedGKD.
        4. With M = 1 the authors' public code keeps its first teacher in all rounds; here it is the
           received model.
        5. The server averages by examples, as in Algorithm 1. The authors' code takes the plain
           mean, which is the same there, because its partition gives clients equally many samples.
    """

    about = About(
        paper="fedgkd",
        equations="Eq. 4",
        summary="distils from the mean of the last M global models",
        defaults_follow="the paper, but for `buffer_start`: the authors' public code",
        down="P; 2P from round 3 if M > 1",
    )

    terms = ("distillation",)

    gamma: float = hyper(0.2, 0)
    buffer: int = hyper(5, 1, packable=False)
    buffer_start: str = hyper("empty", choices=("empty", "w0"), packable=False)
    distance: str = hyper("kl", choices=("kl", "mse"), packable=False)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return the server's state with a buffer that is empty or holds w_0."""
        history = (params,) if self.buffer_start == "w0" else ()
        return Server(params, extra={"fedgkd_history": history})

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Return the model and its teacher.

        They are the same tensors until a second model is in the buffer.
        """
        history = server.extra["fedgkd_history"]
        return {"params": server.params, "teacher": mean_of(history or (server.params,))}

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Return FedAvg's mean, and append it to the buffer."""
        params = cohort.mean(uploads["params"])
        history = (*server.extra["fedgkd_history"], params)
        return server.next(params, fedgkd_history=history[-self.buffer :])

    def teachers(self, message: Message, memory: Memory) -> dict[str, Params]:
        """Return the buffer's mean."""
        return {"global": message["teacher"]}

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return Eq. 4; if the buffer starts empty, round 1 has the cross entropy alone."""
        student = net(local["params"], batch.x).logits
        teacher = batch.teacher["global"].logits
        if self.distance == "kl":
            term = kl(teacher, student)
        else:
            term = (student - teacher).square().mean(-1)
        batch.report(distillation=term)
        active = True if self.buffer_start == "w0" else plan.round > 1
        return cross_entropy(student, batch.y) + active * self.gamma / 2 * term


fedgkd = Variant(FedGKD, fixed={"distance": "kl"}, name="fedgkd")
fedgkd_plus = Variant(
    FedGKD,
    fixed={"distance": "kl"},
    name="fedgkd_plus",
    equations="Eq. 4, section 5.1",
    summary="FedGKD on MOON's model, with the projection head",
    needs=frozenset({"projection_head"}),
)
fedgkd_mse = Variant(
    FedGKD,
    fixed={"distance": "mse"},
    defaults={"buffer": 1},
    name="fedgkd_mse",
    equations="Table 9",
    summary="FedGKD with the mean squared difference of logits in place of KL",
)


@dataclass(frozen=True)
class FedGKDVote(Algorithm):
    """Clients distil from each of the last M global models, weighted by its validation loss.

    The loss is that on the server's validation samples.

    Loss: CE + sum_m gamma_m/2 KL( p(w_{t-m+1}; x) || p(w; x) ) with gamma_m/2 = lambda
    softmax_m(-L_m / beta), L_m the mean cross entropy of model m on the validation samples (Eq. 5,
    section 5.1). Server state: `fedgkd_voters`, the last M global models and their L_m, oldest
    first.

    Args:
        distillation_weight: lambda, the sum of all gamma_m / 2; 0 is FedAvg.
        buffer: M, global models that vote; 1 is FedGKD with gamma = 2 lambda and M = 1.
        beta: temperature of the vote; none takes 1/M, as printed.
        buffer_start: models that vote before round 1 has ended. `empty` (the authors' code): none,
            so round 1 has no distillation and w_0 never votes. `w0` (Algorithm 1): w_0.

    Differences from the paper:
        1. Before M models exist those available vote, with beta = 1/M all the same.
        2. The authors' code takes this term in a block without gradients, which would make it
           FedAvg; here they flow.
    """

    about = About(
        name="fedgkd_vote",
        paper="fedgkd",
        equations="Eq. 5",
        summary=(
            "distils from each of the last M global models, weighted by their validation losses"
        ),
        defaults_follow="the paper, but for `buffer_start`: the authors' public code",
        down="P in round 1, then min(t-1, M) (P + 1)",
    )
    needs = frozenset({"validation"})
    terms = ("distillation",)

    distillation_weight: float = hyper(0.1, 0)
    buffer: int = hyper(5, 1, packable=False)
    beta: float | None = hyper(None, 0, open_low=True, packable=False)
    buffer_start: str = hyper("empty", choices=("empty", "w0"), packable=False)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return the server's state with no voter, or with w_0."""
        voters = (_voter(fed, params),) if self.buffer_start == "w0" else ()
        return Server(params, extra={"fedgkd_voters": voters})

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Return the model, and the last M models with their validation losses.

        The model itself is among them.
        """
        return {"params": server.params, "voters": server.extra["fedgkd_voters"]}

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Return FedAvg's mean, evaluated once on the validation samples."""
        params = cohort.mean(uploads["params"])
        voters = (*server.extra["fedgkd_voters"], _voter(fed, params))
        return server.next(params, fedgkd_voters=voters[-self.buffer :])

    def teachers(self, message: Message, memory: Memory) -> dict[str, Params]:
        """Return each model that votes."""
        return {f"voter {m}": voter["params"] for m, voter in enumerate(message["voters"])}

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return Eq. 5; without voters, the cross entropy alone."""
        student = net(local["params"], batch.x).logits
        loss = cross_entropy(student, batch.y)
        if not message["voters"]:
            batch.report(distillation=torch.zeros_like(loss))
            return loss
        beta = 1 / self.buffer if self.beta is None else self.beta
        votes = (-torch.stack([voter["loss"] for voter in message["voters"]]) / beta).softmax(0)
        teachers = torch.stack([batch.teacher[f"voter {m}"].logits for m in range(len(votes))])
        term = votes @ kl(teachers, student)  # (M,) @ (M, B)
        batch.report(distillation=term)
        return loss + self.distillation_weight * term


def _voter(fed: Fed, params: Params) -> dict[str, Any]:
    """Return a voter: a model and its mean cross entropy on the validation samples."""
    logits = logits_of(fed.net, params, fed.validation.x)
    return {"params": params, "loss": cross_entropy(logits, fed.validation.y).mean()}
