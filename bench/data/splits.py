"""Splits of the training samples: clients' own, the server's auxiliary set, the validation set.

A split depends on the setting and the seed alone, so that all algorithms of a comparison train on
the same data. Every draw has its own generator, which ranks all training samples, and takes the
eligible samples of lowest rank. So a larger share contains the smaller one, and changing one field
of a setting does not affect the draws for other fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np

from bench import data
from bench.data.dataset import Dataset, content_hash
from bench.data.dealing import Positions
from bench.data.partition import Wanted, partition
from bench.data.registry import DATASETS, DatasetInfo
from bench.errors import UsageError
from leaderboards.problems import SPLIT_FIELDS
from search_spaces.setting import Setting, share_of

FIELDS = (*SPLIT_FIELDS, "partition_seed")  # of a setting, that determine its split


@dataclass(frozen=True, eq=False)
class Split:
    """Positions in the training set, int64, ascending; no sample is in two parts.

    Args:
        clients: each client's training samples, K arrays.
        local_tests: each client's own test samples, empty unless the setting keeps some.
        local_validations: each client's own samples to select on, empty likewise.
        auxiliary: the server's labelled samples.
        validation: the server's samples to select on.
        hash: SHA-256 of all parts, hexadecimal.
    """

    clients: tuple[Positions, ...]
    local_tests: tuple[Positions, ...]
    local_validations: tuple[Positions, ...]
    auxiliary: Positions
    validation: Positions
    hash: str

    def pooled(self) -> Split:
        """Return the same split, with one client that holds all clients' training samples."""
        return replace(self, clients=(np.sort(np.concatenate(self.clients)),))

    def class_counts(self, train_labels: Positions, num_classes: int) -> Positions:
        """Count the training samples of each class that each client holds: (K, C)."""
        counts = [np.bincount(train_labels[held], minlength=num_classes) for held in self.clients]
        return np.stack(counts)


def split(
    setting: Setting, train_labels: Positions, seed: int, groups: Positions | None = None
) -> Split:
    """Give the training samples to the clients and the server, in this order.

    1. `fraction` of each class is kept.
    2. `auxiliary_per_class` of each class go to the server.
    3. The validation share of the kept samples is taken from those that remain.
    4. What then remains is partitioned.
    5. Each client holds back its local test and validation shares (`_own_counts`).

    Shares are rounded half up.

    Args:
        setting: whose fields are named above.
        train_labels: (N,) labels.
        seed: of the draws, unless the setting has a `partition_seed`.
        groups: (N,) source or writer of each sample, if the data set records it.

    Raises:
        UsageError: the setting asks for more samples than there are, or names an unknown partition,
            or no draw is accepted.
    """
    seed = setting.partition_seed_of(seed)
    auxiliary, validation, dealt = _divide(setting, train_labels, seed, groups)
    test_ranks = _ranks(seed, "local_test", len(train_labels))
    validation_ranks = _ranks(seed, "local_validation", len(train_labels))
    clients: list[Positions] = []
    local_tests: list[Positions] = []
    local_validations: list[Positions] = []
    for samples in dealt:
        tests, validations = _own_counts(setting, len(samples))
        own_tests = _lowest(samples, test_ranks, tests)
        others = np.setdiff1d(samples, own_tests)
        own_validation = _lowest(others, validation_ranks, validations)
        clients.append(np.setdiff1d(others, own_validation))
        local_tests.append(own_tests)
        local_validations.append(own_validation)
    # A hash of the parts' hashes, in order, so that moving a sample between parts changes it.
    parts = [clients, local_tests, [auxiliary], [validation]]
    if setting.local_validation_fraction:  # a later part, without which hashes stay as they were
        parts.append(local_validations)
    hashes = "/".join(map(content_hash, parts))
    return Split(
        tuple(clients),
        tuple(local_tests),
        tuple(local_validations),
        auxiliary,
        validation,
        sha256(hashes.encode()).hexdigest(),
    )


def _own_counts(setting: Setting, samples: int) -> tuple[int, int]:
    """Return how many of its samples a client keeps as its own tests, and to select on.

    It always keeps one sample to train on. A client that keeps both has at least one of each. A
    client with too few samples for that keeps neither, and trains on all.
    """
    tests = share_of(setting.local_test_fraction, samples)
    if not setting.local_validation_fraction:
        return min(tests, samples - 1), 0
    tests = max(1, tests)
    validations = max(1, share_of(setting.local_validation_fraction, samples))
    return (tests, validations) if tests + validations < samples else (0, 0)


@dataclass(frozen=True, eq=False)
class PublicSet:
    """Samples of another data set's training part.

    Args:
        dataset: with these samples alone as its training part.
        info: of the data set, with the private one's normalisations, as models expect inputs.
        hash: SHA-256 of data set and positions, hexadecimal.
    """

    dataset: Dataset
    info: DatasetInfo
    hash: str


