"""Tables of a client's mean outputs by label, as federated distillation exchanges them.

A table in the making is a dict of `sums` (C, W) and `counts` (C,): C labels, W numbers an output.
The server keeps every client's latest table: `tables` (K, C, W), and `reported` (K, C), 1 for the
labels that a client holds. It sends their sums over clients, from which a client takes its own
part, so that one message serves all.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from algorithms.base import Batch, Cohort, Fed, Params, Upload
from algorithms.losses import one_hot

Table = dict[str, Any]


def no_table(fed: Fed, params: Params, width: int) -> Table:
    """Return sums and counts of no output of `width` numbers, of the type of `params`."""
    like = next(iter(params.values()))
    classes = fed.net.num_classes
    return {"sums": like.new_zeros(classes, width), "counts": like.new_zeros(classes)}


def with_batch(table: Table, outputs: Tensor, batch: Batch) -> Table:
    """Add outputs (B, W) of a batch to the rows of their labels, without the padding."""
    labels = one_hot(batch.y, len(table["counts"])).to(outputs.dtype)
    members = labels * batch.weight[:, None]
    return {
        "sums": table["sums"] + members.T @ outputs,
        "counts": table["counts"] + members.sum(0),
    }


def means_of(table: Table) -> Tensor:
    """Return (C, W) mean outputs of each label; zeros for a label without any."""
    means: Tensor = table["sums"] / table["counts"].clamp(min=1)[:, None]
    return means


def labels_of(table: Table) -> Tensor:
    """Return (C,) 1 for a label with an output, 0 for another."""
    counts: Tensor = table["counts"]
    return (counts > 0).to(counts.dtype)


def report(table: Table) -> Upload:
    """Return what a client uploads of its table."""
    return {"table": means_of(table), "reported": labels_of(table)}


def no_tables(fed: Fed, params: Params, width: int) -> Table:
    """Return the server's tables before any client has reported one."""
    empty = no_table(fed, params, width)
    clients = fed.num_clients
    return {
        "tables": empty["sums"].new_zeros(clients, *empty["sums"].shape),
        "reported": empty["counts"].new_zeros(clients, *empty["counts"].shape),
    }


def with_reports(tables: Table, uploads: Upload, cohort: Cohort) -> Table:
    """Put the round's tables in place of the same clients' earlier tables."""
    return {
        "tables": tables["tables"].index_copy(0, cohort.ids, uploads["table"]),
        "reported": tables["reported"].index_copy(0, cohort.ids, uploads["reported"]),
    }


def sums_over_clients(tables: Table) -> Table:
    """Return what the server sends: `table_sum` (C, W) and `holders` (C,) of each label."""
    return {"table_sum": tables["tables"].sum(0), "holders": tables["reported"].sum(0)}


def mean_over_clients(message: Table, own: Table, exclude_self: bool) -> tuple[Tensor, Tensor]:
    """Return (C, W) means over the clients that hold each label, and (C,) the number of these.

    Args:
        message: `sums_over_clients`, perhaps among others.
        own: the client's table as it last reported it.
        exclude_self: whether the means are over the other clients.
    """
    table_sum = message["table_sum"]
    holders = message["holders"]
    if exclude_self:
        table_sum = table_sum - means_of(own)
        holders = holders - labels_of(own)
    return table_sum / holders.clamp(min=1)[:, None], holders
