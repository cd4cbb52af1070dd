"""The parts that partitions share: the request and its checks, redrawing, samples dealt out by numbers per class.

Axes: N samples, C classes, K clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.errors import UsageError

Positions = NDArray[np.int64]
Counts = NDArray[np.int64]
Partitioner = Callable[["Wanted", np.random.RandomState], list[Positions]]

MAX_TRIES = 100_000
# Bounds the time of a request that cannot be met (a few seconds), in a unit that is the same on every machine: numbers
# drawn, C*K for each try. It cuts MAX_TRIES short only if C*K > 1,000.
MAX_NUMBERS = 100_000_000
# Tries side by side grow from one (most draws are accepted at once) up to as many as fit into the processor's cache.
GROWTH = 4
LARGEST_BATCH = 200_000


class PartitionError(UsageError):
    """No draw gives every client enough samples."""


@dataclass(frozen=True, eq=False)
class Wanted:
    """A partition that is asked for.

    Args:
        alpha: Dirichlet concentration, > 0; near 0 each class goes to one client, large values deal evenly.
    """

    labels: Positions  # (N,) labels of the samples to share out
    num_clients: int  # clients K
    alpha: float | None = None
    groups: Positions | None = None  # (N,) the source or the writer of each sample, if the data set records it
    max_tries: int = MAX_TRIES  # draws before giving up

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


@dataclass(frozen=True)
class Partition:
    """A way to give samples to clients."""

    function: Partitioner  # takes what is asked for and the generator; gives K ascending arrays of positions
    needs_alpha: bool
    summary: str  # one line on what clients get
    source: str
    groups: str = ""  # what it must know of each sample besides the class, `source` or `writer`; empty for nothing


def class_sizes(labels: Positions) -> tuple[tuple[int, ...], Positions]:
    """(C,) samples of each class that occurs, and (N,) each sample's class as a place in that list."""
    _, classes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return tuple(sizes.tolist()), classes


def tries(numbers: int, most: int) -> int:
    """Tries before giving up, of `most` that are wanted, if each draws so many numbers."""
    return max(1, min(most, MAX_NUMBERS // numbers))


def batches(numbers: int, most: int) -> Iterator[int]:
    """Sizes of batches of tries to make side by side, until `tries(numbers, most)` are made."""
    left, batch = tries(numbers, most), 1
    largest = max(1, LARGEST_BATCH // numbers)
    while left > 0:
        yield min(batch, left)
        left -= batch
        batch = min(batch * GROWTH, largest)


def deal(classes: Positions, counts: Counts, rng: np.random.RandomState) -> list[Positions]:
    """Give samples out by (C, K) counts: each class is shuffled, and each client's samples come class by class."""
    order = rng.permutation(len(classes))
    by_class = order[np.argsort(classes[order], kind="stable")]
    owner = np.repeat(np.tile(np.arange(counts.shape[1]), len(counts)), counts.ravel())
    by_client = by_class[np.argsort(owner, kind="stable")]
    return np.split(by_client, np.cumsum(counts.sum(axis=0))[:-1])


def check_none_empty(name: str, counts: Counts) -> None:
    """Raise PartitionError if a client gets nothing by (C, K) counts."""
    empty = np.flatnonzero(counts.sum(axis=0) == 0)
    if len(empty):
        raise PartitionError(
            f"partition {name} leaves {len(empty):,} of num_clients={counts.shape[1]:,} clients without a sample of "
            f"{counts.sum():,}; lower num_clients, or use more of the training data"
        )
