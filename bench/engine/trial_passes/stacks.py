"""The check that a stack computes what a model from outside computes for each client alone."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

import torch
from torch import Tensor, nn
from torch.func import vmap

from algorithms.base import Params
from bench import models
from bench.engine.own_draws import still_buffers
from bench.engine.pytree import stack
from bench.engine.trial_passes.passes import (
    as_type,
    close,
    gradients_of_sum,
    largest_value,
    network_of,
    sure_gradients,
    trial,
    values_of,
)
from bench.errors import UsageError, in_a_line
from bench.models.registry import KIND

LARGEST_STACKED = 30_000_000  # numbers of a model that is tried in a stack


@cache
def check_stacks(model: str, input_shape: tuple[int, ...]) -> None:
    """Check that a stack computes what a model from outside computes for each client alone.

    Models of more than `LARGEST_STACKED` numbers are not checked: for some layers vmap needs a
    copy of the weights for each position of a sample.

    Raises:
        UsageError: torch's `vmap` cannot map a layer, or gives other results or gradients.
    """
    if not models.is_from_outside(model):
        return
    module, x = trial(model, input_shape)
    if sum(value.numel() for value in module.parameters()) > LARGEST_STACKED:
        return
    module.still_buffers = still_buffers(model, input_shape)  # type: ignore[assignment]
    differing = _differing_in_stack(model, module, x, torch.float32)
    if differing:  # in a deep network perhaps by rounding, of which float64 has less
        with suppress(UsageError):  # a model may compute in float32 alone
            differing = _differing_in_stack(model, module, x, torch.float64)
    if differing:
        raise _not_stacked(model, f"torch's vmap gives {differing} other values")


def _differing_in_stack(model: str, module: nn.Module, x: Tensor, dtype: torch.dtype) -> str | None:
    """Return a tensor that has another gradient or value after a step in a stack, or None."""
    from bench.engine.stacked.layers import layers_of

    net = network_of(module, dtype)
    x = as_type(dtype, x)
    inputs = torch.stack([x, x.flip(0)])
    alone = [values_of(module, dtype), values_of(module, dtype)]
    together: Params = stack(alone)

    def loss(params: Params, x: Tensor) -> Tensor:
        out = net(params, x)
        return out.features.square().mean() + out.logits.square().mean()

    expected = []
    for params, own_inputs in zip(alone, inputs, strict=True):
        expected.append(sure_gradients(model, net, loss, params, own_inputs))
    try:
        with layers_of(net):
            got = gradients_of_sum(net, vmap(loss, randomness="error"), together, inputs)
    except Exception as error:
        raise _not_stacked(model, in_a_line(error)) from error
    pairs: list[tuple[Params, Params]] = [(stack(expected), got), (stack(alone), together)]
    for wanted, given in pairs:
        largest = max(map(largest_value, wanted.values()), default=0.0)
        for name, value in wanted.items():
            # A gradient may be zero but for rounding, which the largest of them measures.
            if not close(value, given[name], 1e-4 * largest):
                return name
    return None


def _not_stacked(model: str, reason: str) -> UsageError:
    return KIND.error(  # type: ignore[return-value]
        model, f"cannot be trained in a stack ({reason}): give --backend loop --pack 1"
    )
