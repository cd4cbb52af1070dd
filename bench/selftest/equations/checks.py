"""Comparisons of an algorithm with its paper, and limits at which it equals another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from bench.selftest.certify import assignments
from bench.selftest.equations.formulas import weighted
from bench.selftest.equations.lab import CLIENT, TWO, Cohorts
from bench.selftest.equations.lab_run import Gaps, LabRun, Make
from bench.selftest.toy import EQUAL_SIZES
from bench.selftest.toy import SIZES as TOY_SIZES

TOLERANCE = 1e-10
ROUNDING = 1e-12  # float64
ONE_CLIENT = (sum(TOY_SIZES),)
EVERYONE = {"participation": 1.0}

Options = Mapping[str, Any]

MEAN_SOURCE = "McMahan et al. 2017, Algorithm 1"


@dataclass(frozen=True)
class Check:
    """A comparison of an algorithm, driven through its hooks alone, with a formula."""

    title: str  # what is compared, unique within an algorithm
    source: str  # where the formula is printed
    gaps: Callable[..., Gaps]  # drives a run, as `gaps(run, **options)`
    options: Options = field(default_factory=dict)  # hyper-parameters of the run
    norm: bool = True  # whether the network has BatchNorm
    lrs: tuple[float, ...] = (0.1,)  # local learning rate of each round, the last one repeated
    momentum: float = 0.0  # of the local optimiser

    def gap(self, make: Make) -> float:
        """Return the largest absolute difference between an algorithm and the formula.

        `make(**hyperparameters)` builds the algorithm.
        """
        run = LabRun(make, self.options, self.norm, self.lrs, self.momentum)
        return max(self.gaps(run, **self.options))


@dataclass(frozen=True)
class Limit:
    """An equality of two algorithms, for example when a weight is 0 or a buffer holds one model."""

    values: Options  # hyper-parameters at the limit
    other: str = "fedavg"  # the algorithm that it then equals
    other_values: Options = field(default_factory=dict)
    rows: tuple[str, str] = ("", "")  # the suffix of the row that is compared, for each algorithm
    # 0 if both do the same arithmetic, which is then compared in float32, bit for bit.
    tolerance: float = 0.0
    rounds: int = 3  # during which they are equal
    # Compare on models without BatchNorm, even if the algorithm needs it.
    without_batchnorm: bool = False
    sizes: tuple[int, ...] = TOY_SIZES  # samples of each client
    other_sizes: tuple[int, ...] = TOY_SIZES  # samples of each of the other algorithm's clients
    fields: Options = field(default_factory=dict)  # of the setting

    @staticmethod
    def of_equal_clients(rounds: int = 3, **values: Any) -> Limit:
        """Make the limit that is FedAvg if all clients have equally many samples.

        They then take equally many steps.
        """
        return Limit(
            values, tolerance=ROUNDING, rounds=rounds, sizes=EQUAL_SIZES, other_sizes=EQUAL_SIZES
        )

    def __str__(self) -> str:
        parts = []
        if self.values or self.fields:
            parts.append(assignments({**self.values, **self.fields}))
        if self.rows[0]:
            parts.append(f"row {self.rows[0]}")
        if self.sizes == EQUAL_SIZES:
            parts.append("equal clients")
        if self.sizes == ONE_CLIENT:
            parts.append("one client")
        if self.rounds == 1:
            parts.append("round 1")
        if self.without_batchnorm:
            parts.append("no BatchNorm")
        others = assignments(self.other_values)
        return f"{', '.join(parts) or 'as it is'} = {self.other} {others}".rstrip()


def loss_check(
    title: str,
    source: str,
    loss: Callable[..., Tensor],
    cohorts: Cohorts = (),
    *,
    client: int = CLIENT,
    norm: bool = True,
    **options: Any,
) -> Check:
    """Make a check of a client's start, loss and gradient after `cohorts`.

    They are compared with the printed `loss(w, samples, history, **options)`. The server is assumed
    to be FedAvg's: clients receive the mean of the last round's models, weighted by examples. For
    an algorithm with its own server step, leave `cohorts` out, and check that step by a `Check`
    with its own gaps.
    """

    def gaps(run: LabRun, **options: Any) -> Gaps:
        history = run.rounds(cohorts)
        printed = partial(loss, history=history, **options)
        yield run.local_gap(client, history.received, printed)

    return Check(title, source, gaps, options, norm)


def mean_check(**options: Any) -> Check:
    """Make a check that in two rounds the sent and evaluated models are the clients' mean.

    The mean is weighted by examples.
    """

    def gaps(run: LabRun, **options: Any) -> Gaps:
        for clients in TWO:
            yield run.model_gap(weighted(run.round(clients)))

    return Check("the server's mean, weighted by examples, 2 rounds", MEAN_SOURCE, gaps, options)
