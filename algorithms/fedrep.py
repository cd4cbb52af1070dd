"""FedRep: Exploiting Shared Representations for Personalized Federated Learning.

Collins, Hassani, Mokhtari, Shakkottai, ICML 2021, Algorithm 1. https://arxiv.org/abs/2102.07078
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
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
    Server,
    Upload,
    hyper,
)
from algorithms.entry import About
from algorithms.losses import cross_entropy
from algorithms.params import body_names, head_names


@dataclass(frozen=True)
class FedRep(Algorithm):
    """FedAvg on the body alone: each client keeps a head of its own, and trains it first.

    In the first steps of a round a client trains its head on the received body, and in the others
    the body under the new head. There is one model per client, the averaged body with its head.

    Args:
        head_share: share of a client's steps that train the head, rounded to whole steps; ten
            epochs of the head and one of the body are 10/11 of 11 local epochs.

    Differences from the paper:
        1. The paper trains ten epochs of the head, then one or five of the body. Here both share
           the setting's local epochs, so that a round costs what it does in other algorithms.
        2. Clients are averaged by examples. Algorithm 1 takes the plain mean.
        3. The head is the last layer, in `lenet5_120` the last two. BatchNorm's statistics belong
           to the body, and move in all steps.
        4. A client that trains with weight decay also decays the body while it trains its head.
           With weight decay or momentum, what is measured of a client's model right after its
           training (`--track local`, `drift`) is under a head that moved on with the body.
    """

    about = About(
        name="fedrep",
        paper="Collins et al. 2021",
        equations="Algorithm 1",
        defaults_follow="the paper: ten epochs of the head, one of the body",
        summary="averages bodies only; clients train a head of their own first, one personal model "
        "a client",
        down="P - C D - C",
        up="P - C D - C",
        keeps="its head, C D + C",
    )
    needs = frozenset({"sgd"})
    uploads_model = False
    personal = True

    head_share: float = hyper(10 / 11, 0, 1, search=[0.5, 2 / 3, 10 / 11])

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return the server's state with the body of w_0."""
        return Server({name: params[name] for name in body_names(fed.net)})

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Return the head of w_0."""
        return {name: params[name] for name in head_names(fed.net)}

    def start(
        self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator
    ) -> Local:
        """Return the received body under the client's own head, which is also kept apart."""
        return {"params": {**message["params"], **memory}, "head": dict(memory), "steps": 0.0}

    def before_step(
        self, net: Net, local: Local, batch: Batch, message: Message, plan: LocalPlan
    ) -> Local:
        """Keep the head as long as it is trained; count the step."""
        return {**local, "head": self._head(local, plan), "steps": local["steps"] + 1}

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return the cross entropy, of which only the trained part has a gradient."""
        trains_head = self._trains_head(local, plan)
        model = {**local["params"], **self._head(local, plan)}
        for name in body_names(net):
            if name in net.trainable:
                model[name] = torch.where(trains_head, model[name].detach(), model[name])
        return cross_entropy(net(model, batch.x).logits, batch.y)

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return the body, and the head for the client to keep."""
        body = {name: local["params"][name] for name in body_names(net)}
        return {"params": body}, self._head(local, plan)

    def _trains_head(self, local: Local, plan: LocalPlan) -> Tensor:
        """Return whether step number `steps`, from 1, is the head's."""
        head_steps = torch.round(self.head_share * plan.num_steps)
        trains_head: Tensor = local["steps"] <= head_steps
        return trains_head

    def _head(self, local: Local, plan: LocalPlan) -> Params:
        """Return the head: as trained, or as it was kept after its last step.

        Momentum goes on to move the trained one while the body is trained.
        """
        trains_head = self._trains_head(local, plan)
        head = {}
        for name, kept in local["head"].items():
            head[name] = torch.where(trains_head, local["params"][name], kept)
        return head
