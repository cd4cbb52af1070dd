"""`Loop` and `Stacked` equal a naive run with `torch.optim`, which shares no code with them."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from conftest import INFO, TINY, largest_gap, toy_dataset, toy_split, trained

from bench import models
from bench.engine.dropout import Masks, replace_dropout, step_keys
from bench.engine.network import make_module
from bench.engine.rng import stream
from search_spaces import Setting

OPTIMIZERS = {
    "sgd": {},
    "momentum": {"momentum": 0.9, "weight_decay": 0.01, "clip_norm": 0.5},
    "nesterov": {"momentum": 0.9, "nesterov": True, "lr_decay": 0.5},
    "adam": {"optimizer": "adam", "lr": 0.01, "weight_decay": 0.01},
}


@pytest.mark.parametrize("options", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_stacked_equals_loop_in_every_optimizer(backend: str, options: dict[str, object]) -> None:
    simulation = trained("fedavg", backend, **options)
    expected = naive_fedavg(rounds=2, **options)
    gap = max(float((simulation.server.params[n] - expected[n]).abs().max()) for n in expected)
    assert gap < 1e-12


def test_bfloat16_keeps_float32_masters() -> None:
    simulation = trained("fedcad", rounds=1, precision="bf16")
    assert all(value.dtype == torch.float32 for value in simulation.server.params.values())
    assert 0 < largest_gap(simulation, trained("fedcad", rounds=1, precision="fp32")) < 0.05


def naive_fedavg(rounds: int, dropout: bool = False, **options: object) -> dict[str, torch.Tensor]:
    """FedAvg as anybody would write it: a module per client, `torch.optim`, unpadded batches, float64.

    Only the random draws are the engine's: which clients take part, the order of samples, and masks
    of dropout.
    """
    setting = replace(TINY, **options)  # type: ignore[arg-type]
    data, split = toy_dataset(), toy_split()
    pixels = (torch.tensor(data.train_x, dtype=torch.float64) / 255 - 0.5) / 0.25
    labels = torch.tensor(data.train_y)
    net = make_module(
        lambda: models.make(setting.model, INFO.input_shape, INFO.num_classes), seed=0
    ).double()
    for number in range(1, rounds + 1):
        drawn = torch.randperm(setting.num_clients, generator=stream(0, "participation", number))
        chosen = sorted(drawn[: math.floor(0.75 * 4 + 0.5)].tolist())
        states = []
        for client in chosen:
            local, index = copy.deepcopy(net), torch.tensor(split.clients[client])
            masks = replace_dropout(local) or Masks()
            optimizer = _optimizer(
                setting, local.parameters(), setting.lr * setting.lr_decay ** (number - 1)
            )
            order = stream(0, "order", number, client)
            epochs = [
                torch.randperm(len(index), generator=order) for _ in range(setting.local_epochs)
            ]
            batches = [batch for epoch in epochs for batch in epoch.split(setting.batch_size)]
            keys = step_keys(stream(0, "dropout", number, client), len(batches))
            for batch, key in zip(batches, keys, strict=True):
                optimizer.zero_grad()
                at = index[batch]
                with masks.under(key if dropout else None):
                    F.cross_entropy(local(pixels[at]).logits, labels[at]).backward()
                if setting.clip_norm:
                    torch.nn.utils.clip_grad_norm_(local.parameters(), setting.clip_norm)
                optimizer.step()
            states.append((len(index), local.state_dict()))
        total = sum(size for size, _ in states)
        mean = {
            key: sum(size / total * state[key] for size, state in states) for key in states[0][1]
        }
        net.load_state_dict(mean)
    return dict(net.state_dict())


def _optimizer(
    setting: Setting, parameters: Iterable[torch.nn.Parameter], lr: float
) -> torch.optim.Optimizer:
    decay = setting.weight_decay
    if setting.optimizer == "adam":
        return torch.optim.Adam(parameters, lr, weight_decay=decay)
    return torch.optim.SGD(
        parameters, lr, setting.momentum, nesterov=setting.nesterov, weight_decay=decay
    )
