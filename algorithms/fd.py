"""FD: federated distillation, the exchange of mean outputs by label instead of weights.

Jeong, Oh, Kim, Park, Bennis, Kim 2018, Algorithm 1, without its augmentation FAug.
https://arxiv.org/abs/1811.11479
"""

from __future__ import annotations

from dataclasses import dataclass

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
from algorithms.label_tables import (
    Table,
    mean_over_clients,
    no_table,
    no_tables,
    report,
    sums_over_clients,
    with_batch,
    with_reports,
)
from algorithms.losses import cross_entropy, cross_entropy_to

TABLE = ("sums", "counts")


@dataclass(frozen=True)
class FD(Algorithm):
    """Local objective CE(y, p) + gamma CE(t_y, p), t_y the other clients' mean output for label y.

    Outputs p are softmax functions of logits. A client's table F_k (C, C) holds, for each label,
    the mean output of its training passes; t_c is the mean of F_j[c] over the other clients that
    have reported label c. No weights travel. Each client has a model of its own, which is
    evaluated. Server state: every client's latest table (`tables`, (K, C, C)) and which labels it
    holds (`reported`, (K, C)).

    Args:
        distillation_weight: gamma, weight of the distillation term; 0 is training alone.
        fd_exclude_self: leave the client's own table out of t, as printed.

    Differences from the paper:
        1. The text divides the sum over the other clients by their number M - 1, as all take part
           and hold all labels there. Here a label's mean is over the clients that have reported it,
           in this round or in an earlier one. A sample whose label no other client has reported has
           no distillation term, so round 1 has none.
        2. One message goes to all: the sum of all tables, from which a client subtracts its own.
        3. Outputs are taken in evaluation mode, on the model before each step.
        4. HtFLlib's form takes the mean over all clients of the round, the client itself among them
           (`fd_exclude_self=false`), of raw logits, which it gives to the cross entropy as a target
           without a softmax. A sample of a label without a mean has its own logits as target there.
    """

    about = About(
        name="fd",
        paper="Jeong et al. 2018",
        equations="Algorithm 1",
        summary="distils from the other clients' mean outputs of each label; no weights travel",
        defaults_follow="HtFLlib for the weight, 1",
        down="C^2 + C",
        up="C^2 + C",
        keeps="its model and its table, P + C^2 + C",
    )
    uploads_model = False
    keeps_model = True
    unlike_models = True
    personal = True
    terms = ("distillation",)

    distillation_weight: float = hyper(1.0, 0)
    fd_exclude_self: bool = hyper(True, packable=False)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return a server without a model, with empty tables."""
        return Server({}, extra=no_tables(fed, params, fed.net.num_classes))

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Return the sum of all tables and the holders of each label."""
        return dict(sums_over_clients(dict(server.extra)))

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Return w_0 and an empty table."""
        return {"params": params, **no_table(fed, params, fed.net.num_classes)}

    def start(
        self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator
    ) -> Local:
        """Return the client's model, and an empty table for the round."""
        table = {name: torch.zeros_like(memory[name]) for name in TABLE}
        return {"params": memory["params"], **table}

    def before_step(
        self, net: Net, local: Local, batch: Batch, message: Message, plan: LocalPlan
    ) -> Local:
        """Add the batch's outputs to the rows of their labels."""
        with torch.no_grad():
            outputs = net.eval(local["params"], batch.x).logits.softmax(-1)
        return {**local, **with_batch(local, outputs, batch)}

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return the cross entropy with the label plus that with the label's mean output."""
        means, holders = mean_over_clients(message, memory, self.fd_exclude_self)
        logits = net(local["params"], batch.x).logits
        has_mean: Tensor = (holders > 0).to(logits.dtype)[batch.y]
        term = has_mean * cross_entropy_to(means[batch.y], logits)
        batch.report(distillation=term)
        return cross_entropy(logits, batch.y) + self.distillation_weight * term

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return the table and the labels it holds; the client keeps its model and the table."""
        table: Table = {name: local[name] for name in TABLE}
        return report(table), {"params": local["params"], **table}

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Return the latest tables."""
        return server.next({}, **with_reports(dict(server.extra), uploads, cohort))
