"""The pooled comparison, beside enumerations and simulations that share no code with it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from importlib import import_module
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import ROOT
from rows import make_row, tables_of

from leaderboards.board import leaderboard, with_seeds
from leaderboards.numbers import NUMBERS, number_named
from leaderboards.stats.pooled import PooledDifference, pooled_differences
from leaderboards.tables.over_cells import over_cells, pooled_against
from leaderboards.tables.sheets import against

Cells = dict[str, dict[str, dict[object, float]]]


def one(values: Cells, method: str = "new") -> PooledDifference:
    return next(each for each in pooled_differences(values, "old") if each.method == method)


def cell(*differences: float, method: str = "new") -> dict[str, dict[object, float]]:
    return {
        "old": dict.fromkeys(range(len(differences)), 1.0),
        method: {k: 1 + d for k, d in enumerate(differences)},
    }


def record_beside_fedavg(rows: list[dict[str, Any]]) -> Mapping[str, Any]:
    """The one method that is compared with FedAvg in these rows."""
    runs = pd.DataFrame(rows)
    metrics = [NUMBERS["mean_last10_accuracy"]]
    tables = tables_of(with_seeds(leaderboard(runs), runs, metrics), metrics)
    sheet = pooled_against(tables, metrics[0], "fedavg")
    assert sheet is not None
    (record,) = sheet.records
    return record


def test_p_is_an_enumeration_of_signs() -> None:
    differences = [0.3, 0.1, 0.5, 0.2, -0.1, 0.4, 0.25]
    found = one({"a": cell(*differences)})
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=7)
    ]
    expected = sum(total >= abs(sum(differences)) - 1e-12 for total in sums) / len(sums)
    assert found.p == pytest.approx(expected)
    assert found.difference == pytest.approx(sum(differences) / 7)
    assert (found.higher, found.lower, found.clusters, found.cells) == (6, 1, 7, 1)


def test_equal_values_are_ahead_nowhere() -> None:
    found = one({"a": cell(0.1, 0.0, 0.0, -0.2)})
    assert (found.higher, found.lower, found.clusters) == (1, 1, 4)


def test_p_uses_the_largest_statistic() -> None:
    first = [0.3, 0.1, 0.5, 0.2, 0.1, 0.4]
    second = [0.2, -0.3, 0.1, 0.4, -0.2, 0.1]
    values = {"a": cell(*first) | {"other": cell(*second)["new"]}}

    def statistic(signs: tuple[int, ...], differences: list[float]) -> float:
        total = abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        return total / math.sqrt(sum(d * d for d in differences))

    flips = list(product((1, -1), repeat=6))
    largest = [max(statistic(signs, first), statistic(signs, second)) for signs in flips]
    for method, differences in (("new", first), ("other", second)):
        observed = statistic((1,) * 6, differences)
        expected = sum(value >= observed - 1e-9 for value in largest) / len(flips)
        assert one(values, method).p == pytest.approx(expected)


def test_cells_count_alike_and_clusters_flip_together() -> None:
    """Two cells of unequal size: the difference is the mean of their means, and a shared cluster is one flip."""
    values = {"a": cell(0.2, 0.4), "b": cell(0.1, 0.2, 0.3, 0.4)}
    found = one(values)
    assert found.difference == pytest.approx((0.3 + 0.25) / 2)
    assert found.clusters == 4
    contributions = [0.2 / 4 + 0.1 / 8, 0.4 / 4 + 0.2 / 8, 0.3 / 8, 0.4 / 8]
    sums = [
        abs(sum(s * u for s, u in zip(signs, contributions, strict=True)))
        for signs in product((1, -1), repeat=4)
    ]
    assert found.p == pytest.approx(sum(total >= sum(contributions) - 1e-12 for total in sums) / 16)


def test_intervals_agree_with_p() -> None:
    random = np.random.default_rng(1)
    for clusters in (8, 12, 30):
        for effect in (0.0, 0.4, 0.8, 1.2):
            values = {"a": cell(*(random.normal(size=clusters) + effect))}
            found = one(values)
            assert found.interval is not None
            excludes = not found.interval.low <= 0 <= found.interval.high
            assert excludes == found.separable
            assert found.interval.low < found.difference < found.interval.high


def test_shifting_moves_the_interval_along() -> None:
    differences = np.random.default_rng(2).normal(size=20)
    first = one({"a": cell(*differences)})
    moved = one({"a": cell(*(differences + 5))})
    assert first.interval is not None
    assert moved.interval is not None
    assert moved.interval.low - first.interval.low == pytest.approx(5)
    assert moved.interval.high - first.interval.high == pytest.approx(5)


def test_few_clusters_exclude_nothing() -> None:
    found = one({"a": cell(0.1, 0.1, 0.12, 0.11, 0.1)})
    assert found.p == pytest.approx(2 / 2**5)
    assert found.interval is None


@pytest.mark.parametrize(("clusters", "told"), [(1, False), (5, False), (6, True)])
def test_a_constant_difference_counts_by_sign(clusters: int, told: bool) -> None:
    found = one({"a": cell(*[0.25] * clusters)})
    assert found.p == pytest.approx(min(1.0, 2 / 2**clusters))
    assert found.separable is told
    assert (found.interval is not None) is told


def test_equal_results_are_a_point() -> None:
    found = one({"a": cell(*[0.0] * 8)})
    assert (found.difference, found.p) == (0.0, 1.0)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == (0.0, 0.0)


def test_without_the_reference_nothing_is_compared() -> None:
    assert pooled_differences({"a": {"new": {0: 1.0}}}, "old") == ()
    with pytest.raises(ValueError, match="finite"):
        pooled_differences({"a": cell(math.nan)}, "old")


def test_diverged_runs_count_as_they_ended() -> None:
    rows = []
    for seed in range(8):
        rows.append(make_row("fedavg", {}, seed=seed, mean_last10_accuracy=0.4, final_accuracy=0.4))
        told = (
            {"mean_last10_accuracy": 0.6, "final_accuracy": 0.1}
            if seed == 0
            else {"mean_last10_accuracy": 0.5}
        )
        rows.append(make_row("fedprox", {"mu": 0.1}, seed=seed, diverged=seed == 0, **told))
    record = record_beside_fedavg(rows)
    assert record["difference"] == pytest.approx((7 * 0.1 - 0.3) / 8)
    assert (record["diverged"], record["runs_tried"], record["partitions"]) == (1, 8, 8)


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("mean_last10_accuracy", "such runs count with the accuracy of their last model"),
        ("loss@last", "such runs count only if they have a number"),
    ],
)
def test_how_diverged_runs_count_is_noted(name: str, note: str) -> None:
    rows = []
    for seed in range(8):
        rows.append(make_row("fedavg", {}, seed=seed))
        rows.append(make_row("fedprox", {"mu": 0.1}, seed=seed, diverged=seed == 0))
    metrics = [number_named(name)]
    runs = pd.DataFrame(rows).assign(**{name: 0.5})
    tables = tables_of(with_seeds(leaderboard(runs, metrics), runs, metrics), metrics)
    sheet = pooled_against(tables, metrics[0], "fedavg")
    assert sheet is not None
    counted = "diverged: runs that did, of all in the compared cells"
    assert f"{counted}; replicates of a partition are one run; {note}" in sheet.table.notes


def test_differences_of_rounding_are_none() -> None:
    """0.1 + 0.2 is no gain over 0.3."""
    values = {"old": {1: 0.3, 2: 0.5, 3: 0.4}, "new": {1: 0.1 + 0.2, 2: 0.4, 3: 0.45}}
    difference = one({"cell": values})
    assert (difference.higher, difference.lower, difference.clusters) == (1, 1, 3)
    same = one({"cell": {"old": {1: 0.3}, "new": {1: 0.1 + 0.2}}})
    assert (same.difference, same.higher) == (0, 0)


def test_divergence_is_counted_where_the_reference_ran() -> None:
    """`fedprox` diverges at alpha 5, too, where there is no fedavg; so does fedavg once."""
    rows = []
    for seed in range(8):
        rows.append(make_row("fedavg", {}, {"alpha": 0.1}, seed=seed, diverged=seed == 1))
        for alpha in (0.1, 5.0):
            hyperparameters = {"mu": 0.1}
            diverged = alpha == 5.0 or seed == 0
            rows.append(
                make_row("fedprox", hyperparameters, {"alpha": alpha}, seed, diverged=diverged)
            )
            rows.append(make_row("moon", {"mu": 1.0}, {"alpha": alpha}, seed))
    metrics = [NUMBERS["final_accuracy"]]
    runs = pd.DataFrame(rows)
    tables = tables_of(with_seeds(leaderboard(runs, metrics), runs, metrics), metrics)
    sheet = pooled_against(tables, metrics[0], "fedavg")
    assert sheet is not None
    assert sheet.table.title == "Over 1 cell · final: difference from fedavg"
    counts = {one["algorithm"]: (one["diverged"], one["runs_tried"]) for one in sheet.records}
    assert counts == {"fedprox": (1, 8), "moon": (0, 8)}
    (note,) = [note for note in sheet.table.notes if note.startswith("diverged")]
    assert "of all in the compared cells (of fedavg 1 of 8); replicates of a" in note


def test_cells_of_one_partition_are_one_cluster() -> None:
    rows = [
        make_row(
            name,
            {},
            {"participation": share, "alpha": alpha},
            seed,
            mean_last10_accuracy=value + seed / 1000,
        )
        for name, value in (("fedavg", 0.4), ("fedgkd", 0.5))
        for share in (0.2, 0.5)
        for alpha in (0.1, 0.5)
        for seed in range(3)
    ]
    record = record_beside_fedavg(rows)
    assert (record["partitions"], record["cells"]) == (2 * 3, 4)
    assert record["p"] == pytest.approx(2 / 2**6)
    assert record["p_by_seed"] == pytest.approx(2 / 2**3), "three seeds flip together at all alphas"
    assert json.loads(json.dumps(record))["separable"] is True


@pytest.mark.slow
def test_error_rate_and_power_are_as_documented() -> None:
    """Boards like ours: partition effects, heavy tails, spreads of three alphas; 10 methods, one with an effect."""
    rejected_null, found_effect, covered = 0, 0, 0
    boards = 300
    for number in range(boards):
        random = np.random.default_rng(number)
        values: Cells = {}
        for alpha, count, spread in (("0.1", 20, 2.8), ("0.5", 12, 1.84), ("5", 8, 0.65)):
            partition = 3 * random.standard_t(8, count)
            scale = spread / math.sqrt(2) / math.sqrt(8 / 6)
            values[alpha] = {
                name: {
                    (alpha, k): partition[k] + 1.5 * (name == "m0") + scale * random.standard_t(8)
                    for k in range(count)
                }
                for name in ("old", *(f"m{i}" for i in range(10)))
            }
        found = {each.method: each for each in pooled_differences(values, "old", flips=999)}
        others = [each for name, each in found.items() if name != "m0"]
        rejected_null += any(each.separable for each in others)
        found_effect += found["m0"].separable
        covered += all(
            each.interval is not None
            and each.interval.low <= 1.5 * (name == "m0") <= each.interval.high
            for name, each in found.items()
        )
    assert rejected_null / boards <= 0.08  # 5 % and three standard errors
    assert found_effect / boards >= 0.8
    assert covered / boards >= 0.92


@pytest.mark.slow
def test_documented_rates_match_the_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of docs/results.md on the first board with a gain of two points, within four standard errors."""
    docs = ROOT / "docs"
    monkeypatch.syspath_prepend(docs)
    power = import_module("power")
    boards = 60
    simulated = power.rates(power.DESIGNS[0], 2.0, boards)
    text = (docs / "results.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| [^|]*\| 2 \| .* \| ([\d.]+) % \| (\d+) % \|$", text, re.MULTILINE)
    assert len(lines) == len(simulated) == 2, "by cell, over cells"
    for (_, error, found), documented in zip(simulated, lines, strict=True):
        for rate, percent in zip((error, found), documented, strict=True):
            share = float(percent) / 100
            assert abs(rate - share) <= 4 * math.sqrt(share * (1 - share) / boards)
    by_cell, over_cells = (found for _, _, found in simulated)
    assert over_cells > by_cell + 0.2


