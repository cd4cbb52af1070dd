"""Partitions of the papers and of other benchmarks that divide each class by Dirichlet draws.

The rule is that of FedMA (Wang et al. 2020, https://arxiv.org/abs/2002.06440), NIID-Bench and
FedDF: for each class, draw shares p ~ Dir(alpha) over the clients, set p = 0 for clients that
already hold their fair part of all samples, renormalise p and cut the class at the cumulative sums;
repeat the whole draw until the smallest client is large enough. A pool that is not balanced skips
the zeros. The same alpha gives other data in each benchmark, because they disagree on the smallest
client and on balancing; each is here under its own name.

Only the counts are drawn, many tries at once: if three draws in ten thousand are accepted, cutting
the samples for each would take minutes. Every partition takes the request and a random generator,
and returns the ascending positions of each client's samples; it raises UsageError if no draw gives
every client enough samples, there are fewer samples than clients, or alpha is not usable.

Axes: N samples, C classes, K clients, T tries, M clients of a group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bench.data.dealing import (
    Counts,
    Positions,
    Wanted,
    batches,
    check_none_empty,
    class_sizes,
    deal,
    deal_by_class,
    tries,
)
from bench.errors import UsageError

Shares = NDArray[np.float64]
MIN_SIZE = 10  # of FedMA, NIID-Bench and FL-bench
HOPELESS = -8.0  # logarithm of the expected number of accepted draws below which no more are made
ENOUGH_SEEN = 1_000  # clients seen before that number is estimated
FEDGKD_GROUP = 10
FEDGEN_MIN_PER_CLASS = 10
PFLLIB_MIN_SIZE = 40  # one test batch of ten out of a quarter of a client's samples


@dataclass(frozen=True)
class Pool:
    """A pool of samples to deal to a group of clients."""

    class_sizes: tuple[int, ...]
    num_clients: int
    min_size: int
    balanced: bool = True  # whether a client that holds its fair part gets no more of later classes

    @property
    def numbers(self) -> int:
        """The count of random numbers that a try draws."""
        return max(1, len(self.class_sizes) * self.num_clients)


# --- partitions


def lda(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Deal by balanced latent Dirichlet allocation.

    Clients differ in size and classes, and hold 10 samples or more.

    Source: Wang et al., FedMA (2020), and its code; also Li et al. (MOON 2021; NIID-Bench 2022,
    which calls it `noniid-labeldir`, and alpha beta).
    """
    return _deal_first_accepted("lda", wanted, rng)


