"""What every algorithm and its registry entry must be."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from conftest import holds

from algorithms import ALGORITHMS, algorithm_of, build
from algorithms.feddkd import DKD
from algorithms.t1 import T1
from bench.selftest.candidate import candidate
from bench.selftest.certify import run_check
from leaderboards.problems import FINETUNED, REFERENCES

CHECKED = ("contract", "hyperparameters", "learns", "communication", "memory")
# Runs with a generator or of requests to clients, which take longest; test_equations.py shows for
# each of their hyper-parameters that it counts.
LONG = ("fedkf", "fedgen", "feddkd", "feddkd_max", "feddkd_bn")


def cases() -> Iterator[Any]:
    """Every registered algorithm with every check."""
    for name, check in product(ALGORITHMS, CHECKED):
        marks = [pytest.mark.slow] if name in LONG and check == "hyperparameters" else []
        yield pytest.param(name, check, marks=marks)


@pytest.mark.parametrize(("name", "check"), list(cases()))
def test_it_passes_the_check(name: str, check: str) -> None:
    holds(name, check)


MEASURED = {
    ("fedprox", "learns"): "accuracy 1.00 after 15 rounds; guessing 0.33",
    ("fedprox", "communication"): "down 1 P; up 1 P in round 4, all as declared",
    ("fedprox", "hyperparameters"): "2 of 2 change the result; 4 values out of range are refused",
    ("scaffold", "communication"): "down 2 P; up 2 P in round 4, all as declared",
    ("scaffold", "memory"): "server 2 P, a client keeps 1 P",
    ("fd", "communication"): "down 0.0014093 P; up 0.0014093 P in round 4, all as declared",
    ("fd", "memory"): "server 0.00564 P, a client keeps 1 P",
}


@pytest.mark.parametrize(("name", "check"), MEASURED)
def test_what_is_measured_is_written(name: str, check: str) -> None:
    assert run_check(candidate(name), check).measured == MEASURED[name, check]


def test_the_index_names_rows_that_there_are_and_says_what_each_value_means() -> None:
    for entry in ALGORITHMS.values():
        assert {algorithm_of(row) for row in entry.rows.values()} <= set(ALGORITHMS)
        assert all(field.meaning != "–" for field in entry.fields)


def test_reference_rows_are_those_that_the_leaderboards_do_not_rank() -> None:
    references = {name for name, found in ALGORITHMS.items() if found.reference}
    assert references | {name + FINETUNED for name in references} == REFERENCES


@pytest.mark.parametrize("plugin", [T1, DKD])
def test_client_models_need_a_fitting_base(plugin: Any) -> None:
    assert plugin(build("fedprox")).base == build("fedprox")
    with pytest.raises(ValueError, match="clients' models, and FedProto sends none"):
        plugin(build("fedproto"))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_registry_says_whose_model_is_evaluated(name: str) -> None:
    tested = candidate(name)
    simulation = tested.simulate("loop", model=tested.model())
    assert tested.entry.personal == bool(simulation.personal)
    assert tested.entry.server_steps in {"", *tested.entry.defaults()}
