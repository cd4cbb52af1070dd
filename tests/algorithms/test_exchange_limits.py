"""Limits and symmetries of methods that leave each client a model of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import identical, make, resumed, simulate, trained

from algorithms import build
from bench.data.dataset import Dataset
from bench.engine.simulation import Simulation
from bench.selftest.toy import INFO, TINY, gap, models_of, toy_dataset, toy_split
from bench.sweep import command as sweep
from bench.sweep import reproduce
from leaderboards import Store

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
    initial = permuted(simulation.fed.initial[TINY.model])
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


UNLIKE = {
    "fd": "mlp/cnn_digits",
    "fedproto": "mlp+fd16/cnn_digits+fd16",
    "fedmd": "mlp/cnn_digits",
    "dsfl": "mlp/cnn_digits",
    "fedtgp": "mlp+fd16/cnn_digits+fd16",
    "lg_fedavg": "mlp+fd16/cnn_digits+fd16",
    "fml": "mlp/cnn_digits",
    "fedkd": "mlp/cnn_digits",
    "fedgh": "mlp+fd16/cnn_digits+fd16",
}


@pytest.mark.parametrize(("name", "models"), UNLIKE.items())
def test_unlike_models_are_resumed_and_differ_from_local(
    name: str, models: str, tmp_path: Path
) -> None:
    fields = {"client_models": models, "model": models.split("/")[0]}
    run = trained(name, rounds=4, **fields)
    assert identical(run, resumed(tmp_path, name, **fields))
    alone = trained("local", rounds=4, **fields)
    for client in run.memories:
        assert gap(run.local_model({}, client), alone.local_model({}, client)) > ROUNDING


@pytest.mark.parametrize("name", UNLIKE)
def test_equal_models_of_clients_change_nothing(name: str) -> None:
    assert identical(trained(name), trained(name, client_models="mlp/mlp"))


def test_a_second_row_is_reproduced(tmp_path: Path) -> None:
    arguments = ["--algo", "fml", "--dataset", "digits", "--rounds", "1", "--local-epochs", "1"]
    arguments += ["--set", "ce_weight=0.5", "--executor", "inline", "--out", str(tmp_path), "-q"]
    assert sweep.main(arguments) == 0
    runs = Store(tmp_path).runs()
    key = runs[runs.algorithm == "fml_meme"].run_key.iloc[0]
    assert reproduce.main([key, "--out", str(tmp_path)]) == 0


def test_a_row_by_prototypes_stays_one_after_further_steps() -> None:
    fields = {"finetune_steps": 2, "local_test_fraction": 0.25}
    run = simulate("fedproto", **fields)
    run.advance(2)
    last = {}
    for suffix, curve in run.progress.curves.items():
        last[suffix] = {name: value for at, name, value in curve if at == 2}
    assert last["_proto_ft"]["loss"] != last["_ft"]["loss"]
    assert abs(last["_proto_ft"]["loss"] - last["_proto"]["loss"]) < 0.5
