"""Partitions without a concentration, and the code that all partitions share: the request, redraws, dealing.

A partition takes the labels and returns, for each client, the ascending positions of its samples;
it raises UsageError if no draw gives every client samples, there are fewer samples than clients, or
the data lack the classes, sources or writers that it needs. Draws come from numpy's RandomState,
whose stream numpy never changes, so a seed always gives the same clients.

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
SHOTS = (139, 140)


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
    groups: Positions | None = (
        None  # (N,) the source or the writer of each sample, if the data set records it
    )
    max_tries: int = MAX_TRIES  # draws before giving up
    classes_per_client: int = 2  # classes, or shards, of each client, for partitions that need it

    def __post_init__(self) -> None:
        """Raise UsageError unless there is a sample for every client."""
        if not 1 <= self.num_clients <= len(self.labels):
            raise UsageError(
                f"num_clients must be in [1, {len(self.labels)}], the samples there are to share out, got "
                f"{self.num_clients}; lower it, or use more of the training data"
            )

    def concentration(self) -> float:
        """Return alpha; raises UsageError if it is missing or unusable."""
        if self.alpha is None or not 0 < self.alpha < math.inf:
            raise UsageError(
                f"alpha must be a number > 0, the Dirichlet concentration, got {self.alpha}; try alpha=0.5"
            )
        return self.alpha


@dataclass(frozen=True)
class Partition:
    """A way to give samples to clients."""

    function: (
        Partitioner  # takes the request and the generator; returns K ascending arrays of positions
    )
    needs_alpha: bool
    summary: str  # one line on what clients get
    groups: str = (
        ""  # needed of each sample besides its class: `source`, `writer`, or empty for nothing
    )
    needs_classes: bool = False  # whether it depends on `Wanted.classes_per_client`


def class_sizes(labels: Positions) -> tuple[tuple[int, ...], Positions]:
    """Return the sizes (C,) of the classes that occur, and each sample's class (N,) as an index into them."""
    _, classes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    return tuple(sizes.tolist()), classes


