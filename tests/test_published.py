"""The papers' printed numbers: the tracked file, its definitions, and how our curves are read by them."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow.parquet as pq
import pytest
from make import read_source

from bench.planning.tables import column_of
from bench.trial.results import summarise
from leaderboards.curve_metrics import value_of
from leaderboards.published import PUBLISHED, UNITS, PrintedCell, PrintedMetric, printed_cells

COUNTS = {
    "fedgkd": {"3": 72, "4": 16, "5": 64, "6": 32, "7": 24, "8": 12, "9": 9, "fig2": 6},
    "feddkd": {"I": 90, "II": 84, "III": 28, "IV": 28, "V": 10, "VI": 10},
    "fedcad": {"1": 24, "2": 16, "3": 12, "4": 16},
    "fedkf": {"3": 72, "4": 72, "5": 72},
}
TABLES = [(paper, table) for paper, tables in COUNTS.items() for table in tables]
# Round -> value: the best test accuracy is in round 3, the best validation accuracy in rounds 2 and 4.
CURVE = {
    "accuracy": {1: 0.2, 2: 0.5, 3: 0.75, 4: 0.6},
    "val_accuracy": {1: 0.3, 2: 0.7, 3: 0.6, 4: 0.7},
    "communications": {1: 4.0, 2: 8.0, 3: 12.0, 4: 16.0},
    "train_steps": {1: 100.0, 2: 200.0, 3: 300.0, 4: 400.0},
    "amp": {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.35},
    "local_accuracy": {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.25},
}


def test_the_file_is_what_its_source_makes() -> None:
    source, tracked = read_source(), pq.read_table(PUBLISHED)
    assert tracked.schema.equals(source.schema)
    assert tracked.to_pylist() == source.to_pylist(), "run `python docs/make.py`"


def test_every_table_has_its_cells() -> None:
    assert len(printed_cells()) == 769
    counts = Counter((cell.paper, cell.table) for cell in printed_cells())
    assert counts == {(paper, table): n for paper, tables in COUNTS.items() for table, n in tables.items()}


def test_cells_say_how_their_data_are_dealt() -> None:
    for cell in printed_cells():
        assert cell.heterogeneity in ("dirichlet", "pathological", "by_source", "by_writer")
        assert (cell.alpha is None) == (cell.heterogeneity != "dirichlet")
        assert cell.unit == UNITS[cell.quantity]


def test_a_metric_has_one_definition() -> None:
    metrics = {cell.measured for cell in printed_cells()}
    assert len(metrics) == len({metric.name for metric in metrics})


def cell_of(**where: object) -> PrintedCell:
    (found,) = [cell for cell in printed_cells() if all(getattr(cell, k) == v for k, v in where.items())]
    return found


def test_some_numbers_as_printed() -> None:
    first = cell_of(paper="fedgkd", table="3", dataset="cifar10", alpha=1.0, algorithm="fedavg")
    assert (first.value, first.std, first.rule) == (0.7730, 0.0072, "best")
    steps = cell_of(paper="feddkd", table="III", printed="FedDKD@87", metric="train_steps_best_val")
    assert (steps.value, steps.std, steps.read_to, steps.algorithm) == (37_700, 1_100, 87, "feddkd")
    fair = cell_of(paper="fedkf", table="3", alpha=1.0, algorithm="qffl", metric="fm")
    assert (fair.value, fair.std) == (0.0006283, 0.000051)
    buffer = cell_of(paper="fedgkd", table="8", alpha=0.1, printed="FedGKD-VOTE[M=5]")
    assert (buffer.value, buffer.variant) == (0.7241, {"buffer": 5})


@pytest.mark.parametrize(
    ("quantity", "rule", "argument", "value"),
    [
        ("accuracy", "best", None, 0.75),
        ("accuracy", "final", None, 0.6),
        ("accuracy", "unstated", None, 0.6),
        ("accuracy", "at_round", 10, None),
        ("accuracy", "selected", None, 0.5),
        ("rounds", "selected", None, 2),
        ("communications", "selected", None, 8),
        ("train_steps", "selected", None, 200),
        ("rounds", "to_target", 0.65, 3),
        ("communications", "to_target", 0.5, 8),
        ("train_steps", "to_target", 0.74, 300),
        ("rounds", "to_target", 0.905, None),
        ("amp", "unstated", None, 0.35),
        ("wlp", "unstated", None, None),
        ("local_accuracy", "final", None, 0.25),
    ],
)
def test_metrics_are_read_off_a_curve(quantity: str, rule: str, argument: float | None, value: float | None) -> None:
    assert value_of(PrintedMetric("", quantity, rule, argument), CURVE) == value


def test_a_run_is_read_as_if_it_had_ended_earlier() -> None:
    assert value_of(PrintedMetric("", "accuracy", "selected"), CURVE, read_to=1) == 0.2
    assert value_of(PrintedMetric("", "accuracy", "best"), CURVE, read_to=2) == 0.5
    assert value_of(PrintedMetric("", "rounds", "to_target", 0.65), CURVE, read_to=2) is None


def test_columns_of_our_rows_hold_what_the_curve_tells() -> None:
    generator = random.Random(1)
    names = ("accuracy", "val_accuracy", "local_accuracy", "amp", "fm", "wlp", "communications", "train_steps")
    names = (*names, "bytes_down", "bytes_up")
    curve = [(at, name, round(generator.random(), 2)) for at in range(1, 101) for name in names]
    row = summarise(curve)
    by_metric = {name: {at: value for at, metric, value in curve if metric == name} for name in names}
    checked = 0
    for metric in dict.fromkeys(cell.measured for cell in printed_cells()):
        column = column_of(metric)
        if column:
            held = row[column][int(metric.argument or 0)] if column == "accuracy_at" else row[column]
            assert held == value_of(metric, by_metric), metric
            checked += 1
    assert checked == 13
