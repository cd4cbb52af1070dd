"""Statistics of drawn values to six decimals: what a board's numbers must not lose by a change."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from board import assert_approved, plain

from leaderboards.stats.aggregate import improvement, standings_of
from leaderboards.stats.best import from_best
from leaderboards.stats.pooled import PooledDifference, pooled_differences
from leaderboards.stats.seeds import Comparison, corrected, paired, t_limits


def drawn(count: int, stream: int, mean: float = 0.0) -> list[float]:
    """Values with four digits, which are the same everywhere."""
    values = np.random.RandomState(stream).normal(mean, 1.0, count)
    return [round(float(value), 4) for value in values]


def by_seed(values: Iterable[float], first: int = 0) -> dict[int, float]:
    return dict(enumerate(values, first))


def as_data(results: Iterable[Any]) -> list[Any]:
    return [dataclasses.asdict(result) for result in results]


def pooled_of(clusters: int) -> list[Any]:
    """Three methods beside one in two cells, of which the second has half of the clusters."""
    cells: dict[str, Any] = {}
    for name, share in (("first", 1.0), ("second", 0.5)):
        count = max(1, round(share * clusters))
        cells[name] = {
            "old": by_seed(drawn(count, len(name))),
            "better": by_seed(drawn(count, 3 + len(name), 1.5)),
            "alike": by_seed(drawn(count, 9 + len(name), 0.1)),
        }
    cells["first"]["short"] = by_seed(drawn(3, 7, -2.0))
    cells["alone"] = {"elsewhere": {0: 1.0}, "better": {0: 3.0}}
    return as_data(pooled_differences(cells, "old"))


@pytest.mark.parametrize("clusters", [4, 6, 9, 13, 14, 30])
def test_pooled_differences(clusters: int, tmp_path: Path) -> None:
    assert_approved(f"statistics/pooled_{clusters}.txt", plain(pooled_of(clusters)), tmp_path)


@pytest.mark.parametrize(("clusters", "size"), [(5, 0.25), (6, 0.25), (6, -3.0), (20, 3.0)])
def test_constant_pooled_differences(clusters: int, size: float) -> None:
    """They are told from none by signs alone, from six clusters on."""
    old = dict.fromkeys(range(clusters), 1.0)
    new = dict.fromkeys(range(clusters), 1.0 + size)
    (found,) = pooled_differences({"cell": {"old": old, "new": new}}, "old")
    assert (found.interval is None) == (clusters < 6)
    if found.interval:
        ends = (found.interval.low, found.interval.high)
        assert ends == pytest.approx((size, size))
    counts = (found.higher, found.lower, found.clusters, found.cells)
    assert counts == ((clusters, 0) if size > 0 else (0, clusters)) + (clusters, 1)
    assert found.separable == (clusters >= 6)


def test_five_percent_is_separable() -> None:
    """Holm's or a pooled p of exactly 0.05 is."""
    edge = Comparison("a", "b", 3, (), 1.0, None, p=0.05, adjusted=1 - 0.95)
    assert edge.separable
    assert not dataclasses.replace(edge, adjusted=0.0501).separable
    pooled = PooledDifference("a", 1.0, None, 1 - 0.95, 6, 0, 6, 1)
    assert pooled.separable
    assert not dataclasses.replace(pooled, p=0.0501).separable


def test_differences_from_the_best(tmp_path: Path) -> None:
    values = {
        "a": by_seed(drawn(6, 1, 1.0)),
        "b": by_seed(drawn(6, 2, 0.8)),
        "c": by_seed(drawn(6, 3, -4.0)),
        "d": by_seed(drawn(3, 4, 0.5), first=3),
        "e": by_seed(drawn(4, 5, 3.0), first=4),
    }
    some = {name: values[name] for name in "abcd"}
    results = [from_best(*each) for each in product((values, some), (True, False))]
    assert_approved("statistics/best.txt", plain([as_data(each) for each in results]), tmp_path)


def test_a_circle_excludes_nobody() -> None:
    """Each is beaten by the next one on the seeds that both have."""
    values: dict[str, dict[int, float]] = {"a": {}, "b": {}, "c": {}}
    for at, (winner, loser) in enumerate((("a", "b"), ("b", "c"), ("c", "a"))):
        for seed in range(5 * at, 5 * at + 5):
            values[winner][seed] = 1.0 + seed / 100
            values[loser][seed] = 0.0
    results = from_best(values)
    assert [result.excluded for result in results] == [False] * 3
    assert [result.interval is None for result in results] == [False] * 3


def test_standings_and_improvements(tmp_path: Path) -> None:
    cells = {
        key: {name: drawn(count, 10 * key + at, at / 2) for at, name in enumerate("abc")}
        for key, count in ((1, 3), (2, 4), (3, 9))
    }
    cells[2]["d"] = drawn(4, 50)
    scales = {1: (-1.0, 2.0), 2: (0.0, 1.0), 3: (-3.0, 3.0)}
    texts = []
    for higher in (True, False):
        standings = standings_of(cells, higher, diverged={1: {"b"}}, scales=scales)
        texts.append([as_data([standings]), standings.remarks])
        texts.append(as_data(improvement(cells, name, "a", higher) for name in "bc"))
    few = {key: {name: values[:2] for name, values in cell.items()} for key, cell in cells.items()}
    standings = standings_of(few, scales=scales)
    texts.append([as_data([standings]), standings.remarks])
    texts.append(as_data([improvement(few, "b", "a")]))
    assert_approved("statistics/standings.txt", plain(texts), tmp_path)


def test_equal_standings_are_sorted_by_name() -> None:
    values = {1: {"b": (1.0,), "a": (1.0,), "c": (0.0,)}}
    standings = standings_of(values)
    assert [one.algorithm for one in standings.ranked] == ["a", "b", "c"]
    assert [one.win_rate for one in standings.ranked] == [0.5, 0.5, 0.0]
    assert [one.iqm for one in standings.ranked] == [None] * 3


def test_equal_ranks_are_sorted_by_score() -> None:
    values = {1: {"a": (0.5,), "b": (0.25,)}, 2: {"a": (-0.5,), "b": (1.0,)}}
    standings = standings_of(values, scales={1: (0.0, 1.0), 2: (0.0, 1.0)})
    scores = [
        (standing.algorithm, standing.average_rank, standing.iqm) for standing in standings.ranked
    ]
    assert scores == [("b", 1.5, 0.625), ("a", 1.5, 0.0)]


def test_paired_comparisons(tmp_path: Path) -> None:
    values = {
        "a": by_seed(drawn(5, 1, 1.0)),
        "b": by_seed(drawn(5, 2)),
        "c": by_seed(drawn(4, 3), 2),
    }
    values["d"] = {seed: value + 0.5 for seed, value in values["b"].items()}
    values["e"] = by_seed(drawn(2, 6))
    tests = corrected([paired(values, name, "b") for name in "acde"])
    assert_approved("statistics/paired.txt", plain(as_data(tests)), tmp_path)


def test_limits_are_of_three_values_or_more() -> None:
    low, high = t_limits([1.0] * 3, [0.5] * 3, [2, 3, 11])
    assert np.isnan([low[0], high[0]]).all()
    # 0.975 quantiles of Student's t with 2 and 10 degrees of freedom
    half = np.array([4.30265273 * 0.5 / math.sqrt(3), 2.22813885 * 0.5 / math.sqrt(11)])
    np.testing.assert_allclose(low[1:], 1 - half)
    np.testing.assert_allclose(high[1:], 1 + half)
