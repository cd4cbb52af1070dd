"""Arrays and entries of data sets from outside, at the limits of what is accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.data.dataset import MissingData
from bench.data.outside import Arrays, _mistakes, content_version
from bench.data.registry import DatasetInfo
from bench.errors import UsageError

NOWHERE = Path("nowhere")
INFO = DatasetInfo(
    "m:DATA", "t", 3, (1, 2, 2), 4, 3, 16, {"none": ((0.0,), (1.0,))}, "m:read", False
)


def part(count: int, **changes: Any) -> tuple[Any, ...]:
    """Samples of zeros, and labels in turn, but for some changes."""
    arrays = {"x": np.zeros((count, 1, 2, 2), np.uint8), "labels": np.arange(count) % 3}
    return tuple({**arrays, **changes}.values())


def read(info: DatasetInfo = INFO, **changes: Any) -> Any:
    return Arrays(info, lambda: (part(4, **changes), part(3))).read(NOWHERE)


def pixels(value: float, dtype: Any = np.int64) -> np.ndarray:
    x = np.zeros((4, 1, 2, 2), dtype)
    x[3, 0, 1, 1] = value
    return x


def test_values_within_their_range_are_copied() -> None:
    x = pixels(16)
    found = read(x=x, labels=[2, 0, 1, 2])
    assert (found.train_x.dtype, found.train_y.dtype) == (np.uint8, np.int64)
    assert found.train_x.max() == 16
    assert found.train_y.tolist() == [2, 0, 1, 2]
    assert found.train_groups is found.test_groups is None
    x[:] = 1
    assert found.train_x.min() == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": pixels(17)}, r"train x must be in \[0, 16\], got 0 to 17$"),
        ({"x": pixels(-1)}, r"got -1 to 0$"),
        ({"x": pixels(1, np.float32)}, "train x: images are whole numbers, .*, got float32$"),
        ({"x": np.zeros((4, 2, 2))}, r"train x must be \(N, 1, 2, 2\), got \(4, 2, 2\)$"),
        ({"x": np.zeros((5, 1, 2, 2))}, r"train x: train_size is 4, got shape \(5, 1, 2, 2\)$"),
        ({"labels": [0, 1, 2, 3]}, "count from 0, and num_classes is 3, got 0 to 3$"),
        ({"labels": [0, 1, 2, -1]}, "got -1 to 2$"),
        ({"labels": [0.0, 1, 2, 1]}, r"whole numbers of shape \(N,\), got float64 of \(4,\)$"),
        ({"labels": np.zeros((4, 1), int)}, r"got int64 of \(4, 1\)$"),
        ({"labels": [0, 1, 2]}, r"train labels: train_size is 4, got shape \(3,\)$"),
        ({"groups": [0, 0, 0, 0]}, r"the train part must be \(x, labels\), got tuple$"),
    ],
)
def test_other_values_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^data set 'm:DATA': .*{message}"):
        read(**changes)


def test_groups_count_from_zero_without_end() -> None:
    told = replace(INFO, groups="writer")

    def reads(groups: list[int]) -> Any:
        parts = [part(4, groups=np.array(groups)), part(3, groups=np.arange(3))]
        return Arrays(told, lambda: parts).read(NOWHERE)

    assert reads([0, 7, 99, 0]).train_groups.tolist() == [0, 7, 99, 0]
    with pytest.raises(UsageError, match=r"train groups must count from 0, got -1 to 2$"):
        reads([0, 1, 2, -1])
    with pytest.raises(UsageError, match=r"must be \(x, labels, groups\), got tuple"):
        read(told)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: 3, "the training and the test part, got int$"),
        (lambda: (part(4),), "the training and the test part, got tuple$"),
        (lambda: (part(4), part(4)), r"test x: test_size is 3, got shape \(4, 1, 2, 2\)$"),
        (lambda: {}["x"], "its function raises KeyError: 'x'$"),
    ],
)
def test_a_function_gives_two_parts(function: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Arrays(INFO, function).read(NOWHERE)


def test_a_function_gives_the_same_each_time() -> None:
    values = iter([0, 1])
    with pytest.raises(UsageError, match=r"called again: draw with a fixed seed$"):
        Arrays(INFO, lambda: (part(4, x=pixels(next(values))), part(3))).read(NOWHERE)


def test_a_file_that_is_not_there_is_missing() -> None:
    def missing() -> Any:
        raise FileNotFoundError(2, "no such file", "a.npz")

    arrays = Arrays(INFO, missing)
    assert arrays.missing(NOWHERE) == ["data set 'm:DATA': no file a.npz"]
    for call in (arrays.read, lambda folder: arrays.fetch(folder, offline=True)):
        with pytest.raises(MissingData, match=r"a\.npz$"):
            call(NOWHERE)
    there = Arrays(INFO, lambda: (part(4), part(3)))
    assert there.missing(NOWHERE) == []
    there.fetch(NOWHERE, offline=False)


RIGHT: dict[str, list[Any]] = {
    "train_size": [1],
    "test_size": [1],
    "num_classes": [2],
    "scale": [1, 255],
    "groups": ["", "source", "writer"],
}
WRONG: dict[str, list[Any]] = {
    "kind": ["sounds", ""],
    "input_shape": [(1, 2), (1, 0, 2), [1, 2, 2], (1, 2, 2.0), (True, 2, 2)],
    "train_size": [0, -1, 2.0, True],
    "test_size": [0, "3"],
    "num_classes": [1, 0, True],
    "scale": [0, 256, 1.0],
    "groups": ["user", None],
    "normalizations": [{}, {"none": ((0.0,), (0.0,))}, {"none": ((), ())}, None],
}


@pytest.mark.parametrize("field", RIGHT)
def test_an_entry_may_be_at_its_limits(field: str) -> None:
    for value in RIGHT[field]:
        assert not any(_mistakes(replace(INFO, **{field: value})).values()), value


@pytest.mark.parametrize("field", WRONG)
def test_an_entry_beyond_its_limits_breaks_a_rule(field: str) -> None:
    for value in WRONG[field]:
        broken = [
            rule for rule, is_so in _mistakes(replace(INFO, **{field: value})).items() if is_so
        ]
        assert field in [rule.split()[0] for rule in broken], value
        assert {rule.split()[0] for rule in broken} <= {field, "input_shape", "normalizations"}


@pytest.mark.parametrize(
    ("kind", "shape", "fits"),
    [
        ("texts", (7,), True),
        ("texts", (1, 7), False),
        ("vectors", (7,), True),
        ("vectors", (), False),
        ("images", (1, 2, 2), True),
    ],
)
def test_each_kind_has_its_axes(kind: str, shape: tuple[int, ...], fits: bool) -> None:
    info = replace(INFO, kind=kind, input_shape=shape)
    assert any(_mistakes(info).values()) is not fits


def test_what_decides_numbers_is_in_the_version() -> None:
    version = content_version(INFO, "h")
    assert len(version) == 16
    assert content_version(replace(INFO, name="n", title="u", download=3), "h") == version
    decisive = {
        "num_classes": 4,
        "input_shape": (1, 2, 3),
        "scale": 15,
        "flip": True,
        "groups": "writer",
        "kind": "texts",
        "normalizations": {"none": ((0.0,), (2.0,))},
    }
    versions = {content_version(INFO, "i"), version}
    for field, value in decisive.items():
        versions.add(content_version(replace(INFO, **{field: value}), "h"))
    assert len(versions) == 2 + len(decisive)
    rules = {"b": ((0.0,), (1.0,)), "a": ((0.5,), (0.5,))}
    reordered = dict(sorted(rules.items()))
    assert content_version(replace(INFO, normalizations=rules), "h") == content_version(
        replace(INFO, normalizations=reordered), "h"
    )
