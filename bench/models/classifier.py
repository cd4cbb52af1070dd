"""Modules of models: a body from outside, made, tried on two inputs and looked at; and the head on every body.

Axes: B examples, C channels, H rows, W columns, L tokens, D features.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from algorithms.base import Outputs
from bench.models.table import KIND, parse

BATCH = 2  # more than one, so that a body that flattens too much shows


class Classifier(nn.Module):
    """A body, an optional projection head, and the head: the linear classifier, in some models behind a dense layer.

    Args:
        body: inputs (B, ...) to features (B, D).
        features: D.
        num_classes: C.
        projection: output size of Linear(D, D)-ReLU-Linear(D, projection) before the classifier, or None (MOON, section
            3.2: the classifier stands on the projection).
        hidden: units of a dense layer with ReLU between features and classifier; 0 for none.
    """

    def __init__(
        self, body: nn.Module, features: int, num_classes: int, projection: int | None = None, hidden: int = 0
    ) -> None:
        super().__init__()
        self.body = body
        self.projection: nn.Module = nn.Identity()
        if projection is not None:
            dense = nn.Linear(features, features)
            self.projection = nn.Sequential(dense, nn.ReLU(inplace=True), nn.Linear(features, projection))
        width = projection or features
        between = [nn.Linear(width, hidden), nn.ReLU(inplace=True)] if hidden else []
        classifier = nn.Linear(hidden or width, num_classes)
        self.head = nn.Sequential(*between, classifier) if hidden else classifier

    def forward(self, x: Tensor) -> Outputs:
        """Logits (B, C) and the features that the head reads."""
        features = self.projection(self.body(x))
        return Outputs(self.head(features), features)


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
    factory = KIND.load(name, entry.factory)
    try:
        body = factory(input_shape[0], batchnorm)
    except Exception as error:
        call = f"{entry.factory}(channels={input_shape[0]}, batchnorm={batchnorm})"
        raise KIND.error(name, f"{call} raises {type(error).__name__}: {error}") from error
    if not isinstance(body, nn.Module):
        raise KIND.error(name, f"{entry.factory} gives {type(body).__name__}, not a torch.nn.Module")
    has, expected = any(isinstance(part, _BatchNorm) for part in body.modules()), batchnorm or entry.always_batchnorm
    if has != expected:
        found = "has BatchNorm layers" if has else "has no BatchNorm layer"
        raise KIND.error(
            name, f"{found}: always_batchnorm=True says that it has, batchnorm_form=True that its +bn form alone has"
        )
    features = _features(name, body, input_shape)
    if entry.features and entry.features != features:
        raise KIND.error(name, f"features is {entry.features}, the body gives {features}; 0 has them counted")
    if entry.body_parameters:
        total = entry.body_parameters(input_shape[0]) + (entry.batchnorm_parameters if batchnorm else 0)
        if total != _trainable(body):
            raise KIND.error(
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
        raise KIND.error(name, f"fails on inputs {tuple(x.shape)}: {type(error).__name__}: {error}") from error
    finally:
        body.train(training)
    if not isinstance(out, Tensor) or out.dim() != 2 or len(out) != BATCH:
        given = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise KIND.error(name, f"must turn inputs {tuple(x.shape)} into features (B, D), got {given}")
    return out.shape[1]


def _trainable(body: nn.Module) -> int:
    return sum(value.numel() for value in body.parameters())
