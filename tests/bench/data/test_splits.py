"""A split depends on the setting and the seed alone, and its parts are those asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_partition import LABELS, together

from bench.data.partition import PARTITIONS
from bench.data.splits import FIELDS, split, split_like
from bench.errors import UsageError
from search_spaces.setting import Setting, share_of

GROUPS = np.random.RandomState(1).randint(0, 10, len(LABELS))
SETTING = Setting(partition="lda", alpha=0.5, num_clients=10)


FULL = replace(
    SETTING, fraction=0.8, auxiliary_per_class=5, validation_fraction=0.1, local_test_fraction=0.2
)


def problem_for(name):
    """A setting of that partition, with labels and groups that it can deal."""
    dataset = {"source": "digits5", "writer": "femnist"}.get(PARTITIONS[name].groups, "digits")
    copies = {"by_writer_2000": 3, "fedproto": 20}.get(name, 1)
    groups = np.tile(GROUPS, copies)
    if name == "by_writer_2000":
        groups = np.arange(copies * len(LABELS))
    return replace(FULL, dataset=dataset, partition=name), np.tile(LABELS, copies), groups


@pytest.mark.parametrize("rule", ["last", "random"])
@pytest.mark.parametrize("name", PARTITIONS)
def test_parts_are_disjoint_and_ascending(name, rule):
    setting, labels, groups = problem_for(name)
    found = split(replace(setting, validation_rule=rule), labels, 0, groups)
    arrays = [*found.clients, *found.local_tests, found.auxiliary, found.validation]
    assert all(array.dtype == np.int64 and (np.diff(array) > 0).all() for array in arrays)
    assert len(np.unique(together(arrays))) == len(together(arrays))
    if name not in ("fedgkd_groups", "by_writer_2000", "fedproto"):
        assert len(together(arrays)) == sum(share_of(0.8, n) for n in np.bincount(labels))


def test_parts_have_the_requested_sizes():
    found = split(FULL, LABELS, 0)
    kept = sum(share_of(0.8, n) for n in np.bincount(LABELS))
    assert np.bincount(LABELS[found.auxiliary]).tolist() == [5] * 10
    assert len(found.validation) == share_of(0.1, kept)
    for trained, tested in zip(found.clients, found.local_tests, strict=True):
        assert len(tested) == share_of(0.2, len(trained) + len(tested))


def test_fedgkd_validates_on_the_last_tenth():
    labels = np.repeat(np.arange(10), 5000)
    setting = Setting(
        partition="fedgkd_groups", num_clients=20, validation_fraction=0.1, validation_rule="last"
    )
    found = split(setting, labels[np.random.RandomState(0).permutation(50_000)], 0)
    np.testing.assert_array_equal(found.validation, np.arange(45_000, 50_000))
    assert {len(part) for part in found.clients} == {2250}


@pytest.mark.parametrize(
    "change",
    [
        {"validation_fraction": 0.3},
        {"alpha": 0.1},
        {"num_clients": 4},
        {"local_test_fraction": 0.0},
    ],
)
def test_the_auxiliary_draw_is_independent(change):
    np.testing.assert_array_equal(
        split(FULL, LABELS, 0).auxiliary, split(replace(FULL, **change), LABELS, 0).auxiliary
    )


def test_the_hash_tells_seeds_and_parts_apart():
    settings = [
        SETTING,
        FULL,
        replace(FULL, auxiliary_per_class=4),
        replace(FULL, validation_rule="last"),
    ]
    hashes = [split(setting, LABELS, seed).hash for setting in settings for seed in (0, 1)]
    assert len(set(hashes)) == len(hashes)


def test_a_seed_always_gives_its_split():
    assert (
        split(FULL, LABELS, 3).hash
        == "c29ef64e0d76f93f3a81b455f17e23d3d316a1a6020df5c016c86ae8d75eac6a"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"auxiliary_per_class": 110}, "auxiliary_per_class.*110"),
        ({"fraction": 0.001}, r"fraction.*0\.001"),
        ({"validation_fraction": 0.99, "auxiliary_per_class": 50}, r"validation_fraction.*0\.99"),
        ({"alpha": None}, "alpha"),
        ({"partition": "fedgkd_group"}, "fedgkd_groups"),
        ({"num_clients": 3000}, "num_clients.*2000"),
    ],
)
def test_an_impossible_split_names_the_field(change, message):
    setting = replace(SETTING, **change)
    with pytest.raises(UsageError, match=message):
        split(setting, LABELS, 0)


@pytest.mark.parametrize(
    ("dataset", "partition", "groups"),
    [
        ("cifar10", "by_writer", None),
        ("cifar10", "by_source", None),
        ("digits5", "by_writer", GROUPS),
    ],
)
def test_partitions_without_their_groups_are_refused(dataset, partition, groups):
    setting = replace(SETTING, dataset=dataset, partition=partition)
    with pytest.raises(UsageError, match=f"{partition}.*{dataset}"):
        split(setting, LABELS, 0, groups)


class Watched:
    """A setting that notes which of its fields are read."""

    def __init__(self, setting):
        self._setting, self.read = setting, set()

    def __getattr__(self, name):
        self.read.add(name)
        return getattr(self._setting, name)


@pytest.mark.parametrize("name", PARTITIONS)
def test_listed_fields_decide_the_split(name):
    setting, labels, groups = problem_for(name)
    watched = Watched(setting)
    split(watched, labels, 0, groups)
    assert {"partition", "fraction"} <= watched.read <= {*FIELDS, "partition_seed_of"}


def test_equal_splits_have_equal_settings():
    assert split_like(replace(FULL, lr=0.5, rounds=3, model="cnn_cifar")) == split_like(FULL)
    assert split(split_like(FULL), LABELS, 0).hash == split(FULL, LABELS, 0).hash
    assert split_like(replace(FULL, alpha=0.7)) != split_like(FULL)
