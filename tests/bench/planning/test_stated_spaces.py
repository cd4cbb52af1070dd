"""A search space that a method states on its own hyper-parameters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from commands import command
from outside_world import place

from algorithms import entry
from algorithms.base import hyper, linear, log
from algorithms.plugins import define
from bench.errors import UsageError
from bench.executors.optuna_search import Proposer, chosen_run_specs, past_tries
from bench.planning.options import SweepOptions
from bench.planning.plan import Plan
from bench.planning.planner import make_plan
from search_spaces import Grid, Range

__all__ = ["place"]
NAME = "own_space:Mine"
MODULE = """
from dataclasses import dataclass
from algorithms.base import Algorithm, hyper, linear, log

@dataclass(frozen=True)
class Mine(Algorithm):
    mu: float = hyper(0.01, 0, search=log(0.001, 1))
    depth: int = hyper(3, 1, search=linear(1, 4))
    kind: str = hyper("a", choices=("a", "b", "c"), search=["a", "c"])
    other: float = hyper(2.0)
"""
MU = (0.001, 0.00562, 0.0316, 0.178, 1.0)


@pytest.fixture(autouse=True)
def method(place: Path) -> None:
    """A module in the working folder."""
    (place / "own_space.py").write_text(MODULE)


def plan_of(*names: str, values: dict[str, Sequence[str]] | None = None, **options: Any) -> Plan:
    given = {name: tuple(texts) for name, texts in (values or {}).items()}
    return make_plan(SweepOptions(names, "digits", values=given, **options))


def tried(plan: Plan, name: str) -> list[Any]:
    return [
        run_spec.hyperparameters[name] for run_spec in plan.run_specs if run_spec.algorithm == NAME
    ]


def test_fields_know_their_values() -> None:
    fields = {field.name: field.search for field in entry(NAME).fields}
    assert fields["mu"] == Range(0.001, 1)
    assert fields["depth"] == Range(1, 4, log=False, whole=True)
    assert fields["kind"] == Grid("a", "c")
    assert fields["other"] is None


def test_a_grid_takes_evenly_spaced_values() -> None:
    plan = plan_of(NAME)
    assert {*tried(plan, "mu")} == {*MU}
    assert {*tried(plan, "depth")} == {1, 2, 3, 4}
    assert {*tried(plan, "kind")} == {"a", "c"}
    assert {*tried(plan, "other")} == {2.0}
    assert len(plan.run_specs) == 5 * 4 * 2


def test_given_values_replace_stated_values() -> None:
    plan = plan_of(NAME, values={"mu": ["0.5"], "depth": ["2", "9"]})
    assert {*tried(plan, "mu")} == {0.5}
    assert {*tried(plan, "depth")} == {2, 9}


@pytest.mark.parametrize("options", [{"search": "random", "num_samples": 12}, {"budget": 12}])
def test_other_searches_draw_from_ranges(options: dict[str, Any]) -> None:
    plan = plan_of(NAME, **options)
    mu = tried(plan, "mu")
    assert len({*mu}) == 12
    assert all(0.001 <= value <= 1 for value in mu)
    assert sum(value < 0.0316 for value in mu) in range(2, 11), "log-uniform"
    assert all(type(value) is int and 1 <= value <= 4 for value in tried(plan, "depth"))
    assert [run_spec.key for run_spec in plan_of(NAME, **options).run_specs] == [
        run_spec.key for run_spec in plan.run_specs
    ]


def test_every_method_has_the_same_rates() -> None:
    plan = plan_of("fedprox", NAME, budget=6)
    rates: dict[str, list[float]] = {}
    for run_spec in plan.run_specs:
        rates.setdefault(run_spec.algorithm, []).append(run_spec.setting.lr)
    assert rates["fedprox"] == rates[NAME]


def test_two_stages_begin_in_the_middle() -> None:
    plan = plan_of(NAME, budget=6, tuning="two-stage", values={"lr": ["0.1", "0.3"]})
    assert {*tried(plan, "mu")} == {0.0316}


def test_optuna_proposes_within_ranges(tmp_path: Path) -> None:
    plan = plan_of(NAME, search="optuna", num_samples=8)
    (search,) = plan.searches
    (past,) = past_tries(plan, str(tmp_path / "out"))
    proposer = Proposer(plan, past)
    values = []
    while (trial := proposer.propose()) is not None:
        (run_spec,) = chosen_run_specs(search, trial.params, 1)
        values.append(run_spec.hyperparameters)
    assert len({value["mu"] for value in values}) == 8
    assert all(0.001 <= value["mu"] <= 1 for value in values)
    assert all(type(value["depth"]) is int and 1 <= value["depth"] <= 4 for value in values)
    assert {value["kind"] for value in values} <= {"a", "c"}


def test_optuna_keeps_relations_between_ranges(place: Path) -> None:
    (place / "bound_space.py").write_text(
        "from dataclasses import dataclass\n"
        "from algorithms.base import Algorithm, hyper, linear\n"
        "from algorithms.entry import About\n\n"
        "@dataclass(frozen=True)\n"
        "class Mine(Algorithm):\n"
        "    about = About(where=('low <= high',))\n"
        "    low: float = hyper(0.1, 0, 1, search=linear(0, 1))\n"
        "    high: float = hyper(0.9, 0, 1, search=linear(0, 1))\n"
    )
    plan = plan_of("bound_space:Mine", search="optuna", num_samples=10)
    (search,) = plan.searches
    (past,) = past_tries(plan, str(place / "out"))
    proposer = Proposer(plan, past)
    for _ in range(10):
        trial = proposer.propose()
        assert trial is not None
        (run_spec,) = chosen_run_specs(search, trial.params, 1)
        assert run_spec.hyperparameters["low"] <= run_spec.hyperparameters["high"]


@pytest.mark.slow
def test_show_and_dry_run_name_the_source(place: Path) -> None:
    shown = json.loads(command("--algo", NAME, "--show", "--json", cwd=place).stdout)
    assert [space["source"] for space in shown] == [NAME]
    assert shown[0]["grid"] == {"mu": "[0.001, 1] log", "depth": "[1, 4] linear", "kind": "{a, c}"}
    dry = json.loads(
        command("--algo", NAME, "--dry-run", "--json", "--search", "optuna", cwd=place).stdout
    )
    assert [search["source"] for search in dry["searches"]] == [NAME]
    assert "[0.001, 1] log" in dry["searches"][0]["space"].values()


@pytest.mark.parametrize(
    "declared",
    [
        "mu: float = hyper(0.01, 0, search=[-1.0])",
        "mu: float = hyper(0.01, 0, 1, search=log(0.1, 10))",
        "mu: int = hyper(1, search=[0.5])",
        "mu: str = hyper('a', choices=('a', 'b'), search=linear(0, 1))",
    ],
)
def test_values_that_are_not_allowed_are_refused(declared: str, place: Path) -> None:
    head, _, _ = MODULE.partition("    mu: float")
    (place / "wrong_space.py").write_text(f"{head}    {declared}\n")
    with pytest.raises(UsageError):
        plan_of("wrong_space:Mine")


@pytest.mark.parametrize(
    ("make", "ends"), [(log, (0, 1)), (log, (1, 1)), (linear, (2, 1)), (linear, (0, float("inf")))]
)
def test_a_range_is_checked(make: Any, ends: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="range"):
        make(*ends)


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        hyper(1.0, search=[])


def out_of_luck() -> None:
    raise OSError("no luck")


def test_what_cannot_be_made_is_told() -> None:
    with pytest.raises(ValueError, match="cannot be made: OSError: no luck"):
        define(out_of_luck)
