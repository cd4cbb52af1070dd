"""Methods that exchange outputs on public samples: FedMD, DS-FL.

B batch, C classes, K clients, N public samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch import Tensor

from algorithms.base import Params
from bench.selftest.equations.checks import Check, Limit
from bench.selftest.equations.formulas import log_softmax, mean, softmax
from bench.selftest.equations.lab import SIZES, TWO, forward
from bench.selftest.equations.lab_run import Gaps, LabRun, ce, constant
from bench.selftest.equations.optimizers import Adam, Optimizer, Sgd, step_orders, stepped
from bench.selftest.equations.personal import personal_rows
from bench.selftest.toy import gap

DSFL = "Itahara et al. 2021, entropy reduction aggregation"
FEDMD = "Li and Wang 2019, Algorithm 1, and its code"


def exchange_gaps(
    run: LabRun,
    loss: Callable[[Tensor, Tensor], Tensor],
    make_optimizer: Callable[[float], Optimizer],
    targets_of: Callable[[list[Tensor]], Tensor],
    public_samples: int,
    digest_epochs: int,
    digest_lr: float,
    digest_batch_size: int,
    server: bool = False,
) -> Gaps:
    """Compare the targets, each client's start, loss and gradient before and after two rounds.

    Args:
        run: the run, before its first round.
        loss: of logits and targets, (B,), which models learn by.
        make_optimizer: makes an optimiser for each model and round.
        targets_of: makes the targets of the clients' logits.
        public_samples: of a round.
        digest_epochs: passes over the public samples.
        digest_lr: of the optimiser.
        digest_batch_size: public samples of a step.
        server: whether the server's model learns the targets, too.
    """
    public = run.fed.public.x
    wanted = min(public_samples, len(public))

    def learnt(w: Params, x: Tensor, targets: Tensor) -> Iterator[Params]:
        """Yield the model after the steps on public samples, in every order that they may have."""

        def objective(rows: list[int], leaves: Params) -> Tensor:
            return loss(forward(leaves, x[rows]).logits, targets[rows]).mean()

        for steps in step_orders(wanted, digest_batch_size, digest_epochs):
            optimizer = make_optimizer(digest_lr)
            after = w
            for rows in steps:
                after = stepped(optimizer, after, partial(objective, rows), x[rows])
            yield after

    own = run.initial
    yield run.local_gap(0, run.initial, ce)
    for clients in TWO:
        asked = run.message()["asked"].tolist()
        if not len(set(asked)) == len(asked) == wanted:
            yield math.inf
            return
        run.round(clients)
        x = public[asked]
        targets = targets_of([constant(run.last[k], x).logits for k in clients])
        yield gap(run.message()["targets"], targets)
        if server:
            evaluated = run.evaluated
            models = learnt(own, x, targets)
            yield min(gap(evaluated, {"": {}, "_server": w}) for w in models)
            own = evaluated["_server"]
        for k in SIZES:
            starts = learnt(run.last[k], x, targets)
            yield min(run.local_gap(k, start, ce) for start in starts)


def fedmd_gaps(run: LabRun, **options: Any) -> Gaps:
    """Compare FedMD's mean logits, and the models that have digested them."""

    def loss(z: Tensor, t: Tensor) -> Tensor:
        return (z - t).abs().mean(1)

    yield personal_rows(run)
    yield from exchange_gaps(run, loss, Adam, mean, **options)


def dsfl_gaps(
    run: LabRun, aggregation: str = "era", era_temperature: float = 0.1, **options: Any
) -> Gaps:
    """Compare DS-FL's targets, and the clients' and the server's models that have learnt them."""

    def loss(z: Tensor, t: Tensor) -> Tensor:
        return -(t * log_softmax(z)).sum(1)

    def targets(logits: list[Tensor]) -> Tensor:
        p = mean(softmax(z) for z in logits)
        return softmax(p, era_temperature) if aggregation == "era" else p

    return exchange_gaps(run, loss, Sgd, targets, **options, server=True)


ALL_SAMPLES = {"public_samples": 100, "digest_batch_size": 12}
TWO_BATCHES = {"public_samples": 4, "digest_batch_size": 2, "digest_epochs": 1}

CHECKS = {
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

LIMITS = {
    "fedmd": (Limit({"digest_epochs": 0}, "local"),),
}