def test_unlike_platforms_are_named_and_not_timed() -> None:
    rows = []
    for alpha in (0.1, 1.0):
        for seed in range(3):
            setting = {"alpha": alpha}
            value = 0.5 + seed / 100
            rows.append(make_row("fedavg", {}, setting, seed, final_accuracy=value, seconds=10.0))
            rows.append(make_row("fedprox", {}, setting, seed, final_accuracy=value, seconds=20.0))
            elsewhere = (
                {"device": "some GPU", "seconds": 1.0} if alpha == 0.1 else {"seconds": 30.0}
            )
            rows.append(make_row("moon", {}, setting, seed, final_accuracy=value, **elsewhere))
            packed = {"backend": "stacked", "pack": 6, "seconds": 1.0}
            rows.append(make_row("fedgkd", {}, setting, seed, final_accuracy=value, **packed))
    runs = pd.DataFrame(rows)
    metrics = [NUMBERS["final_accuracy"], NUMBERS["seconds"]]
    tables = tables_of(with_seeds(leaderboard(runs), runs, metrics), metrics)
    sheet = pooled_against(tables, metrics[0], "fedavg")
    assert sheet is not None
    time_of = {record["algorithm"]: record["time_ratio"] for record in sheet.records}
    assert time_of == {"fedprox": 2.0, "moon": 3.0, "fedgkd": None}, "moon's is of alpha 1"
    (note,) = [line for line in sheet.table.notes if "unlike platforms" in line]
    assert note.endswith(": moon")
    by_cell = against(tables[0], "fedavg")
    assert by_cell is not None
    texts = {row.label: row.cells[0].words for row in by_cell.table.rows}
    marked = {label for label, text in texts.items() if text and "‡" in text}
    assert marked == {"moon"}
    flagged = [record for record in by_cell.records if record["platforms_mixed"]]
    assert {(record["algorithm"], record["alpha"]) for record in flagged} == {("moon", 0.1)}


