"""FedTGP: trainable global prototypes with adaptive-margin-enhanced contrastive learning.

Zhang, Liu, Hua, Cao, AAAI 2024. https://arxiv.org/abs/2401.03230
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from algorithms.base import (
    Algorithm,
    Batch,
    Cohort,
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
from algorithms.generators import DRAWN, linear_layer
from algorithms.losses import cross_entropy, masked_mean, one_hot
from algorithms.params import descended
from algorithms.prototypes import (
    as_samples,
    epochs_of,
    mean_over_clients,
    nearness,
    no_prototypes,
    squared_error,
    table_of_all,
    uploaded,
)


@dataclass(frozen=True)
class FedTGP(Algorithm):
    """FedProto's local objective with global prototypes P_c that the server trains.

    P_c is the output for class c of a network of the server's: an embedding (C, D), a hidden layer
    of D with ReLU, a linear layer to D. On the prototypes h of class y that the round's clients
    send it minimises -log( e^-(d_y + delta) / (e^-(d_y + delta) + sum_{c != y} e^-d_c) ), where d_c
    is ||h - P_c||. The margin delta is the largest over classes of the smallest distance between
    the clients' mean prototype of the class and another class's, at most a threshold. Each client
    has a model of its own. The row `fedtgp` predicts by its head, `fedtgp_proto` the class of the
    nearest P_c. Server state: the network (`tgp`), `prototypes` (C, D) and `known` (C,).

    Args:
        proto_weight: lambda, weight of the distance of features from their prototypes; 0 is
            training alone.
        server_epochs: passes of the server over the round's client prototypes.
        server_lr: learning rate of the server's SGD.
        server_batch_size: client prototypes in a server step.
        margin_threshold: tau, largest margin delta.

    Differences from the paper and its code:
        1. The authors' server takes the clients' learning rate and batch size. Their own code has
           1000 passes by default, their HtFLlib 100.
        2. All clients start from one w_0 of their model.
        3. The authors' code evaluates the nearest prototype alone.
        4. HtFLlib's clients send mean features of the model from before the round, because they
           save the trained one afterwards.
    """

    about = About(
        name="fedtgp",
        paper="Zhang et al. 2024",
        equations="adaptive-margin-enhanced contrastive loss",
        summary="FedProto with prototypes that the server trains to stay apart",
        defaults_follow="HtFLlib, whose server has the clients' rate and batch size",
        down="C D + C",
        up="C D + C",
        keeps="its model, P",
    )
    needs = frozenset({"common_features"})
    uploads_model = False
    keeps_model = True
    unlike_models = True
    personal = True
    rows = ("", "_proto")
    predicted = ("_proto",)
    terms = ("prototype",)

    proto_weight: float = hyper(1.0, 0)
    server_epochs: int = hyper(100, 1, packable=False)
    server_lr: float = hyper(0.01, 0, open_low=True)
    server_batch_size: int = hyper(10, 1, packable=False)
    margin_threshold: float = hyper(100.0, 0)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return a server without a model, with a new network for the prototypes."""
        empty = no_prototypes(fed, params)
        generator = fed.stream("fedtgp", "init")
        classes, width = empty["prototypes"].shape
        tgp = {
            "embedding": torch.randn(classes, width, generator=generator, dtype=DRAWN),
            **linear_layer(generator, "hidden", width, width),
            **linear_layer(generator, "out", width, width),
        }
        placed = {name: value.to(empty["known"]) for name, value in tgp.items()}
        return Server({}, extra={"tgp": placed, **empty})

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Return the prototypes, and which classes have one: none in round 1, then all."""
        return {name: server.extra[name] for name in ("prototypes", "known")}

    def evaluated(self, server: Server) -> dict[str, Params]:
        """Return no tensor: each client's model is evaluated, in both rows."""
        return {"": {}, "_proto": {}}

    def predict(self, net: Net, params: Params, x: Tensor, server: Server) -> Tensor:
        """Return minus the distances of a model's features to the prototypes."""
        return nearness(net.eval(params, x).features, server.extra)

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Return the initial model w_0."""
        return {"params": params}

    def start(
        self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator
    ) -> Local:
        """Return the client's model."""
        return {"params": memory["params"]}

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return the cross entropy plus the distance of the features from their prototypes."""
        outputs = net(local["params"], batch.x)
        term = squared_error(outputs.features, batch.y, message)
        batch.report(prototype=term)
        return cross_entropy(outputs.logits, batch.y) + self.proto_weight * term

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return the mean features of the trained model; the client keeps the model."""
        params = local["params"]
        return uploaded(table_of_all(net, params, data)), {"params": params}

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Train the prototypes' network on the round's client prototypes."""
        samples, places = as_samples(uploads)
        given = {**samples, "margin": self._margin(uploads), "lr": self.server_lr}
        generator = fed.stream("fedtgp", server.round)
        inputs = epochs_of(places, generator, self.server_batch_size, self.server_epochs)
        tgp = fed.repeat(self._train, server.extra["tgp"], inputs, given)
        known = torch.ones_like(server.extra["known"])
        return server.next({}, tgp=tgp, prototypes=prototypes_of(tgp), known=known)

    def _margin(self, uploads: Upload) -> Tensor:
        """Return delta, a scalar."""
        mean, present = mean_over_clients(uploads)
        distances = torch.cdist(mean, mean)
        itself = torch.eye(len(mean), dtype=torch.bool, device=mean.device)
        counted = present[:, None] & present & ~itself
        smallest = distances.masked_fill(~counted, torch.inf).amin(1)
        smallest = smallest.masked_fill(~present, -torch.inf)
        # A class alone is infinitely far from others, which leaves the threshold.
        return smallest.amax().clamp(max=self.margin_threshold)

    def _train(self, net: Net, tgp: Params, batch: Any, given: Any) -> Params:
        """Take one step of SGD of the prototypes' network."""
        leaves = {name: value.detach().requires_grad_() for name, value in tgp.items()}
        labels = given["labels"][batch["places"]]
        apart = given["prototypes"][batch["places"]][:, None] - prototypes_of(leaves)
        margins = given["margin"] * one_hot(labels, len(tgp["embedding"]))
        losses = cross_entropy(-(torch.linalg.vector_norm(apart, dim=-1) + margins), labels)
        loss = masked_mean(losses, batch["weight"])
        return descended(leaves, loss, given["lr"])


def prototypes_of(tgp: Params) -> Tensor:
    """Return the prototypes (C, D) that the network makes of its embedding."""
    hidden = F.relu(F.linear(tgp["embedding"], tgp["hidden.weight"], tgp["hidden.bias"]))
    return F.linear(hidden, tgp["out.weight"], tgp["out.bias"])
