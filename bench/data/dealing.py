"""Partitions without a concentration, and what all share: the request, redraws, dealing.

A partition takes the labels and returns, for each client, the ascending positions of its samples.
It raises UsageError if no draw gives every client samples, if there are fewer samples than clients,
or if the data lack the classes, sources or writers that it needs. Draws come from numpy's
RandomState, whose stream numpy never changes, so a seed always gives the same clients.

Axes: N samples, C classes, K clients, T tries.
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
Owned = NDArray[np.bool_]
Partitioner = Callable[["Wanted", np.random.RandomState], list[Positions]]

MAX_TRIES = 100_000
MOST_ALPHA = 1e300  # gamma variates of a larger one overflow in their sum over clients
# Limits the time of a request that cannot be met (a few seconds), in a unit that is the same on
# every machine: numbers drawn, C*K for each try. It reduces MAX_TRIES only if C*K > 1,000.
MAX_NUMBERS = 100_000_000
# Batches of tries grow from one (most first draws are accepted) to as many as fit into the
# processor's cache.
GROWTH = 4
LARGEST_BATCH = 200_000
PATHOLOGICAL_CLASSES = 6
DRAWN_WRITERS = 2_000
# FedProto: how far a client's number of classes may be from the mean, and the samples of a class
# that it holds, of which 40 are its own tests.
WAYS_SPREAD = 2
FEWEST_SHOTS = 139
MOST_SHOTS = 140


@dataclass(frozen=True, eq=False)
class Wanted:
    """A request for a partition.

    Args:
        alpha: Dirichlet concentration, > 0; near 0 each class goes to one client, large values deal
            evenly.
    """

    labels: Positions  # (N,) labels of the samples to share out
    num_clients: int  # clients K
    alpha: float | None = None
    groups: Positions | None = None  # (N,) source or writer of each sample, if it is recorded
    max_tries: int = MAX_TRIES  # draws before giving up
    classes_per_client: int = 2  # classes, or shards, of each client, for partitions that need it

    def __post_init__(self) -> None:
        """Raise UsageError unless there is a sample for every client."""
        if not 1 <= self.num_clients <= len(self.labels):
            raise UsageError(
                f"num_clients must be in [1, {len(self.labels)}], the samples there are to share "
                f"out, got {self.num_clients}; lower it, or use more of the training data"
            )

    def concentration(self) -> float:
        """Return alpha; raises UsageError if it is missing or unusable."""
        if self.alpha is None or not 0 < self.alpha < math.inf:
            raise UsageError(
                f"alpha must be a number > 0, the Dirichlet concentration, got {self.alpha}; "
                "try alpha=0.5"
            )
        if self.alpha > MOST_ALPHA:
            raise UsageError(
                f"alpha, the Dirichlet concentration, must be <= {MOST_ALPHA:g}, got "
                f"{self.alpha:g}; lower it, or take partition iid for clients that are alike"
            )
        return self.alpha


@dataclass(frozen=True)
class Partition:
    """A way to give samples to clients.

    Args:
        function: takes the request and the generator; returns K ascending arrays of positions.
        needs_alpha: whether it depends on `Wanted.alpha`.
        summary: one line on what clients get.
        groups: what it needs of each sample besides the class: `source`, `writer`, or empty for
            nothing.
        needs_classes: whether it depends on `Wanted.classes_per_client`.
        per_class: mean number of samples of each of a client's classes, if other samples are
            unused; 0 if all samples are given to clients. Estimates of time use it.
    """

    function: Partitioner
    needs_alpha: bool
    summary: str
    groups: str = ""
    needs_classes: bool = False
    per_class: float = 0.0


def class_sizes(labels: Positions) -> tuple[tuple[int, ...], Positions]:
    """Return the sizes (C,) of the classes that occur, and the class (N,) of each sample.

    Classes are numbered by their place among those that occur.
    """
    _, classes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return tuple(sizes.tolist()), classes


def tries(numbers: int, most: int) -> int:
    """Return the number of tries before giving up, at most `most`; each draws `numbers` numbers."""
    return max(1, min(most, MAX_NUMBERS // numbers))


def batches(numbers: int, most: int) -> Iterator[int]:
    """Yield the sizes of batches of tries, until `tries(numbers, most)` are made."""
    remaining = tries(numbers, most)
    batch = 1
    largest = max(1, LARGEST_BATCH // numbers)
    while remaining > 0:
        yield min(batch, remaining)
        remaining -= batch
        batch = min(batch * GROWTH, largest)


def deal(classes: Positions, counts: Counts, rng: np.random.RandomState) -> list[Positions]:
    """Deal samples by (C, K) counts, drawn from each class; what these leave of it is unused."""
    return [np.sort(part) for part in deal_by_class(classes, counts, rng)]


def deal_by_class(
    classes: Positions, counts: Counts, rng: np.random.RandomState
) -> list[Positions]:
    """Deal as `deal` does, but leave each client's samples class by class, shuffled in a class."""
    unused = np.bincount(classes, minlength=len(counts)) - counts.sum(axis=1)
    shares = np.column_stack([counts, unused])
    order = rng.permutation(len(classes))
    by_class = order[np.argsort(classes[order], kind="stable")]
    clients = np.tile(np.arange(shares.shape[1]), len(shares))
    owner = np.repeat(clients, shares.ravel())
    by_client = by_class[np.argsort(owner, kind="stable")]
    ends = np.cumsum(counts.sum(axis=0))
    return np.split(by_client, ends)[:-1]


