"""Ways to give training samples to clients, by name: `partition`; and those that have no concentration.

`PARTITIONS` has this suite's own; `bench.data.partition_plugins` finds those of other packages. A partition takes the
labels and gives, for each client, the ascending positions of its samples; it raises PartitionError if no draw gives
every client samples, UsageError if there are fewer samples than clients, or the data have not the classes, sources or
writers that it needs. Draws come from numpy's RandomState, whose stream numpy keeps for good, so a seed means the same
clients in years to come.

Axes: N samples, C classes, K clients, T tries.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.data.dealing import (
    Partition,
    PartitionError,
    Positions,
    Wanted,
    batches,
    check_none_empty,
    class_sizes,
    deal,
    tries,
)
from bench.data.dirichlet import fedgen, fedgkd_groups, fedkf, fl_bench, lda, niid_bench, pfllib
from bench.errors import UsageError
from bench.terminal.values import unknown

Owned = NDArray[np.bool_]
__all__ = ["PARTITIONS", "Partition", "PartitionError", "Wanted", "partition", "version"]

PATHOLOGICAL_CLASSES = 6
DRAWN_WRITERS = 2_000


def partition(name: str) -> Partition:
    """The table's entry for a partition, or that of one from outside: an entry point's name, or `module:name`.

    Raises UsageError if there is none of that name, or one from outside is not what it should be.
    """
    if name in PARTITIONS:
        return PARTITIONS[name]
    from bench.data import partition_plugins  # looks into installed packages, which few commands need

    entry = partition_plugins.find(name)
    if entry is None:
        raise unknown("partition", name, [*PARTITIONS, *partition_plugins.KIND.names()], importable=True)
    return entry


def version(name: str) -> int | None:
    """A number that changes with the source of a partition from outside; None for this suite's own."""
    if name in PARTITIONS:
        return None
    from bench.data import partition_plugins

    return partition_plugins.version(name)


