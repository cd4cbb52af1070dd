"""Ditto: Fair and Robust Federated Learning Through Personalization.

Li, Hu, Beirami, Smith, ICML 2021, Algorithm 1. https://arxiv.org/abs/2012.04221
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    Outputs,
    Params,
    Server,
    Upload,
    hyper,
)
from algorithms.entry import About
from algorithms.losses import cross_entropy
from algorithms.params import squared_distance
from algorithms.second_model import second_model, second_step


@dataclass(frozen=True)
class Ditto(Algorithm):
    """A personal model v_k beside FedAvg's w, of objective F_k(v_k) + lambda/2 ||v_k - w_t||^2.

    A client trains both on the same batches: v_k from where its last round ended, first from w_0,
    and w from the received w_t. It uploads w. v_k is evaluated.

    Args:
        mu: lambda, weight of the proximal term; 0 is training without communication. The paper
            tries 0.05 to 2.

    Differences from the paper:
        1. Clients are averaged by examples and drawn uniformly. The authors' code draws them by
           examples and takes the plain mean.
        2. A client takes as many steps on v_k as on w, on the same batches, as the authors' code
           does; the text has a number s of its own.
        3. lambda is one for all clients. The paper also chooses it on each client's validation
           samples.
        4. w is trained by SGD with the setting's momentum, without its weight decay and clipping,
           and without dropout. These act on v_k.
    """

    about = About(
        name="ditto",
        paper="Li et al. 2021, Ditto",
        equations="Algorithm 1",
        summary="each client trains a personal model towards FedAvg's; one personal model a client",
        defaults_follow="the authors' commands, which have lambda=1",
        keeps="its personal model, P",
    )
    needs = frozenset({"sgd"})
    uploads_model = False
    keeps_model = True
    personal = True

    mu: float = hyper(1.0, 0)

    def evaluated(self, server: Server) -> dict[str, Params]:
        """Return no tensor: each client's v_k is evaluated."""
        return {"": {}}

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Return w_0 as the first v_k."""
        return {"params": params}

    def start(
        self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator
    ) -> Local:
        """Return the client's v_k, and the received model to train beside it."""
        return {
            "params": memory["params"],
            "global": second_model(fed.net, message["params"]),
        }

    def before_step(
        self, net: Net, local: Local, batch: Batch, message: Message, plan: LocalPlan
    ) -> Local:
        """Take FedAvg's step of w."""

        def losses(outputs: Outputs, weights: Params) -> Tensor:
            return cross_entropy(outputs.logits, batch.y)

        after, _ = second_step(net, local["global"], batch, plan, losses)
        return {**local, "global": after}

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return the objective of v_k."""
        v = local["params"]
        term = squared_distance(v, message["params"], net.trainable)
        return cross_entropy(net(v, batch.x).logits, batch.y) + self.mu / 2 * term

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return w; the client keeps v_k."""
        upload: dict[str, Any] = {"params": local["global"]["params"]}
        return upload, {"params": local["params"]}
