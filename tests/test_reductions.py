"""Limits at which an algorithm is another one: exactly, bit for bit."""

from __future__ import annotations

import pytest
import torch
from conftest import simulate

from algorithms import build
from bench.engine.simulation import Simulation

TO_FEDAVG = {
    "fedprox mu=0": ("fedprox", {"mu": 0.0}),
    "fedprox mu=0, mean per tensor": ("fedprox", {"mu": 0.0, "prox_reduction": "mean_per_tensor"}),
    "fedgkd gamma=0": ("fedgkd", {"gamma": 0.0}),
    "fedlsd a=0": ("fedlsd", {"distillation_weight": 0.0}),
    "fedcad beta=gamma=0": ("fedcad", {"beta": 0.0, "gamma": 0.0}),
}


def same(left: Simulation, right: Simulation) -> bool:
    """Equal global models, bit for bit."""
    return all(torch.equal(left.server.params[n], right.server.params[n]) for n in left.server.params)


@pytest.mark.parametrize("backend", ["loop", "stacked"])
@pytest.mark.parametrize("model", ["mlp", "mlp+bn", "cnn_digits"])
@pytest.mark.parametrize("case", TO_FEDAVG.values(), ids=TO_FEDAVG)
def test_reduces_to_fedavg(case: tuple[str, dict[str, object]], model: str, backend: str) -> None:
    name, values = case
    limit = simulate(build(name, **values), backend, model=model, precision="fp32")
    fedavg = simulate("fedavg", backend, model=model, precision="fp32")
    limit.advance(3)
    fedavg.advance(3)
    assert same(limit, fedavg)


def test_every_distillation_moves_the_model(name: str) -> None:
    if name == "fedavg":
        pytest.skip("is the reference")
    other, fedavg = simulate(name), simulate("fedavg")
    other.advance(3)
    fedavg.advance(3)
    assert not same(other, fedavg)


@pytest.mark.parametrize("weight", [0.3, 0.5])
def test_fedcad_with_equal_bounds_is_fedlsd(weight: float) -> None:
    fedcad = simulate(build("fedcad", beta=weight, gamma=weight))
    fedlsd = simulate(build("fedlsd", distillation_weight=weight))
    fedcad.advance(3)
    fedlsd.advance(3)
    assert same(fedcad, fedlsd)


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