def test_a_reference_in_others_runs_has_no_time() -> None:
    """FedAvg's rows are of FedAvg-T1's runs; rows after fine-tuning are of the same method."""
    ratios = []
    for second in ("fedavg_t1", "fedavg_ft"):
        rows = []
        for seed in range(6):
            value = {"final_accuracy": 0.5 + seed / 100}
            first = make_row("fedavg", {}, {}, seed, seconds=20.0, **value)
            rows += [first, make_row("fedprox", {}, {}, seed, seconds=30.0, **value)]
            shared = {"started": first["started"], "seconds": 20.0}
            rows.append(make_row(second, {}, {}, seed, **shared, **value))
        runs = pd.DataFrame(rows)
        metrics = [NUMBERS["final_accuracy"]]
        tables = tables_of(with_seeds(leaderboard(runs), runs, metrics), metrics)
        sheet = pooled_against(tables, metrics[0], "fedavg")
        assert sheet is not None
        ratios.append({record["algorithm"]: record["time_ratio"] for record in sheet.records})
    assert ratios == [
        {"fedprox": None, "fedavg_t1": None},
        {"fedprox": 1.5, "fedavg_ft": 1.0},
    ]


def test_traffic_beside_a_silent_reference_is_in_megabytes() -> None:
    rows = []
    for alpha in (0.1, 1.0):
        for seed in range(3):
            value = {"final_accuracy": 0.5 + seed / 100}
            rows.append(
                make_row("local", {}, {"alpha": alpha}, seed, bytes_up=0, bytes_down=0, **value)
            )
            sent = {"bytes_up": 1_000_000, "bytes_down": 2_500_000 if alpha == 1.0 else 4_500_000}
            rows.append(make_row("fd", {}, {"alpha": alpha}, seed, **sent, **value))
            rows.append(make_row("fml", {}, {"alpha": alpha}, seed, diverged=True, **sent, **value))
    runs = pd.DataFrame(rows)
    metrics = [NUMBERS["final_accuracy"]]
    tables = tables_of(with_seeds(leaderboard(runs), runs, metrics), metrics)
    sheet = pooled_against(tables, metrics[0], "local")
    assert sheet is not None
    sent_of = {record["algorithm"]: record["bytes"] for record in sheet.records}
    assert sent_of == {"fd": 4_500_000, "fml": None}, "a diverged run may have sent less"
    (row_of_fd,) = [row for row in sheet.table.rows if row.label == "fd"]
    assert "4.50 MB" in [cell.words for cell in row_of_fd.cells]
    assert "traffic in MB, because local sends nothing" in sheet.table.notes


