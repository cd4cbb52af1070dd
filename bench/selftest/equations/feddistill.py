"""FedDistill+: distillation from the other clients' mean logits of each label.

C classes, K clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from algorithms.base import Batch, Params
from bench.selftest.equations.builders import TWO, Loss, Past, ce, fedavg_loss, look, loss_check, mean_check
from bench.selftest.equations.checks import Check, Limit, Make
from bench.selftest.equations.formulas import kl, weighted
from bench.selftest.equations.lab import CLASSES, SIZES, batch, forward, model
from bench.selftest.equations.run import Run

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


def teaching_batch(round: int, client: int, number: int) -> Batch:
    """A batch whose labels are among those that the client has."""
    given = batch("tables", round, client, number)
    return replace(given, y=torch.tensor(LABELS[client])[given.y % len(LABELS[client])])


def _two_rounds(run: Run, cumulative: bool) -> tuple[Past, dict[int, Table]]:
    """Drive two rounds; our own account of the global models and of each client's latest table."""
    past, tables = Past([run.initial], []), dict[int, Table]()
    for clients in TWO:
        visits, number = {k: run.visit(k) for k in clients}, run.number
        for k, visit in visits.items():
            tables[k] = tables[k] if cumulative and k in tables else Table()
            for i in range(PASSES):
                w, given = model(run.net, "pass", number, k, i), teaching_batch(number, k, i)
                visit.slope(w, given)
                tables[k].add(w, given)
        past.globals.append(weighted(run.close(visits, {k: run.local(k) for k in clients}), SIZES))
    return past, tables


def distilled(tables: Mapping[int, Table], weight: float, temperature: float) -> Loss:
    """The objective: CE + lambda T^2 KL( softmax(Zbar_y / T) || softmax(z / T) ).

    Args:
        tables: of the clients whose mean logits teach; a label that none of them has is without the term.
        weight: lambda.
        temperature: T.
    """

    def term(label: int, z: Tensor) -> Tensor:
        known = [table.sums[label] / table.counts[label] for table in tables.values() if table.counts[label] > 0]
        return kl(torch.stack(known).mean(0), z, temperature) if known else torch.zeros((), dtype=torch.float64)

    def loss(w: Params, given: Batch, past: Past) -> Tensor:
        z = forward(w, given.x).logits
        terms = torch.stack([term(label, row) for label, row in zip(given.y.tolist(), z, strict=True)])
        return ce(w, given) + weight * temperature**2 * terms

    return loss


def table_check(
    title: str, weight: float, temperature: float, exclude_self: bool = True, add_up: bool = False
) -> Check:
    """Every client's loss and gradient in round 3."""
    options = {"distillation_weight": weight, "temperature": temperature}
    options |= {"fd_exclude_self": exclude_self, "fd_cumulative": add_up}

    def check(make: Make) -> float:
        run, gaps = Run(make, options), []
        past, tables = _two_rounds(run, add_up)
        for client in SIZES:
            teachers = {k: table for k, table in tables.items() if not (exclude_self and k == client)}
            gaps.append(look(run, past, client, distilled(teachers, weight, temperature)))
        return max(gaps)

    return Check(f"loss and gradient of every client, round 3, {title}", SOURCE, check)


CHECKS: dict[str, tuple[Check, ...]] = {
    "feddistill": (
        loss_check("round 1 is without distillation", SOURCE, fedavg_loss, distillation_weight=0.5),
        table_check("lambda=0.1, T=1", 0.1, 1.0),
        table_check("lambda=0.7, T=3", 0.7, 3.0),
        table_check("own table included", 0.7, 2.0, exclude_self=False),
        table_check("sums over all rounds", 0.7, 2.0, add_up=True),
        mean_check(distillation_weight=0.5),
    )
}

LIMITS: dict[str, tuple[Limit, ...]] = {
    "feddistill": (Limit({"distillation_weight": 0.0}),),
}
