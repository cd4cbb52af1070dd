"""A run of each algorithm, and of each kind of setting, has the numbers that it always had.

After a change that means to move an algorithm's numbers, and raises its version, run these with
APPROVE=1 in the environment.
"""

from __future__ import annotations

from typing import Any

import pytest
from conftest import trained
from kept import assert_kept

from bench.engine.pytree import leaves
from bench.engine.simulation import Simulation
from bench.selftest.candidate import candidate
from bench.selftest.toy import models_of

SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "momentum": ("fedavg", {"momentum": 0.9, "weight_decay": 0.01, "lr_decay": 0.5}),
    "nesterov": ("fedavg", {"momentum": 0.9, "nesterov": True}),
    "adam": ("fedavg", {"optimizer": "adam", "lr": 0.01, "weight_decay": 0.01}),
    "decays": ("fedavg", {"optimizer": "adam", "adam_beta1": 0.8, "adam_beta2": 0.9}),
    "epsilon": ("fedavg", {"optimizer": "adam", "adam_eps": 0.1}),
    "clipped": ("fedavg", {"clip_norm": 0.5}),
    "exempt": ("fedavg", {"model": "mlp+bn", "weight_decay": 0.5, "decay_exempt": "norm"}),
    "flips": ("fedavg", {"augmentation": "flip_crop"}),
    "reflected": ("fedavg", {"augmentation": "flip_crop_reflect"}),
    "rotated": ("fedavg", {"augmentation": "flip_crop_rotate"}),
    "batches": ("fedavg", {"step_rule": "batches"}),
    "whole epochs": ("fedavg", {"step_rule": "whole_epochs"}),
    "equal steps": ("fedavg", {"step_rule": "equal", "batch_size": 6}),
    "convolutions": ("fedavg", {"model": "cnn_digits"}),
    "head": ("fedavg", {"model": "mlp+bn+head"}),
    "another seed": ("fedavg", {"seed": 1}),
    "half the clients": ("scaffold", {"participation": 0.5}),
    "finetuned": ("fedavg", {"finetune_steps": 2}),
    "new clients": ("fedrep", {"new_clients": 0.25, "local_test_fraction": 0.2}),
    "seldom evaluated": ("fedbn", {"evaluate_every": 2}),
    "unlike models": ("fedproto", {"client_models": "mlp/cnn_digits+fd64"}),
    "public": ("fedmd", {"public": "own"}),
}


def numbers(run: Simulation) -> dict[str, float]:
    """The last value of each curve, the traffic, and the size of all that the run holds."""
    kept: dict[str, float] = {"samples": run.progress.samples}
    for suffix, curve in run.progress.curves.items():
        kept |= {f"{suffix} {metric}".strip(): value for _, metric, value in curve}
    held = {"models": models_of(run), "extra": run.server.extra, "memories": run.memories}
    for name, tree in held.items():
        kept[name] = sum(float(tensor.double().abs().sum()) for tensor in leaves(tree))
    return kept


def test_an_algorithm_keeps_its_numbers(name: str) -> None:
    tested = candidate(name)
    for values in ({}, *tested.other_choices()):
        run = tested.simulate(values=values)
        run.advance(2)
        label = " ".join([name, *(f"{key}={value}" for key, value in values.items())])
        assert_kept("algorithms.json", label, numbers(run))


def test_requests_keep_their_batches() -> None:
    """Of DKD's three requests a round, with batches smaller than a client."""
    run = candidate("feddkd").simulate(values={"batch_size": 4})
    run.advance(2)
    assert_kept("algorithms.json", "feddkd batch_size=4", numbers(run))


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_setting_keeps_its_numbers(kind: str) -> None:
    name, fields = SETTINGS[kind]
    assert_kept("settings.json", kind, numbers(trained(name, rounds=2, **fields)))
