"""LG-FedAvg: Think Locally, Act Globally, federated learning with local and global representations.

Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov, Morency 2020, Algorithm 1.
https://arxiv.org/abs/2001.01523
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
from algorithms.params import head_names


@dataclass(frozen=True)
class LGFedAvg(Algorithm):
    """FedAvg on the head alone: each client keeps a body of its own, which makes the features.

    A client trains both together. There is one model per client, its body with the averaged head.

    Differences from the paper:
        1. The authors' code begins with a model that FedAvg has trained, and takes the last layers
           as global, a number of them per data set. Here all begin with w_0 (`--start-from` begins
           with a trained model), and the head alone is global: the last layer, in `lenet5_120` the
           last two.
        2. Clients are averaged by examples, as in the text and in HtFLlib. The authors' code takes
           the plain mean, and so does fluke by default.
        3. Clients are evaluated with their latest bodies. The authors' code keeps each client's
           best model by its own test set, and averages the heads of these.
        4. The unsupervised and the adversarial losses of the text's later sections are left out.
    """

    about = About(
        name="lg_fedavg",
        paper="Liang et al. 2020",
        equations="Algorithm 1",
        summary="averages heads only; clients keep their bodies, one personal model a client",
        down="C D + C",
        up="C D + C",
        keeps="its body",
    )
    needs = frozenset({"common_features", "common_head"})
    uploads_model = False
    unlike_models = True
    personal = True

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return the server's state with the head of w_0."""
        return Server({name: params[name] for name in head_names(fed.net)})

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Return the body of w_0."""
        shared = head_names(fed.net)
        return {name: params[name] for name in fed.net.names if name not in shared}

    def start(
        self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator
    ) -> Local:
        """Return the received head on the client's own body."""
        return {"params": {**memory, **message["params"]}}

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return the head, and the body for the client to keep."""
        w = local["params"]
        head = {name: w[name] for name in head_names(net)}
        return {"params": head}, {name: w[name] for name in memory}
