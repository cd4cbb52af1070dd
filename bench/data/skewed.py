"""The papers' partitions that share classes out by Dirichlet draws: `lda`, `fedgkd_groups`, `fedgen`, `fedkf`.

Axes: N samples, C classes, K clients, G groups of clients, M clients of a group.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bench.data.dealing import Wanted, check_none_empty, class_sizes, deal, deal_dirichlet, infeasible
from bench.data.dirichlet import Pool, draw

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Positions = NDArray[np.int64]
    Counts = NDArray[np.int64]
    Shares = NDArray[np.float64]

LDA_MIN_SIZE = 10
FEDGKD_GROUP = 10
FEDGEN_MIN_PER_CLASS = 10


def lda(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Latent Dirichlet allocation with balancing: clients differ in size and in classes, and hold 10 samples or more.

    Source: Wang et al., FedMA (2020), and its code; also Li et al. (MOON 2021, NIID-Bench 2022).

    Args:
        wanted: what is asked for; needs alpha.
        rng: source of the draws.

    Raises:
        PartitionError: there are fewer than 10 samples a client, or no draw gave every client 10.
        UsageError: fewer samples than clients, or no usable alpha.
    """
    return deal_dirichlet("lda", lda_pool, wanted, rng)


def fedgen(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """As `lda`, but each client holds 10 samples for each class that there is, and the classes take turns in any order.

    The order decides who gets the last classes: those clients that have not yet their fair part. The code also thins
    out the data, to a tenth of EMNIST's letters; here `fraction` does.

    Source: code of Zhu et al., FedGen (2021), for EMNIST.

    Args:
        wanted: what is asked for; needs alpha.
        rng: source of the draws.

    Raises:
        PartitionError: there are fewer than 10*C samples a client, or no draw gave every client as many.
        UsageError: fewer samples than clients, or no usable alpha.
    """
    sizes, classes = class_sizes(wanted.labels)
    reordered = replace(wanted, labels=rng.permutation(len(sizes))[classes])
    return deal_dirichlet("fedgen", _fedgen_pool, reordered, rng)


def fedgkd_groups(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """FedGKD's and FedDF's clients: Dirichlet within groups of ten, then cut into K equal chunks of int(N/K).

    The shuffled samples are given to groups of ten clients (the last one has the rest), each group's share being that
    of its clients; in a group each must get int(half of its fair part). All groups' clients are then laid end to end
    and cut anew, so that all have equal size and borders shift a little. Fewer than K samples are left over at the end
    and unused.

    Source: code of Yao et al., FedGKD (2021), built on that of Lin et al., FedDF (2020). It refuses K < 10; here such
    clients are one group.

    Args:
        wanted: what is asked for; needs alpha; `max_tries` are made for each group.
        rng: source of the draws.

    Raises:
        PartitionError: no draw gave every client of a group half of its fair part.
        UsageError: fewer samples than clients, or no usable alpha.
    """
    alpha, labels, num_clients = wanted.concentration(), wanted.labels, wanted.num_clients
    groups = _group_sizes(num_clients, FEDGKD_GROUP)
    shuffled = rng.permutation(len(labels))
    ends = [int(FEDGKD_GROUP / num_clients * len(labels)) * (index + 1) for index in range(len(groups) - 1)]
    laid: list[Positions] = []
    for members, clients in zip(np.split(shuffled, ends), groups, strict=True):
        sizes, classes = class_sizes(labels[members])
        dealt = draw(_group_pool(sizes, clients), alpha, rng, wanted.max_tries)
        if dealt is None:
            raise infeasible("fedgkd_groups", _group_pools, wanted)
        laid += [members[part] for part in deal(classes, dealt, rng)]
    chunk = len(labels) // num_clients
    return [np.sort(part) for part in np.split(np.concatenate(laid)[: chunk * num_clients], num_clients)]


def fedkf(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """FedKF's clients: each is once the one with most of a class before any is so again; no smallest size.

    Clients form groups of as many as there are classes (the last one has the rest), and each class is shared out
    between the groups in proportion. In a group, a class's shares are Dirichlet's, given that the client with the
    largest share has not been the one with the largest share of an earlier class; when all have been, all may be again.
    What rounding down leaves of a class goes to one group, or client, drawn at random. The printed setting has each
    client test on a fifth of its samples: `local_test_fraction=0.2`.

    The code draws again until the largest share falls to such a client. As no client is special, drawing that client,
    and letting it change places with the one that has the largest share, gives the same distribution at once.

    Source: code of Zhou et al., FedKF (journal version of 2024).

    Args:
        wanted: what is asked for; needs alpha.
        rng: source of the draws.

    Raises:
        PartitionError: a client was left without samples, as can happen where a class has hardly more than K.
        UsageError: fewer samples than clients, or no usable alpha.
    """
    alpha = wanted.concentration()
    sizes, classes = class_sizes(wanted.labels)
    groups = np.array(_group_sizes(wanted.num_clients, len(sizes)))
    of_group = _round_down(np.tile(groups / groups.sum(), (len(sizes), 1)), np.array(sizes), rng)
    shares = [_turns(len(sizes), clients, alpha, rng) for clients in groups]
    counts = np.hstack([_round_down(share, size, rng) for share, size in zip(shares, of_group.T, strict=True)])
    check_none_empty("fedkf", counts)
    return [np.sort(part) for part in deal(classes, counts, rng)]


def lda_pool(sizes: tuple[int, ...], num_clients: int) -> Pool:
    """What `lda` draws, from (C,) class sizes."""
    return Pool(sizes, num_clients, LDA_MIN_SIZE)


def _fedgen_pool(sizes: tuple[int, ...], num_clients: int) -> Pool:
    return Pool(sizes, num_clients, FEDGEN_MIN_PER_CLASS * len(sizes))


def _group_sizes(num_clients: int, size: int) -> list[int]:
    """Clients of each group: full groups, then the rest."""
    full = math.ceil(num_clients / size) - 1
    return [size] * full + [num_clients - size * full]


def _group_pool(sizes: tuple[int, ...], clients: int) -> Pool:
    return Pool(sizes, clients, int(0.5 * sum(sizes) / clients))


def _group_pools(sizes: tuple[int, ...], num_clients: int) -> list[Pool]:
    """The kinds of group there are, each with every class in proportion."""
    groups = sorted(set(_group_sizes(num_clients, FEDGKD_GROUP)))
    return [_group_pool(tuple(size * group // num_clients for size in sizes), group) for group in groups]


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
