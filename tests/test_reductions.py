"""Limits at which an algorithm is another one: exactly, bit for bit."""

from __future__ import annotations

from conftest import holds, simulate

from algorithms import build


def test_at_its_limits_it_is_another_algorithm(name: str) -> None:
    """On every model and both backends; and with its defaults it is not FedAvg."""
    holds(name, "reductions")


def test_fedgkd_of_one_model_distils_from_the_received_one() -> None:
    simulation = simulate(build("fedgkd", buffer=1))
    simulation.advance(2)
    message = simulation.algorithm.broadcast(simulation.fed, simulation.server)
    assert all(message["teacher"][name] is message["params"][name] for name in message["params"])