def tries(numbers: int, most: int) -> int:
    """Return the number of tries before giving up, at most `most`, if each draws this many `numbers`."""
    return max(1, min(most, MAX_NUMBERS // numbers))


def batches(numbers: int, most: int) -> Iterator[int]:
    """Yield the sizes of batches of tries to make at once, until `tries(numbers, most)` are made."""
    remaining, batch = tries(numbers, most), 1
    largest = max(1, LARGEST_BATCH // numbers)
    while remaining > 0:
        yield min(batch, remaining)
        remaining -= batch
        batch = min(batch * GROWTH, largest)


def deal(classes: Positions, counts: Counts, rng: np.random.RandomState) -> list[Positions]:
    """Deal samples by (C, K) counts: each class is shuffled, and each client's samples come class by class."""
    order = rng.permutation(len(classes))
    by_class = order[np.argsort(classes[order], kind="stable")]
    owner = np.repeat(np.tile(np.arange(counts.shape[1]), len(counts)), counts.ravel())
    by_client = by_class[np.argsort(owner, kind="stable")]
    return np.split(by_client, np.cumsum(counts.sum(axis=0))[:-1])


def check_none_empty(name: str, counts: Counts) -> None:
    """Raise UsageError if (C, K) counts leave a client without samples."""
    empty = np.flatnonzero(counts.sum(axis=0) == 0)
    if len(empty):
        raise UsageError(
            f"partition {name} leaves {len(empty):,} of num_clients={counts.shape[1]:,} clients without a sample of "
            f"{counts.sum():,}; lower num_clients, or use more of the training data"
        )


# --- partitions


def iid(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Shuffle the samples and cut them into K parts whose sizes differ by at most one."""
    shuffled = rng.permutation(len(wanted.labels))
    return [np.sort(part) for part in np.array_split(shuffled, wanted.num_clients)]


def pathological(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Deal as FedDKD does for FEMNIST: each client draws 6 classes; clients with the same class share it equally.

    The paper says that 6 of 26 classes are drawn for each client, but not how clients share a
    class; its step counts determine only the clients' mean size. Decided here: in equal parts
    without overlap, and all clients draw again until every class has an owner, so that every sample
    is used.

    Source: Li et al., FedDKD (2022), section IV.
    """
    sizes, classes = class_sizes(wanted.labels)
    if len(sizes) < PATHOLOGICAL_CLASSES:
        raise UsageError(
            f"partition pathological gives each client {PATHOLOGICAL_CLASSES} classes, and the data have {len(sizes)}; "
            "use another partition, such as lda"
        )
    counts = _shared_equally(_draw_owners(len(sizes), wanted, rng), sizes)
    check_none_empty("pathological", counts)
    return [np.sort(part) for part in deal(classes, counts, rng)]


def shards(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Sort the samples by class, cut them into K times `classes_per_client` shards, and give each client that many.

    Shards are equal but for one sample; one that lies across a border has samples of both classes.
    The paper's MNIST has 100 clients with two shards of 300 each.

    Source: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized
    Data (2017), section 3.
    """
    count = wanted.num_clients * wanted.classes_per_client
    if count > len(wanted.labels):
        raise UsageError(
            f"partition shards cuts {len(wanted.labels):,} samples into num_clients={wanted.num_clients:,} times "
            f"classes_per_client={wanted.classes_per_client}, which is {count:,} shards: lower either"
        )
    pieces = np.array_split(np.argsort(wanted.labels, kind="stable"), count)
    dealt = np.split(rng.permutation(count), wanted.num_clients)
    return [np.sort(np.concatenate([pieces[shard] for shard in own])) for own in dealt]


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
            f"classes_per_client must be <= {len(sizes)} for partition k_classes, the classes that there are, got "
            f"{wanted.classes_per_client}; lower it"
        )
    owned = np.zeros((len(sizes), wanted.num_clients), np.bool_)
    for client in range(wanted.num_clients):
        first = client % len(sizes)
        others = np.delete(np.arange(len(sizes)), first)
        owned[first, client] = True
        owned[rng.permutation(others)[: wanted.classes_per_client - 1], client] = True
    counts = _shared_equally(owned, sizes)
    check_none_empty("k_classes", counts)
    held = np.flatnonzero(counts.sum(axis=1)[classes])
    return [held[np.sort(part)] for part in deal(classes[held], counts, rng)]


def fedproto(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Deal as FedProto does: each client has its own number of classes, and few samples of each.

    With n = `classes_per_client`, a client has between max(2, n - 2) and min(C, n + 2) classes, all
    numbers alike likely; which, is drawn. It has 139 or 140 samples of each of its classes: the 99
    or 100 that it trains on, and the 40 that it is tested on, if `local_test_fraction` is 2/7. No
    two clients share a sample. Other samples are unused.

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
        counts[own_classes, client] = rng.randint(SHOTS[0], SHOTS[-1] + 1)
    asked = counts.sum(axis=1)
    short = np.flatnonzero(asked > np.array(sizes))
    if len(short):
        raise UsageError(
            f"partition fedproto deals {SHOTS[0]} or {SHOTS[-1]} samples of a class to each client "
            f"that has it, {asked[short[0]]:,} of one class to num_clients={wanted.num_clients} "
            f"clients, and there are {sizes[short[0]]:,}: lower num_clients or "
            "classes_per_client, or use more of the training data"
        )
    unused = np.array(sizes) - asked
    parts = deal(classes, np.column_stack([counts, unused]), rng)
    return [np.sort(part) for part in parts[:-1]]


def by_source(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Make each source of a data set composed of several a client, in their order; nothing is drawn.

    Source: Li et al., FedDKD (2022), Table VI, after Li et al., FedBN (2021): the five sources of
    digits.
    """
    source_of, sources = _group_indices(wanted)
    if sources != wanted.num_clients:
        raise UsageError(
            f"num_clients must be {sources} for partition by_source, which makes each of the {sources} sources a "
            f"client, got {wanted.num_clients}; set num_clients={sources}"
        )
    return _collect(source_of, sources)


def by_writer(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Shuffle writers and split them into K equal groups (some have one more); a client holds all its writers' samples.

    Source: Li et al., NIID-Bench (2022), "real" FEMNIST.
    """
    writer_of, writers = _group_indices(wanted)
    return _deal_writers("by_writer", writer_of, rng.permutation(writers), wanted.num_clients)


def by_writer_2000(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Draw 2,000 writers and split them into K equal groups, as `by_writer` does; other writers are unused.

    The paper deals "approximately 2000 writers" but does not say which. Decided here: 2,000, drawn
    anew for each seed.

    Source: He et al., FedCAD (2022), section Experiments, Dataset.
    """
    writer_of, writers = _group_indices(wanted)
    if writers < DRAWN_WRITERS:
        raise UsageError(
            f"partition by_writer_2000 draws {DRAWN_WRITERS:,} writers, and the training data have {writers:,}; "
            "use by_writer, which deals all there are, or more of the training data"
        )
    return _deal_writers(
        "by_writer_2000", writer_of, rng.permutation(writers)[:DRAWN_WRITERS], wanted.num_clients
    )


def _shared_equally(owned: Owned, sizes: tuple[int, ...]) -> Counts:
    """Return (C, K) samples: the owners (C, K) of a class have equal parts of it, the first ones one sample more."""
    owners = owned.sum(axis=1, keepdims=True)
    quota, remainder = np.divmod(np.array(sizes)[:, None], np.maximum(owners, 1))
    counts: Counts = owned * (quota + (np.cumsum(owned, axis=1) <= remainder))
    return counts


def _draw_owners(classes: int, wanted: Wanted, rng: np.random.RandomState) -> Owned:
    """Draw the mask (C, K) of the clients that own each class, until each class has an owner."""
    numbers = classes * wanted.num_clients
    for batch in batches(numbers, wanted.max_tries):
        owned, accepted = _propose(classes, wanted.num_clients, batch, rng)
        if accepted.any():
            return owned[:, accepted.argmax()]
    raise UsageError(
        f"partition pathological with num_clients={wanted.num_clients} and {PATHOLOGICAL_CLASSES} of {classes} classes "
        f"each: none of {tries(numbers, wanted.max_tries):,} draws gave every class an owner; raise num_clients"
    )


def _propose(
    classes: int, clients: int, tries: int, rng: np.random.RandomState
) -> tuple[Owned, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Draw masks (C, T, K) of the clients that own each class; return them and (T,) whether each class has an owner.

    A client takes the classes of its 6 lowest random numbers.
    """
    ranks = rng.random_sample((tries, clients, classes)).argsort(axis=2).argsort(axis=2)
    owned = np.moveaxis(ranks < PATHOLOGICAL_CLASSES, 2, 0)
    return owned, np.any(owned, axis=2).all(axis=0)


def _group_indices(wanted: Wanted) -> tuple[Positions, int]:
    """Return each sample's group (N,), an index into those that occur, and their number; `split` ensures groups."""
    assert wanted.groups is not None, "as `Partition.groups` asks"
    groups, indices = np.unique(wanted.groups, return_inverse=True)
    return indices, len(groups)


def _deal_writers(
    name: str, writer_of: Positions, writers: Positions, clients: int
) -> list[Positions]:
    """Deal `clients` clients equal parts of `writers`, and return their positions; (N,) `writer_of` has all writers."""
    if len(writers) < clients:
        raise UsageError(
            f"num_clients must be <= {len(writers):,} for partition {name}, which gives each client at least one of "
            f"{len(writers):,} writers, got {clients}; lower it, or use more of the training data with by_writer"
        )
    client_of = np.full(writer_of.max() + 1, clients)  # remains for writers that no client gets
    for index, part in enumerate(np.array_split(writers, clients)):
        client_of[part] = index
    return _collect(client_of[writer_of], clients)


def _collect(clients: Positions, count: int) -> list[Positions]:
    """Return the positions of each of `count` clients, from (N,) each sample's client, which is `count` for none."""
    order = np.argsort(clients, kind="stable")
    return np.split(order, np.cumsum(np.bincount(clients, minlength=count + 1))[:-1])[:count]
