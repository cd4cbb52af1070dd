"""The `hyperparameters` check: the values it tries, those it refuses, its text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from test_selftest import CROSS_ENTROPY, method, outside

from algorithms import ALGORITHMS, Field, entry
from bench.selftest.candidate import Candidate, candidate
from bench.selftest.certify import CheckOutcome, run_check
from bench.selftest.hyperparameters import alternatives, forbidden
from search_spaces import Value
from search_spaces.bounds import Bounds

__all__ = ["outside"]

NAN = "nan"


def field_of(kind: str, default: Value, low: float | None = None, **bounds: Any) -> Field:
    """A hyper-parameter of these bounds."""
    return Field("h", kind, default, Bounds(low, **bounds))


CASES = {
    "an unbounded float": (field_of("float", 0.5), [0.25, 1.0, 1.5], ["many", NAN]),
    "a float that is 0": (field_of("float", 0.0), [0.5, 2, 2], ["many", NAN]),
    "a positive float": (
        field_of("float", 4.0, 0, open_low=True),
        [2.0, 8.0, 5.0],
        ["many", 0, NAN],
    ),
    "a share": (
        field_of("float", 0.25, 0, high=1),
        [0.125, 0.5, 0.0, 1.0],
        ["many", -1, 2, NAN],
    ),
    "a share below 1": (
        field_of("float", 0.8, 0.2, high=1, open_high=True),
        [0.4, 0.2, 0.6],
        ["many", -0.8, 1, NAN],
    ),
    "a count": (field_of("int", 5, 1), [2, 10, 6, 1], ["many", 0, 1.5]),
    "a bounded count": (field_of("int", 4, 1, high=6), [2, 5, 1, 6], ["many", 0, 7, 1.5]),
    "an optional float": (field_of("float | None", None, 0), [0.5, 2, 0.0], ["many", -1, NAN]),
    "an optional count": (field_of("int | None", 2, 1), [1, 4, 3, None], ["many", 0, 1.5]),
    "a choice": (field_of("str", "a", choices=("a", "b", "c")), ["b", "c"], ["no_such_choice"]),
    "a text": (field_of("str", "a"), [], []),
    "on": (field_of("bool", True), [False], ["perhaps"]),
    "off": (field_of("bool", False), [True], ["perhaps"]),
}


def of_default(field: Field, refused: Value = "none of them") -> Any:
    """A candidate with this field, which refuses a value that its bounds allow."""
    return SimpleNamespace(
        defaults=lambda: {"h": field.default}, allows=lambda values: values["h"] != refused
    )


@pytest.mark.parametrize("case", CASES)
def test_values_to_try_and_to_refuse(case: str) -> None:
    field, tried, refused = CASES[case]
    values = [value["h"] for value in alternatives(of_default(field), field)]
    assert values == list(dict.fromkeys(tried))
    assert [str(value) for value in forbidden(field)] == [str(value) for value in refused]


def test_values_that_the_algorithm_refuses_are_left_out() -> None:
    field, tried, _ = CASES["a count"]
    values = list(alternatives(of_default(field, refused=10), field))
    assert values == [{"h": value} for value in tried if value != 10]


def test_every_hyper_parameter_has_another_value() -> None:
    for name, found in ALGORITHMS.items():
        for field in found.fields:
            if field.kind != "str" or field.bounds.choices:
                assert next(alternatives(candidate(name), field)), (name, field.name)


def test_other_choices_are_those_of_choices_and_truth_values() -> None:
    assert list(candidate("fedmax").other_choices()) == [
        {"fedmax_direction": "u_a"},
        {"fedmax_reduction": "elementmean"},
    ]
    assert list(candidate("fd").other_choices()) == [{"fd_exclude_self": False}]
    assert {"adversarial": True} in candidate("fedkf").other_choices()
    assert list(candidate("fedprox_t1").other_choices()) == [
        {"prox_reduction": "mean_per_tensor"},
        {"t1_unvisited": "w0"},
    ]


def outcome_of(name: str) -> CheckOutcome:
    """The outcome of the check."""
    return run_check(Candidate(name, entry(name)), "hyperparameters")


FIELDS = """
rate: float = hyper(0.5, 0)
share: float = hyper(0.5, 0, 1)
form: str = hyper("plain", choices=("plain", "half"), packable=False)
label: str = "a"
"""
USED = " * self.rate * (1 - self.share / 2) * (2 if self.form == 'half' else 1)"


def test_what_acts_and_what_is_refused_is_counted(outside: Callable[[str], str]) -> None:
    outcome = outcome_of(f"{outside(method(FIELDS, loss=CROSS_ENTROPY + USED))}:Method")
    assert outcome.problems == ()
    assert outcome.measured == "3 of 3 change the result; 8 values out of range are refused"


def test_what_is_wrong_with_fields_is_told(outside: Callable[[str], str]) -> None:
    fields = FIELDS + "idle: int = hyper(3, 1, 4)\nrest: int = hyper(1, 1, 1)\n"
    used = USED + " / (1 if self.rate < 0.9 else 0)"
    name = outside(method(fields, loss=CROSS_ENTROPY + used, __post_init__="pass"))
    outcome = outcome_of(f"{name}:Method")
    *told, idle, rest = [problem for problem in outcome.problems if " takes " not in problem]
    assert told == []
    assert idle.startswith("idle changes nothing: the same models with 3 and with 1, 4 (outside_")
    assert rest == "rest could not be set to any value but its default"
    refused = [problem for problem in outcome.problems if " takes " in problem]
    assert "the class itself takes rate=-1, which is not allowed" in refused
    assert outcome.measured.startswith("3 of 5 change the result; ")


def test_a_value_that_fails_is_told(outside: Callable[[str], str]) -> None:
    field = "rate: int = hyper(1, 0, 3)"
    hook = f"{CROSS_ENTROPY} * [1, 1][self.rate]"
    outcome = outcome_of(f"{outside(method(field, loss=hook))}:Method")
    (problem,) = outcome.problems
    assert problem.startswith("rate=2 is allowed, and fails: IndexError: ")
    assert outcome.measured == "0 of 1 change the result; 4 values out of range are refused"


def test_an_algorithm_without_fields_has_none_to_check() -> None:
    outcome = outcome_of("fedavg")
    assert (outcome.status, outcome.measured) == ("not applicable", "it has no hyper-parameters")


def test_relations_are_to_be_refused_reversed() -> None:
    related = replace(entry("fedadam"), where=("beta1 <= beta2",))
    outcome = run_check(Candidate("fedadam", related), "hyperparameters")
    values = "beta1=0.99, beta2=0.9"
    assert outcome.problems == (
        f"build takes {values}, which is not allowed",
        f"the class itself takes {values}, which is not allowed",
    )
