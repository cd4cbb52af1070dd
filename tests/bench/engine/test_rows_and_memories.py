"""What few algorithms need of the engine: personal models, memories that empty, several rows, several sources.

That the registered ones, which need much more, agree in both backends and resume is tested for each
of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import INFO, TINY, identical, resumed, toy_dataset, toy_split, trained

from algorithms import build
from algorithms.base import Algorithm, Server
from algorithms.losses import cross_entropy
from bench.engine.evaluate import on_part
from bench.engine.pytree import num_bytes
from bench.engine.simulation import Simulation


@dataclass(frozen=True)
class Forgetful(Algorithm):
    """A memory that is used up, and an upload that names one tensor twice."""

    def init_client(self, fed, params):
        return {"first": 1.0}

    def local_loss(self, net, local, batch, message, memory, plan):
        return cross_entropy(net(local["params"], batch.x).logits, batch.y) * (
            2.0 if "first" in memory else 1.0
        )

    def upload(self, net, local, data, message, memory, plan):
        return {"params": local["params"], "again": local["params"]}, {}


def test_an_emptied_memory_stays_empty(tmp_path: Path) -> None:
    assert identical(trained(Forgetful(), rounds=4), resumed(tmp_path, Forgetful()))


def test_one_tensor_under_two_names_travels_once() -> None:
    run = trained(Forgetful(), rounds=1)
    assert run.progress.traffic.bytes_up == 3 * num_bytes(run.server.params)


@pytest.mark.parametrize("name", ["fedavg", "fedbn"])
def test_each_source_counts_alike(name: str) -> None:
    """Four sources of unequal test sets: a shared model is measured on each, a personal one on its own."""
    sources = np.repeat(np.arange(4), (12, 9, 6, 3))
    own = np.arange(66) % 4
    grouped = replace(toy_dataset(), test_groups=sources, train_groups=own)
    setting = replace(TINY, partition="by_source", model="mlp+bn", participation=1.0)
    run = Simulation(build(name), setting, 0, grouped, INFO, toy_split(), "cpu", "loop")
    run.advance(2)
    x, y = next(run.federation.chunks(run.federation.test))
    held_out = toy_split().validation
    x_val, y_val = next(run.federation.chunks(run.federation.train, torch.from_numpy(held_out)))
    row, scores, validations = run.algorithm.evaluated(run.server)[""], [], []
    for source in range(4):
        at = torch.from_numpy(sources == source)
        model, of_source = run.local_model(row, source), torch.from_numpy(own[held_out] == source)
        for found, inputs, labels in (
            (scores, x[at], y[at]),
            (validations, x_val[of_source], y_val[of_source]),
        ):
            found.append(
                (run.net.eval(model, inputs).logits.argmax(1) == labels).double().mean().item()
            )
    curve = {name: value for at, name, value in run.progress.curves[""] if at == 2}
    assert curve["accuracy"] == pytest.approx(sum(scores) / 4)
    assert curve["val_accuracy"] == pytest.approx(sum(validations) / 4)


@pytest.mark.parametrize("name", ["local", "centralized"])
def test_the_only_training_client_has_its_source(name: str) -> None:
    sources = np.repeat(np.arange(4), (12, 9, 6, 3))
    grouped = replace(toy_dataset(), test_groups=sources, train_groups=np.arange(66) % 4)
    fields = {"local_test_fraction": 0.1, "new_clients": 0.75, "finetune_steps": 1}
    setting = replace(TINY, partition="by_source", participation=1.0, **fields)
    run = Simulation(build(name), setting, 0, grouped, INFO, toy_split(), "cpu", "loop")
    run.advance(1)
    for suffix in sorted(run.personal):
        (model,) = run.models_of(suffix)([0])
        expected = on_part(run.net, run.federation, model, 0).measures
        measured = {name: value for _, name, value in run.progress.curves[suffix]}
        assert {name: measured[name] for name in expected} == pytest.approx(expected)


@dataclass(frozen=True)
class Restless(Algorithm):
    """Clients that send nothing, and whose models are drawn anew whenever they start."""

    uploads_model = False
    personal = True

    def init_server(self, fed, params):
        return Server({})

    def broadcast(self, fed, server):
        return {}

    def start(self, fed, message, memory, generator):
        drawn = {}
        for name, value in fed.initial[TINY.model].items():
            drawn[name] = torch.randn(value.shape, generator=generator, dtype=torch.float64)
        return {"params": drawn}

    def upload(self, net, local, data, message, memory, plan):
        return {}, {}

    def server_step(self, fed, server, uploads, cohort):
        return server.next({})


def test_models_drawn_each_round_are_measured_each_round(tmp_path: Path) -> None:
    whole = trained(Restless(), rounds=4)
    losses = [value for _, name, value in whole.progress.curves[""] if name == "loss"]
    assert len(set(losses)) == 4
    assert identical(whole, resumed(tmp_path, Restless()))
