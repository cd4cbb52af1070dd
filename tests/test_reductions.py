"""Limits at which an algorithm is another one: exactly, bit for bit."""

from __future__ import annotations

import pytest
import torch
from conftest import holds, simulate

from algorithms import ALGORITHMS, build
from bench.selftest.equations import LIMITS


def test_at_its_limits_it_is_another_algorithm(name: str) -> None:
    """On every model and both backends; and with its defaults it is not FedAvg."""
    holds(name, "reductions")


def test_limits_are_of_algorithms() -> None:
    """FedDyn's weight is above 0, FedAdam's step is never a mean: not each has one."""
    assert set(LIMITS) < set(ALGORITHMS)


def test_fedgkd_of_one_model_distils_from_the_received_one() -> None:
    simulation = simulate(build("fedgkd", buffer=1))
    simulation.advance(2)
    message = simulation.algorithm.broadcast(simulation.fed, simulation.server)
    assert all(message["teacher"][name] is message["params"][name] for name in message["params"])


def test_a_cohort_of_one_is_its_client() -> None:
    """With one participant the mean must be that client's model, untouched by weights."""
    simulation = simulate("fedavg", participation=0.25, precision="fp32")
    seen = {}
    step = type(simulation.algorithm).server_step

    def spy(self, fed, server, uploads, cohort):
        seen.update(uploads["params"])
        return step(self, fed, server, uploads, cohort)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(simulation.algorithm), "server_step", spy)
        simulation.advance(1)
    assert all(torch.equal(simulation.server.params[name], seen[name][0]) for name in seen)