def test_platforms_are_compared_seed_by_seed() -> None:
    """Seeds on several machines have a common one each, and further seeds of one do not matter."""
    rows = []
    for name, seconds in (("fedavg", 10.0), ("fedprox", 20.0)):
        for seed in range(4):
            there = {"device": "some GPU", "seconds": seconds / 5} if seed == 2 else {}
            columns = {"final_accuracy": 0.5 + seed / 100, "seconds": seconds} | there
            rows.append(make_row(name, {}, {}, seed, **columns))
    rows.append(make_row("fedavg", {}, {}, 9, final_accuracy=0.5, device="other", seconds=1.0))
    runs = pd.DataFrame(rows)
    metrics = [NUMBERS["final_accuracy"], NUMBERS["seconds"]]
    tables = tables_of(with_seeds(leaderboard(runs), runs, metrics), metrics)
    sheet = pooled_against(tables, metrics[0], "fedavg")
    assert sheet is not None
    (record,) = sheet.records
    assert (record["time_ratio"], record["platforms_mixed"]) == (2.0, False)
    by_cell = against(tables[0], "fedavg")
    assert by_cell is not None
    assert not any("platforms" in note for note in by_cell.table.notes)


def test_a_missing_interval_beside_others_has_its_reason() -> None:
    """One partition alone in its cell weighs as much as eight in another."""
    rows = []
    for seed in range(8):
        for name, gain in (("fedavg", 0.0), ("fedprox", 0.02), ("fedgkd", 0.01)):
            accuracy = 0.4 + gain * (1 + seed / 10)
            rows.append(make_row(name, {}, {"alpha": 1.0}, seed, mean_last10_accuracy=accuracy))
            if name != "fedgkd" or seed == 0:
                setting = {"alpha": 0.1}
                rows.append(make_row(name, {}, setting, seed, mean_last10_accuracy=accuracy))
    runs = pd.DataFrame(rows)
    metric = NUMBERS["mean_last10_accuracy"]
    tables = tables_of(with_seeds(leaderboard(runs), runs, [metric]), [metric])
    sheet = pooled_against(tables, metric, "fedavg")
    assert sheet is not None
    without = {record["algorithm"] for record in sheet.records if record["low"] is None}
    assert without == {"fedgkd"}
    (note,) = [note for note in sheet.table.notes if note.startswith("no interval")]
    assert note.endswith(": fedgkd")


