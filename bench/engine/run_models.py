"""The models of a run: their networks, and the weights that they start from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from algorithms.base import Params
from bench import models
from bench.data import DatasetInfo
from bench.engine.network import Network, drawn_module, initial_params, make_module, take_constants
from bench.engine.own_draws import drawing_layer, mixes_samples, refuse, still_buffers
from bench.engine.trial_passes.stacks import check_stacks
from bench.models.module_state import state_of
from bench.models.registry import KIND
from search_spaces.setting import Setting


@dataclass(frozen=True)
class RunModel:
    """A model of a run.

    Args:
        name: as `model` and `client_models` of the setting name it.
        net: its network, on the run's device.
        initial: w_0.
        drawing: the layer by which it draws from global generators (`bench.engine.own_draws`);
            empty for none.
        from_outside: whether it is none of this suite's.
    """

    name: str
    net: Network
    initial: Params
    drawing: str
    from_outside: bool
    info: DatasetInfo
    device: torch.device

    def draw(self, generator: torch.Generator) -> Params:
        """Draw the parameters of a new network of this model."""
        module = drawn_module(partial(_module, self.name, self.info), generator)
        return initial_params(module, self.net.dtype, self.device)


def run_models(
    setting: Setting,
    seed: int,
    info: DatasetInfo,
    device: torch.device,
    backend: str,
    initial: Params | None = None,
) -> dict[str, RunModel]:
    """Make each model of a setting, by its name.

    `initial` is w_0 with all names of the network; None draws it from the seed.

    Raises:
        UsageError: a model from outside cannot be trained on this backend or device, or it cannot
            start from `initial`.
    """
    made: dict[str, RunModel] = {}
    for name in setting.models:
        from_outside = models.is_from_outside(name)
        module = make_module(partial(_module, name, info), setting.partition_seed_of(seed))
        if initial:
            if from_outside:
                _check_drawn(name, partial(_module, name, info))
            take_constants(module, initial)
        mean, std = info.normalization(setting.normalization)
        net = Network(module, info.input_shape, info.num_classes, setting.precision, mean, std)
        net.batch_statistics |= mixes_samples(name, info.input_shape)
        params = initial_params(module, net.dtype, device)
        if initial:
            params = {tensor: initial[tensor].to(value) for tensor, value in params.items()}
        drawing = drawing_layer(name, info.input_shape)
        if drawing and (backend != "loop" or device.type != "cpu"):
            raise refuse(name, drawing, "in a stack or on a GPU")
        if backend != "loop":
            check_stacks(name, info.input_shape)
        made[name] = RunModel(name, net.to(device), params, drawing, from_outside, info, device)
    for name in setting.models_of_clients:
        if name != setting.model:
            made[name].net.shared = made[setting.model].net
    return made


def _module(name: str, info: DatasetInfo) -> nn.Module:
    module = models.make(name, info.input_shape, info.num_classes)
    module.still_buffers = still_buffers(name, info.input_shape)
    return module


def _check_drawn(name: str, make: Callable[[], nn.Module]) -> None:
    """Raise UsageError if a model draws what stored models lack, as they have floats alone."""
    first, second = (state_of(make_module(make, seed)) for seed in (1, 2))
    for place, value in first.items():
        if second.get(place) != value:
            raise KIND.error(
                name,
                f"draws its {place}, which stored models lack, so that none can be started from: "
                "draw it from a seed of its own, or leave start_from out",
            )
