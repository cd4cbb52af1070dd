"""FedBN: Federated Learning on Non-IID Features via Local Batch Normalization.

Li, Jiang, Zhang, Kamp, Dou, ICLR 2021, Algorithm 1. https://arxiv.org/abs/2102.07623
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from algorithms.base import (
    Algorithm,
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
)
from algorithms.entry import About


def shared_names(net: Net) -> list[str]:
    """Return the names that belong to no BatchNorm layer."""
    return [name for name in net.names if name not in net.batchnorm]


@dataclass(frozen=True)
class FedBN(Algorithm):
    """FedAvg on everything but BatchNorm layers.

    Each client keeps their weights, biases and running statistics. There is one model per client,
    the shared part with its own layers; accuracy is the unweighted mean over clients. Without
    BatchNorm layers it is FedAvg.

    Differences from the paper:
        1. Clients are averaged by examples; the authors' code weighs its five sources alike.
        2. Layers are recognised by their type, not by their name.
        3. A client that has not been drawn yet is evaluated with the BatchNorm layers of w_0.
    """

    about = About(
        name="fedbn",
        paper="Li et al. 2021, FedBN",
        equations="Algorithm 1",
        summary="clients keep their BatchNorm layers; one personal model a client",
        down="P without BatchNorm",
        up="P without BatchNorm",
        keeps="its BatchNorm layers",
    )
    needs = frozenset({"batchnorm"})
    personal = True

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return the server's state with the shared part of w_0."""
        return Server({name: params[name] for name in shared_names(fed.net)})

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Return the BatchNorm layers of w_0."""
        return {name: params[name] for name in fed.net.names if name in fed.net.batchnorm}

    def start(
        self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator
    ) -> Local:
        """Return the received part with the client's own BatchNorm layers."""
        return {"params": {**message["params"], **memory}}

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return the shared part, and the BatchNorm layers for the client to keep."""
        w = local["params"]
        shared = {name: w[name] for name in shared_names(net)}
        return {"params": shared}, {name: w[name] for name in memory}
