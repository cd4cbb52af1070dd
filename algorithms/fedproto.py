"""FedProto: Federated Prototype Learning across Heterogeneous Clients.

Tan, Long, Liu, Zhou, Lu, Jiang, Zhang, AAAI 2022, Algorithm 1 and Eqs. 3, 6, 7.
https://arxiv.org/abs/2105.00243
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
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
from algorithms.label_tables import means_of, no_table, with_batch
from algorithms.losses import cross_entropy
from algorithms.params import first_weights
from algorithms.prototypes import (
    mean_over_clients,
    nearness,
    no_prototypes,
    squared_error,
    table_of_all,
    uploaded,
    with_new,
)

TABLE = ("sums", "counts")


@dataclass(frozen=True)
class FedProto(Algorithm):
    """Local objective CE + lambda R, R the distance of features from the global prototypes P_c.

    A client's prototype of a class is its samples' mean feature, and P_c the mean of the round's
    clients that have the class. No weights travel. Each client has a model of its own. The row
    `fedproto` predicts by its head, `fedproto_proto` the class of the nearest P_c. Server state:
    `prototypes` (C, D), and `known` (C,), 1 for a class that has one; a class that no client of the
    round has keeps its P_c.

    Args:
        proto_weight: lambda, weight of R; 0 is training alone.
        proto_distance: `squared_error` is the authors' code: R is the mean over a sample's features
            h of (h - P_y)^2; `class_means` is printed: R = sum_c || mean h of the batch's samples
            of class c - P_c ||, over the classes in the batch.
        proto_mean: `plain` is the authors' code: P_c is the mean of the clients' prototypes;
            `printed` is Eq. 6: (1 / |N_c|) sum_k (n_kc / N_c) C_kc, which is the mean weighted by
            samples, divided by the number |N_c| of the clients.
        proto_from: features of which a client's prototype is the mean: `last_epoch` of training, in
            the authors' code; `all_epochs`, in HtFLlib and fluke; all samples `after` training.
        own_weights: each client starts from weights of its own, as in the authors' code.

    Differences from the paper and its code:
        1. Features in training are taken in evaluation mode, on the model before each step. The
           authors' code has them of the training pass, with dropout.
        2. The last epoch is a client's last ceil(n_k / B) steps.
        3. By default all clients start from one w_0. In the authors' code each has weights of its
           own (`own_weights`).
        4. The paper predicts the class of the nearest P_c. The authors' code does so among the
           classes that the client holds, and also predicts by the head; its counts of right answers
           are reset between neither clients nor the two predictions. Here the nearest is of all
           classes that have a P_c, and each prediction is a row.
        5. fluke pulls samples of a class without a P_c to 0. Here they have no such term, as in the
           authors' code.
    """

    about = About(
        name="fedproto",
        paper="Tan et al. 2022",
        equations="Eqs. 3, 6, 7",
        summary="pulls features to the clients' mean feature of each class; no weights travel",
        defaults_follow="the authors' code for the forms of distance, mean and features",
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
    proto_distance: str = hyper(
        "squared_error", choices=("squared_error", "class_means"), packable=False
    )
    proto_mean: str = hyper("plain", choices=("plain", "printed"), packable=False)
    proto_from: str = hyper(
        "last_epoch", choices=("last_epoch", "all_epochs", "after"), packable=False
    )
    own_weights: bool = hyper(False, packable=False, optional=True)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return a server without a model, and without prototypes."""
        return Server({}, extra=no_prototypes(fed, params))

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Return the prototypes, and which classes have one."""
        return dict(server.extra)

    def evaluated(self, server: Server) -> dict[str, Params]:
        """Return no tensor: each client's model is evaluated, in both rows."""
        return {"": {}, "_proto": {}}

    def predict(self, net: Net, params: Params, x: Tensor, server: Server) -> Tensor:
        """Return minus the distances of a model's features to the prototypes."""
        return nearness(net.eval(params, x).features, server.extra)

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Return the initial model."""
        return {"params": first_weights(fed, params, self.own_weights)}

    def start(
        self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator
    ) -> Local:
        """Return the client's model, empty sums of features, and the round's progress."""
        params = memory["params"]
        return {
            "params": params,
            **no_table(fed, params, fed.net.feature_dim),
            "steps": 0.0,
            "epoch_steps": torch.ceil(fed.client.num_examples / fed.batch_size),
        }

    def before_step(
        self, net: Net, local: Local, batch: Batch, message: Message, plan: LocalPlan
    ) -> Local:
        """Add the batch's features to the sums of their classes."""
        if self.proto_from == "after":
            return local
        with torch.no_grad():
            features = net.eval(local["params"], batch.x).features
        if self.proto_from == "last_epoch":
            counted = local["steps"] >= plan.num_steps - local["epoch_steps"]
            batch = replace(batch, weight=batch.weight * counted)
        return {
            **local,
            **with_batch(local, features, batch),
            "steps": local["steps"] + 1,
        }

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
        if self.proto_distance == "class_means":
            term = _distance_of_means(outputs.features, batch, message)
        batch.report(prototype=term)
        return cross_entropy(outputs.logits, batch.y) + self.proto_weight * term

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return the client's prototypes; it keeps its model."""
        params = local["params"]
        table = {name: local[name] for name in TABLE}
        if self.proto_from == "after":
            table = table_of_all(net, params, data)
        return uploaded(table), {"params": params}

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Return the mean prototype of each class over the clients that have it."""
        mean, present = mean_over_clients(uploads)
        if self.proto_mean == "printed":
            counts = uploads["counts"]
            clients = (counts > 0).sum(0).clamp(min=1)
            shares = counts / counts.sum(0).clamp(min=1) / clients
            mean = (shares[..., None] * uploads["prototypes"]).sum(0)
        return server.next({}, **with_new(dict(server.extra), mean, present))


def _distance_of_means(features: Tensor, batch: Batch, message: Message) -> Tensor:
    """Return sum_c || mean feature of the batch's class c - P_c ||, of classes in it: a scalar."""
    classes = len(message["known"])
    empty = {
        "sums": features.new_zeros(classes, features.shape[-1]),
        "counts": features.new_zeros(classes),
    }
    table = with_batch(empty, features, batch)
    squares = (means_of(table) - message["prototypes"]).square().sum(-1)
    # The root's derivative at 0 is infinite.
    counted = (table["counts"] > 0) & (message["known"] > 0) & (squares > 0)
    distances = torch.where(counted, squares, torch.ones_like(squares)).sqrt()
    return torch.where(counted, distances, torch.zeros_like(squares)).sum()
