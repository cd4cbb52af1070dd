"""Which configurations a search tries: draws keep every relation, and a value that is not allowed is said first."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from algorithms import entry
from bench.errors import UsageError
from bench.planning.configurations import TRIES, draws
from bench.planning.plan import Search, make_plan
from bench.planning.request import Request
from search_spaces import SPACES, Grid, Range, Setting

OWN = "beta != gamma"  # FedCAD's entry knows `beta <= gamma` alone


@pytest.fixture
def stricter(monkeypatch: pytest.MonkeyPatch) -> None:
    """FedCAD's space on the digits, with a relation of its own; 6 pairs keep both relations, 8 the algorithm's."""
    key = ("fedkd", "digits", "fedcad")
    assert OWN not in entry("fedcad").where
    assert SPACES[key].grid == {"beta": Grid(0.0, 0.3, 0.5), "gamma": Grid(0.3, 0.5, 0.7)}
    monkeypatch.setitem(SPACES, key, replace(SPACES[key], where=(OWN,)))


def pairs_of(**options: object) -> list[tuple[object, object]]:
    units = make_plan(Request(("fedcad",), **options)).units
    return [(unit.hyperparameters["beta"], unit.hyperparameters["gamma"]) for unit in units]


@pytest.mark.usefixtures("stricter")
@pytest.mark.parametrize("count", [3, 6])
def test_random_search_gives_what_is_asked_for_under_a_spaces_own_relation(count: int) -> None:
    drawn = pairs_of(search="random", num_samples=count)
    assert len(set(drawn)) == len(drawn) == count
    assert all(beta < gamma for beta, gamma in drawn)


@pytest.mark.usefixtures("stricter")
def test_every_search_keeps_a_spaces_own_relation() -> None:
    assert len(pairs_of(search="random", num_samples=50)) == len(pairs_of()) == 6, "all that there are"
    assert all(beta < gamma for beta, gamma in pairs_of(budget=10))


def test_draws_keep_all_relations_and_look_at_a_fixed_number() -> None:
    space = {"a": Grid(1, 2, 3), "b": Grid(1, 2, 3), "c": Range(0.0, 1.0)}
    generator, other = random.Random(0), random.Random(0)
    search = Search("fedavg", Setting(), space, (), None, False)
    everything = list(draws(search, generator))
    kept = list(draws(replace(search, where=("a <= b", "a != b")), other))
    assert len(everything) == TRIES
    assert kept == [one for one in everything if one["a"] < one["b"]]
    assert 0 < len(kept) < TRIES
    assert generator.getstate() == other.getstate(), "what follows does not depend on what was kept"


def test_an_algorithms_draws_are_what_they_were() -> None:
    """The same command asks for the same configurations, in later versions too."""
    values = {"beta": ("0", "0.2", "0.4", "0.6"), "gamma": ("0.1", "0.3", "0.5")}
    drawn = pairs_of(search="random", num_samples=4, values=values)
    assert drawn == [(0.0, 0.5), (0.4, 0.5), (0.2, 0.3), (0.0, 0.1)]
    assert pairs_of(budget=4, values=values) == [(0.0, 0.1), (0.2, 0.3), (0.0, 0.3), (0.4, 0.5)]


SEARCHES: list[Mapping[str, object]] = [{}, {"search": "random"}, {"search": "optuna"}, {"budget": 4}]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("beta", [("2",), ("0.3", "2"), ("nan",)])
def test_a_value_out_of_range_is_said_before_relations(search: Mapping[str, object], beta: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as caught:
        pairs_of(values={"beta": beta}, **search)
    assert str(caught.value) == f"fedcad.beta must be in [0, 1), got {float(beta[-1])}"


@pytest.mark.parametrize("search", SEARCHES)
def test_values_that_keep_no_relation_are_named(search: Mapping[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        pairs_of(values={"beta": ("0.7",), "gamma": ("0.3",)}, **search)
    assert str(caught.value) == "fedcad: no combination keeps beta <= gamma; got beta in {0.7}, gamma in {0.3}"
