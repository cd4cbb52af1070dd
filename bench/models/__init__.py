"""The models by name: `info` describes one, `make` builds one.

`bench.models.table` has this suite's models and finds those of other packages. A model is a *body* that turns an
input into features (B, D); `Classifier` adds the head that gives logits, and MOON's projection head for `+head`.
"""

from __future__ import annotations

import importlib
from itertools import pairwise
from typing import TYPE_CHECKING

from bench.errors import UsageError
from bench.models.table import MODELS, ModelInfo, info, parse, version

if TYPE_CHECKING:
    from torch import nn

PROJECTION = 256  # MOON, section 4.1: the projection head's output


def spelt(name: str) -> str:
    """Return the model's canonical name, `+head` before `+bn`; raises as `parse` does."""
    _, head, batchnorm = parse(name)
    return name.partition("+")[0] + "+head" * head + "+bn" * batchnorm


def has_batchnorm(name: str) -> bool:
    """Return whether a model has BatchNorm layers, in its `+bn` form or as it is; raises as `parse` does."""
    entry, _, batchnorm = parse(name)
    return batchnorm or entry.always_batchnorm


def check_model(name: str, input_shape: tuple[int, ...], kind: str | None = None) -> None:
    """Raise UsageError if there is no such model or it cannot take such inputs; arguments as in `ModelInfo.fits`."""
    entry, _, _ = parse(name)
    if not entry.fits(input_shape, kind):
        fitting = ", ".join(key for key, value in MODELS.items() if value.fits(input_shape, kind)) or "none here"
        has = f"{kind or 'samples'} of {'x'.join(map(str, input_shape))}"
        raise UsageError(f"model {name!r} takes {entry.inputs}, the data set has {has}; models that fit: {fitting}")
    _body_size(name, input_shape)


def num_parameters(name: str, input_shape: tuple[int, ...], num_classes: int) -> int:
    """Return the number of a model's trainable parameters; build it only if its entry does not state them."""
    entry, head, _ = parse(name)
    features, total = _body_size(name, input_shape)
    widths = [
        features,
        *([features, PROJECTION] if head else []),
        *([entry.hidden] if entry.hidden else []),
        num_classes,
    ]
    return total + sum((inputs + 1) * outputs for inputs, outputs in pairwise(widths))


def _body_size(name: str, input_shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the features and trainable numbers of a model's body, as stated or else counted."""
    entry, _, batchnorm = parse(name)
    if entry.features and entry.body_parameters:
        added = entry.batchnorm_parameters if batchnorm else 0
        return entry.features, entry.body_parameters(input_shape[0]) + added
    from bench.models.modules import counted

    return counted(name, input_shape)


def make(name: str, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Build the module, freshly initialised from torch's current generator.

    Raises:
        UsageError: no such model, or inputs of another size.
        EnvironmentProblem: its pretrained weights are not here and cannot be fetched.
    """
    from bench.models.modules import Classifier, body_of

    check_model(name, input_shape)
    entry, head, batchnorm = parse(name)
    features, _ = _body_size(name, input_shape)
    if name.partition("+")[0] not in MODELS:
        body = body_of(name, input_shape)
    else:
        module, _, function = entry.factory.partition(":")
        body = getattr(importlib.import_module(module), function)(input_shape[0], batchnorm)
    return Classifier(body, features, num_classes, PROJECTION if head else None, entry.hidden)


__all__ = [
    "MODELS",
    "ModelInfo",
    "check_model",
    "has_batchnorm",
    "info",
    "make",
    "num_parameters",
    "parse",
    "spelt",
    "version",
]
