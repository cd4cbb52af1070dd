"""What partitions have in common: what is asked for, its checks, and samples dealt out by numbers per class.

Axes: N samples, C classes, K clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.data.dirichlet import MAX_TRIES, Pool, acceptance, draw, tries
from bench.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Positions = NDArray[np.int64]
    Counts = NDArray[np.int64]
    # From (C,) class sizes and K, what is drawn; where a partition draws in several pools, the hardest one is the last.
    MakePool = Callable[[tuple[int, ...], int], Pool]
    MakePools = Callable[[tuple[int, ...], int], list[Pool]]

# Where a request cannot be met, these are tried to say what can; a few hundred draws tell 1 in 100.
LADDER = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0)
TENTHS = range(9, 0, -1)
PROBES = 500
# Numbers drawn for one such trial, at most, but never fewer than twenty draws.
PROBE_NUMBERS = 10_000_000
FEWEST_PROBES = 20
OFTEN = 0.01


class PartitionError(UsageError):
    """No draw gives every client enough samples."""


@dataclass(frozen=True, eq=False)
class Wanted:
    """A partition that is asked for.

    Args:
        labels: (N,) labels of the samples to share out.
        num_clients: clients K.
        alpha: Dirichlet concentration, > 0; near 0 each class goes to one client, large values deal evenly.
        groups: (N,) the source or the writer of each sample, where the data set records it.
        max_tries: draws before giving up.
    """

    labels: Positions
    num_clients: int
    alpha: float | None = None
    groups: Positions | None = None
    max_tries: int = MAX_TRIES

    def check_clients(self) -> None:
        """Raise UsageError unless there is a sample for every client."""
        if not 1 <= self.num_clients <= len(self.labels):
            raise UsageError(
                f"num_clients must be in [1, {len(self.labels)}], the samples there are to share out, got "
                f"{self.num_clients}; lower it, or use more of the training data"
            )

    def concentration(self) -> float:
        """The usable alpha of a request that has enough samples; raises UsageError if either is not so."""
        self.check_clients()
        if self.alpha is None or not 0 < self.alpha < math.inf:
            raise UsageError(
                f"alpha must be a number > 0, the Dirichlet concentration, got {self.alpha}; try alpha=0.5"
            )
        return self.alpha


def class_sizes(labels: Positions) -> tuple[tuple[int, ...], Positions]:
    """(C,) samples of each class that occurs, and (N,) each sample's class as a place in that list."""
    _, classes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return tuple(sizes.tolist()), classes


def deal(classes: Positions, counts: Counts, rng: np.random.RandomState) -> list[Positions]:
    """Give samples out by (C, K) counts: each class is shuffled, and each client's samples come class by class."""
    order = rng.permutation(len(classes))
    by_class = order[np.argsort(classes[order], kind="stable")]
    owner = np.repeat(np.tile(np.arange(counts.shape[1]), len(counts)), counts.ravel())
    by_client = by_class[np.argsort(owner, kind="stable")]
    return np.split(by_client, np.cumsum(counts.sum(axis=0))[:-1])


def deal_dirichlet(name: str, make_pool: MakePool, wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Give samples out by the first accepted Dirichlet draw over all clients.

    Args:
        name: the partition, for what is said if there is none.
        make_pool: the partition's rule.
        wanted: what is asked for.
        rng: source of the draws.

    Raises:
        PartitionError: there are too few samples, or no draw was accepted.
        UsageError: fewer samples than clients, or no usable alpha.
    """
    alpha = wanted.concentration()
    sizes, classes = class_sizes(wanted.labels)
    pool = make_pool(sizes, wanted.num_clients)
    _check_share(name, pool)
    dealt = draw(pool, alpha, rng, wanted.max_tries)
    if dealt is None:
        raise infeasible(name, lambda *request: [make_pool(*request)], wanted)
    return [np.sort(part) for part in deal(classes, dealt, rng)]


def infeasible(name: str, make_pools: MakePools, wanted: Wanted) -> PartitionError:
    """Says what was asked for, how far from it the draws were, and the nearest requests that can be met.

    Args:
        name: the partition.
        make_pools: the partition's rule.
        wanted: what no draw gave.
    """
    alpha, num_clients = wanted.concentration(), wanted.num_clients
    sizes, _ = class_sizes(wanted.labels)

    def often(clients: int, concentration: float) -> bool:
        return min(_rate(pool, concentration) for pool in make_pools(sizes, clients)) > OFTEN

    hardest = make_pools(sizes, num_clients)[-1]
    made = tries(hardest.numbers, wanted.max_tries)
    fewer = sorted({num_clients * tenth // 10 for tenth in TENTHS} - {0, num_clients}, reverse=True)
    better_alpha = next((value for value in LADDER if value > alpha and often(num_clients, value)), None)
    better_clients = next((value for value in fewer if often(value, alpha)), None)
    steps = [f"alpha={better_alpha:g}"] if better_alpha else []
    steps += [f"num_clients={better_clients}"] if better_clients else []
    return PartitionError(
        f"partition {name} with alpha={alpha:g} and num_clients={num_clients} on {len(wanted.labels):,} samples: none "
        f"of {made:,} draws gave every client at least {hardest.min_size:,} samples, so the acceptance rate is below "
        f"{3 / made:.2g}; " + (f"try {' or '.join(steps)}" if steps else "use more data, or partition=iid")
    )


def check_none_empty(name: str, counts: Counts) -> None:
    """Raise PartitionError if a client gets nothing by (C, K) counts."""
    empty = np.flatnonzero(counts.sum(axis=0) == 0)
    if len(empty):
        raise PartitionError(
            f"partition {name} leaves {len(empty):,} of num_clients={counts.shape[1]:,} clients without a sample of "
            f"{counts.sum():,}; lower num_clients, or use more of the training data"
        )


def _check_share(name: str, pool: Pool) -> None:
    samples, min_size = sum(pool.class_sizes), pool.min_size
    if pool.num_clients * min_size <= samples:
        return
    if samples < min_size:
        raise PartitionError(
            f"partition {name} gives each client at least {min_size:,} samples, and there are {samples:,}; use more of "
            "the training data"
        )
    raise PartitionError(
        f"num_clients must be <= {samples // min_size} for partition {name}, which gives each client at least "
        f"{min_size:,} of {samples:,} samples, got {pool.num_clients}; lower it, or use more of the training data"
    )


def _rate(pool: Pool, alpha: float) -> float:
    probes = max(FEWEST_PROBES, min(PROBES, PROBE_NUMBERS // pool.numbers))
    return acceptance(pool, alpha, np.random.RandomState(0), probes)