@pytest.mark.parametrize(("first", "noted"), [(0, False), (1, True)])
def test_ranks_over_unlike_seeds_are_noted(first: int, noted: bool) -> None:
    rows = []
    for alpha in (0.1, 1.0):
        for seed in range(3):
            rows.append(make_row("fedavg", {}, {"alpha": alpha}, seed))
            rows.append(make_row("fedprox", {}, {"alpha": alpha}, seed + first))
    runs = pd.DataFrame(rows)
    metric = NUMBERS["mean_last10_accuracy"]
    tables = tables_of(with_seeds(leaderboard(runs), runs, [metric]), [metric])
    sheet = over_cells(tables, metric)
    assert sheet is not None
    assert any("different seeds" in note for note in sheet.table.notes) == noted


def test_cells_without_a_target_are_noted() -> None:
    """A method that misses a target in a cell is compared in the others alone."""
    target = number_named("rounds@70")
    rows = []
    for alpha, rounds in ((0.1, math.nan), (1.0, 20.0)):
        for seed in range(3):
            rows.append({**make_row("fedavg", {}, {"alpha": alpha}, seed), target.name: 30.0})
            rows.append({**make_row("fedprox", {}, {"alpha": alpha}, seed), target.name: rounds})
    runs = pd.DataFrame(rows)
    tables = tables_of(with_seeds(leaderboard(runs, [target]), runs, [target]), [target])
    sheet = pooled_against(tables, target, "fedavg")
    assert sheet is not None
    (note,) = [note for note in sheet.table.notes if "left out" in note]
    assert note.endswith("the harder ones: fedprox")


@pytest.mark.parametrize(
    ("name", "one", "scored"),
    [
        ("accuracy@last", 0.75, True),
        ("accuracy@last", 0.5, False),
        ("accuracy@last", 0.25, False),
        ("loss@last", 0.25, True),
        ("loss@last", 0.5, False),
        ("loss@last", 0.75, False),
    ],
)
def test_scores_need_a_better_centralized(name: str, one: float, scored: bool) -> None:
    """`local` has 0.5."""
    metric = number_named(name)
    values = {"fedavg": 0.6, "fedprox": 0.4, "local": 0.5, "centralized": one}
    rows = []
    for algorithm, value in values.items():
        for alpha in (0.1, 1.0):
            rows.append({**make_row(algorithm, {}, {"alpha": alpha}), name: value})
    runs = pd.DataFrame(rows)
    tables = tables_of(with_seeds(leaderboard(runs, [metric]), runs, [metric]), [metric])
    sheet = over_cells(tables, metric)
    assert sheet is not None
    assert [record["score"] is not None for record in sheet.records] == [scored, scored]
