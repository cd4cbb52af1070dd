"""Limits and symmetries of methods that leave each client a model of its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from algorithms import build
from bench.data.dataset import Dataset
from bench.engine.simulation import Simulation
from bench.selftest.toy import INFO, TINY, gap, make, models_of, simulate, toy_dataset, toy_split

ROUNDING = 1e-12  # float64


def test_dittos_w_is_fedavgs() -> None:
    ditto = simulate(build("ditto", mu=0.7), momentum=0.9)
    fedavg = simulate("fedavg", momentum=0.9)
    ditto.advance(3)
    fedavg.advance(3)
    assert gap(ditto.server.params, fedavg.server.params) <= ROUNDING


PERMUTATION = [2, 0, 1]  # the new label of each of the toy classes


def relabelled(simulation: Simulation, name: str) -> Simulation:
    """The run of `simulation` on samples with permuted labels, from a head permuted alike."""
    data = toy_dataset()
    labels = np.array(PERMUTATION)
    train = (data.train_x, labels[data.train_y])
    test = (data.test_x, labels[data.test_y])
    renamed = Dataset.of("toy", train, test)
    initial = permuted(simulation._initial)
    return Simulation(make(name), TINY, 0, renamed, INFO, toy_split(), initial=initial)


def permuted(model: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The model with the outputs of its head in the order of the new labels."""
    order = np.argsort(PERMUTATION)
    return {
        name: value[order] if name.startswith("head.") else value for name, value in model.items()
    }


@pytest.mark.parametrize("name", ["fd", "fedproto"])
def test_permuted_labels_permute_models(name: str) -> None:
    run = simulate(name)
    other = relabelled(run, name)
    run.advance(3)
    other.advance(3)
    expected = {key: permuted(model) for key, model in models_of(run).items()}
    assert gap(models_of(other), expected) <= ROUNDING
