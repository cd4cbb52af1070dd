"""MOON: Model-Contrastive Federated Learning.

Li, He, Song, CVPR 2021, Eqs. 3-4 and Algorithm 1. https://arxiv.org/abs/2103.16257
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from algorithms.base import (
    Algorithm,
    Batch,
    Data,
    Fed,
    Local,
    LocalPlan,
    Memory,
    Message,
    Net,
    Params,
    Upload,
    hyper,
)
from algorithms.entry import About
from algorithms.losses import contrastive, cross_entropy


@dataclass(frozen=True)
class MOON(Algorithm):
    """Local objective CE + mu l_con.

    It pulls features towards the global model's and away from those of the client's old one.
    l_con = -log( e^(s(z, z_g)/tau) / (e^(s(z, z_g)/tau) + e^(s(z, z_prev)/tau)) ), s the cosine
    similarity, z the projection head's output, z_g the received model's and z_prev that of the
    client's model at the end of the last round it took part in.

    Args:
        mu: weight of the contrastive term l_con; 0 is FedAvg.
        temperature: tau of the cosine similarities.
        first_previous: a client's first round: `none` leaves l_con out; `random` takes as its
            previous model a newly initialised network of its own, as the authors' code does.

    Differences from the paper:
        1. The text does not say what z_prev is before a client has trained. FedGKD's code, too,
           leaves the term out of round 1 and out of a client's first round. Taking w_0 would be the
           same in round 1, because z_g is w_0's there as well, so that the term's gradient is zero.
        2. On `lenet5_120` the dense layer of its head stands between projection and classifier.
    """

    about = About(
        name="moon",
        paper="Li et al. 2021",
        equations="Eqs. 3-4",
        summary=(
            "pulls features towards the global model's, away from the client's previous model's"
        ),
        keeps="its previous model",
    )
    needs = frozenset({"projection_head"})
    terms = ("contrastive",)

    mu: float = hyper(5.0, 0)
    temperature: float = hyper(0.5, 0, open_low=True)
    first_previous: str = hyper("none", choices=("none", "random"), packable=False)

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Return a previous model, and whether it counts as one."""
        if self.first_previous == "random":
            return {
                "previous": fed.initialised("moon_previous", fed.client.number),
                "has_previous": 1.0,
            }
        return {"previous": params, "has_previous": 0.0}

    def teachers(self, message: Message, memory: Memory) -> dict[str, Params]:
        """Return the received model and the client's own previous one."""
        return {"global": message["params"], "previous": memory["previous"]}

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return Eq. 4."""
        out = net(local["params"], batch.x)
        teacher = batch.teacher
        term = contrastive(
            out.features, teacher["global"].features, teacher["previous"].features, self.temperature
        )
        batch.report(contrastive=term)
        weight: Tensor = memory["has_previous"] * self.mu
        return cross_entropy(out.logits, batch.y) + weight * term

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return the model, which the client also keeps as its previous one."""
        return {"params": local["params"]}, {"previous": local["params"], "has_previous": 1.0}
