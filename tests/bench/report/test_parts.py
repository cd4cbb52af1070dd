"""Parts of the page: spans, thinned lines, legends, stored charts, tuning, metrics."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from board import ran
from rows import failed_row, make_row, table_of, tables_of, write

from bench.errors import UsageError
from bench.report.charts import ChartColumn, Charts, packed
from bench.report.leaderboard import _limits, _matrix, _range_of, _share, _whisker
from bench.report.learning import _thin, learning_sections
from bench.report.run_list import facts, seed_spans, states_of
from bench.report.standings import _winner, winners_section
from bench.report.tuning import tuning_section
from bench.stored.groups import groups_of, labels_of
from bench.stored.results import Results, read, shown_accuracies
from leaderboards.board import leaderboard, with_seeds
from leaderboards.numbers import NUMBERS, number_named
from leaderboards.problems import Cell
from leaderboards.rows.frames import to_pandas
from leaderboards.tables import tables_of as tables_of_records

PLACE = (0.1, 0.5)


@pytest.mark.parametrize(
    ("seeds", "text"),
    [({0, 1, 2, 5}, "0–2, 5"), ({3}, "3"), ({7, 8}, "7–8"), ({1, 3, 5}, "1, 3, 5"), (set(), "")],
)
def test_consecutive_seeds_are_a_span(seeds: set[int], text: str) -> None:
    assert seed_spans(seeds) == text


def test_runs_are_counted_by_status() -> None:
    rows = [make_row(seed=seed, diverged=seed == 0) for seed in range(3)]
    rows.append(make_row(status="failed", error="x"))
    assert states_of(rows) == "4 runs: 1 failed, 3 finished, 1 of all DIVERGED"
    assert states_of(rows[1:2]) == "1 run: 1 finished"


def test_runs_without_a_time_took_none() -> None:
    rows = [make_row(seconds=5.0), failed_row(seed=1)]
    facts_of_runs = dict(facts(rows, [], ["fedavg"]))
    assert facts_of_runs["run"].endswith(" UTC, 5 s of training in all")


def test_long_lines_are_thinned_to_a_hundred_points() -> None:
    assert _thin(range(1, 101)) == list(range(1, 101))
    thinned = _thin(range(1, 1001))
    assert (len(thinned), thinned[0], thinned[-1]) == (100, 1, 1000)
    steps = {after - before for before, after in pairwise(thinned)}
    assert steps == {10, 11}
    assert len(set(_thin(range(101)))) == 100


def test_a_matrix_has_the_order_of_its_metric() -> None:
    runs = []
    for algorithm, best, final in (("fedavg", 0.9, 0.1), ("fedprox", 0.5, 0.4)):
        numbers = {"best_accuracy": best, "final_accuracy": final}
        runs += [make_row(algorithm, seed=seed, **numbers) for seed in range(2)]
    metrics = (number_named("best"), number_named("final"))
    (table,) = tables_of(leaderboard(to_pandas(table_of(runs))), metrics)
    orders = []
    for metric in metrics:
        orders.append([line.label for line in _matrix(table, metric)["lines"]])
    assert orders == [["fedavg", "fedprox"], ["fedprox", "fedavg"]]


@pytest.mark.parametrize(("first", "seeds"), [(0, ""), (5, "; other seeds")])
def test_of_two_equal_winners_both_are_named(first: int, seeds: str) -> None:
    """The third one's seeds do not matter."""
    rows = []
    for seed in range(3):
        rows.append(make_row("fedavg", seed=seed, final_accuracy=0.4 + seed / 10))
        rows.append(make_row("fedprox", seed=first + seed, final_accuracy=0.4 + seed / 10))
        rows.append(make_row("moon", seed=7 + seed, final_accuracy=0.3))
    runs = to_pandas(table_of(rows))
    final = NUMBERS["final_accuracy"]
    (table,) = tables_of(with_seeds(leaderboard(runs), runs, [final]), [final])
    winner = _winner(table, 0, final)
    assert (winner["algorithm"], winner["numbers"]) == ("fedavg", "50.00 %, as fedprox")
    assert winner["verdict"] == f"0 of 2 others excluded{seeds}"


