"""Methods that exchange outputs on public samples: FedMD.

B batch, C classes, K clients, N public samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf

import torch
from torch import Tensor

from algorithms.base import Params
from bench.selftest.equations.checks import Check, Limit
from bench.selftest.equations.formulas import sum_of
from bench.selftest.equations.lab import SIZES, TWO, forward, moved_statistics
from bench.selftest.equations.observe import Adam
from bench.selftest.equations.personal import personal_rows
from bench.selftest.equations.run import History, Run, fedavg_loss, local_gap
from bench.selftest.toy import gap

FEDMD = "Li and Wang 2019, Algorithm 1, and its code"
Step = Callable[[Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]


@dataclass(frozen=True)
class Lesson:
    """Training on public samples: a loss of logits z and targets t, (B,), and new optimisers."""

    loss: Callable[[Tensor, Tensor], Tensor]
    optimizer: Callable[[], Step]

    def learnt(
        self, run: Run, w: Params, x: Tensor, targets: Tensor, steps: Sequence[Sequence[int]]
    ) -> Params:
        """Return the model after steps on the samples at these places."""
        names = run.net.trainable
        optimizer = self.optimizer()
        for places in steps:
            rows = list(places)
            leaves = {n: value.clone().requires_grad_(n in names) for n, value in w.items()}
            loss = self.loss(forward(leaves, x[rows]).logits, targets[rows]).mean()
            grads = torch.autograd.grad(loss, [leaves[name] for name in names])
            after = optimizer([w[name] for name in names], grads)
            moved = moved_statistics(w, x[rows]) if run.net.batchnorm else {}
            w = {**w, **moved, **dict(zip(names, after, strict=True))}
        return w


def step_orders(count: int, size: int, epochs: int) -> list[list[Sequence[int]]]:
    """Return the possible steps on `count` samples: whole sets, or one epoch of two batches."""
    everything = range(count)
    if size >= count:
        return [[everything] * epochs]
    orders: list[list[Sequence[int]]] = []
    for first in combinations(everything, size):
        orders.append([first, [place for place in everything if place not in first]])
    return orders


def asked_gap(run: Run, wanted: int) -> float:
    """Return 0 if the server asks for different samples, at most as many as there are; else inf."""
    asked = run.message()["asked"].tolist()
    count = min(wanted, len(run.fed.public.weight))
    return 0.0 if len(set(asked)) == len(asked) == count else inf


def exchange_gaps(
    run: Run,
    lesson: Lesson,
    targets_of: Callable[[list[Tensor]], Tensor],
    sizes: tuple[int, int, int],
) -> Iterator[float]:
    """Compare the targets, each client's start, loss and gradient before and after two rounds.

    `targets_of` makes them of the clients' logits; `sizes` are the public samples of a round, those
    of a step, and the epochs.
    """
    wanted, size, epochs = sizes
    public = run.fed.public.x
    personal = dict.fromkeys(SIZES, run.initial)
    yield local_gap(run, History([run.initial]), 0, fedavg_loss())
    for clients in TWO:
        asked = run.message()["asked"]
        yield asked_gap(run, wanted)
        personal |= run.round(clients)
        x = public[asked]
        targets = targets_of([forward(personal[k], x, training=False).logits for k in clients])
        yield gap(run.message()["targets"], targets)
        for k in SIZES:
            gaps = []
            for steps in step_orders(len(x), size, epochs):
                start = lesson.learnt(run, personal[k], x, targets, steps)
                gaps.append(local_gap(run, History([start]), k, fedavg_loss()))
            yield min(gaps)


def fedmd_gaps(
    run: Run,
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

    lesson = Lesson(loss, lambda: Adam(digest_lr).step)
    yield personal_rows(run)
    yield from exchange_gaps(run, lesson, mean, (public_samples, digest_batch_size, digest_epochs))


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
}

LIMITS: dict[str, tuple[Limit, ...]] = {
    "fedmd": (Limit({"digest_epochs": 0}, "local"),),
}
