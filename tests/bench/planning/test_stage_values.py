"""Two stages value by value: which come first, which are near, and what is refused in words."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from bench.errors import UsageError
from bench.planning.options import TWO_STAGE, SweepOptions
from bench.planning.plan import Plan
from bench.planning.planner import make_plan
from bench.planning.two_stage import _places_between, count_second_stage, rates_around

BEGINS = (
    "--tuning two-stage begins with the learning rates of --lr, at least two and fewer than the "
)


def plan_of(*algorithms: str, budget: int = 6, **values: tuple[str, ...]) -> Plan:
    asked = {"lr": ("0.05", "0.1", "0.2"), **values}
    return make_plan(SweepOptions(algorithms, tuning=TWO_STAGE, budget=budget, values=asked))


@pytest.mark.parametrize(
    ("budget", "values", "problem"),
    [
        (3, {}, f"{BEGINS}3 configurations of --budget; got 3 rates"),
        (6, {"lr": ("0.1",)}, f"{BEGINS}6 configurations of --budget; got 1 rate"),
        (
            400,
            {"mu": ("0.1", "1")},
            "--budget 400: fedprox has 2 own configurations, and only 297 other learning rates can "
            "be told apart near one of --lr: give at most --budget 301, or rates that are further "
            "apart",
        ),
        (
            5,
            {"mu": ("0.1",), "lr": ("0.1", "0.1001")},
            "--budget 5: fedprox has 1 own configuration, and only 0 other learning rates can be "
            "told apart near one of --lr: give at most --budget 2, or rates that are further apart",
        ),
    ],
)
def test_stages_are_refused_in_words(budget: int, values: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        plan_of("fedprox", budget=budget, **values)
    assert str(refused.value) == problem


def test_as_many_as_there_are_is_no_problem() -> None:
    assert count_second_stage(plan_of("fedprox", budget=301, mu=("0.1", "1"))) == 298
    with pytest.raises(UsageError):
        plan_of("fedprox", budget=302, mu=("0.1", "1"))
    assert count_second_stage(plan_of("fedprox", budget=4, mu=("0.1", "1"))) == 1


def own(plan: Plan, *names: str) -> list[list[tuple[Any, ...]]]:
    """List the own configurations of each algorithm, in their order."""
    listed = []
    for stages in plan.stages:
        listed.append([tuple(values[name] for name in names) for values in stages.own])
    return listed


def test_the_middle_comes_first_and_the_rest_by_name() -> None:
    (mu,) = own(plan_of("fedprox", mu=("0.001", "0.01", "0.1", "1")), "mu")
    assert mu == [(0.01,), (0.001,), (1.0,), (0.1,)]
    values = {"beta": ("0", "0.3", "0.5"), "gamma": ("0.3", "0.5", "0.7")}
    (pairs,) = own(plan_of("fedcad", **values), "beta", "gamma")
    assert pairs == [
        (0.3, 0.5),
        (0.5, 0.5),
        (0.3, 0.7),
        (0.5, 0.7),
        (0.0, 0.3),
        (0.0, 0.7),
        (0.3, 0.3),
        (0.0, 0.5),
    ]


def test_a_form_takes_its_bases_values_in_their_order() -> None:
    values = {"mu": ("0.001", "0.01", "0.1", "1"), "t1_unvisited": ("skip", "w0")}
    plan = plan_of("fedprox", "fedprox_t1", budget=5, **values)
    base = next(stages.own for stages in plan.stages if stages.search.algorithm == "fedprox")
    form = next(stages.own for stages in plan.stages if stages.search.algorithm == "fedprox_t1")
    assert [values["mu"] for values in form[:4]] == [values["mu"] for values in base]
    assert [(values["mu"], values["t1_unvisited"]) for values in form] == [
        (0.01, "skip"),
        (0.001, "w0"),
        (1.0, "w0"),
        (0.1, "w0"),
        (0.001, "skip"),
        (1.0, "skip"),
    ]


def test_rates_are_near_on_a_logarithmic_scale() -> None:
    assert list(islice(_places_between(), 8)) == [
        0.5,
        0.25,
        0.75,
        0.125,
        0.375,
        0.625,
        0.875,
        0.0625,
    ]
    assert len(list(_places_between())) == 255
    rates = [0.2, 0.05, 0.1, 0.1]
    assert list(islice(rates_around(0.1, rates), 6)) == [
        0.0707,
        0.141,
        0.0841,
        0.119,
        0.0595,
        0.168,
    ]
    assert list(islice(rates_around(0.05, rates), 4)) == [0.0354, 0.0707, 0.042, 0.0595]
    assert list(islice(rates_around(0.2, rates), 4)) == [0.141, 0.283, 0.168, 0.238]
