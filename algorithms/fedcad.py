"""FedCAD: Class-Wise Adaptive Self Distillation for Heterogeneous Federated Learning.

He, Chen, Yang, Zhang, Zeng 2022, Eqs. 3-6 and Algorithm 1.
https://www.aminer.org/pub/627e24075aee126c0f749e28 FedLSD: Lee, Shin, Jeong, Yun, "Preservation of
the Global Knowledge by Not-True Self Knowledge Distillation in Federated Learning", first version.
https://arxiv.org/abs/2106.03097
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from algorithms.base import (
    Algorithm,
    Batch,
    Fed,
    Local,
    LocalPlan,
    Memory,
    Message,
    Net,
    Params,
    Server,
    hyper,
)
from algorithms.entry import About
from algorithms.forward import logits_of
from algorithms.losses import cross_entropy, kl, one_hot


def self_distillation(
    student: Tensor, batch: Batch, weight: Tensor | float, temperature: float, t_squared: bool
) -> Tensor:
    """Compute (1 - a) CE + a KL( p^g || p ), and report KL.

    FedLSD and FedCAD share this objective. `student` are the local model's (B, C) logits, and
    `weight`, a, a number or (B,). The cross entropy has temperature 1; `t_squared` multiplies KL by
    T^2. Returns (B,), nats.
    """
    scale = temperature**2 if t_squared else 1.0
    distillation = kl(batch.teacher["global"].logits, student, temperature)
    batch.report(distillation=distillation)
    return (1 - weight) * cross_entropy(student, batch.y) + weight * (scale * distillation)


@dataclass(frozen=True)
class FedLSD(Algorithm):
    """Local self-distillation: (1 - a) CE + a KL( p^g(x; T) || p(x; T) ).

    p^g is the received global model.

    Args:
        distillation_weight: a in (1 - a) CE + a KL; 0 is FedAvg, 1 never sees a label.
        temperature: T of both softmax functions in the distillation term.
        kd_t_squared: multiply that term by T^2, which the printed formula does not.

    Differences from the paper:
        1. T^2: FedCAD prints the term without it, the default here; the one public implementation
           found has it.
    """

    about = About(
        name="fedlsd",
        paper="Lee et al. 2021, version 1",
        equations="FedCAD, Experiments",
        summary="distils from the received global model with a constant weight",
    )

    terms = ("distillation",)

    distillation_weight: float = hyper(0.3, 0, 1)
    temperature: float = hyper(2.0, 0, open_low=True)
    kd_t_squared: bool = hyper(False, packable=False)

    def teachers(self, message: Message, memory: Memory) -> dict[str, Params]:
        """Return the received model, which costs no further traffic."""
        return {"global": message["params"]}

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return the objective in the docstring of the class."""
        student = net(local["params"], batch.x).logits
        return self_distillation(
            student, batch, self.distillation_weight, self.temperature, self.kd_t_squared
        )


@dataclass(frozen=True)
class FedCAD(Algorithm):
    """Self-distillation whose weight a_y grows with the global model's skill on class y.

    Loss: (1 - a_y) CE + a_y KL( p^g || p ) (Eqs. 3-5). Weights, from the server's auxiliary samples
    (Eq. 6): a_y = (gamma - beta)/2 E[phi] + (gamma + beta)/2 with phi = p^g_y - sum_{k != y} p^g_k.
    As p^g sums to 1, phi = 2 p^g_y - 1, so a_y = beta + (gamma - beta) E[p^g_y], which is computed
    here.

    Args:
        beta: weight of a class the global model never gets right, in [0, gamma].
        gamma: weight of a class it is certain of, in [beta, 1). beta = gamma is FedLSD, beta =
            gamma = 0 FedAvg.
        temperature: T of both softmax functions in the distillation term.
        phi_temperature: T of p^g in phi (Eq. 6); none takes `temperature`, as Eq. 2 literally does.
        kd_t_squared: multiply the distillation term by T^2, which the printed formula does not.

    Differences from the paper:
        1. T is not stated; FedLSD's T = 2 is the default.
        2. Eq. 3 writes the cross entropy with the T-scaled p, Algorithm 1 calls the ordinary one: T
           = 1 is used.
        3. Algorithm 1 writes the distillation term as a soft cross entropy summed over the data,
           the text as KL: the gradient is the same; the mean over the batch is used.
        4. The text asks for 0 < beta < gamma < 1, while its grid holds 0 and equal pairs: both are
           allowed.
        5. The auxiliary samples, 32 of each class, can be "acquired from the public data"; here
           they are taken out of the training data before clients get theirs, for every algorithm of
           a comparison.
    """

    about = About(
        name="fedcad",
        paper="fedcad",
        equations="Eqs. 3-6",
        summary="distils from the received global model, more on the classes it knows well",
        down="P + C",
        where=("beta <= gamma",),
    )
    needs = frozenset({"auxiliary"})
    tracked = ("class_weights",)
    terms = ("distillation",)

    beta: float = hyper(0.3, 0, 1, open_high=True)
    gamma: float = hyper(0.7, 0, 1, open_high=True)
    temperature: float = hyper(2.0, 0, open_low=True)
    phi_temperature: float | None = hyper(None, 0, open_low=True, packable=False)
    kd_t_squared: bool = hyper(False, packable=False)

    def class_weights(self, fed: Fed, params: Params) -> Tensor:
        """Return a_y of every class, (C,), in [beta, gamma]: Eq. 6 in closed form."""
        y = fed.auxiliary.y
        temperature = self.temperature if self.phi_temperature is None else self.phi_temperature
        p = (logits_of(fed.net, params, fed.auxiliary.x) / temperature).softmax(-1)
        p_y = p.gather(1, y[:, None]).squeeze(1)
        members = one_hot(y, fed.net.num_classes).to(p_y.dtype)
        return self.beta + (self.gamma - self.beta) * (members.T @ p_y) / members.sum(0)

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Return the model and its class weights."""
        return {"params": server.params, "class_weights": self.class_weights(fed, server.params)}

    def teachers(self, message: Message, memory: Memory) -> dict[str, Params]:
        """Return the received model, which costs no further traffic."""
        return {"global": message["params"]}

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return Eq. 5, each sample with its class's weight."""
        student = net(local["params"], batch.x).logits
        weight = message["class_weights"][batch.y]
        return self_distillation(student, batch, weight, self.temperature, self.kd_t_squared)