def public_set(
    setting: Setting, seed: int, load: Callable[[str], Dataset | None]
) -> PublicSet | None:
    """Draw the public samples of a run; None if it has no public set, or `load` returns none.

    Raises:
        UsageError: the data set has fewer samples than asked for.
    """
    if setting.public_set is None:
        return None
    name, count = setting.public_set
    dataset = load(name)
    if dataset is None:
        return None
    total = len(dataset.train_y)
    if count > total:
        raise UsageError(
            f"public={setting.public} asks for {count} samples, and {name} has {total} to train "
            f"on: use public={name}:{total} or fewer"
        )
    ranks = _ranks(setting.partition_seed_of(seed), "public", total)
    index = _lowest(np.arange(total), ranks, count)
    digest = sha256(f"{dataset.hash}/{content_hash([index])}".encode()).hexdigest()
    part = replace(
        dataset, train_x=dataset.train_x[index], train_y=dataset.train_y[index], hash=digest
    )
    sized = part.sized(setting.image_size)
    own = data.info(setting.dataset)
    info = replace(data.info(name).sized(setting.image_size), normalizations=own.normalizations)
    return PublicSet(sized, info, digest)


def split_like(setting: Setting) -> Setting:
    """Return the setting with all fields that do not affect its split at their defaults.

    Settings with equal splits become equal.
    """
    values = {name: getattr(setting, name) for name in FIELDS}
    return type(setting)(**values)


def generator(seed: int, purpose: str) -> np.random.RandomState:
    """Make the generator of one purpose and seed, the same on every machine.

    It is unrelated to the generators of other purposes and seeds.
    """
    digest = sha256(f"{seed}/{purpose}".encode()).digest()
    return np.random.RandomState(np.frombuffer(digest, dtype="<u4"))


def _ranks(seed: int, purpose: str, count: int) -> Positions:
    """Draw (N,) a random rank for each training sample."""
    return generator(seed, purpose).permutation(count)


def _lowest(samples: Positions, ranks: Positions, count: int) -> Positions:
    """Return the `count` of `samples` that have the lowest ranks, ascending."""
    by_rank = samples[np.argsort(ranks[samples])]
    return np.sort(by_rank[:count])


def _by_class(labels: Positions, samples: Positions) -> Iterable[tuple[int, Positions]]:
    """Yield each class that occurs in the training set, with its members among `samples`."""
    for label in np.unique(labels):
        yield int(label), samples[labels[samples] == label]


def _divide(
    setting: Setting, labels: Positions, seed: int, groups: Positions | None
) -> tuple[Positions, Positions, list[Positions]]:
    """Return the auxiliary samples, the validation samples, and the samples of each client."""
    pool = _take_fraction(setting, labels, seed)
    auxiliary = _auxiliary(setting, labels, pool, seed)
    remaining = np.setdiff1d(pool, auxiliary)
    ranks = _ranks(seed, "validation", len(labels))
    validation = _validation(setting, len(pool), remaining, ranks)
    dealt = np.setdiff1d(remaining, validation)
    return auxiliary, validation, _partition(setting, labels, groups, dealt, seed)


def _take_fraction(setting: Setting, labels: Positions, seed: int) -> Positions:
    everything = np.arange(len(labels))
    if setting.fraction == 1:
        return everything
    ranks = _ranks(seed, "fraction", len(labels))
    parts = []
    for label, members in _by_class(labels, everything):
        count = share_of(setting.fraction, len(members))
        if not count:
            raise UsageError(
                f"fraction must keep at least one sample of each class, got {setting.fraction:g}, "
                f"which keeps none of the {len(members)} of class {label} of {setting.dataset}; "
                f"use fraction={1 / len(members):.2g} or more"
            )
        parts.append(_lowest(members, ranks, count))
    return np.sort(np.concatenate(parts))


def _auxiliary(setting: Setting, labels: Positions, pool: Positions, seed: int) -> Positions:
    count = setting.auxiliary_per_class
    if not count:
        return pool[:0]
    ranks = _ranks(seed, "auxiliary", len(labels))
    parts = []
    for label, members in _by_class(labels, pool):
        # A sample must be left, or no client could learn the class.
        if count >= len(members):
            raise UsageError(
                f"auxiliary_per_class must be < {len(members)}, the samples of class {label} that "
                f"fraction={setting.fraction:g} of {setting.dataset} has, got {count}; "
                "lower it or raise fraction"
            )
        parts.append(_lowest(members, ranks, count))
    return np.sort(np.concatenate(parts))


def _validation(setting: Setting, total: int, remaining: Positions, ranks: Positions) -> Positions:
    count = share_of(setting.validation_fraction, total)
    if count and count >= len(remaining):
        raise UsageError(
            "validation_fraction must leave samples to train on, got "
            f"{setting.validation_fraction:g}: {count} of {total}, of which "
            f"auxiliary_per_class={setting.auxiliary_per_class} leaves {len(remaining)}; "
            "lower either"
        )
    if setting.validation_rule == "last":
        return remaining[len(remaining) - count :]
    return _lowest(remaining, ranks, count)


def _partition(
    setting: Setting, labels: Positions, groups: Positions | None, pool: Positions, seed: int
) -> list[Positions]:
    entry = partition(setting.partition)
    if entry.groups and (groups is None or data.info(setting.dataset).groups != entry.groups):
        suitable = ", ".join(name for name, info in DATASETS.items() if info.groups == entry.groups)
        raise UsageError(
            f"partition {setting.partition} needs the {entry.groups} of each training sample, "
            f"which {setting.dataset} does not record; use a data set that does ({suitable}), "
            "or another partition, such as lda"
        )
    wanted = Wanted(
        labels[pool],
        setting.num_clients,
        setting.alpha,
        None if groups is None else groups[pool],
        classes_per_client=setting.classes_per_client,
    )
    return [pool[part] for part in entry.function(wanted, generator(seed, "partition"))]
