"""Ways to give training samples to clients, by name: `PARTITIONS`.

A partition takes the labels and gives, for each client, the ascending positions of its samples. Draws come from
numpy's RandomState, whose stream numpy keeps for good, so a seed means the same clients in years to come.
Axes: N samples, C classes, K clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bench.data.dirichlet import MAX_TRIES, Pool, acceptance, draw
from bench.errors import UsageError
from bench.names import unknown

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Positions = NDArray[np.int64]
    Partitioner = Callable[[Positions, int, float | None, np.random.RandomState, int], list[Positions]]

LDA_MIN_SIZE = 10
FEDGKD_GROUP = 10
# Where a request cannot be met, these are tried to say what can; a few hundred draws tell 1 in 100.
LADDER = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0)
TENTHS = range(9, 0, -1)
PROBES = 500
OFTEN = 0.01


class PartitionError(UsageError):
    """No draw gives every client enough samples."""


@dataclass(frozen=True)
class Partition:
    """A way to give samples to clients.

    Args:
        function: takes (N,) labels, K, alpha, the generator and the most draws to try; gives K ascending arrays of
            positions.
        needs_alpha: whether alpha has a meaning.
        summary: one line on what clients get.
        source: where it comes from.
    """

    function: Partitioner
    needs_alpha: bool
    summary: str
    source: str


def partition(name: str) -> Partition:
    """The table's entry for a partition.

    Raises:
        UsageError: there is no partition of that name; the message lists those that there are.
    """
    if name not in PARTITIONS:
        raise unknown("partition", name, PARTITIONS)
    return PARTITIONS[name]


def iid(
    labels: Positions,
    num_clients: int,
    alpha: float | None,
    rng: np.random.RandomState,
    max_tries: int = MAX_TRIES,
) -> list[Positions]:
    """Shuffled samples in K parts whose sizes differ by one at most; `alpha` and `max_tries` have no meaning.

    Raises:
        UsageError: fewer samples than clients.
    """
    _check_clients(len(labels), num_clients)
    return [np.sort(part) for part in np.array_split(rng.permutation(len(labels)), num_clients)]


def lda(
    labels: Positions,
    num_clients: int,
    alpha: float | None,
    rng: np.random.RandomState,
    max_tries: int = MAX_TRIES,
) -> list[Positions]:
    """Latent Dirichlet allocation with balancing: clients differ in size and in classes, and hold 10 samples or more.

    Source: Wang et al., FedMA (2020), and its code; also Li et al. (MOON 2021, NIID-Bench 2022).

    Args:
        labels: (N,) labels.
        num_clients: K.
        alpha: Dirichlet concentration, > 0; small is non-IID.
        rng: source of the draws.
        max_tries: draws before giving up, see `bench.data.dirichlet.draw`.

    Raises:
        PartitionError: there are fewer than 10 samples a client, or no draw gave every client 10.
        UsageError: fewer samples than clients, or no usable alpha.
    """
    concentration = _check(labels, num_clients, alpha)
    if num_clients * LDA_MIN_SIZE > len(labels):
        most = len(labels) // LDA_MIN_SIZE
        raise PartitionError(
            f"num_clients must be <= {most} for partition lda, which gives each client at least {LDA_MIN_SIZE} of "
            f"{len(labels):,} samples, got {num_clients}; lower it, or use more of the training data"
        )
    counts, classes = _class_sizes(labels)
    pool = Pool(counts, num_clients, LDA_MIN_SIZE)
    dealt = draw(pool, concentration, rng, max_tries)
    if dealt is None:
        raise _infeasible("lda", _lda_pools, counts, num_clients, concentration, max_tries)
    return [np.sort(part) for part in _deal(classes, dealt, rng)]


def fedgkd_groups(
    labels: Positions,
    num_clients: int,
    alpha: float | None,
    rng: np.random.RandomState,
    max_tries: int = MAX_TRIES,
) -> list[Positions]:
    """FedGKD's and FedDF's clients: Dirichlet within groups of ten, then cut into K equal chunks of int(N/K).

    The shuffled samples are given to groups of ten clients (the last one has the rest), each group's share being that
    of its clients; in a group each must get int(half of its fair part). All groups' clients are then laid end to end
    and cut anew, so that all have equal size and borders shift a little. Fewer than K samples are left over at the end
    and unused.

    Source: code of Yao et al., FedGKD (2021), built on that of Lin et al., FedDF (2020). It refuses K < 10; here such
    clients are one group.

    Args:
        labels: (N,) labels.
        num_clients: K.
        alpha: Dirichlet concentration, > 0; small is non-IID.
        rng: source of the draws.
        max_tries: draws for each group before giving up, see `bench.data.dirichlet.draw`.

    Raises:
        PartitionError: no draw gave every client of a group half of its fair part.
        UsageError: fewer samples than clients, or no usable alpha.
    """
    concentration = _check(labels, num_clients, alpha)
    groups = _group_sizes(num_clients)
    shuffled = rng.permutation(len(labels))
    ends = [int(FEDGKD_GROUP / num_clients * len(labels)) * (index + 1) for index in range(len(groups) - 1)]
    laid: list[Positions] = []
    for members, clients in zip(np.split(shuffled, ends), groups, strict=True):
        counts, classes = _class_sizes(labels[members])
        dealt = draw(_group_pool(counts, clients), concentration, rng, max_tries)
        if dealt is None:
            counts, _ = _class_sizes(labels)
            raise _infeasible("fedgkd_groups", _group_pools, counts, num_clients, concentration, max_tries)
        laid += [members[part] for part in _deal(classes, dealt, rng)]
    chunk = len(labels) // num_clients
    return [np.sort(part) for part in np.split(np.concatenate(laid)[: chunk * num_clients], num_clients)]


PARTITIONS: dict[str, Partition] = {
    "iid": Partition(iid, False, "equal parts, drawn at random", "McMahan et al. 2017"),
    "lda": Partition(
        lda, True, "Dirichlet shares of each class; unequal sizes, at least 10", "Wang et al. 2020 (FedMA)"
    ),
    "fedgkd_groups": Partition(
        fedgkd_groups, True, "Dirichlet shares within groups of ten clients; equal sizes", "Yao et al. 2021 (FedGKD)"
    ),
}


def _check(labels: Positions, num_clients: int, alpha: float | None) -> float:
    _check_clients(len(labels), num_clients)
    if alpha is None or not 0 < alpha < math.inf:
        raise UsageError(f"alpha must be a number > 0, the Dirichlet concentration, got {alpha}; try alpha=0.5")
    return alpha


def _check_clients(samples: int, num_clients: int) -> None:
    if not 1 <= num_clients <= samples:
        raise UsageError(
            f"num_clients must be in [1, {samples}], the samples there are to share out, got {num_clients}; "
            "lower it, or use more of the training data"
        )


def _class_sizes(labels: Positions) -> tuple[tuple[int, ...], Positions]:
    """(C,) samples of each class that occurs, and (N,) each sample's class as a place in that list."""
    _, classes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return tuple(sizes.tolist()), classes


