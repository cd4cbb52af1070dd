"""The field `classes_per_client` changes the runs of partitions that use it, and no other run's key."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench import data
from bench.data.splits import split, split_like
from bench.planning.settings import canonical
from search_spaces.setting import Setting

DIGITS = Setting(dataset="digits", partition="k_classes", num_clients=5, alpha=None)


def test_it_identifies_a_setting_off_its_default():
    assert "classes_per_client" not in canonical(DIGITS).as_dict()
    assert canonical(replace(DIGITS, classes_per_client=3)).as_dict()["classes_per_client"] == 3
    other = replace(DIGITS, partition="iid", classes_per_client=3)
    assert canonical(other) == canonical(replace(DIGITS, partition="iid"))


@pytest.mark.parametrize("partition", ["shards", "k_classes"])
def test_it_reaches_the_split(partition):
    labels = data.load("digits").train_y
    settings = [replace(DIGITS, partition=partition, classes_per_client=count) for count in (1, 4)]
    few, many = (split(setting, labels, 0) for setting in settings)
    held = [
        np.mean([len(np.unique(labels[part])) for part in each.clients]) for each in (few, many)
    ]
    assert held[0] < held[1]
    assert few.hash != many.hash
    assert split_like(settings[0]) != split_like(settings[1])
