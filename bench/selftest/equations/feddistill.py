"""FedDistill+: distillation from the other clients' mean logits of each label.

C classes, K clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from algorithms.base import Batch, Params
from bench.selftest.equations.checks import Check, Limit, loss_check, mean_check
from bench.selftest.equations.formulas import kl, weighted
from bench.selftest.equations.lab import CLASSES, SIZES, TWO, batch, forward, model
from bench.selftest.equations.run import Loss, Past, Run, ce, fedavg_loss, look

SOURCE = "FedGKD, section 5.1; Zhu et al. 2021, code"
PASSES = 2  # training steps of a client in a round
LABELS: Mapping[int, tuple[int, ...]] = {0: (0, 1), 1: (0, 2), 2: (1, 2), 3: (0, 1, 3), 4: (0, 1, 2)}  # 3 has one owner


@dataclass
class Table:
    """A client's logit sums (C, C) and counts (C,) by label."""

    sums: Tensor = field(default_factory=lambda: torch.zeros(CLASSES, CLASSES, dtype=torch.float64))
    counts: Tensor = field(default_factory=lambda: torch.zeros(CLASSES, dtype=torch.float64))

    def add(self, w: Params, given: Batch) -> None:
        """Enter one training pass: evaluation-mode logits at the local model, padding left out."""
        z = forward(w, given.x, training=False).logits
        for row, label, weight in zip(z, given.y.tolist(), given.weight.tolist(), strict=True):
            self.sums[label] += weight * row
            self.counts[label] += weight


def distilled(tables: Mapping[int, Table], weight: float, temperature: float) -> Loss:
    """The objective: CE + lambda T^2 KL( softmax(Zbar_y / T) || softmax(z / T) ).

    The mean logits of the clients of `tables` teach; a label that none of them has is without the term.
    """

    def term(label: int, z: Tensor) -> Tensor:
        known = [table.sums[label] / table.counts[label] for table in tables.values() if table.counts[label] > 0]
        return kl(torch.stack(known).mean(0), z, temperature) if known else torch.zeros((), dtype=torch.float64)

    def loss(w: Params, given: Batch, past: Past) -> Tensor:
        z = forward(w, given.x).logits
        terms = torch.stack([term(label, row) for label, row in zip(given.y.tolist(), z, strict=True)])
        return ce(w, given) + weight * temperature**2 * terms

    return loss


def taught(
    run: Run, distillation_weight: float, temperature: float, fd_exclude_self: bool = True, fd_cumulative: bool = False
) -> Iterator[float]:
    """Every client's loss and gradient after two rounds, by our own account of each client's latest table."""
    past, tables = Past([run.initial]), dict[int, Table]()
    for clients in TWO:
        visits, number = {k: run.visit(k) for k in clients}, run.number
        for k, visit in visits.items():
            tables[k] = tables[k] if fd_cumulative and k in tables else Table()
            for i in range(PASSES):
                w, given = model(run.net, "pass", number, k, i), batch("tables", number, k, i)
                given = replace(given, y=torch.tensor(LABELS[k])[given.y % len(LABELS[k])])
                visit.slope(w, given)
                tables[k].add(w, given)
        past.globals.append(weighted(run.close(visits, {k: run.local(k) for k in clients}), SIZES))
    for client in SIZES:
        teachers = {k: table for k, table in tables.items() if not (fd_exclude_self and k == client)}
        yield look(run, past, client, distilled(teachers, distillation_weight, temperature))


def table_check(title: str, weight: float, temperature: float, **others: bool) -> Check:
    """Every client's loss and gradient in round 3."""
    options = {"distillation_weight": weight, "temperature": temperature, **others}
    return Check(f"loss and gradient of every client, round 3, {title}", SOURCE, taught, options)


CHECKS: dict[str, tuple[Check, ...]] = {
    "feddistill": (
        loss_check("round 1 is without distillation", SOURCE, fedavg_loss, distillation_weight=0.5),
        table_check("lambda=0.1, T=1", 0.1, 1.0),
        table_check("lambda=0.7, T=3", 0.7, 3.0),
        table_check("own table included", 0.7, 2.0, fd_exclude_self=False),
        table_check("sums over all rounds", 0.7, 2.0, fd_cumulative=True),
        mean_check(distillation_weight=0.5),
    )
}

LIMITS: dict[str, tuple[Limit, ...]] = {
    "feddistill": (Limit({"distillation_weight": 0.0}),),
}
