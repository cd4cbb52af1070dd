"""FedGH: Heterogeneous Federated Learning with Generalized Global Header.

Yi, Wang, Liu, Shi, Yu, ACM MM 2023. https://arxiv.org/abs/2303.13137
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from algorithms.base import (
    Algorithm,
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
from algorithms.losses import cross_entropy, masked_mean
from algorithms.params import descended, head_names
from algorithms.prototypes import as_samples, epochs_of, table_of_all, uploaded


@dataclass(frozen=True)
class FedGH(Algorithm):
    """A head that the server trains on the clients' prototypes, and all clients start from.

    A client puts the received head on its own body, trains both, and uploads the mean feature of
    each of its classes. The server minimises the cross entropy of its head on these prototypes and
    their classes, by SGD. Each client has a model of its own. The row `fedgh` evaluates it as
    trained, `fedgh_head` its body under the server's head.

    Args:
        server_epochs: passes of the server over the round's prototypes.
        server_lr: learning rate of the server's SGD.
        server_batch_size: prototypes in a server step.

    Differences from the paper and from HtFLlib:
        1. The paper's server takes one step on each prototype, client by client. HtFLlib takes 100
           passes over shuffled batches of the clients' size, at a rate of its own, 0.01; so are the
           defaults here. One pass with a batch size of 1 is the paper's, in a random order.
        2. The authors' code for unlike models steps the optimiser of the last client's model in
           place of the head's, so that its head stays as it was drawn.
        3. The server's head begins as that of w_0. In the authors' code it is drawn anew, and
           clients first receive it after round 1.
        4. The authors evaluate the trained models, HtFLlib the bodies under the server's head.
        5. The authors' prototypes are means of the batches' means.
    """

    about = About(
        name="fedgh",
        paper="Yi et al. 2023",
        equations="Algorithm 1",
        summary="the server trains the head of all clients on their mean features of each class",
        defaults_follow="HtFLlib",
        down="C D + C",
        up="C D + C",
        keeps="its model, P",
    )
    needs = frozenset({"common_features", "common_head"})
    rows = ("", "_head")
    uploads_model = False
    keeps_model = True
    unlike_models = True
    personal = True

    server_epochs: int = hyper(100, 1, packable=False)
    server_lr: float = hyper(0.01, 0, open_low=True, search=[0.001, 0.01, 0.1])
    server_batch_size: int = hyper(10, 1, packable=False)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return the server's state with the head of w_0."""
        return Server({name: params[name] for name in head_names(fed.net)})

    def evaluated(self, server: Server) -> dict[str, Params]:
        """Return no tensor for the trained models, and the server's head for their bodies."""
        return {"": {}, "_head": server.params}

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Return the initial model w_0."""
        return {"params": params}

    def start(
        self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator
    ) -> Local:
        """Return the client's body under the received head."""
        return {"params": {**memory["params"], **message["params"]}}

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return the mean features of the trained model; the client keeps the model."""
        params = local["params"]
        return uploaded(table_of_all(net, params, data)), {"params": params}

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Train the head on the round's prototypes."""
        samples, places = as_samples(uploads)
        generator = fed.stream("fedgh", server.round)
        inputs = epochs_of(places, generator, self.server_batch_size, self.server_epochs)
        given = {**samples, "lr": self.server_lr}
        return server.next(fed.repeat(self._train, server.params, inputs, given))

    def _train(self, net: Net, head: Params, batch: Any, given: Any) -> Params:
        """Take one step of SGD of the head."""
        leaves = {name: value.detach().requires_grad_() for name, value in head.items()}
        logits = net.head(leaves, given["prototypes"][batch["places"]])
        losses = cross_entropy(logits, given["labels"][batch["places"]])
        loss = masked_mean(losses, batch["weight"])
        return descended(leaves, loss, given["lr"])
