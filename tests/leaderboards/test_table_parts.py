"""Parts of tables: columns of a leaderboard, texts of cells, remarks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from rows import make_row, tables_of

from leaderboards.board import leaderboard, with_seeds
from leaderboards.numbers import NUMBERS, number_named
from leaderboards.stats.seeds import Interval
from leaderboards.tables import build, captions, over_cells
from leaderboards.tables.model import Row, interval_text, limits
from leaderboards.tables.sheets import against, matching_label

BEST = NUMBERS["best_accuracy"]


def board_of(rows: list[dict[str, Any]], *names: str) -> pd.DataFrame:
    """The leaderboard of some rows, by algorithm; `names` are numbers beside the usual ones."""
    runs = pd.DataFrame(rows)
    return leaderboard(runs, [number_named(name) for name in names]).set_index("algorithm")


# Columns of a leaderboard


@pytest.mark.parametrize(
    ("values", "kind", "stored"),
    [
        ((1, 2, None), "Int64", [1, 2, None]),
        ((1, 2.5, None), "float64", [1.0, 2.5, None]),
        ((True, False, None), "boolean", [True, False, None]),
        ((True, 1, None), "object", ["true", "1", None]),
        (("a", 1, None), "object", ["a", "1", None]),
        ((None, None, None), "Int64", [None, None, None]),
    ],
)
def test_columns_of_hyperparameters(values: tuple[Any, ...], kind: str, stored: list[Any]) -> None:
    names = ("a", "b", "c")
    rows = [make_row(name, {"x": value}) for name, value in zip(names, values, strict=True)]
    column = board_of([*rows, make_row("d")])["hp_x"]
    assert str(column.dtype).replace("str", "object") == kind  # of pandas before 3
    assert [None if pd.isna(value) else value for value in column] == [*stored, None]


def test_limits_stay_where_means_can_be() -> None:
    rows = []
    for seed, value in enumerate((0.0, 0.01, 0.05)):
        told = {"best_accuracy": value, "final_accuracy": 1 - value, "seconds": 100 * value}
        rows.append({**make_row(seed=seed, **told), "kl": -value})
    (row,) = board_of(rows, "kl").to_dict("records")
    half = 4.30265273 * pd.Series((0.0, 0.01, 0.05)).std() / 3**0.5
    assert (row["best_accuracy_low"], row["final_accuracy_high"]) == (0.0, 1.0)
    assert row["best_accuracy_high"] == pytest.approx(0.02 + half)
    assert row["final_accuracy_low"] == pytest.approx(0.98 - half)
    assert row["seconds_low"] == 0.0
    assert row["seconds_high"] == pytest.approx(2 + 100 * half)
    assert (row["kl_low"], row["kl_high"]) == pytest.approx((-0.02 - half, -0.02 + half))


def test_gaps_are_of_the_selecting_samples() -> None:
    told = {"best_val_accuracy": 0.75, "selected_accuracy": 0.5}
    told |= {"best_client_val_accuracy": 0.5, "selected_client_accuracy": 0.625}
    rows = [make_row("a", **told), make_row("b", selected_on="clients", **told)]
    assert board_of(rows)["validation_gap"].to_dict() == {"a": 0.25, "b": -0.125}


def test_configurations_are_counted_by_contest() -> None:
    rows = [make_row("a", {"x": x}, diverged=x == 2) for x in (1, 2)]
    rows.append(make_row("a", {"x": 3}, status="stopped", diverged=True))
    rows.append(make_row("a", {"x": 4}, status="failed", error="x"))
    rows += [make_row("a", {"x": 1}, {"alpha": 5.0}), make_row("b")]
    board = board_of(rows).reset_index()
    counts = board.groupby(["algorithm", "alpha"])[["configurations", "configurations_diverged"]]
    found = {key: tuple(group.iloc[0]) for key, group in counts}
    assert found == {("a", 0.5): (3, 1), ("a", 5.0): (1, 0), ("b", 0.5): (1, 0)}
    assert board["diverged_count"].sum() == 1
    assert board["stopped"].sum() == board["failed"].sum() == 1


# Hyper-parameters of a row


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.1], "x=0.1"),
        ([0], "x=0"),
        ([False], ""),
        ([None], ""),
        ([True], "x=true"),
        ([0.123456], "x=0.123456"),
        ([0.1234567], "x=0.1235"),
        ([0.1, 0.1], "x=0.1"),
        ([0.1, 0.2], "x=0.1|0.2"),
        ([False, True], "x=false|true"),
        ([0.1, "absent"], "x=0.1"),
        (["absent", 0.1, 0.2], "x=–|0.1|0.2"),
        ([], ""),
    ],
)
def test_values_by_place(values: list[Any], text: str) -> None:
    configurations = [None if value == "absent" else {"x": value} for value in values]
    texts = build._texts_of(configurations, ["x", "y"])
    assert Row("a", "mlp", texts, ()).hyperparameters() == text


def test_rows_without_values_come_later() -> None:
    """First complete rows, then by rank, then by score, then by name; bounds are last."""
    means = {"d": (0.5, 0.6), "a": (0.5, 0.6), "b": (0.7, None), "c": (0.4, 0.7)}
    means |= {"local": (0.9, 0.9)}
    rows = []
    for name, values in means.items():
        for alpha, value in zip((0.1, 1.0), values, strict=True):
            if value is not None:
                rows.append(make_row(name, {}, {"alpha": alpha}, best_accuracy=value))
    (table,) = tables_of(leaderboard(pd.DataFrame(rows)), [BEST])
    assert [row.label for row in table.rows] == ["a", "d", "c", "b", "local"]
    assert [row.reference for row in table.rows] == [False] * 4 + [True]
    assert [row.is_ranked for row in table.rows] == [True] * 4 + [False]


# Captions


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ((1, 1, 1, 1), "a 1, b 1, c 1, d 1"),
        ((1, 1, 1, 1, 1), "1 of each algorithm"),
        ((1, 1, 1, 1, 1, 2), "1 of each algorithm, but f 2"),
        ((3, 1), "a 3, b 1"),
    ],
)
def test_many_equal_counts_are_told_once(counts: tuple[int, ...], text: str) -> None:
    assert captions._ranges(zip("abcdef", counts, strict=False)) == text


def test_the_extremes_may_be_one() -> None:
    assert captions._extremes([("a", 1.0)]) == "1.00 (a)"
    assert captions._extremes([("a", 1.0), ("b", -0.5), ("c", 0.0)]) == "-0.50 (b) to 1.00 (a)"


def test_an_own_metric_is_named_once() -> None:
    assert captions.measured(number_named("drift")) == "drift: last round"
    assert captions.measured(number_named("drift@last10")) == (
        "drift@last10: drift, mean of the last 10 evaluations"
    )


def selected_by(*records: dict[str, Any]) -> str:
    plain = {"n": 1, "selected_on": "validation", "configurations": 2}
    return captions._selection([plain | record for record in records])


def test_how_configurations_were_selected() -> None:
    seed_0 = {"chosen_on": "seed 0"}
    assert selected_by({"configurations": 1}).startswith("one configuration of each algorithm")
    assert selected_by({"configurations": 1} | seed_0).endswith("seeds other than 0")
    assert selected_by({}, {"configurations": 1}) == (
        "configurations selected on the validation split, by their mean over seeds"
    )
    best = {"chosen_by": "best"}
    assert selected_by(best, best).endswith("over seeds, by the best round")
    assert selected_by(best, {"chosen_by": "last10"}).endswith("over seeds")
    clients = {"selected_on": "clients"}
    assert selected_by(clients | seed_0, clients | {"chosen_on": "seed 0 at C=1"}) == (
        "configurations selected on the clients' own validation samples of seed 0 or seed 0 at C=1"
        "; results are of the seeds other than 0"
    )
    assert "validation split of seed 0" in selected_by(seed_0, clients | seed_0)
    unfinished = {"n": 0, "selected_on": "test"}
    assert "TEST SET" not in selected_by({}, unfinished)
    assert "TEST SET" in selected_by({}, unfinished | {"n": 1})


# Comparisons


def test_a_label_may_be_the_only_variant() -> None:
    labels = ["moon (+head)", "fedavg", "fedavg (+head)", "fedbn (+bn)", "fedbn (+head)"]
    found = [matching_label(labels, name) for name in ("moon", "fedavg", "fedbn", "fed", "moon (")]
    assert found == ["moon (+head)", "fedavg", None, None, None]


@pytest.mark.parametrize(
    ("ratio", "text"), [(None, "–"), (9.994, "9.99x"), (10.0, "10x"), (31.4, "31x"), (0.5, "0.50x")]
)
def test_large_ratios_are_whole(ratio: float | None, text: str) -> None:
    assert over_cells._ratio_text(ratio) == text


MIXED = {
    "": [],
    "a": ["a"],
    "ab": ["a, b"],
    "abc": ["all differences but those of d"],
    "abcd": ["all differences"],
}


@pytest.mark.parametrize("mixed", MIXED)
def test_differences_between_platforms_are_named(mixed: str) -> None:
    gains: list[Any] = []
    for name in "abcd":
        pooled = SimpleNamespace(method=name)
        gains.append(SimpleNamespace(pooled=pooled, platforms_mixed=name in mixed))
    notes = over_cells._platforms_noted(gains)
    assert [note.rpartition(": ")[2] for note in notes] == MIXED[mixed]


def table_of(seeds: dict[str, range], *names: str, **columns: Any) -> Any:
    """The one table of algorithms with these seeds."""
    rows = []
    for algorithm, own in seeds.items():
        told = columns if algorithm != "fedavg" else {}
        rows += [
            make_row(algorithm, seed=seed, best_accuracy=0.4 + seed / 99, **told) for seed in own
        ]
    runs = pd.DataFrame(rows)
    metrics = [NUMBERS[name] for name in names or ("best_accuracy",)]
    (table,) = tables_of(with_seeds(leaderboard(runs), runs, metrics), metrics)
    return table


def words_of(sheet: Any) -> dict[str, list[str]]:
    return {row.label: [cell.words for cell in row.cells] for row in sheet.table.rows}


def test_differences_need_common_seeds() -> None:
    seeds = {"fedavg": range(3), "fedprox": range(5, 8), "fedgkd": range(1, 4)}
    sheet = against(table_of(seeds), "fedavg")
    assert sheet is not None
    words = words_of(sheet)
    assert words["fedprox"] == ["no common seed"]
    assert words["fedgkd"] == ["+0.00 (2) not tested"]
    assert words["fedavg"] == ["reference"]
    assert "not tested: fewer than 3 common seeds" in sheet.table.notes
    assert against(table_of(seeds), "moon") is None


@pytest.mark.parametrize(
    ("columns", "note"),
    [
        ({"device": "some GPU"}, "on unlike platforms (device, versions of packages, processor)"),
        ({"dataset_hash": "ef56"}, "between copies of the data, or partitions"),
    ],
)
def test_a_mark_of_all_differences_is_a_note(columns: dict[str, Any], note: str) -> None:
    seeds = {"fedavg": range(3), "fedprox": range(3)}
    sheet = against(table_of(seeds, **columns), "fedavg")
    assert sheet is not None
    assert f"all differences: {note}" in sheet.table.notes
    assert not any(mark in words_of(sheet)["fedprox"][0] for mark in "‡‖")


def test_costs_differ_without_a_test() -> None:
    seeds = {"fedavg": range(3), "fedprox": range(3)}
    sheet = against(table_of(seeds, "seconds", seconds=20.0), "fedavg")
    assert sheet is not None
    assert words_of(sheet)["fedprox"] == ["+7.50 (3)"]
    assert not any("Student" in note for note in sheet.table.notes)
    (record,) = sheet.records
    assert (record["p"], record["separable"], record["low"]) == (None, None, None)


def test_texts_without_an_interval() -> None:
    assert (interval_text(None, BEST), limits(None)) == ("", {"low": None, "high": None})
    ends = Interval(-0.01, 0.25)
    assert interval_text(ends, BEST) == " [-1.00, +25.00]"
    assert limits(ends, "p_") == {"p_low": -0.01, "p_high": 0.25}