def _deal(classes: Positions, counts: Positions, rng: np.random.RandomState) -> list[Positions]:
    """Give samples out by (C, K) counts: each class is shuffled, and each client's samples come class by class."""
    order = rng.permutation(len(classes))
    by_class = order[np.argsort(classes[order], kind="stable")]
    owner = np.repeat(np.tile(np.arange(counts.shape[1]), len(counts)), counts.ravel())
    by_client = by_class[np.argsort(owner, kind="stable")]
    return np.split(by_client, np.cumsum(counts.sum(axis=0))[:-1])


def _lda_pools(class_sizes: tuple[int, ...], num_clients: int) -> list[Pool]:
    return [Pool(class_sizes, num_clients, LDA_MIN_SIZE)]


def _group_sizes(num_clients: int) -> list[int]:
    """Clients of each group: tens, then the rest."""
    full = math.ceil(num_clients / FEDGKD_GROUP) - 1
    return [FEDGKD_GROUP] * full + [num_clients - FEDGKD_GROUP * full]


def _group_pool(class_sizes: tuple[int, ...], clients: int) -> Pool:
    return Pool(class_sizes, clients, int(0.5 * sum(class_sizes) / clients))


def _group_pools(class_sizes: tuple[int, ...], num_clients: int) -> list[Pool]:
    """The kinds of group there are, each with every class in proportion."""
    groups = sorted(set(_group_sizes(num_clients)))
    return [_group_pool(tuple(size * group // num_clients for size in class_sizes), group) for group in groups]


def _infeasible(
    name: str,
    pools: Callable[[tuple[int, ...], int], list[Pool]],
    class_sizes: tuple[int, ...],
    num_clients: int,
    alpha: float,
    max_tries: int,
) -> PartitionError:
    """Says what was asked for, how far from it the draws were, and the nearest requests that can be met."""

    def often(clients: int, concentration: float) -> bool:
        rng = np.random.RandomState(0)
        rates = [acceptance(pool, concentration, rng, PROBES) for pool in pools(class_sizes, clients)]
        return min(rates) > OFTEN

    hardest = pools(class_sizes, num_clients)[-1]
    tries = hardest.tries(max_tries)
    fewer = sorted({num_clients * tenth // 10 for tenth in TENTHS} - {0, num_clients}, reverse=True)
    better_alpha = next((value for value in LADDER if value > alpha and often(num_clients, value)), None)
    better_clients = next((value for value in fewer if often(value, alpha)), None)
    steps = [f"alpha={better_alpha:g}"] if better_alpha else []
    steps += [f"num_clients={better_clients}"] if better_clients else []
    return PartitionError(
        f"partition {name} with alpha={alpha:g} and num_clients={num_clients} on {sum(class_sizes):,} samples: none of "
        f"{tries:,} draws gave every client at least {hardest.min_size:,} samples, so the acceptance rate is below "
        f"{3 / tries:.2g}; " + (f"try {' or '.join(steps)}" if steps else "use more data, or partition=iid")
    )