def check_none_empty(name: str, counts: Counts) -> None:
    """Raise UsageError if (C, K) counts leave a client without samples."""
    empty = np.flatnonzero(counts.sum(axis=0) == 0)
    if len(empty):
        raise UsageError(
            f"partition {name} leaves {len(empty):,} of num_clients={counts.shape[1]:,} clients "
            f"without a sample of {counts.sum():,}; lower num_clients, or use more of the training "
            "data"
        )


# --- partitions


def iid(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Shuffle the samples and cut them into K parts whose sizes differ by at most one."""
    shuffled = rng.permutation(len(wanted.labels))
    return [np.sort(part) for part in np.array_split(shuffled, wanted.num_clients)]


def pathological(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Deal as FedDKD does for FEMNIST: each client draws 6 classes.

    Clients with the same class share it equally. The paper says that 6 of 26 classes are drawn for
    each client, but not how clients share a class; its step counts determine only the clients' mean
    size. Decided here: in equal parts without overlap, and all clients draw again until every class
    has an owner, so that every sample is used.

    Source: Li et al., FedDKD (2022), section IV.
    """
    sizes, classes = class_sizes(wanted.labels)
    if len(sizes) < PATHOLOGICAL_CLASSES:
        raise UsageError(
            f"partition pathological gives each client {PATHOLOGICAL_CLASSES} classes, and the "
            f"data have {len(sizes)}; use another partition, such as lda"
        )
    owned = _draw_owners(len(sizes), wanted, rng)
    counts = _shared_equally(owned, sizes)
    check_none_empty("pathological", counts)
    return deal(classes, counts, rng)


def shards(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Sort the samples by class, cut them into shards, and give each client as many.

    There are K times `classes_per_client` shards. They are equal but for one sample; a shard that
    lies across a border has samples of both classes. The paper's MNIST has 100 clients with two
    shards of 300 each.

    Source: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized
    Data (2017), section 3.
    """
    count = wanted.num_clients * wanted.classes_per_client
    if count > len(wanted.labels):
        raise UsageError(
            f"partition shards cuts {len(wanted.labels):,} samples into "
            f"num_clients={wanted.num_clients:,} times "
            f"classes_per_client={wanted.classes_per_client}, which is {count:,} shards: "
            "lower either"
        )
    by_class = np.argsort(wanted.labels, kind="stable")
    pieces = np.array_split(by_class, count)
    clients = []
    for own in np.split(rng.permutation(count), wanted.num_clients):
        samples = np.concatenate([pieces[shard] for shard in own])
        clients.append(np.sort(samples))
    return clients


def k_classes(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Give each client `classes_per_client` classes; clients with the same class share it equally.

    Client i has class i modulo C, in the order of the labels, and others that are drawn. With fewer
    clients than classes some classes may have no owner; their samples are unused, as in the source.

    Source: Li et al., NIID-Bench (2022), quantity-based label imbalance (`noniid-#label2`), and its
    code.
    """
    sizes, classes = class_sizes(wanted.labels)
    if wanted.classes_per_client > len(sizes):
        raise UsageError(
            f"classes_per_client must be <= {len(sizes)} for partition k_classes, the classes that "
            f"there are, got {wanted.classes_per_client}; lower it"
        )
    owned = np.zeros((len(sizes), wanted.num_clients), np.bool_)
    for client in range(wanted.num_clients):
        first = client % len(sizes)
        others = np.delete(np.arange(len(sizes)), first)
        drawn = rng.permutation(others)[: wanted.classes_per_client - 1]
        owned[first, client] = True
        owned[drawn, client] = True
    counts = _shared_equally(owned, sizes)
    check_none_empty("k_classes", counts)
    held = np.flatnonzero(counts.sum(axis=1)[classes])
    return [held[part] for part in deal(classes[held], counts, rng)]


def fedproto(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Deal as FedProto does: each client has its own number of classes, and few samples of each.

    With n = `classes_per_client`, a client has between max(2, n - 2) and min(C, n + 2) classes. All
    numbers are equally likely, and the classes are drawn. It has 139 or 140 samples of each of its
    classes: it trains on 99 or 100, and is tested on 40 if `local_test_fraction` is 2/7. No two
    clients share a sample. Other samples are unused.

    Decided here: tests are held out of these samples, where the code takes them out of the data
    set's own test samples; and samples are drawn, where the code takes them in the order of the
    file.

    Source: Tan et al., FedProto (2022), Local tasks, and its code.
    """
    sizes, classes = class_sizes(wanted.labels)
    least = max(2, wanted.classes_per_client - WAYS_SPREAD)
    most = min(len(sizes), wanted.classes_per_client + WAYS_SPREAD)
    if least > most:
        raise UsageError(
            f"partition fedproto gives each client at least {least} classes for "
            f"classes_per_client={wanted.classes_per_client}, and the data have {len(sizes)}: "
            "lower it, or choose another partition, such as k_classes"
        )
    counts = np.zeros((len(sizes), wanted.num_clients), np.int64)
    for client in range(wanted.num_clients):
        ways = rng.randint(least, most + 1)
        own_classes = rng.permutation(len(sizes))[:ways]
        counts[own_classes, client] = rng.randint(FEWEST_SHOTS, MOST_SHOTS + 1)
    asked = counts.sum(axis=1)
    short = np.flatnonzero(asked > np.array(sizes))
    if len(short):
        raise UsageError(
            f"partition fedproto deals {FEWEST_SHOTS} or {MOST_SHOTS} samples of a class to each "
            f"client that has it, {asked[short[0]]:,} of one class to "
            f"num_clients={wanted.num_clients} clients, and there are {sizes[short[0]]:,}: lower "
            "num_clients or classes_per_client, or use more of the training data"
        )
    return deal(classes, counts, rng)


def by_source(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Make each source of a composed data set a client, in their order; nothing is drawn.

    Source: Li et al., FedDKD (2022), Table VI, after Li et al., FedBN (2021): the five sources of
    digits.
    """
    source_of, sources = _group_indices(wanted)
    if sources != wanted.num_clients:
        raise UsageError(
            f"num_clients must be {sources} for partition by_source, which makes each of the "
            f"{sources} sources a client, got {wanted.num_clients}; set num_clients={sources}"
        )
    return _collect(source_of, sources)


def by_writer(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Shuffle writers and split them into K equal groups, of which some have one more.

    A client holds all samples of its writers.

    Source: Li et al., NIID-Bench (2022), "real" FEMNIST.
    """
    writer_of, writers = _group_indices(wanted)
    return _deal_writers("by_writer", writer_of, rng.permutation(writers), wanted.num_clients)


def by_writer_2000(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Draw 2,000 writers and split them into K equal groups, as `by_writer` does.

    Other writers are unused. The paper deals "approximately 2000 writers" but does not say which.
    Decided here: 2,000, drawn anew for each seed.

    Source: He et al., FedCAD (2022), section Experiments, Dataset.
    """
    writer_of, writers = _group_indices(wanted)
    if writers < DRAWN_WRITERS:
        raise UsageError(
            f"partition by_writer_2000 draws {DRAWN_WRITERS:,} writers, and the training data have "
            f"{writers:,}; use by_writer, which deals all there are, or more of the training data"
        )
    drawn = rng.permutation(writers)[:DRAWN_WRITERS]
    return _deal_writers("by_writer_2000", writer_of, drawn, wanted.num_clients)


def _shared_equally(owned: Owned, sizes: tuple[int, ...]) -> Counts:
    """Return (C, K) samples: the owners (C, K) of a class have equal parts of it.

    If a class cannot be shared equally, its first owners have one sample more.
    """
    owners = owned.sum(axis=1, keepdims=True)
    quota, remainder = np.divmod(np.array(sizes)[:, None], np.maximum(owners, 1))
    has_one_more = np.cumsum(owned, axis=1) <= remainder
    counts: Counts = owned * (quota + has_one_more)
    return counts


def _draw_owners(classes: int, wanted: Wanted, rng: np.random.RandomState) -> Owned:
    """Draw the mask (C, K) of the clients that own each class, until each class has an owner."""
    numbers = classes * wanted.num_clients
    for batch in batches(numbers, wanted.max_tries):
        owned, accepted = _propose(classes, wanted.num_clients, batch, rng)
        if accepted.any():
            return owned[:, accepted.argmax()]
    raise UsageError(
        f"partition pathological with num_clients={wanted.num_clients} and {PATHOLOGICAL_CLASSES} "
        f"of {classes} classes each: none of {tries(numbers, wanted.max_tries):,} draws gave every "
        "class an owner; raise num_clients"
    )


def _propose(
    classes: int, clients: int, tries: int, rng: np.random.RandomState
) -> tuple[Owned, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Draw masks (C, T, K) of the clients that own each class.

    A client takes the classes of its 6 lowest random numbers. The second result, (T,), tells
    whether each class has an owner.
    """
    numbers = rng.random_sample((tries, clients, classes))
    ranks = numbers.argsort(axis=2).argsort(axis=2)
    owned = np.moveaxis(ranks < PATHOLOGICAL_CLASSES, 2, 0)
    return owned, np.any(owned, axis=2).all(axis=0)


def _group_indices(wanted: Wanted) -> tuple[Positions, int]:
    """Return each sample's group (N,), numbered among those that occur, and how many occur.

    `split` ensures that there are groups.
    """
    assert wanted.groups is not None, "as `Partition.groups` asks"
    groups, indices = np.unique(wanted.groups, return_inverse=True)
    return indices, len(groups)


def _deal_writers(
    name: str, writer_of: Positions, writers: Positions, clients: int
) -> list[Positions]:
    """Deal clients equal parts of `writers`, and return the positions of each client's samples.

    `writer_of`: (N,) the writer of each sample, also of writers that are not dealt.
    """
    if len(writers) < clients:
        raise UsageError(
            f"num_clients must be <= {len(writers):,} for partition {name}, which gives each "
            f"client at least one of {len(writers):,} writers, got {clients}; lower it, or use "
            "more of the training data with by_writer"
        )
    client_of = np.full(writer_of.max() + 1, clients)  # remains for writers that no client gets
    for index, part in enumerate(np.array_split(writers, clients)):
        client_of[part] = index
    return _collect(client_of[writer_of], clients)


def _collect(clients: Positions, count: int) -> list[Positions]:
    """Return the positions of the samples of each of `count` clients.

    `clients`: (N,) each sample's client, or `count` for no client.
    """
    order = np.argsort(clients, kind="stable")
    ends = np.cumsum(np.bincount(clients, minlength=count + 1))
    return np.split(order, ends[:-1])[:count]
