"""Draws of how many samples of each class each client gets: Dirichlet shares, balanced, redrawn until all have enough.

The rule is that of FedMA (Wang et al. 2020, https://arxiv.org/abs/2002.06440), NIID-Bench and FedDF: class by class,
shares p ~ Dir(alpha) over the clients, p = 0 for clients that already hold their fair part of all samples, p
renormalised, the class cut by the cumulative sums; the whole draw again until the smallest client is large enough. A
pool that is not balanced goes without the zeros.

Only the counts are drawn here, many tries side by side: where three draws in ten thousand are accepted, cutting the
samples for each would take minutes. Axes: C classes, K clients, T tries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Counts = NDArray[np.int64]

MAX_TRIES = 100_000
# Bounds the time of a request that cannot be met (a few seconds), in a unit that is the same on every machine: numbers
# drawn, C*K for each try. It cuts MAX_TRIES short only where C*K > 1,000.
MAX_NUMBERS = 100_000_000
# Tries side by side grow from one (most draws are accepted at once) up to as many as fit into the processor's cache.
GROWTH = 4
LARGEST_BATCH = 200_000


@dataclass(frozen=True)
class Pool:
    """Samples to be dealt to a group of clients.

    Args:
        class_sizes: (C,) samples of each class.
        num_clients: clients K in the group.
        min_size: samples that each must get, at least.
        balanced: whether a client that holds its fair part gets no more of later classes.
    """

    class_sizes: tuple[int, ...]
    num_clients: int
    min_size: int
    balanced: bool = True

    @property
    def fair_size(self) -> float:
        """A client's part if all had the same."""
        return sum(self.class_sizes) / self.num_clients

    @property
    def numbers(self) -> int:
        """Numbers that one try draws."""
        return max(1, len(self.class_sizes) * self.num_clients)


def tries(numbers: int, most: int) -> int:
    """Tries that are made before giving up, of `most` that are wanted, where each draws so many numbers."""
    return max(1, min(most, MAX_NUMBERS // numbers))


def batches(numbers: int, most: int) -> Iterator[int]:
    """How many tries to make side by side, batch after batch, until `tries(numbers, most)` are made."""
    left, batch = tries(numbers, most), 1
    largest = max(1, LARGEST_BATCH // numbers)
    while left > 0:
        yield min(batch, left)
        left -= batch
        batch = min(batch * GROWTH, largest)


def draw(pool: Pool, alpha: float, rng: np.random.RandomState, max_tries: int = MAX_TRIES) -> Counts | None:
    """(C, K) samples of each class that each client gets, in the first accepted draw; None if there is none.

    Args:
        pool: what is dealt.
        alpha: Dirichlet concentration, > 0; near 0 each class goes to one client, large values deal evenly.
        rng: moves on by whole batches of tries, so what it gives afterwards depends on the draws made here.
        max_tries: draws before giving up; fewer are made for very many clients and classes (`tries`).
    """
    for batch in batches(pool.numbers, max_tries):
        counts, accepted = propose(pool, alpha, rng, batch)
        if accepted.any():
            return counts[:, accepted.argmax()]
    return None


def acceptance(pool: Pool, alpha: float, rng: np.random.RandomState, tries: int) -> float:
    """Share of `tries` draws that is accepted, in [0, 1]."""
    return float(propose(pool, alpha, rng, tries)[1].mean())


def propose(
    pool: Pool, alpha: float, rng: np.random.RandomState, tries: int
) -> tuple[Counts, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """(C, T, K) counts of as many draws, and (T,) which of them are accepted.

    The classes take turns because the balancing looks at what clients hold so far; the tries do not meet.
    """
    held = np.zeros((tries, pool.num_clients), dtype=np.int64)
    sound = np.ones(tries, dtype=np.bool_)
    counts = np.empty((len(pool.class_sizes), tries, pool.num_clients), dtype=np.int64)
    concentration = np.full(pool.num_clients, alpha)
    for label, size in enumerate(pool.class_sizes):
        shares = rng.dirichlet(concentration, tries)
        # At a tiny alpha all of a draw's gamma variates can underflow, which makes its shares NaN or infinite.
        shares[~np.isfinite(shares).all(axis=1)] = 0
        if pool.balanced:
            shares *= held < pool.fair_size
        total = shares.sum(axis=1, keepdims=True)
        # Nobody may be left to give the class to: then there is nothing to renormalise by, and the draw is void.
        sound &= total[:, 0] > 0
        np.divide(shares, total, out=shares, where=total > 0)
        counts[label] = _cut(shares, size)
        held += counts[label]
    return counts, sound & (held.min(axis=1) >= pool.min_size)


def _cut(shares: NDArray[np.float64], size: int) -> Counts:
    """(T, K) whole samples out of `size`, by shares that add up to 1: differences of the cumulative sums, floored."""
    edges = (np.cumsum(shares, axis=1) * size).astype(np.int64)
    edges[:, -1] = size
    return np.diff(edges, axis=1, prepend=0)
