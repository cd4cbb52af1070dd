"""Methods that exchange outputs on public samples: FedMD, DS-FL.

B batch, C classes, K clients, N public samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import inf

from torch import Tensor

from algorithms.base import Params
from bench.selftest.equations.checks import Check, Limit
from bench.selftest.equations.formulas import log_softmax, softmax, sum_of
from bench.selftest.equations.lab import SIZES, TWO, forward
from bench.selftest.equations.lab_run import LabRun, ce, holds, local_gap
from bench.selftest.equations.optimizers import Adam, Optimizer, Sgd, stepped
from bench.selftest.equations.personal import personal_rows
from bench.selftest.toy import gap

DSFL = "Itahara et al. 2021, entropy reduction aggregation"
FEDMD = "Li and Wang 2019, Algorithm 1, and its code"


@dataclass(frozen=True)
class Lesson:
    """Training on public samples: a loss of logits z and targets t, (B,), and new optimisers."""

    loss: Callable[[Tensor, Tensor], Tensor]
    optimizer: Callable[[], Optimizer]

    def learnt(
        self, run: LabRun, w: Params, x: Tensor, targets: Tensor, steps: Sequence[Sequence[int]]
    ) -> Params:
        """Return the model after steps on the samples at these places."""
        optimizer = self.optimizer()
        for places in steps:
            rows = list(places)
            objective = partial(self._mean, x[rows], targets[rows])
            w = stepped(run.net, optimizer, w, objective, x[rows])
        return w

    def _mean(self, x: Tensor, targets: Tensor, w: Params) -> Tensor:
        return self.loss(forward(w, x).logits, targets).mean()


def step_orders(count: int, size: int, epochs: int) -> list[list[Sequence[int]]]:
    """Return the possible steps on `count` samples: whole sets, or one epoch of two batches."""
    everything = range(count)
    if size >= count:
        return [[everything] * epochs]
    orders: list[list[Sequence[int]]] = []
    for first in combinations(everything, size):
        orders.append([first, [place for place in everything if place not in first]])
    return orders


def asked_gap(run: LabRun, wanted: int) -> float:
    """Return 0 if the server asks for `wanted` different samples, or for all there are; or inf."""
    asked = run.message()["asked"].tolist()
    count = min(wanted, len(run.fed.public.x))
    return holds(len(set(asked)) == len(asked) == count)


def exchange_gaps(
    run: LabRun,
    lesson: Lesson,
    targets_of: Callable[[list[Tensor]], Tensor],
    wanted: int,
    size: int,
    epochs: int,
    server: bool = False,
) -> Iterator[float]:
    """Compare the targets, each client's start, loss and gradient before and after two rounds.

    Args:
        run: the run, before its first round.
        lesson: how models learn the targets.
        targets_of: makes them of the clients' logits.
        wanted: public samples of a round.
        size: public samples of a step.
        epochs: passes over the public samples.
        server: whether the server's model learns them, too.
    """
    public = run.fed.public.x
    own = run.initial
    yield local_gap(run, 0, run.initial, ce)
    for clients in TWO:
        asked = run.message()["asked"]
        if asked_gap(run, wanted):
            yield inf
            return
        run.round(clients)
        x = public[asked]
        targets = targets_of([forward(run.last[k], x, training=False).logits for k in clients])
        yield gap(run.message()["targets"], targets)
        orders = step_orders(len(x), size, epochs)
        if server:
            models = [lesson.learnt(run, own, x, targets, steps) for steps in orders]
            evaluated = run.algorithm.evaluated(run.server)
            yield min(gap(evaluated, {"": {}, "_server": model}) for model in models)
            own = evaluated["_server"]
        for k in SIZES:
            gaps = []
            for steps in orders:
                start = lesson.learnt(run, run.last[k], x, targets, steps)
                gaps.append(local_gap(run, k, start, ce))
            yield min(gaps)


def fedmd_gaps(
    run: LabRun,
    public_samples: int,
    digest_epochs: int,
    digest_lr: float,
    digest_batch_size: int,
) -> Iterator[float]:
    """Compare FedMD's mean logits, and the models that have digested them."""

    def loss(z: Tensor, t: Tensor) -> Tensor:
        return (z - t).abs().mean(1)

    def mean(logits: list[Tensor]) -> Tensor:
        return sum_of(logits) / len(logits)

    lesson = Lesson(loss, lambda: Adam(digest_lr))
    yield personal_rows(run)
    yield from exchange_gaps(run, lesson, mean, public_samples, digest_batch_size, digest_epochs)


def dsfl_gaps(
    run: LabRun,
    public_samples: int,
    digest_epochs: int,
    digest_lr: float,
    digest_batch_size: int,
    aggregation: str = "era",
    era_temperature: float = 0.1,
) -> Iterator[float]:
    """Compare DS-FL's targets, and the clients' and the server's models that have learnt them."""

    def loss(z: Tensor, t: Tensor) -> Tensor:
        return -(t * log_softmax(z)).sum(1)

    def targets(logits: list[Tensor]) -> Tensor:
        mean = sum_of(softmax(z) for z in logits) / len(logits)
        return softmax(mean, era_temperature) if aggregation == "era" else mean

    lesson = Lesson(loss, lambda: Sgd(digest_lr))
    yield from exchange_gaps(
        run, lesson, targets, public_samples, digest_batch_size, digest_epochs, server=True
    )


ALL_SAMPLES = {"public_samples": 100, "digest_batch_size": 12}
TWO_BATCHES = {"public_samples": 4, "digest_batch_size": 2, "digest_epochs": 1}

CHECKS: dict[str, tuple[Check, ...]] = {
    "fedmd": (
        Check(
            "targets, digested models, loss and gradient, 2 rounds",
            FEDMD,
            fedmd_gaps,
            {**ALL_SAMPLES, "digest_epochs": 3, "digest_lr": 0.01},
        ),
        # Without BatchNorm, before which a bias has a gradient of rounding, which Adam enlarges.
        Check(
            "two batches of four samples",
            FEDMD,
            fedmd_gaps,
            {**TWO_BATCHES, "digest_lr": 0.1},
            norm=False,
        ),
    ),
    "dsfl": (
        Check(
            "targets, all models, loss and gradient, 2 rounds, T=0.5",
            DSFL,
            dsfl_gaps,
            {**ALL_SAMPLES, "digest_epochs": 3, "digest_lr": 0.2, "era_temperature": 0.5},
        ),
        Check(
            "two batches of four samples, mean probabilities",
            DSFL,
            dsfl_gaps,
            {**TWO_BATCHES, "digest_lr": 0.1, "aggregation": "sa"},
        ),
    ),
}

LIMITS: dict[str, tuple[Limit, ...]] = {
    "fedmd": (Limit({"digest_epochs": 0}, "local"),),
}
