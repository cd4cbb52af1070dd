"""Numbers of a run: read off its curve by name or form, and shown wherever numbers are."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from rows import sound_row

from bench.compare.command import main as compare
from bench.report.command import main as report
from leaderboards import COLUMNS, NUMBERS, Store
from leaderboards.numbers import METRICS, check_own, curve_of, number_named, numbers_of

VALUES = {
    "accuracy": [0.1, 0.5, 0.4],
    "val_accuracy": [0.2, 0.1, 0.3],
    "loss": [3.0, 1.0, 2.0],
    "communications": [2, 4, 6],
    "bytes_up": [10, 20, 30],
    "kl": [-1.0, -2.0, -3.0],
}
POINTS = [
    (at, name, value) for name, values in VALUES.items() for at, value in enumerate(values, 1)
]
READ = {
    "best": 0.5,
    "best_accuracy": 0.5,
    "best_round": 2,
    "final": 0.4,
    "selected": 0.4,
    "selected_round": 3,
    "validation": 0.3,
    "last10": pytest.approx(1 / 3),
    "ema": pytest.approx(0.6 * (0.6 * 0.1 + 0.4 * 0.5) + 0.4 * 0.4),
    "comms": 6,
    "local": None,
    "accuracy": 0.4,
    "accuracy@last": 0.4,
    "accuracy@2": 0.5,
    "accuracy@4": None,
    "val_accuracy@1": 0.2,
    "loss": 2.0,
    "loss@2": 1.0,
    "loss@last10": 2.0,
    "kl": -3.0,
    "kl@2": -2.0,
    "kl@last10": -2.0,
    "rounds@40": 2,
    "rounds@60": None,
    "up@10": 10,
    "comms@50": 4,
}


@pytest.mark.parametrize("name", READ)
def test_numbers_are_read_off_a_curve(name: str) -> None:
    assert number_named(name).value(curve_of(POINTS)) == READ[name]


def test_values_without_numbers_are_omitted() -> None:
    curve = curve_of(
        [*POINTS, (4, "loss", float("nan")), (5, "loss", float("inf")), (6, "loss", None)]
    )
    assert curve["loss"] == {1: 3.0, 2: 1.0, 3: 2.0}


@pytest.mark.parametrize(
    "name", ["", "@3", "accuracy@x", "accuracy@-1", "two words", "rounds@0.5", "up@101", "up@x"]
)
def test_a_name_of_no_form_is_refused(name: str) -> None:
    with pytest.raises(KeyError):
        number_named(name)


@pytest.mark.parametrize(
    "name", [*METRICS, *NUMBERS, *(number.short for number in NUMBERS.values()), "rounds"]
)
def test_names_of_the_suite_are_no_algorithms(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        check_own(name)


def test_every_number_is_a_column_of_rows() -> None:
    units = {column.name: (column.unit, column.type, column.nullable) for column in COLUMNS}
    for number in NUMBERS.values():
        kind = "int64" if number.whole else "float64"
        assert units[number.name] == (number.unit.name, kind, number.optional)
    assert set(numbers_of({})) == NUMBERS.keys() - {"seconds"}
    assert set(numbers_of({}).values()) == {None}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    store = Store(tmp_path / "out")
    for seed in range(3):
        points = [(at, name, value + seed if name == "kl" else value) for at, name, value in POINTS]
        store.write(sound_row(points, "fedkl", {}, seed=seed), points)
        without = [point for point in points if point[1] != "kl"]
        store.write(sound_row(without, "fedavg", {}, seed=seed), without)
    return store.out


def rows_of(out: Path, capsys: pytest.CaptureFixture[str], *names: str) -> list[dict[str, Any]]:
    assert compare(["--out", str(out), "--format", "csv", "--metric", *names]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_any_metric_can_be_a_column(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(out, capsys, "val_accuracy@last", "loss@2", "kl")
    found = {(row["algorithm"], row["metric"]): row for row in rows}
    assert float(found["fedavg", "val_accuracy@last"]["mean"]) == 0.3
    assert float(found["fedavg", "loss@2"]["mean"]) == 1.0
    own = found["fedkl", "kl"]
    assert (float(own["mean"]), own["rank"]) == (-2.0, ""), "neither more nor less of it is better"
    assert float(own["low"]) < -2.0 < float(own["high"])
    assert found["fedavg", "kl"]["mean"] == ""


def test_an_absent_metric_is_refused(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(["--out", str(out), "--metric", "k1@last"]) == 2
    said = capsys.readouterr().err
    assert "did you mean kl?" in said
    assert "best_accuracy" in said


def test_the_page_shows_numbers_and_own_metrics(out: Path, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    assert report(["--out", str(out), "--to", str(tmp_path / "page.html")]) == 0
    text = (tmp_path / "page.html").read_text()
    for words in ("ema accuracy", "best round", "kl, last round", "-3.0000"):
        assert words in text


@pytest.mark.parametrize(("name", "group"), [("final_accuracy", "results"), ("seconds", "cost")])
def test_numbers_off_a_curve_are_results_and_others_costs(name: str, group: str) -> None:
    (column,) = [column for column in COLUMNS if column.name == name]
    assert column.group == group
