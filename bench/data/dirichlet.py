"""Partitions that share classes out by Dirichlet draws: the papers' own, and what alpha means in other benchmarks.

The rule is that of FedMA (Wang et al. 2020, https://arxiv.org/abs/2002.06440), NIID-Bench and FedDF: class by class,
shares p ~ Dir(alpha) over the clients, p = 0 for clients that already hold their fair part of all samples, p
renormalised, the class cut by the cumulative sums; the whole draw again until the smallest client is large enough. A
pool that is not balanced goes without the zeros. The same alpha gives other data in each benchmark, because they
disagree on the smallest client and on balancing; each stands here under its own name.

Only the counts are drawn, many tries side by side: if three draws in ten thousand are accepted, cutting the samples
for each would take minutes. Every partition takes what is asked for and the source of its draws, and gives the
ascending positions of each client's samples; it raises UsageError if no draw gives every client enough samples, there
are fewer samples than clients, or alpha is not usable.

Axes: N samples, C classes, K clients, T tries, M clients of a group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bench.data.dealing import MAX_TRIES, Counts, Positions, Wanted, batches, check_none_empty, class_sizes, deal, tries
from bench.errors import UsageError

Shares = NDArray[np.float64]
MIN_SIZE = 10  # of FedMA, NIID-Bench and FL-bench
FEDGKD_GROUP = 10
FEDGEN_MIN_PER_CLASS = 10
PFLLIB_MIN_SIZE = 40  # one test batch of ten out of a quarter of a client's samples


@dataclass(frozen=True)
class Pool:
    """Samples to be dealt to a group of clients."""

    class_sizes: tuple[int, ...]
    num_clients: int
    min_size: int
    balanced: bool = True  # whether a client that holds its fair part gets no more of later classes

    @property
    def numbers(self) -> int:
        """Numbers that one try draws."""
        return max(1, len(self.class_sizes) * self.num_clients)


# --- partitions


def lda(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Latent Dirichlet allocation with balancing: clients differ in size and in classes, and hold 10 samples or more.

    Source: Wang et al., FedMA (2020), and its code; also Li et al. (MOON 2021, NIID-Bench 2022, whose
    `noniid-labeldir` with its beta this is).
    """
    return _deal_first_accepted("lda", wanted, rng)


