"""The models by name: `MODELS` says what they are, `make` builds one.

A model is a *body* that turns an input into features (B, D); `Classifier` adds the last linear layer, and MOON's
projection head where `+head` asks for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from bench.errors import UsageError
from bench.models.sizes import dense
from bench.models.table import MODELS, ModelInfo
from bench.names import unknown

if TYPE_CHECKING:
    from torch import nn

PROJECTION = 256  # MOON, section 4.1: the projection head's output


def parse(name: str) -> tuple[ModelInfo, bool, bool]:
    """A model's entry, whether it has a projection head, and whether it is the BatchNorm form.

    Raises:
        UsageError: no such model, or no such form of it.
    """
    base, *forms = name.split("+")
    if base not in MODELS:
        raise unknown("model", base, MODELS)
    other = sorted(set(forms) - {"head", "bn"})
    if other or len(set(forms)) != len(forms):
        raise UsageError(f"model {name!r}: a form is +head or +bn, each once, got {'+'.join(forms)!r}")
    info = MODELS[base]
    if "bn" in forms and info.always_batchnorm:
        raise UsageError(f"model {base!r} has BatchNorm as it is: leave out +bn")
    if "bn" in forms and not info.batchnorm_form:
        having = ", ".join(key for key, value in MODELS.items() if value.batchnorm_form)
        always = ", ".join(key for key, value in MODELS.items() if value.always_batchnorm)
        raise UsageError(
            f"model {base!r} has no +bn form; models that have one: {having}; with BatchNorm as they are: {always}"
        )
    return info, "head" in forms, "bn" in forms


def spelt(name: str) -> str:
    """The model's one name: `+head` before `+bn`.

    Raises:
        UsageError: no such model, or no such form of it.
    """
    _, head, batchnorm = parse(name)
    return name.partition("+")[0] + "+head" * head + "+bn" * batchnorm


def has_batchnorm(name: str) -> bool:
    """Whether a model has BatchNorm layers, in its `+bn` form or as it is.

    Raises:
        UsageError: no such model, or no such form of it.
    """
    info, _, batchnorm = parse(name)
    return batchnorm or info.always_batchnorm


def check_model(name: str, input_shape: tuple[int, ...]) -> None:
    """Raise UsageError if the model does not exist or cannot take such inputs."""
    info, _, _ = parse(name)
    if not info.fits(input_shape):
        fitting = ", ".join(key for key, value in MODELS.items() if value.fits(input_shape))
        raise UsageError(
            f"model {name!r} takes {info.inputs}, the data set has {_inputs(input_shape)}; models that fit: {fitting}"
        )


def _inputs(shape: tuple[int, ...]) -> str:
    return f"texts of {shape[0]} tokens" if len(shape) == 1 else "x".join(map(str, shape[1:]))


def num_parameters(name: str, input_shape: tuple[int, ...], num_classes: int) -> int:
    """Trainable parameters of a model, without building it."""
    info, head, batchnorm = parse(name)
    total = info.body_parameters(input_shape[0]) + (info.batchnorm_parameters if batchnorm else 0)
    features = info.features
    if head:
        total += dense(features, features) + dense(features, PROJECTION)
        features = PROJECTION
    return total + dense(features, num_classes)


def make(name: str, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """The module, freshly initialised from torch's current generator.

    Raises:
        UsageError: no such model, or inputs of another size.
        EnvironmentProblem: its pretrained weights are not here and cannot be fetched.
    """
    from bench.models.heads import Classifier

    check_model(name, input_shape)
    info, head, batchnorm = parse(name)
    module, _, function = info.factory.partition(":")
    body = getattr(importlib.import_module(module), function)(input_shape[0], batchnorm)
    return Classifier(body, info.features, num_classes, PROJECTION if head else None)


__all__ = ["MODELS", "ModelInfo", "check_model", "has_batchnorm", "make", "num_parameters", "parse", "spelt"]
