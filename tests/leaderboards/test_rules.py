"""Small rules, value by value: registered numbers, flags, selection, order and text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from board import assert_approved

from leaderboards.board import of_last_model
from leaderboards.flags import flags_of, flags_of_run, flags_to_show, why_not_selected
from leaderboards.numbers import (
    FRACTION,
    LARGEST,
    METRICS,
    NUMBERS,
    Number,
    Unit,
    check_own,
    curve_of,
    cut,
    metric_of,
    number_named,
    numbers_of,
    own_metrics,
    unknown_metrics,
    validation_of,
)
from leaderboards.problems import cell_of, differing, sortable
from leaderboards.published import printed_number
from leaderboards.selection import selectable, selection_value
from leaderboards.shell_text import is_text, typed

FORMS = ("loss", "kl", "kl@last", "kl@7", "amp@last10", "amp@selected", "loss@selected")
FORMS += ("rounds@70", "up@57.9", "comms@1", "steps@100", "client_accuracy/3@last")


def told(number: Number) -> str:
    """All that tables and files have of a number."""
    unit = number.unit
    kinds = ("differs_by_seed", "optional", "whole")
    words = [name for name in kinds if getattr(number, name)]
    scale = f"{unit.name} ({unit.shown!r}, x {unit.scale:g}, {unit.decimals} decimals)"
    facts = [number.short, number.quantity, number.of, scale, number.better or "neither"]
    return "; ".join([number.name, *facts, *words])


def test_all_numbers_are_as_they_are(tmp_path: Path) -> None:
    forms = [number_named(name) for name in FORMS]
    lines = [told(number) for number in (*METRICS.values(), *NUMBERS.values(), *forms)]
    assert_approved("leaderboards/numbers.txt", "\n".join(lines), tmp_path)


def test_a_plain_number_is_named_by_its_name() -> None:
    plain = Number("a", "something", Unit("unit"))
    assert told(plain) == "a; a; something; ; unit ('', x 1, 0 decimals); higher; differs_by_seed"
    assert (plain.value({}), plain.higher_is_better) == (None, True)


def test_values_up_to_the_largest_count() -> None:
    points = [(1, "a", LARGEST), (2, "a", -LARGEST), (3, "a", 1.1 * LARGEST), (4, "b", None)]
    assert curve_of(points) == {"a": {1: LARGEST, 2: -LARGEST}}


def test_ten_evaluations_are_recent() -> None:
    curve = curve_of((at, "accuracy", float(at)) for at in range(1, 13))
    assert number_named("last10").value(curve) == sum(range(3, 13)) / 10
    assert numbers_of(curve, ["best_round"]) == {"best_round": 12}
    assert cut(curve, 3) == {"accuracy": {1: 1.0, 2: 2.0, 3: 3.0}}


@pytest.mark.parametrize(
    ("name", "curve", "value"),
    [
        ("best_round", {"accuracy": {1: 0.5, 2: 0.5}}, 1),
        ("train_loss@last", {"train_loss": {1: 0.5, 3: 0.25}}, 0.25),
        ("train_loss@last", {"accuracy": {1: 0.5}, "train_loss": {1: 0.75, 3: 0.25}}, 0.75),
        ("rounds@50", {"accuracy": {1: 0.4, 2: 0.5, 3: 0.6}}, 2),
        ("rounds@100", {"accuracy": {1: 1.0}}, 1),
        ("rounds@1", {"accuracy": {1: 0.01}}, 1),
        ("rounds@1.5", {"accuracy": {1: 0.01, 2: 0.015}}, 2),
        ("ema", {"accuracy": {1: 0.5}}, 0.5),
        ("ema", {}, None),
        ("amp@selected", {"amp": {1: 0.3, 2: 0.4}, "client_val_accuracy": {1: 0.9, 2: 0.8}}, 0.3),
        ("loss@selected", {"loss": {1: 3.0, 2: 4.0}, "val_accuracy": {1: 0.2, 2: 0.8}}, 4.0),
    ],
)
def test_what_is_read_off_a_curve(name: str, curve: Any, value: float | None) -> None:
    assert number_named(name).value(curve) == value


@pytest.mark.parametrize("name", ["rounds@0.99", "rounds@100.5", "rounds@", "up@1e1", "a@b"])
def test_targets_are_percents(name: str) -> None:
    with pytest.raises(KeyError, match=r"percent, from 1 to 100|no metric"):
        number_named(name)


def test_rounds_of_clients_are_selected_by_clients() -> None:
    names = ("accuracy", "loss", "amp", "wlp", "client_accuracy/1", "kl")
    of_clients = [validation_of(name) == "client_val_accuracy" for name in names]
    assert of_clients == [False, False, True, True, True, False]


def test_a_clients_accuracy_is_none_of_the_test_set() -> None:
    """A run that diverged does not count with the accuracy on the test set instead."""
    number = number_named("client_accuracy/3")
    assert (number.unit, number.better) == (FRACTION, "higher")
    assert number.quantity.endswith("on the own tests of client 3")
    assert of_last_model(number) is None
    assert of_last_model(number_named("best")) == NUMBERS["final_accuracy"]
    assert of_last_model(number_named("client_best")) == NUMBERS["amp"]


def test_metrics_of_numbers_by_form() -> None:
    names = ("best", "kl@3", "loss", "rounds@70", "up@70", "kl")
    metrics = [metric_of(number_named(name)) for name in names]
    assert metrics == ["", "kl", "loss", "", "", "kl"]


def test_an_unknown_metric_is_told_with_the_nearest() -> None:
    known = [number_named(name) for name in ("best", "loss@3", "rounds@70", "kl@2")]
    assert unknown_metrics(known, ["kl"]) == ""
    assert unknown_metrics([], []) == ""
    said = unknown_metrics(known, ["k1", "client_accuracy/0", "accuracy"])
    assert said.startswith("no metric 'kl@2' (did you mean k1?); known: best (best_accuracy), ")
    assert "metrics of these curves: accuracy, val_accuracy, loss, " in said
    assert ", k1; forms: METRIC@last" in said
    assert "did you mean" not in unknown_metrics([number_named("zzzzzzz")], ["kl"])
    assert own_metrics(["b", "a", "accuracy", "client_accuracy/1"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("kl", ""),
        ("a1_b", ""),
        ("Kl", "must be named by lower-case letters"),
        ("1a", "must be named by lower-case letters"),
        (3, "must be named by lower-case letters"),
        ("loss", "is one of the suite's own"),
        ("rounds", "is one of the suite's own"),
        ("error", "would be lost in reports to Tune"),
        ("time_total_s", "would be lost in reports to Tune"),
        ("best", "is one of the suite's own"),
        ("best_accuracy", "is one of the suite's own"),
    ],
)
def test_names_of_own_metrics(name: Any, problem: str) -> None:
    if not problem:
        check_own(name)
        return
    with pytest.raises(ValueError, match=f"the metric {name!r} {problem}"):
        check_own(name)


def test_printed_rules_without_a_number() -> None:
    curve = {"accuracy": {1: 0.5}}
    assert printed_number("", "accuracy", "at_round").value(curve) is None
    assert printed_number("", "rounds", "to_target").value(curve) == 1


# Flags

PLAIN: dict[str, Any] = {"n": 3, "configurations": 1, "diverged": False, "failed": 0, "stopped": 0}
PLAIN |= {"shortened": False, "uncertified": False, "platforms_mixed": False, "data_mixed": False}
PLAIN |= {"personal": False, "selected_on": "validation", "selected": False}
FLAGS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"n": 1}, ["single"]),
    ({"n": 0, "failed": 1}, ["failed"]),
    ({"failed": 1}, ["failed", "partial"]),
    ({"stopped": 2}, ["stopped", "partial"]),
    ({"configurations": 2, "selected_on": "none"}, ["blind"]),
    ({"configurations": 2, "selected_on": "mixed"}, ["blind"]),
    ({"configurations": 2, "selected_on": "test"}, ["test"]),
    ({"configurations": 2, "selected": True}, ["selected"]),
    ({"configurations": 1, "selected_on": "test"}, []),
    ({"configurations": 1, "selected_on": "none"}, []),
    ({"n": 0, "configurations": 2, "selected_on": "none"}, []),
    (
        {"diverged": True, "shortened": True, "personal": True},
        ["diverged", "shortened", "personal"],
    ),
]


@pytest.mark.parametrize(("changed", "flags"), FLAGS)
def test_flags_of_a_row(changed: dict[str, Any], flags: list[str]) -> None:
    assert flags_of(PLAIN | changed) == flags


def test_pages_print_how_many_runs_ended_otherwise() -> None:
    record = PLAIN | {"failed": 2, "stopped": 1, "selected": True, "diverged": True}
    shown = (("diverged", "DIVERGED"), ("failed", "2 failed"), ("stopped", "1 stopped"))
    assert flags_to_show(record) == shown


RUN = {"status": "finished", "diverged": False, "shortened": False, "certified": None}


@pytest.mark.parametrize(
    ("changed", "flags"),
    [
        ({}, ()),
        ({"status": "failed", "shortened": True}, (("failed", "failed"),)),
        ({"status": "stopped"}, (("stopped", "stopped"),)),
        ({"shortened": True, "certified": True}, (("shortened", "shortened"),)),
        ({"certified": False}, (("uncertified", "not certified"),)),
        ({"diverged": True}, (("diverged", "DIVERGED"),)),
    ],
)
def test_flags_of_a_run(changed: dict[str, Any], flags: tuple[Any, ...]) -> None:
    assert flags_of_run(RUN | changed) == flags


@pytest.mark.parametrize(
    ("n", "failed", "reason"),
    [(1, 1, "none of its"), (0, 1, "no run finished"), (0, 0, "every run was stopped")],
)
def test_why_a_row_is_not_selected(n: int, failed: int, reason: str) -> None:
    assert why_not_selected({"n": n, "failed": failed}).startswith(reason)


# Selection


def test_a_diverged_configuration_is_worth_one_less() -> None:
    assert selection_value([0.25, 0.75], diverged=False) == 0.5
    assert selection_value([0.25, 0.75], diverged=True) == -0.5


def test_diverged_configurations_are_selectable_alone() -> None:
    board = pd.DataFrame({"cell": list("aabb"), "diverged": [True, False, True, True]})
    assert selectable(board, ["cell"]).tolist() == [False, True, True, True]


# Order and text


def test_nothing_precedes_numbers_and_these_text() -> None:
    values = ["b", 10, None, "a", 2.5, True, -1]
    assert sorted(values, key=sortable) == [None, -1, 2.5, 10, True, "a", "b"]


def test_names_with_several_values_differ() -> None:
    pairs = [("x", {"a": 1, "b": 1}), ("x", {"a": 1.0, "c": None}), ("y", {"a": 1})]
    assert differing(pairs) == {"x": {"a", "b"}, "y": set()}


def test_a_cells_key_has_16_digits() -> None:
    text = '{"lr":0.1,"model":"cnn","partition_seed":3}'
    assert len(cell_of(text)) == 16
    assert cell_of(text) == cell_of('{"lr":0.1,"model":"cnn+head"}')
    assert cell_of(text, ["lr"]) == cell_of('{"lr":0.2,"model":"cnn"}', ["lr"]) != cell_of(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (True, "true"),
        (3, "3"),
        (0.1, "0.1"),
        (1.0, "1"),
        (1e-9, "1e-09"),
        (0.123456789, "0.123456789"),
        ("x", "x"),
    ],
)
def test_values_are_typed_with_all_digits(value: Any, text: str) -> None:
    assert typed(value) == text


@pytest.mark.parametrize(("name", "text"), [("ä", True), ("\ud800", False), ("a\udfff", False)])
def test_names_are_written_as_text(name: str, text: bool) -> None:
    assert is_text(name) is text
