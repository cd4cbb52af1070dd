"""The toy federation, and the comparisons of its runs."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import trained

from bench.selftest.toy import (
    EQUAL_SIZES,
    FORMS,
    INFO,
    SIZES,
    TEST_SAMPLES,
    TINY,
    distance,
    gap,
    identical,
    items,
    largest_gap,
    models_of,
    same,
    supplied,
    toy_dataset,
    toy_split,
)

NAN = torch.tensor([math.nan, 1.0])
PAIR = torch.tensor([2.0, 1.0])


def test_the_toy_split_leaves_no_sample_out() -> None:
    split = toy_split()
    labels = toy_dataset().train_y
    assert tuple(map(len, split.clients)) == SIZES
    assert sorted(SIZES)[0] < TINY.batch_size < sorted(SIZES)[1]
    assert labels[split.auxiliary].tolist() == [0, 0, 1, 1, 2, 2]
    assert len(split.auxiliary) == INFO.num_classes * TINY.auxiliary_per_class
    together = [*split.clients, split.auxiliary, split.validation]
    assert sorted(np.concatenate(together)) == list(range(INFO.train_size))
    held = [set(labels[part].tolist()) for part in split.clients]
    assert list(map(len, held)) == [3, 3, 3, 2]
    assert sum(map(len, (*split.local_tests, *split.local_validations))) == 0
    assert sum(EQUAL_SIZES) == sum(SIZES)
    assert len(set(EQUAL_SIZES)) == 1
    assert len(split.validation) == 12


def test_the_toy_data_are_as_they_say() -> None:
    data = toy_dataset()
    assert data.train_x.shape == (INFO.train_size, *INFO.input_shape)
    assert data.test_x.shape == (INFO.test_size, *INFO.input_shape)
    assert INFO.test_size == TEST_SAMPLES
    assert Counter(data.train_y.tolist()) == dict.fromkeys(range(INFO.num_classes), 22)
    means = [data.train_x[data.train_y == label].mean() for label in range(3)]
    assert means == pytest.approx([60, 120, 180], abs=3)
    assert int(data.train_x.max()) <= INFO.scale
    assert INFO.scale == np.iinfo(data.train_x.dtype).max
    assert INFO.flip


def test_a_model_gets_the_forms_that_are_needed() -> None:
    assert supplied("mlp", frozenset()) == "mlp"
    assert supplied("mlp", frozenset(FORMS)) == "mlp+head+bn"
    assert supplied("mlp+bn", frozenset({"batchnorm", "images"})) == "mlp+bn"


def test_models_of_a_run_are_shared_or_personal() -> None:
    run = trained("fml")
    models = models_of(run)
    assert set(models) == {("_meme", None), *(("", client) for client in range(4))}
    assert all(set(model) == set(run.net.names) for model in models.values())
    assert gap(models["", 0], models["", 1]) > 0


@pytest.mark.parametrize(
    ("got", "expected", "size"),
    [
        ({"a": PAIR}, {"a": PAIR - 0.5}, 0.5),
        ({"a": PAIR, "b": [PAIR, PAIR + 2]}, {"a": PAIR, "b": [PAIR, PAIR]}, 2.0),
        ((PAIR, PAIR), (PAIR, PAIR), 0.0),
        ({}, {}, 0.0),
        (PAIR.double() + 1e-12, PAIR.double(), 1e-12),
        (PAIR, NAN, math.inf),
        (NAN, NAN, math.inf),
        (PAIR[:1], PAIR, math.inf),
        ([PAIR], [PAIR, PAIR], math.inf),
        (PAIR, {"a": PAIR}, math.inf),
        (2.0, PAIR, math.inf),
    ],
)
def test_the_gap_of_trees(got: Any, expected: Any, size: float) -> None:
    assert gap(got, expected) == pytest.approx(size, rel=1e-3)


def test_every_leaf_has_a_path() -> None:
    tree = {"a": 1, "b": [2, {"c": None}], "d": (), "e": {}}
    assert list(items(tree)) == [("a", 1), ("b[0]", 2), ("b[1].c", None)]
    assert list(items(3)) == [("the root", 3)]
    assert list(items([4])) == [("[0]", 4)]


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (PAIR, PAIR.clone(), True),
        (PAIR, PAIR + torch.tensor([0.0, 1e-6]), False),
        (PAIR, PAIR[:1], False),
        (PAIR[:1], PAIR[:1].expand(2), False),
        (NAN, NAN.clone(), True),
        (NAN, PAIR, False),
        (PAIR, NAN, False),
        (PAIR.long(), PAIR.long(), True),
        (math.nan, math.nan, True),
        (math.nan, 1.0, False),
        (1.0, math.nan, False),
        (1.0, 1.0, True),
        (1.0, 2.0, False),
        ("a", "a", True),
        ({"a": 1}, {"b": 1}, False),
        ({"a": 1}, {"a": 1, "b": 1}, False),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, False),
        ([(1, "loss", 0.5)], [(1, "loss", 0.5)], True),
    ],
)
def test_same_is_bit_for_bit(left: Any, right: Any, equal: bool) -> None:
    assert same(left, right) == equal


def test_the_distance_of_runs_counts_every_model() -> None:
    run = trained("fedavg")
    other = trained("fedavg")
    assert distance(run, other) == largest_gap(run, other) == 0
    moved = {name: w + 0.01 for name, w in run.server.params.items()}
    other.server = replace(other.server, params=moved)
    count = sum(w.numel() for w in moved.values())
    # The server's model is the evaluated one, too.
    assert distance(run, other) == pytest.approx(0.01 * math.sqrt(2 * count))
    assert largest_gap(run, other) == pytest.approx(0.01)
    moved["head.bias"] = torch.full_like(moved["head.bias"], math.nan)
    assert distance(run, other) == largest_gap(run, other) == math.inf


def test_identical_runs_are_equal_in_every_part() -> None:
    one = trained("scaffold")
    assert identical(one, trained("scaffold"))
    for part in ("params", "extra"):
        other = trained("scaffold")
        first = next(tensor for _, tensor in items(getattr(other.server, part)))
        first.view(-1)[0] += 1e-12
        assert not identical(one, other), part
    other = trained("scaffold")
    next(tensor for _, tensor in items(other.memories)).view(-1)[0] += 1e-12
    assert not identical(one, other)
    other = trained("scaffold")
    other.progress.curves[""].pop()
    assert not identical(one, other)
    other = trained("scaffold")
    other.server = replace(other.server, round=3)
    assert not identical(one, other)
    other = trained("scaffold")
    other.progress.traffic.bytes_up += 1
    assert not identical(one, other)


def test_a_toy_run_has_the_numbers_of_certificates() -> None:
    run = trained("fedavg", rounds=4)
    assert run.setting.rounds == 4
    losses = [value for _, metric, value in run.progress.curves[""] if metric == "loss"]
    assert losses == pytest.approx([0.9605518, 0.7610035, 0.6528404, 0.5526168], abs=1e-6)
    assert len(run.participants(1)) == 3
