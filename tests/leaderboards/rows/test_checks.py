"""Rules for rows and curves: what is said of each fault, and values on both sides of each bound."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from rows import failed_row, make_row

from leaderboards.rows.checks import check_curve, check_row, curve_problems, table_problems
from leaderboards.rows.frames import run_table

WIDEST = 2**63


def problems_of(row: dict[str, Any]) -> list[str]:
    """The faults of a row, each as a phrase."""
    try:
        check_row(row)
    except ValueError as error:
        head, _, phrases = str(error).partition(" cannot be stored: ")
        assert head.startswith("the row of ")
        return phrases.split("; ")
    return []


ALLOWED: list[dict[str, Any]] = [
    {"best_accuracy": 0.0},
    {"best_accuracy": 1.0},
    {"best_accuracy": 1},
    {"best_accuracy": None},
    {"seconds": 0.0},
    {"rounds": 100, "best_round": 0},
    {"bytes_up": WIDEST - 1},
    {"paper": None, "certified": None, "git_commit": None, "git_dirty": None},
    {"dataset_hash": None, "personal": None, "error": None},
    {"samples_per_second": None, "peak_memory_bytes": None},
    {"selected_on": "clients"},
    {"selected_on": "test"},
    {"versions": {}},
]


@pytest.mark.parametrize("columns", ALLOWED)
def test_a_value_is_allowed(columns: dict[str, Any]) -> None:
    assert problems_of(make_row(**columns)) == []


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"best_accuracy": 1.001}, "best_accuracy must be a fraction in [0, 1], got 1.001"),
    ({"best_accuracy": -0.1}, "best_accuracy must be >= 0, got -0.1"),
    ({"fm": -0.1}, "fm must be >= 0, got -0.1"),
    ({"bytes_up": -1}, "bytes_up must be >= 0, got -1"),
    ({"bytes_up": WIDEST}, f"bytes_up must be of type int64, got {WIDEST} (int)"),
    ({"bytes_up": -WIDEST - 1}, f"bytes_up must be of type int64, got {-WIDEST - 1} (int)"),
    ({"bytes_up": -WIDEST}, f"bytes_up must be >= 0, got {-WIDEST}"),
    ({"best_round": True}, "best_round must be of type int64, got True (bool)"),
    ({"best_accuracy": "x"}, "best_accuracy must be of type float64, got 'x' (str)"),
    ({"best_accuracy": True}, "best_accuracy must be of type float64, got True (bool)"),
    ({"best_accuracy": float("nan")}, "best_accuracy must be finite, got nan"),
    ({"diverged": 1}, "diverged must be of type bool, got 1 (int)"),
    ({"host": 3}, "host must be of type string, got 3 (int)"),
    ({"host": None}, "host is empty"),
    ({"threads": None}, "threads is empty"),
    ({"bytes_down": None, "seconds": None}, "seconds is empty in a finished row"),
    ({"versions": {"a": 1}}, "versions must be of type map<string,string>, got {'a': 1} (dict)"),
    ({"versions": "a"}, "versions must be of type map<string,string>, got 'a' (str)"),
    (
        {"started": datetime(2026, 1, 2)},
        "started must be of type timestamp, got datetime.datetime(2026, 1, 2, 0, 0) (datetime)",
    ),
    ({"started": 3}, "started must be of type timestamp, got 3 (int)"),
    (
        {"selected_on": "luck"},
        "selected_on must be one of validation, clients, test, none, got 'luck'",
    ),
    ({"schema_version": 2}, "schema_version must be one of 1, got 2"),
    ({"run_key": "A" * 64}, f"run_key must be 64 lower-case hexadecimal digits, got {'A' * 64!r}"),
    ({"status": "failed"}, "error is empty in a failed row: say why it failed"),
    ({"own": 1}, "unknown columns own; known are those of leaderboards.COLUMNS"),
]


@pytest.mark.parametrize(("columns", "problem"), REFUSED)
def test_a_value_is_refused(columns: dict[str, Any], problem: str) -> None:
    assert "; ".join(problems_of(make_row(**columns))) == problem


def test_only_failures_need_a_reason() -> None:
    assert problems_of(failed_row()) == []
    assert problems_of(failed_row(status="stopped", error=None)) == []
    assert (
        problems_of(make_row(error="loss is nan", started=datetime(2026, 1, 2, tzinfo=UTC))) == []
    )


def test_all_missing_columns_are_named() -> None:
    row = make_row()
    for name in ("host", "device", "best_accuracy", "ema_accuracy"):
        del row[name]
    told = "missing columns device, host (give None if there is no value)"
    assert problems_of(row) == [told]


def identity(name: str, text: str) -> str:
    return "; ".join(problems_of(make_row(**{name: text})))


JSON: list[tuple[str, str, str]] = [
    (
        "hp_json",
        '{"a": 1}',
        "hp_json must be canonical JSON (sorted keys, no spaces), got '{\"a\": 1}'",
    ),
    ("hp_json", "[1]", "hp_json must be canonical JSON (sorted keys, no spaces), got '[1]'"),
    ("hp_json", '{"json":1}', "hp_json has a hyper-parameter named json"),
    (
        "hp_json",
        f'{{"a":{WIDEST}}}',
        "hp_json must hold numbers of 64 bits, booleans, null and text",
    ),
    ("hp_json", '{"a":[1]}', "hp_json must hold numbers of 64 bits"),
    ("hp_json", '{"a\x1b":1}', "hp_json must be canonical JSON of its columns"),
    ("hp_json", '{"a":"\x85"}', "hp_json must hold numbers of 64 bits"),
    ("setting_json", "{}", "setting_json and the columns disagree about dataset, model, partition"),
]


@pytest.mark.parametrize(("name", "text", "problem"), JSON)
def test_identities_are_canonical_json(name: str, text: str, problem: str) -> None:
    assert identity(name, text).startswith(problem)


@pytest.mark.parametrize(
    "values", [{"a": WIDEST - 1}, {"a": -WIDEST}, {"a": None, "b": 0.5, "c": True}]
)
def test_plain_values_are_hyperparameters(values: dict[str, Any]) -> None:
    assert identity("hp_json", json.dumps(values, separators=(",", ":"))) == ""


@pytest.mark.parametrize(("length", "cut"), [(200, False), (201, True)])
def test_long_texts_are_cut(length: int, cut: bool) -> None:
    said = identity("hp_json", "x" * length)
    assert said.startswith("hp_json must be canonical JSON of its columns, got 'xxx")
    assert said.count("x" * 200) == 1
    assert ("x …'" in said) == cut


SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"partition_seed": 0}, ""),
    ({"client_models": "mlp/cnn"}, ""),
    ({"partition_seed": -1}, "partition_seed in setting_json must be a whole number >= 0, got -1"),
    ({"client_models": 7}, "client_models in setting_json must be text, got 7"),
    ({"lr": 0.5}, "setting_json and the columns disagree about lr: setting_json is "),
    ({"rounds": 100.0}, "setting_json and the columns disagree about rounds: "),
]


@pytest.mark.parametrize(("changed", "problem"), SETTINGS)
def test_settings_agree_with_their_columns(changed: dict[str, Any], problem: str) -> None:
    row = make_row()
    setting = json.loads(row["setting_json"]) | changed
    said = identity("setting_json", json.dumps(setting, sort_keys=True, separators=(",", ":")))
    assert said.startswith(problem)
    assert bool(said) == bool(problem)


def test_hyperparameters_may_be_named_as_fields_of_settings() -> None:
    assert identity("hp_json", '{"client_models":7,"partition_seed":-1}') == ""


def test_each_row_with_a_fault_is_told() -> None:
    table = run_table(make_row())
    assert list(table_problems(table.select(["host", "seconds"]))) == []
    twice = table.set_column(table.column_names.index("seed"), "seed", [[-1]])
    names = ["seed", "hp_json"]
    assert list(table_problems(twice.select(names))) == [(0, "seed must be >= 0, got -1")]


# Curves


@pytest.mark.parametrize(
    "curve",
    [
        [(0, "a", None), (0, "b", 1), (1, "a", 0.5), (WIDEST - 1, "a", float("nan"))],
        [],
    ],
)
def test_points_of_a_curve(curve: list[Any]) -> None:
    check_curve(curve)


SHAPE = "a point is (int >= 0, str, float or None), got "
POINTS: list[tuple[list[Any], str]] = [
    ([(1, "a")], "a point is (round, metric, value), got (1, 'a')"),
    ([(1, "a", 1, 2)], "a point is (round, metric, value), got (1, 'a', 1, 2)"),
    ([(-1, "a", 0.5)], f"{SHAPE}(-1, 'a', 0.5)"),
    ([(True, "a", 0.5)], f"{SHAPE}(True, 'a', 0.5)"),
    ([(1.0, "a", 0.5)], f"{SHAPE}(1.0, 'a', 0.5)"),
    ([(1, 2, 0.5)], f"{SHAPE}(1, 2, 0.5)"),
    ([(1, "a", "x")], f"{SHAPE}(1, 'a', 'x')"),
    ([(1, "a", True)], f"{SHAPE}(1, 'a', True)"),
    ([(WIDEST, "a", 0.5)], f"{SHAPE}({WIDEST}, 'a', 0.5)"),
    ([(1, "a", 0.5), (2, "a", 0.5), (1, "a", 0.6)], "two points for round 1 and metric 'a'"),
]


@pytest.mark.parametrize(("curve", "problem"), POINTS)
def test_a_wrong_point_is_shown(curve: list[Any], problem: str) -> None:
    with pytest.raises(ValueError, match="the curve cannot be stored") as raised:
        check_curve(curve)
    assert str(raised.value) == f"the curve cannot be stored: {problem}"


CURVE = {"accuracy": {1: 0.25, 2: 0.5}, "loss": {2: 7.5}}
CONTRADICTIONS: list[tuple[dict[str, Any], dict[str, dict[int, float]], list[str]]] = [
    ({}, {}, []),
    ({"rounds": 2, "best_accuracy": 0.5, "final_accuracy": None}, {}, []),
    ({"best_accuracy": 0.6}, {}, ["best_accuracy is 0.6, not 0.5"]),
    ({"selected_round": 2}, {}, ["selected_round is 2, not None"]),
    (
        {"rounds": 1},
        {},
        [
            "accuracy has a value in round 2, of 1 rounds",
            "loss has a value in round 2, of 1 rounds",
        ],
    ),
    ({"rounds": None}, {"own": {9: -3.0}}, []),
    ({}, {"own": {-1: 0.5}}, ["own has a value in round -1, and rounds begin with 0"]),
    ({}, {"val_accuracy": {1: 0.0, 2: 1.0}}, []),
    (
        {},
        {"val_accuracy": {1: 0.5, 2: 1.5, 3: -1.0}},
        ["val_accuracy is 1.5 in round 2, which must be a fraction in [0, 1]"],
    ),
    (
        {},
        {"client_accuracy/3": {1: -0.5}},
        ["client_accuracy/3 is -0.5 in round 1, which must be a fraction in [0, 1]"],
    ),
]


@pytest.mark.parametrize(("row", "more", "problems"), CONTRADICTIONS)
def test_what_a_curve_contradicts(
    row: dict[str, Any], more: dict[str, dict[int, float]], problems: list[str]
) -> None:
    assert list(curve_problems(row, CURVE | more)) == problems