def test_winners_of_twelve_cells_are_described(tmp_path: Path) -> None:
    pairs = [ran("fedavg", (alpha, 0.5), 0) for alpha in range(1, 14)]
    results = read([write(tmp_path, pairs)])
    (group,) = groups_of(results.records)
    metrics = [NUMBERS["final_accuracy"]]
    tables = {group.key: tables_of_records(group.records, metrics)[0]}
    charts = Charts()
    winners_section([group], tables, metrics, labels_of(results.records), charts)
    description = charts.embedded()["charts"][0]["description"]
    assert description.count("alpha ") == 12
    assert "alpha 1, participation 0.5: fedavg " in description


# Stored charts


def test_equal_charts_are_stored_once() -> None:
    charts = Charts()
    column = ChartColumn("a", "title", 100.0, 2)
    for mark, value in (("bar", 1), ("bar", 2), ("line", 1)):
        spec = {"data": {"values": [{"a": value}]}, "mark": mark}
        number = charts.add(spec, f"a {mark}", [column])
    assert number == 2
    stored = charts.embedded()
    assert stored["specs"] == [{"mark": "bar"}, {"mark": "line"}]
    assert stored["data"] == [[["a", [1]]], [["a", [2]]]]
    places = [(chart["spec"], chart["data"]) for chart in stored["charts"]]
    assert places == [(0, 0), (0, 1), (1, 0)]
    table = [["a", "title", 100.0, 2]]
    assert stored["charts"][2] == {"spec": 1, "data": 0, "table": table, "description": "a line"}


def test_numbers_of_charts_have_five_digits() -> None:
    rows = [{"a": 0.1234567, "b": "x"}, {"a": None, "b": 12345678}]
    assert packed(rows) == [["a", [0.12346, None]], ["b", ["x", 12345678]]]
    assert packed([]) == []


# Whiskers


def test_whiskers_are_in_percent_of_the_range() -> None:
    scale = _range_of([0.2, 0.7])
    assert scale == (0.2, 0.7)
    assert [_share(value, scale) for value in (0.2, 0.45, 0.7, 0.9, 0.1)] == [0, 50, 100, 100, 0]
    assert _share(0.20333, scale) == 0.7
    assert _whisker(0.45, None, None, scale) == "--m:50.0;--l:50.0;--h:50.0"
    assert _whisker(0.45, 0.2, 0.7, scale) == "--m:50.0;--l:0.0;--h:100.0"
    assert _range_of([]) == (0.0, 1e-9)
    assert _range_of([0.5]) == (0.5, 0.5 + 1e-9)


def test_the_range_is_of_ranked_rows() -> None:
    metric = NUMBERS["best_accuracy"]
    plain = {"selected": True, "model": "mlp", "diverged": False}

    def record(name: str, mean: float, high: float | None, **more: Any) -> dict[str, Any]:
        parts = {"best_accuracy_mean": mean, "best_accuracy_low": None, "best_accuracy_high": high}
        return {**plain, "algorithm": name, **parts, **more}

    records = [record("a", 0.4, 0.6), record("b", 0.5, None), record("centralized", 0.9, None)]
    records += [record("c", 0.1, None, diverged=True), record("d", 0.95, None, selected=False)]
    assert _limits(Cell((), tuple(records)), [metric]) == (0.4, 0.6)


# Legends of learning curves


def learned(out: Path, pairs: list[Any]) -> tuple[list[dict[str, Any]], Charts, Results]:
    """The sections of learning curves of some runs."""
    results = read([write(out, pairs)])
    charts = Charts()
    groups = groups_of(results.records)
    labels = labels_of(results.records)
    return learning_sections(groups, results, labels, charts), charts, results


def legend_of(charts: Charts) -> dict[str, Any]:
    spec = charts.embedded()["specs"][0]
    return dict(spec["encoding"]["color"]["legend"])


def long_run(rounds: int) -> tuple[dict[str, Any], list[Any]]:
    """A run with so many rounds."""
    row, _ = ran("fedavg", PLACE, 0, fields={"rounds": rounds})
    return row, [(at, "accuracy", at / rounds) for at in range(1, rounds + 1)]


@pytest.mark.parametrize(("rounds", "signs"), [(24, True), (25, False)])
def test_lines_of_few_points_have_signs(rounds: int, signs: bool, tmp_path: Path) -> None:
    _, charts, _ = learned(tmp_path, [long_run(rounds)])
    assert ("symbolType" in legend_of(charts)) != signs


@pytest.mark.parametrize(("name", "columns"), [("a" * 12, 3), ("a" * 13, 2)])
def test_short_names_stand_in_three_columns(name: str, columns: int, tmp_path: Path) -> None:
    _, charts, _ = learned(tmp_path, [ran(name, PLACE, 0)])
    assert legend_of(charts)["columns"] == columns


