"""What every algorithm and its registry entry must be."""

from __future__ import annotations

import pytest
from conftest import holds, simulate

from algorithms import ALGORITHMS, build
from leaderboards.board import REFERENCES


@pytest.mark.parametrize("check", ["contract", "hyperparameters", "learns", "communication", "memory"])
def test_it_passes_the_check(name: str, check: str) -> None:
    holds(name, check)


@pytest.mark.slow
def test_at_its_limits_it_is_another_algorithm(name: str) -> None:
    """On every model and both backends; and with its defaults it is not FedAvg."""
    holds(name, "reductions")


def test_fedgkd_of_one_model_distils_from_the_received_one() -> None:
    simulation = simulate(build("fedgkd", buffer=1))
    simulation.advance(2)
    message = simulation.algorithm.broadcast(simulation.fed, simulation.server)
    assert all(message["teacher"][name] is message["params"][name] for name in message["params"])


@pytest.mark.parametrize(
    ("name_", "values", "words"),
    [
        ("fedprox", {"mu": float("nan")}, ["mu", ">= 0", "nan"]),
        ("fedprox", {"prox_reduction": "avg"}, ["prox_reduction", "sum, mean_per_tensor", "avg"]),
        ("fedgkd", {"buffer": 1.5}, ["buffer", "1.5"]),
        ("fedcad", {"gamma": 1.0}, ["gamma", "[0, 1)", "1.0"]),
        ("fedcad", {"beta": 0.7, "gamma": 0.3}, ["beta=0.7", "gamma=0.3"]),
        ("fedcad", {"gama": 0.3}, ["gamma"]),
    ],
)
def test_values_are_checked_at_construction(name_: str, values: dict, words: list[str]) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        build(name_, **values)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_an_unknown_algorithm_is_answered_with_the_nearest() -> None:
    with pytest.raises(KeyError, match=r"fedcat.*fedcad"):
        build("fedcat")


def test_the_index_names_rows_that_there_are_and_says_what_each_value_means() -> None:
    for entry in ALGORITHMS.values():
        assert set(entry.rows.values()) <= set(ALGORITHMS)
        assert all(field.meaning != "–" for field in entry.fields)


def test_reference_rows_are_those_that_the_leaderboards_do_not_rank() -> None:
    assert {name for name, found in ALGORITHMS.items() if found.reference} == REFERENCES
