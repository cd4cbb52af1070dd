"""A body from outside, or whose entry leaves figures to be counted: made, tried on two inputs, and looked at.

Axes: B examples, C channels, H rows, W columns, L tokens, D features.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bench.models import plugins
from bench.models.plugins import parse

BATCH = 2  # more than one, so that a body that flattens too much shows


@cache
def counted(name: str, input_shape: tuple[int, ...]) -> tuple[int, int]:
    """(D, trainable numbers) of a model's body for inputs (C, H, W) or (L,). Draws from nobody's generator.

    Raises:
        UsageError: the body cannot be made, or is not what its entry says.
    """
    with torch.random.fork_rng(devices=[]):
        body = body_of(name, input_shape)
    return _features(name, body, input_shape), _trainable(body)


def body_of(name: str, input_shape: tuple[int, ...]) -> nn.Module:
    """A model's body, initialised from torch's current generator.

    Raises:
        UsageError: it cannot be made, or is not what its entry says.
    """
    entry, _, batchnorm = parse(name)
    factory = plugins.factory_of(name, entry)
    try:
        body = factory(input_shape[0], batchnorm)
    except Exception as error:
        call = f"{entry.factory}(channels={input_shape[0]}, batchnorm={batchnorm})"
        raise plugins.problem(name, f"{call} raises {type(error).__name__}: {error}") from error
    if not isinstance(body, nn.Module):
        raise plugins.problem(name, f"{entry.factory} gives {type(body).__name__}, not a torch.nn.Module")
    has, expected = any(isinstance(part, _BatchNorm) for part in body.modules()), batchnorm or entry.always_batchnorm
    if has and not expected:
        raise plugins.problem(
            name, "has BatchNorm layers: say always_batchnorm=True; or batchnorm_form=True, and make them for +bn alone"
        )
    if expected and not has:
        stated = "always_batchnorm" if entry.always_batchnorm else "batchnorm_form"
        raise plugins.problem(name, f"{stated} is True, and the body has no BatchNorm layer")
    features = _features(name, body, input_shape)
    if entry.features and entry.features != features:
        raise plugins.problem(name, f"features is {entry.features}, the body gives {features}; 0 has them counted")
    if entry.body_parameters:
        total = entry.body_parameters(input_shape[0]) + (entry.batchnorm_parameters if batchnorm else 0)
        if total != _trainable(body):
            raise plugins.problem(
                name, f"body_parameters gives {total:,}, the body has {_trainable(body):,}; None has them counted"
            )
    return body


@torch.no_grad()
def _features(name: str, body: nn.Module, input_shape: tuple[int, ...]) -> int:
    """D, from the output for two examples of zeros; the body is left as it was."""
    entry, _, _ = parse(name)
    x = torch.zeros(BATCH, *input_shape, dtype=torch.long if entry.tokens else torch.float32)
    training = body.training
    try:
        out = body.eval()(x)
    except Exception as error:
        raise plugins.problem(name, f"fails on inputs {tuple(x.shape)}: {type(error).__name__}: {error}") from error
    finally:
        body.train(training)
    if not isinstance(out, Tensor) or out.dim() != 2 or len(out) != BATCH:
        given = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise plugins.problem(name, f"must turn inputs {tuple(x.shape)} into features (B, D), got {given}")
    return out.shape[1]


def _trainable(body: nn.Module) -> int:
    return sum(value.numel() for value in body.parameters())