def iid(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Shuffled samples in K parts whose sizes differ by one at most."""
    wanted.check_clients()
    shuffled = rng.permutation(len(wanted.labels))
    return [np.sort(part) for part in np.array_split(shuffled, wanted.num_clients)]


def pathological(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """FedDKD's FEMNIST: each client draws 6 classes; a class is shared equally by the clients that drew it.

    The paper says that 6 of 26 classes are drawn for each client, and not how clients share a class; its step counts
    fix the clients' mean size only. Settled here: in equal parts without overlap, and all clients draw again until
    every class has an owner, so that every sample is used.

    Source: Li et al., FedDKD (2022), section IV.
    """
    wanted.check_clients()
    sizes, classes = class_sizes(wanted.labels)
    if len(sizes) < PATHOLOGICAL_CLASSES:
        raise UsageError(
            f"partition pathological gives each client {PATHOLOGICAL_CLASSES} classes, and the data have {len(sizes)}; "
            "use another partition, such as lda"
        )
    owned = _draw_owners(len(sizes), wanted, rng)
    each, left = np.divmod(np.array(sizes)[:, None], owned.sum(axis=1, keepdims=True))
    # The first owners of a class have one sample more, so that all its samples are used.
    counts = owned * (each + (np.cumsum(owned, axis=1) <= left))
    check_none_empty("pathological", counts)
    return [np.sort(part) for part in deal(classes, counts, rng)]


def by_source(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """One client for each source of a data set made of several, in their order; nothing is drawn.

    Source: Li et al., FedDKD (2022), Table VI, after Li et al., FedBN (2021): the five sources of digits.
    """
    places, sources = _groups("by_source", "source", wanted)
    if sources != wanted.num_clients:
        raise UsageError(
            f"num_clients must be {sources} for partition by_source, which makes each of the {sources} sources a "
            f"client, got {wanted.num_clients}; set num_clients={sources}"
        )
    return _collect(places, sources)


def by_writer(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Writers shuffled and split into K equal groups (some have one more); a client holds all samples of its writers.

    Source: Li et al., NIID-Bench (2022), "real" FEMNIST.
    """
    places, writers = _groups("by_writer", "writer", wanted)
    return _deal_writers("by_writer", places, rng.permutation(writers), wanted.num_clients)


def by_writer_2000(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """Draw 2,000 writers and split them into K equal groups, as `by_writer` does; no client holds the others' samples.

    The paper deals "approximately 2000 writers" and does not say which. Settled here: 2,000, drawn anew for each seed.

    Source: He et al., FedCAD (2022), section Experiments, Dataset.
    """
    places, writers = _groups("by_writer_2000", "writer", wanted)
    if writers < DRAWN_WRITERS:
        raise UsageError(
            f"partition by_writer_2000 draws {DRAWN_WRITERS:,} writers, and the training data have {writers:,}; "
            "use by_writer, which deals all there are, or more of the training data"
        )
    return _deal_writers("by_writer_2000", places, rng.permutation(writers)[:DRAWN_WRITERS], wanted.num_clients)


def _draw_owners(classes: int, wanted: Wanted, rng: np.random.RandomState) -> Owned:
    """(C, K) who owns which class, in the first draw that gives each class an owner."""
    numbers = classes * wanted.num_clients
    for batch in batches(numbers, wanted.max_tries):
        owned, accepted = _propose(classes, wanted.num_clients, batch, rng)
        if accepted.any():
            return owned[:, accepted.argmax()]
    raise PartitionError(
        f"partition pathological with num_clients={wanted.num_clients} and {PATHOLOGICAL_CLASSES} of {classes} classes "
        f"each: none of {tries(numbers, wanted.max_tries):,} draws gave every class an owner; raise num_clients"
    )


def _propose(
    classes: int, clients: int, tries: int, rng: np.random.RandomState
) -> tuple[Owned, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """(C, T, K) who owns which class in as many draws, and (T,) which of them give each class an owner.

    A client takes the classes of its 6 lowest numbers.
    """
    ranks = rng.random_sample((tries, clients, classes)).argsort(axis=2).argsort(axis=2)
    owned = np.moveaxis(ranks < PATHOLOGICAL_CLASSES, 2, 0)
    return owned, np.any(owned, axis=2).all(axis=0)


def _groups(name: str, kind: str, wanted: Wanted) -> tuple[Positions, int]:
    """(N,) the group of each sample as a place among those that occur, and how many those are."""
    wanted.check_clients()
    if wanted.groups is None:
        raise UsageError(f"partition {name} needs the {kind} of each sample, got none; use another one, such as lda")
    groups, places = np.unique(wanted.groups, return_inverse=True)
    return places, len(groups)


def _deal_writers(name: str, places: Positions, writers: Positions, clients: int) -> list[Positions]:
    """The positions of each of `clients` clients, which get equal parts of `writers`; (N,) `places` has all writers."""
    if len(writers) < clients:
        raise UsageError(
            f"num_clients must be <= {len(writers):,} for partition {name}, which gives each client at least one of "
            f"{len(writers):,} writers, got {clients}; lower it, or use more of the training data with by_writer"
        )
    client = np.full(places.max() + 1, clients)  # stays so for a writer whom no client gets
    for index, part in enumerate(np.array_split(writers, clients)):
        client[part] = index
    return _collect(client[places], clients)


def _collect(clients: Positions, count: int) -> list[Positions]:
    """The positions of each of `count` clients, from (N,) who owns each sample; `count` if no client does."""
    order = np.argsort(clients, kind="stable")
    return np.split(order, np.cumsum(np.bincount(clients, minlength=count + 1))[:-1])[:count]


PARTITIONS: dict[str, Partition] = {
    "iid": Partition(iid, False, "equal parts, drawn at random", "McMahan et al. 2017"),
    "lda": Partition(
        lda, True, "Dirichlet shares of each class; unequal sizes, at least 10", "Wang et al. 2020 (FedMA)"
    ),
    "fedgkd_groups": Partition(
        fedgkd_groups, True, "Dirichlet shares within groups of ten clients; equal sizes", "Yao et al. 2021 (FedGKD)"
    ),
    "fedkf": Partition(
        fedkf, True, "Dirichlet shares; clients take turns at having most of a class", "Zhou et al. 2024 (FedKF)"
    ),
    "fedgen": Partition(fedgen, True, "as lda, at least 10 samples for each class", "Zhu et al. 2021 (FedGen)"),
    "pathological": Partition(
        pathological, False, "6 classes a client, each shared equally by its owners", "Li et al. 2022 (FedDKD)"
    ),
    "by_source": Partition(by_source, False, "one client for each source", "Li et al. 2021 (FedBN)", "source"),
    "by_writer": Partition(
        by_writer, False, "all samples of an equal number of writers", "Li et al. 2022 (NIID-Bench)", "writer"
    ),
    "by_writer_2000": Partition(
        by_writer_2000, False, "as by_writer, of 2,000 writers that are drawn", "He et al. 2022 (FedCAD)", "writer"
    ),
    "niid_bench": Partition(niid_bench, True, "NIID-Bench's noniid-labeldir: as lda", "Li et al. 2022 (NIID-Bench)"),
    "pfllib": Partition(pfllib, True, "PFLlib's dir: as lda, at least 40", "Zhang et al. 2025 (PFLlib)"),
    "fl_bench": Partition(fl_bench, True, "FL-bench's Dirichlet: not balanced, at least 10", "FL-bench's code"),
}
