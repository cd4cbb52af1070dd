"""Comparisons of an algorithm with its paper, limits at which it is another one, and the comparisons that most need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bench.selftest.equations.formulas import weighted
from bench.selftest.equations.lab import CLIENT, SIZES, TWO, Cohorts
from bench.selftest.equations.run import Loss, Make, Run, drive, look
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
    """One comparison of an algorithm, seen through its hooks alone, with a formula."""

    title: str  # what is compared, unique within an algorithm
    source: str  # where the formula is printed
    gaps: Callable[..., Iterable[float]]  # drives a run, as `gaps(run, **options)`; yields absolute gaps
    options: Options = field(default_factory=dict)  # hyper-parameters of the run
    norm: bool = True  # whether the network has BatchNorm
    lrs: tuple[float, ...] = (0.1,)  # local learning rate of each round, the last one repeated
    momentum: float = 0.0  # of the local optimiser

    def gap(self, make: Make) -> float:
        """The largest absolute difference of the algorithm that `make(**hyperparameters)` gives from the formula."""
        return max(self.gaps(Run(make, self.options, self.norm, self.lrs, self.momentum), **self.options))


@dataclass(frozen=True)
class Limit:
    """One equality of two algorithms: what a formula becomes when a weight is 0 or a buffer holds one model."""

    values: Options  # hyper-parameters at the limit
    other: str = "fedavg"  # the algorithm that it then is
    other_values: Options = field(default_factory=dict)
    rows: tuple[str, str] = ("", "")  # the suffix of the row that is compared, of either
    tolerance: float = 0.0  # 0 if both do the same arithmetic, which is then compared in float32, bit for bit
    rounds: int = 3  # how long they are equal
    without_batchnorm: bool = False  # on models without BatchNorm as they are, even if the algorithm needs it
    sizes: tuple[int, ...] = TOY_SIZES  # samples of each client
    other_sizes: tuple[int, ...] = TOY_SIZES  # of the other algorithm's
    fields: Options = field(default_factory=dict)  # of the setting

    @staticmethod
    def of_equal_clients(rounds: int = 3, **values: Any) -> Limit:
        """FedAvg, if all clients have as many samples, and so take as many steps."""
        return Limit(values, tolerance=ROUNDING, rounds=rounds, sizes=EQUAL_SIZES, other_sizes=EQUAL_SIZES)

    def __str__(self) -> str:
        said = [f"{name}={value}" for name, value in {**self.values, **self.fields}.items()]
        said += [f"row {self.rows[0]}"] if self.rows[0] else []
        clients = {EQUAL_SIZES: "equal clients", ONE_CLIENT: "one client"}
        said += [clients[self.sizes]] if self.sizes in clients else []
        said += ["round 1"] if self.rounds == 1 else []
        said += ["no BatchNorm"] if self.without_batchnorm else []
        others = ", ".join(f"{name}={value}" for name, value in self.other_values.items())
        return f"{', '.join(said) or 'as it is'} = {self.other} {others}".rstrip()


def loss_check(
    title: str,
    source: str,
    loss: Callable[..., Loss],
    cohorts: Cohorts = (),
    *,
    client: int = CLIENT,
    norm: bool = True,
    **options: Any,
) -> Check:
    """A client's start, loss and gradient after the rounds of `cohorts`, against the printed `loss(**options)`.

    The server is FedAvg's: what clients receive in the last round is the mean of their models, weighted by examples. Of
    an algorithm with a server step of its own leave `cohorts` out, and check that step by a `Check` with your own gaps.
    """

    def gaps(run: Run, **options: Any) -> Iterator[float]:
        yield look(run, drive(run, cohorts), client, loss(**options))

    return Check(title, source, gaps, options, norm)


def mean_check(**options: Any) -> Check:
    """Two rounds of different clients: what is sent next and what is evaluated is their mean, weighted by examples."""
    return Check(
        "the server's mean, weighted by examples, 2 rounds", MEAN_SOURCE, partial(averaged, cohorts=TWO), options
    )


def averaged(run: Run, cohorts: Cohorts, **options: Any) -> Iterator[float]:
    """The server's model after each round, against the mean of the local models, weighted by examples."""
    for clients in cohorts:
        yield run.model_gap(weighted(run.round(clients), SIZES))
