"""FedDistill+: federated distillation of per-label logits, with parameters averaged too.

Distillation: Jeong, Oh, Kim, Park, Bennis, Kim 2018, Algorithm 1. https://arxiv.org/abs/1811.11479.
With parameter sharing: the baseline of Zhu, Hong, Zhou (FedGen), ICML 2021, and of FedGKD (Yao et
al. 2021, section 5.1).
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
from algorithms.losses import cross_entropy, kl


@dataclass(frozen=True)
class FedDistill(Algorithm):
    """Local objective CE + lambda T^2 KL( softmax(zbar_y / T) || softmax(z / T) ).

    zbar_y are the others' mean logits. A client's table A_k (C, C) holds, for each label, the mean
    logits of its training passes; zbar_c is the mean of A_j[c] over the other clients that have
    reported label c. A sample whose label no other client has reported has no distillation term, so
    round 1 has none. Server state: every client's latest table (`feddistill_tables`, (K, C, C)) and
    which labels it holds (`feddistill_reported`, (K, C)).

    Args:
        distillation_weight: lambda, weight of the distillation term; 0 is FedAvg. FedGKD prints
            0.1, FedGen's code has 1.
        temperature: T of both softmax functions; the term carries T^2.
        fd_exclude_self: leave the client's own table out of zbar, as federated distillation defines
            it.
        fd_cumulative: sum logits over all rounds of a client instead of the round's alone.

    Differences from the papers:
        1. FedGKD's text has the plain mean of all clients' tables (`fd_exclude_self=false`), and so
           has FedGen's code, over the previous round's clients. FedGKD's code leaves the client's
           own out, but divides by K - 1 whether or not a client has reported, and drops what it
           receives, so that its target is uniform. Both codes start counts at 1 and never reset
           them. Here a label's mean is over the clients that have reported it, and tables are made
           anew each round.
        2. Logits are taken in evaluation mode, on the model before each step.
    """

    about = About(
        name="feddistill",
        paper="Zhu et al. 2021, baseline FedDistill+",
        equations="FedGKD, section 5.1",
        summary="distils from the other clients' mean logits of each label, models averaged too",
        defaults_follow=(
            "FedGKD's text for the weight and its code for `temperature` and `fd_exclude_self`"
        ),
        down="P + C^2 + C",
        up="P + C^2 + C",
        keeps="its table, C^2 + C",
    )

    distillation_weight: float = hyper(0.1, 0)
    temperature: float = hyper(1.0, 0, open_low=True)
    fd_exclude_self: bool = hyper(True, packable=False)
    fd_cumulative: bool = hyper(False, packable=False)

    def init_server(self, fed: Fed, params: Params) -> Server:
        """Return the server's state with empty tables."""
        return Server(params, extra=_named(no_tables(fed, params, fed.net.num_classes)))

    def broadcast(self, fed: Fed, server: Server) -> Message:
        """Return the model, the sum of all tables and the holders of each label.

        A client subtracts its own part.
        """
        return {"params": server.params, **sums_over_clients(_tables(server))}

    def init_client(self, fed: Fed, params: Params) -> Memory:
        """Return empty sums and counts of logits."""
        return no_table(fed, params, fed.net.num_classes)

    def start(
        self, fed: Fed, message: Message, memory: Memory, generator: torch.Generator
    ) -> Local:
        """Return the received model, and the sums and counts to continue from."""
        table = memory
        if not self.fd_cumulative:
            table = {name: torch.zeros_like(value) for name, value in memory.items()}
        return {"params": message["params"], **table}

    def before_step(
        self, net: Net, local: Local, batch: Batch, message: Message, plan: LocalPlan
    ) -> Local:
        """Add the batch's logits to the rows of their labels."""
        with torch.no_grad():
            logits = net.eval(local["params"], batch.x).logits
        return {**local, **with_batch(local, logits, batch)}

    def local_loss(
        self,
        net: Net,
        local: Local,
        batch: Batch,
        message: Message,
        memory: Memory,
        plan: LocalPlan,
    ) -> Tensor:
        """Return cross entropy plus distillation from the others' mean logits of each label."""
        teacher, holders = mean_over_clients(message, memory, self.fd_exclude_self)
        student = net(local["params"], batch.x).logits
        term = self.temperature**2 * kl(teacher[batch.y], student, self.temperature)
        has_teacher: Tensor = (holders > 0).to(student.dtype)[batch.y]
        return cross_entropy(student, batch.y) + self.distillation_weight * has_teacher * term

    def upload(
        self, net: Net, local: Local, data: Data, message: Message, memory: Memory, plan: LocalPlan
    ) -> tuple[Upload, Memory]:
        """Return the model, the table and the labels it holds; the client keeps the table."""
        table = {name: local[name] for name in memory}
        return {"params": local["params"], **report(table)}, table

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        """Return FedAvg's mean and the latest tables."""
        tables = with_reports(_tables(server), uploads, cohort)
        return server.next(cohort.mean(uploads["params"]), **_named(tables))


def _tables(server: Server) -> Table:
    """Return the server's tables by the names of `algorithms.label_tables`."""
    return {name: server.extra[f"feddistill_{name}"] for name in ("tables", "reported")}


def _named(tables: Table) -> Table:
    """Return the tables by their names in the server's state."""
    return {f"feddistill_{name}": value for name, value in tables.items()}
