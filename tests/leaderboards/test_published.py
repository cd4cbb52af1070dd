"""The papers' printed numbers: the tracked file, its definitions, and how our curves are read by them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from make import read_source

from leaderboards.numbers import curve_of, numbers_of
from leaderboards.published import PUBLISHED, UNITS, PrintedCell, printed_cells, printed_number

COUNTS = {
    "fedgkd": {"3": 72, "4": 16, "5": 64, "6": 32, "7": 24, "8": 12, "9": 9, "fig2": 6},
    "feddkd": {"I": 90, "II": 84, "III": 28, "IV": 28, "V": 10, "VI": 10},
    "fedcad": {"1": 24, "2": 16, "3": 12, "4": 16},
    "fedkf": {"3": 72, "4": 72, "5": 72},
    "fedproto": {"1": 30},
}
TABLES = [(paper, table) for paper, tables in COUNTS.items() for table in tables]
# Round -> value: the best test accuracy is in round 3, the best validation accuracy in rounds 2 and
# 4.
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
    assert len(printed_cells()) == 799
    counts = Counter((cell.paper, cell.table) for cell in printed_cells())
    assert counts == {
        (paper, table): n for paper, tables in COUNTS.items() for table, n in tables.items()
    }


def test_cells_say_how_their_data_are_dealt() -> None:
    for cell in printed_cells():
        kinds = ("dirichlet", "pathological", "by_source", "by_writer", "n_way")
        assert cell.heterogeneity in kinds
        assert (cell.alpha is None) == (cell.heterogeneity != "dirichlet")
        assert (cell.classes_per_client is None) == (cell.heterogeneity != "n_way")
        assert cell.unit == UNITS[cell.quantity].name


def test_a_metric_has_one_definition() -> None:
    metrics = {cell.measured for cell in printed_cells()}
    assert len(metrics) == len({metric.name for metric in metrics})


def cell_of(**where: object) -> PrintedCell:
    (found,) = [
        cell for cell in printed_cells() if all(getattr(cell, k) == v for k, v in where.items())
    ]
    return found


def test_some_numbers_as_printed() -> None:
    first = cell_of(paper="fedgkd", table="3", dataset="cifar10", alpha=1.0, algorithm="fedavg")
    assert (first.value, first.std, first.rule) == (0.7730, 0.0072, "best")
    steps = cell_of(paper="feddkd", table="III", printed="FedDKD@87", metric="train_steps_best_val")
    assert (steps.value, steps.std, steps.read_to, steps.algorithm) == (37_700, 1_100, 87, "feddkd")
    ways = {"paper": "fedproto", "printed": "FedProto-mh", "classes_per_client": 5}
    assert cell_of(**ways, metric="client_mean").value == 0.9622
    spread = cell_of(**ways, metric="client_std")
    assert (spread.value, spread.std, spread.algorithm) == (0.0036, None, "fedproto")
    assert spread.client_models.split("/") == ["cnn_fedproto_18", "cnn_fedproto", "cnn_fedproto_22"]
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
def test_metrics_are_read_off_a_curve(
    quantity: str, rule: str, argument: float | None, value: float | None
) -> None:
    assert printed_number("", quantity, rule, argument).value(CURVE) == value


def test_a_longer_run_is_read_earlier() -> None:
    cell = replace(printed_cells()[0], quantity="accuracy", rule="selected")
    assert replace(cell, read_to=1).value_of(CURVE) == 0.2
    assert replace(cell, rule="best", read_to=2).value_of(CURVE) == 0.5
    target = replace(cell, quantity="rounds", rule="to_target", argument=0.65, read_to=2)
    assert target.value_of(CURVE) is None


# Quantity and rule of a printed number -> our number that is the same.
SAME = {
    ("accuracy", "best"): "best_accuracy",
    ("accuracy", "final"): "final_accuracy",
    ("accuracy", "selected"): "selected_accuracy",
    ("rounds", "selected"): "selected_round",
    ("local_accuracy", "final"): "local_accuracy_mean",
    ("amp", "unstated"): "amp",
    ("fm", "unstated"): "fm",
    ("wlp", "unstated"): "wlp",
    ("communications", "final"): "communications",
    ("train_steps", "final"): "train_steps",
}


@pytest.mark.parametrize(("quantity", "rule"), SAME)
def test_printed_numbers_are_read_as_ours(quantity: str, rule: str) -> None:
    generator = random.Random(1)
    names = (
        "accuracy",
        "val_accuracy",
        "local_accuracy",
        "amp",
        "fm",
        "wlp",
        "communications",
        "train_steps",
    )
    curve = curve_of((at, name, generator.randrange(100)) for at in range(1, 101) for name in names)
    assert (
        printed_number("", quantity, rule).value(curve) == numbers_of(curve)[SAME[quantity, rule]]
    )


@pytest.mark.parametrize(
    ("quantity", "rule", "argument", "short"),
    [
        ("accuracy", "best", None, "best"),
        ("accuracy", "at_round", 50, "round 50"),
        ("amp", "best", None, "AMP"),
        ("local_accuracy", "best", None, "local best"),
        ("train_steps", "to_target", 0.74, "steps to 0.74"),
        ("communications", "to_target", 0.5, "exchanges to 0.5"),
        ("accuracy", "unstated", None, "test"),
        ("client_mean", "final", None, "clients' mean final"),
    ],
)
def test_metrics_have_short_names(
    quantity: str, rule: str, argument: float | None, short: str
) -> None:
    assert printed_number("", quantity, rule, argument).short == short