def fedgen(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Deal as `lda` does, but take the C classes in random order.

    Each client gets at least 10 C samples. The order matters because the last classes go to the
    clients that do not have their fair part yet. The code also reduces the data, to a tenth of
    EMNIST's letters; here `fraction` does.

    Source: code of Zhu et al., FedGen (2021), for EMNIST.
    """
    sizes, classes = class_sizes(wanted.labels)
    reordered = replace(wanted, labels=rng.permutation(len(sizes))[classes])
    return _deal_first_accepted("fedgen", reordered, rng, FEDGEN_MIN_PER_CLASS * len(sizes))


def pfllib(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Deal by PFLlib's `dir`: balanced, at least 40 samples a client, or half of its fair part.

    The smaller of the two numbers counts. PFLlib first merges the training and the test set, and
    each client tests on a quarter of its samples (`local_test_fraction=0.25`). Its earlier versions
    require one sample a client.

    Source: Zhang et al., PFLlib (2025), and its code.
    """
    # PFLlib would leave a client without samples if there are hardly more samples than clients.
    min_size = max(1, min(PFLLIB_MIN_SIZE, len(wanted.labels) // (2 * wanted.num_clients)))
    return _deal_first_accepted("pfllib", wanted, rng, min_size)


def fl_bench(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Deal by FL-bench's Dirichlet rule: NOT balanced, at least 10 samples a client.

    The 10 are the default of its argument. A client with many samples keeps getting more, so sizes
    differ far more than under `lda`. FL-bench first merges the training and the test set, and each
    client tests on a quarter of its samples (`local_test_fraction=0.25`). Its earlier versions are
    balanced and require 40.

    Source: code of FL-bench.
    """
    return _deal_first_accepted("fl_bench", wanted, rng, balanced=False)


def fedgkd_groups(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Deal as FedGKD and FedDF do: Dirichlet within groups of ten clients, then K equal chunks.

    A chunk has int(N/K) samples. The shuffled samples go to groups of ten clients (the last group
    has the remaining clients) in proportion to their clients; in a group each client must get
    int(half of its fair part), within `max_tries` draws. The samples of all clients are then
    concatenated and cut anew, so that all clients have equal size and borders shift a little. Fewer
    than K samples remain at the end, unused.

    Source: code of Yao et al., FedGKD (2021), built on that of Lin et al., FedDF (2020). It refuses
    K < 10; here fewer than ten clients form one group.
    """
    labels = wanted.labels
    num_clients = wanted.num_clients
    groups = _group_sizes(num_clients, FEDGKD_GROUP)
    shuffled = rng.permutation(len(labels))
    group_samples = int(FEDGKD_GROUP / num_clients * len(labels))
    ends = [group_samples * number for number in range(1, len(groups))]
    dealt: list[Positions] = []
    for members, clients in zip(np.split(shuffled, ends), groups, strict=True):
        sizes, classes = class_sizes(labels[members])
        pool = Pool(sizes, clients, int(0.5 * sum(sizes) / clients))
        counts = _first_accepted("fedgkd_groups", pool, wanted, rng)
        dealt += [members[part] for part in deal_by_class(classes, counts, rng)]
    chunk = len(labels) // num_clients
    kept = np.concatenate(dealt)[: chunk * num_clients]
    return [np.sort(part) for part in np.split(kept, num_clients)]


def fedkf(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Deal as FedKF does: clients take turns at having the largest share of a class.

    There is no smallest size. A group has as many clients as there are classes; the last one has
    the remaining clients. Each class is divided among the groups in proportion. In a group, a
    class's shares are drawn from a Dirichlet distribution, given that the largest share goes to a
    client that has not had the largest share of an earlier class. Once all have, all may again. The
    remainder of a class after rounding down goes to one group, or client, drawn at random. A client
    may get no samples if a class has hardly more than K. In the printed setting each client tests
    on a fifth of its samples: `local_test_fraction=0.2`.

    The code redraws until the largest share falls to such a client. Because no client is special,
    drawing that client and swapping its share with the largest one gives the same distribution at
    once.

    Source: code of Zhou et al., FedKF (journal version of 2024).
    """
    alpha = wanted.concentration()
    sizes, classes = class_sizes(wanted.labels)
    groups = np.array(_group_sizes(wanted.num_clients, len(sizes)))
    group_shares = np.tile(groups / groups.sum(), (len(sizes), 1))
    group_counts = _round_down(group_shares, np.array(sizes), rng)
    shares = [_turns(len(sizes), clients, alpha, rng) for clients in groups]
    counts_by_group = []
    for share, group_sizes in zip(shares, group_counts.T, strict=True):
        counts_by_group.append(_round_down(share, group_sizes, rng))
    counts = np.hstack(counts_by_group)
    check_none_empty("fedkf", counts)
    return deal(classes, counts, rng)


def hsu(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Deal as FedAvgM's paper does: each client draws class shares q ~ Dir(alpha p).

    It then draws samples by these shares. p are the shares of the classes in the data, all alike in
    CIFAR-10; code of others that draws from Dir(alpha) for each of C classes has an alpha of C
    times as much here. Clients are equal but for one sample, and take their samples in turn,
    without replacement. A class that is used up leaves the shares, which are renormalised. If a
    client's shares fall on such classes only, it takes the other classes as they remain, which the
    paper leaves open.

    Source: Hsu, Qi, Brown, Measuring the Effects of Non-Identical Data Distribution for Federated
    Visual Classification (2019), section 3.
    """
    alpha = wanted.concentration()
    sizes, classes = class_sizes(wanted.labels)
    remaining = np.array(sizes)
    prior = remaining / remaining.sum()
    counts = np.zeros((len(sizes), wanted.num_clients), np.int64)
    concentration = np.maximum(alpha * prior, np.finfo(float).tiny)
    for client, part in enumerate(np.array_split(np.arange(len(classes)), wanted.num_clients)):
        shares = rng.dirichlet(concentration)
        # At a tiny alpha all gamma variates can underflow; the limit is a single class.
        if not np.isfinite(shares).all():
            shares = rng.multinomial(1, prior).astype(np.float64)
        counts[:, client] = _take(shares, remaining, len(part), rng)
        remaining -= counts[:, client]
    return deal(classes, counts, rng)


def _take(
    shares: NDArray[np.float64], remaining: Counts, size: int, rng: np.random.RandomState
) -> Counts:
    """Draw (C,) samples of each class, `size` in all, by (C,) `shares`, and no more than remain."""
    taken = np.zeros_like(remaining)
    while taken.sum() < size:
        left = remaining - taken
        weights = shares * (left > 0)
        if not weights.sum() > 0:
            weights = left.astype(np.float64)
        drawn = rng.multinomial(size - taken.sum(), weights / weights.sum())
        # What exceeds a class is drawn again from other classes, as if drawn sample by sample.
        taken += np.minimum(drawn, left)
    return taken


# --- draws


def propose(
    pool: Pool, alpha: float, rng: np.random.RandomState, tries: int
) -> tuple[Counts, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Return (C, T, K) counts of `tries` draws, and (T,) which of them are accepted.

    Classes are drawn in turn because balancing depends on the samples held so far; tries are
    independent.
    """
    held = np.zeros((tries, pool.num_clients), dtype=np.int64)
    valid = np.ones(tries, dtype=np.bool_)
    counts = np.empty((len(pool.class_sizes), tries, pool.num_clients), dtype=np.int64)
    concentration = np.full(pool.num_clients, alpha)
    for label, size in enumerate(pool.class_sizes):
        shares = rng.dirichlet(concentration, tries)
        # At a tiny alpha all of a draw's gamma variates can underflow, which makes its shares NaN
        # or infinite.
        shares[~np.isfinite(shares).all(axis=1)] = 0
        if pool.balanced:
            shares *= held < sum(pool.class_sizes) / pool.num_clients
        total = shares.sum(axis=1, keepdims=True)
        # If no client is left to take the class, there is nothing to renormalise by, and the draw
        # is void.
        valid &= total[:, 0] > 0
        np.divide(shares, total, out=shares, where=total > 0)
        edges = (np.cumsum(shares, axis=1) * size).astype(np.int64)
        edges[:, -1] = size
        counts[label] = np.diff(edges, axis=1, prepend=0)
        held += counts[label]
    return counts, valid & (held.min(axis=1) >= pool.min_size)


def _deal_first_accepted(
    name: str,
    wanted: Wanted,
    rng: np.random.RandomState,
    min_size: int = MIN_SIZE,
    balanced: bool = True,
) -> list[Positions]:
    """Deal all samples to all clients by the first accepted draw.

    `name`: of the partition, for messages.
    """
    samples = len(wanted.labels)
    if samples < min_size:
        raise UsageError(
            f"partition {name} gives each client at least {min_size:,} samples, and there are "
            f"{samples:,} to train on: use more data, or another partition"
        )
    if wanted.num_clients * min_size > samples:
        raise UsageError(
            f"num_clients must be <= {samples // min_size} for partition {name}, which gives each "
            f"client at least {min_size:,} of {samples:,} samples, got {wanted.num_clients}; "
            "lower it, or use more of the training data"
        )
    sizes, classes = class_sizes(wanted.labels)
    pool = Pool(sizes, wanted.num_clients, min_size, balanced)
    counts = _first_accepted(name, pool, wanted, rng)
    return deal(classes, counts, rng)


def _first_accepted(name: str, pool: Pool, wanted: Wanted, rng: np.random.RandomState) -> Counts:
    """Return the first accepted draw of partition `name`: (C, K) samples of each class and client.

    `rng` advances by whole batches of tries, so its later values depend on the draws made here.

    Raises:
        UsageError: no draw is accepted, or the first draws show that none will be.
    """
    clients_drawn = 0
    clients_with_enough = 0
    most = tries(pool.numbers, wanted.max_tries)
    for batch in batches(pool.numbers, wanted.max_tries):
        counts, accepted = propose(pool, wanted.concentration(), rng, batch)
        if accepted.any():
            return counts[:, accepted.argmax()]
        clients_drawn += batch * pool.num_clients
        clients_with_enough += int((counts.sum(axis=0) >= pool.min_size).sum())
        share = clients_with_enough / clients_drawn
        if _hopeless(share, clients_drawn, pool.num_clients, most):
            reason = (
                f"a client gets {pool.min_size:,} or more in {share:.0%} of cases, and in none of "
                f"{most:,} draws would all of them"
            )
            raise _refusal(name, wanted, reason)
    reason = f"none of {most:,} draws gave every client at least {pool.min_size:,}"
    raise _refusal(name, wanted, reason)


def _hopeless(share: float, seen: int, num_clients: int, tries: int) -> bool:
    """Tell whether no draw of `tries` will give all clients enough samples.

    The clients of a draw are taken as independent. That overstates the chance, because a client
    that gets more leaves less.

    Args:
        share: of the clients with enough samples among the `seen` ones.
        seen: number of clients drawn so far.
        num_clients: clients of a draw.
        tries: number of draws.
    """
    if seen < ENOUGH_SEEN:
        return False
    chance = max(share, 1 / seen)  # of a client
    return num_clients * math.log(chance) + math.log(tries) < HOPELESS


def _refusal(name: str, wanted: Wanted, reason: str) -> UsageError:
    """Return the error of a partition of which no draw is accepted.

    It names partitions that can serve the request.
    """
    others = [other for other in ("fedgkd_groups", "fedkf") if other != name]
    return UsageError(
        f"partition {name} with alpha={wanted.alpha:g} and num_clients={wanted.num_clients} on "
        f"{len(wanted.labels):,} samples: {reason}; raise alpha, lower num_clients, use more "
        f"training data, or a partition that can: hsu with this alpha ({' and '.join(others)} "
        "may), or shards and k_classes without one"
    )


def _group_sizes(num_clients: int, size: int) -> list[int]:
    """Return the number of clients in each group: full groups, then the remaining clients."""
    full = math.ceil(num_clients / size) - 1
    remaining = num_clients - size * full
    return [size] * full + [remaining]


def _turns(classes: int, clients: int, alpha: float, rng: np.random.RandomState) -> Shares:
    """Draw (C, M) Dirichlet shares, of which each client in turn has the largest.

    The order of the clients is drawn anew for each turn.
    """
    shares = rng.dirichlet(np.full(clients, alpha), classes)
    # At a tiny alpha all of a draw's gamma variates can underflow; its limit gives all to one
    # client.
    underflown = ~np.isfinite(shares).all(axis=1)
    shares[underflown] = np.eye(1, clients)
    turns = math.ceil(classes / clients)
    chosen = np.concatenate([rng.permutation(clients) for _ in range(turns)])[:classes]
    labels = np.arange(classes)
    largest = shares.argmax(axis=1)
    largest_shares = shares[labels, largest]
    shares[labels, largest] = shares[labels, chosen]
    shares[labels, chosen] = largest_shares
    return shares


def _round_down(shares: Shares, sizes: Positions, rng: np.random.RandomState) -> Counts:
    """Round (C, M) shares of (C,) class sizes down to whole samples.

    The remainder of a class goes to one client, or group, at random.
    """
    counts = (shares * sizes[:, None]).astype(np.int64)
    remainders = sizes - counts.sum(axis=1)
    lucky = rng.randint(shares.shape[1], size=len(shares))
    counts[np.arange(len(shares)), lucky] += remainders
    return counts