def fedgen(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """As `lda`, but each client holds 10 samples for each class that there is, and the classes take turns in any order.

    The order decides who gets the last classes: those clients that have not yet their fair part. The code also thins
    out the data, to a tenth of EMNIST's letters; here `fraction` does.

    Source: code of Zhu et al., FedGen (2021), for EMNIST.
    """
    sizes, classes = class_sizes(wanted.labels)
    reordered = replace(wanted, labels=rng.permutation(len(sizes))[classes])
    return _deal_first_accepted("fedgen", reordered, rng, FEDGEN_MIN_PER_CLASS * len(sizes))


def pfllib(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """PFLlib's `dir`: balanced, at least 40 samples a client, or half of its fair part if that is fewer.

    PFLlib merges the training and the test set before, and has each client test on a quarter of its samples
    (`local_test_fraction=0.25`). Its earlier versions ask for one sample a client.

    Source: Zhang et al., PFLlib (2025), and its code.
    """
    # PFLlib would leave a client without samples if there are hardly more of them than of clients.
    least = max(1, min(PFLLIB_MIN_SIZE, len(wanted.labels) // (2 * wanted.num_clients)))
    return _deal_first_accepted("pfllib", wanted, rng, least)


def fl_bench(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """FL-bench's Dirichlet: NOT balanced, at least 10 samples a client (the default of its argument).

    A client that has much goes on getting more, so sizes differ far more than under `lda`. FL-bench merges the training
    and the test set before, and has each client test on a quarter of its samples (`local_test_fraction=0.25`). Its
    earlier versions are balanced and ask for 40.

    Source: code of FL-bench.
    """
    return _deal_first_accepted("fl_bench", wanted, rng, balanced=False)


def fedgkd_groups(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """FedGKD's and FedDF's clients: Dirichlet within groups of ten, then cut into K equal chunks of int(N/K).

    The shuffled samples are given to groups of ten clients (the last one has the rest), each group's share being that
    of its clients; in a group each must get int(half of its fair part), in `max_tries` draws. All groups' clients are
    then laid end to end and cut anew, so that all have equal size and borders shift a little. Fewer than K samples are
    left over at the end and unused.

    Source: code of Yao et al., FedGKD (2021), built on that of Lin et al., FedDF (2020). It refuses K < 10; here such
    clients are one group.
    """
    labels, num_clients = wanted.labels, wanted.num_clients
    groups = _group_sizes(num_clients, FEDGKD_GROUP)
    shuffled = rng.permutation(len(labels))
    ends = [int(FEDGKD_GROUP / num_clients * len(labels)) * (index + 1) for index in range(len(groups) - 1)]
    laid: list[Positions] = []
    for members, clients in zip(np.split(shuffled, ends), groups, strict=True):
        sizes, classes = class_sizes(labels[members])
        pool = Pool(sizes, clients, int(0.5 * sum(sizes) / clients))
        dealt = _first_accepted("fedgkd_groups", pool, wanted, rng)
        laid += [members[part] for part in deal(classes, dealt, rng)]
    chunk = len(labels) // num_clients
    return [np.sort(part) for part in np.split(np.concatenate(laid)[: chunk * num_clients], num_clients)]


def fedkf(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """FedKF's clients, who take turns at having the largest share of a class; there is no smallest size.

    Clients form groups of as many as there are classes (the last one has the rest), and each class is shared out
    between the groups in proportion. In a group, a class's shares are Dirichlet's, given that the client with the
    largest share has not been the one with the largest share of an earlier class; when all have been, all may be again.
    What rounding down leaves of a class goes to one group, or client, drawn at random; a client may be left without
    samples if a class has hardly more than K. The printed setting has each client test on a fifth of its samples:
    `local_test_fraction=0.2`.

    The code draws again until the largest share falls to such a client. As no client is special, drawing that client,
    and letting it change places with the one that has the largest share, gives the same distribution at once.

    Source: code of Zhou et al., FedKF (journal version of 2024).
    """
    alpha = wanted.concentration()
    sizes, classes = class_sizes(wanted.labels)
    groups = np.array(_group_sizes(wanted.num_clients, len(sizes)))
    of_group = _round_down(np.tile(groups / groups.sum(), (len(sizes), 1)), np.array(sizes), rng)
    shares = [_turns(len(sizes), clients, alpha, rng) for clients in groups]
    counts = np.hstack([_round_down(share, size, rng) for share, size in zip(shares, of_group.T, strict=True)])
    check_none_empty("fedkf", counts)
    return [np.sort(part) for part in deal(classes, counts, rng)]


# --- draws


def draw(pool: Pool, alpha: float, rng: np.random.RandomState, max_tries: int = MAX_TRIES) -> Counts | None:
    """(C, K) samples of each class that each client gets, in the first accepted draw; None if there is none.

    `rng` moves on by whole batches of tries, so what it gives afterwards depends on the draws made here.
    """
    for batch in batches(pool.numbers, max_tries):
        counts, accepted = propose(pool, alpha, rng, batch)
        if accepted.any():
            return counts[:, accepted.argmax()]
    return None


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
            shares *= held < sum(pool.class_sizes) / pool.num_clients
        total = shares.sum(axis=1, keepdims=True)
        # Nobody may be left to give the class to: then there is nothing to renormalise by, and the draw is void.
        sound &= total[:, 0] > 0
        np.divide(shares, total, out=shares, where=total > 0)
        edges = (np.cumsum(shares, axis=1) * size).astype(np.int64)
        edges[:, -1] = size
        counts[label] = np.diff(edges, axis=1, prepend=0)
        held += counts[label]
    return counts, sound & (held.min(axis=1) >= pool.min_size)


def _deal_first_accepted(
    name: str, wanted: Wanted, rng: np.random.RandomState, min_size: int = MIN_SIZE, balanced: bool = True
) -> list[Positions]:
    """Give all samples to all clients by the first accepted draw, by the rule of the partition `name`."""
    samples = len(wanted.labels)
    if wanted.num_clients * min_size > samples:
        raise UsageError(
            f"num_clients must be <= {samples // min_size} for partition {name}, which gives each client at least "
            f"{min_size:,} of {samples:,} samples, got {wanted.num_clients}; lower it, or use more of the training data"
        )
    sizes, classes = class_sizes(wanted.labels)
    pool = Pool(sizes, wanted.num_clients, min_size, balanced)
    return [np.sort(part) for part in deal(classes, _first_accepted(name, pool, wanted, rng), rng)]


def _first_accepted(name: str, pool: Pool, wanted: Wanted, rng: np.random.RandomState) -> Counts:
    """(C, K) counts of the first accepted draw for the partition `name`; raises UsageError if there is none."""
    dealt = draw(pool, wanted.concentration(), rng, wanted.max_tries)
    if dealt is None:
        raise UsageError(
            f"partition {name} with alpha={wanted.alpha:g} and num_clients={wanted.num_clients} on "
            f"{len(wanted.labels):,} samples: none of {tries(pool.numbers, wanted.max_tries):,} draws gave every "
            f"client at least {pool.min_size:,} samples; raise alpha, lower num_clients, or use more training data"
        )
    return dealt


def _group_sizes(num_clients: int, size: int) -> list[int]:
    """Clients of each group: full groups, then the rest."""
    full = math.ceil(num_clients / size) - 1
    return [size] * full + [num_clients - size * full]


def _turns(classes: int, clients: int, alpha: float, rng: np.random.RandomState) -> Shares:
    """(C, M) Dirichlet shares whose largest one falls to each client in turn, in an order drawn anew for each turn."""
    shares = rng.dirichlet(np.full(clients, alpha), classes)
    # At a tiny alpha all of a draw's gamma variates can underflow; its limit gives all to one client.
    shares[~np.isfinite(shares).all(axis=1)] = np.eye(1, clients)
    rounds = math.ceil(classes / clients)
    chosen = np.concatenate([rng.permutation(clients) for _ in range(rounds)])[:classes]
    each, largest = np.arange(classes), shares.argmax(axis=1)
    shares[each, chosen], shares[each, largest] = shares[each, largest], shares[each, chosen]
    return shares


def _round_down(shares: Shares, sizes: Positions, rng: np.random.RandomState) -> Counts:
    """(C, M) whole samples of (C,) class sizes by (C, M) shares, rounded down; the rest of a class to one at random."""
    counts = (shares * sizes[:, None]).astype(np.int64)
    lucky = rng.randint(shares.shape[1], size=len(shares))
    counts[np.arange(len(shares)), lucky] += sizes - counts.sum(axis=1)
    return counts