@pytest.mark.parametrize(("cells", "columns"), [(1, 3), (2, 2), (3, 3), (4, 2), (5, 3)])
def test_cells_fill_their_columns(cells: int, columns: int, tmp_path: Path) -> None:
    places = [(alpha, 0.5) for alpha in (0.1, 0.2, 0.3, 0.5, 1.0)]
    (section,), _, _ = learned(tmp_path, [ran("fedavg", place, 0) for place in places[:cells]])
    assert section["columns"] == columns
    assert len(section["cells"]) == cells


def test_lines_are_of_rounds_that_all_seeds_have(tmp_path: Path) -> None:
    first, second = ran("fedavg", PLACE, 0), ran("fedavg", PLACE, 1)
    short = [point for point in second[1] if point[0] != 3 and point[:2] != (2, "bytes_up")]
    (section,), charts, _ = learned(tmp_path, [first, (second[0], short)])
    (cell,) = section["cells"]
    assert cell["remarks"] == ["2 seeds"]
    columns = dict(charts.embedded()["data"][charts.embedded()["charts"][cell["chart"]]["data"]])
    assert columns["round"] == [1, 2, 4, 5]
    traffic = [at * 1.5e6 * (1 + len("fedavg") / 10) for at in (1, 2, 4, 5)]
    assert columns["bytes"] == [traffic[0], None, *traffic[2:]]
    assert columns["steps"] == [20, 40, 80, 100]


# Tuning


@pytest.mark.parametrize(("count", "kind"), [(12, "ordinal"), (13, "quantitative")])
def test_many_values_are_continuous(count: int, kind: str, tmp_path: Path) -> None:
    pairs = [ran("fedprox", PLACE, 0, {"mu": at / 100}) for at in range(1, count + 1)]
    results = read([write(tmp_path, pairs)])
    charts = Charts()
    (section,) = tuning_section(groups_of(results.records), charts)
    assert (section["heading"], section["left"]) == ("fedprox", 0)
    assert [figure["caption"] for figure in section["figures"]] == ["mu"]
    stored = charts.embedded()
    across = stored["specs"][0]["encoding"]["x"]
    assert across["type"] == kind
    columns = dict(stored["data"][0])
    expected = [at / 100 for at in range(1, count + 1)]
    assert sorted(map(float, columns["value"])) == expected
    assert columns["n"] == [1] * count


# The metrics of a page


def record(**changed: Any) -> dict[str, Any]:
    plain = {"n": 1, "selected_on": "validation", "selected_accuracy_mean": 0.5, "amp_mean": None}
    plain |= {"final_accuracy_mean": 0.5, "best_accuracy_mean": 0.5}
    return plain | changed


TEST_SET = ["selected_accuracy", "best_accuracy", "final_accuracy"]
CLIENTS = ["selected_client_accuracy", "amp", "best_client_accuracy"]
CLIENT = {"amp_mean": 0.5, "selected_on": "clients"}


@pytest.mark.parametrize(
    ("records", "stated", "names"),
    [
        ([record()], None, TEST_SET),
        ([record(), record(n=0, selected_accuracy_mean=None)], None, TEST_SET),
        (
            [record(), record(selected_accuracy_mean=None)],
            None,
            ["best_accuracy", "final_accuracy", "selected_accuracy"],
        ),
        ([record(**CLIENT)], None, CLIENTS + TEST_SET),
        ([record(**CLIENT), record()], None, TEST_SET + CLIENTS),
        ([record(amp_mean=0.5)], None, TEST_SET + CLIENTS),
        (
            [record()],
            ["final", "rounds@70", "selected_accuracy"],
            ["final_accuracy", "selected_accuracy", "best_accuracy"],
        ),
    ],
)
def test_which_accuracies_are_shown(
    records: list[dict[str, Any]], stated: list[str] | None, names: list[str]
) -> None:
    assert [number.name for number in shown_accuracies(records, stated)] == names


@pytest.mark.parametrize("stated", ["rounds@70", "client_last10"])
def test_a_primary_metric_must_be_shown(stated: str) -> None:
    absent = record(mean_last10_client_accuracy_mean=None)
    with pytest.raises(UsageError, match=f"the primary metric here is {stated}"):
        shown_accuracies([absent], [stated])
