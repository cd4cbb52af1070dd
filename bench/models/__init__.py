"""The models as a table without torch: where each is made, what it takes, how many parameters it has.

A model is a *body* that turns an input into features (B, D); `Classifier` adds the last linear layer, and MOON's
projection head where `+head` asks for it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.errors import UsageError
from bench.names import unknown

if TYPE_CHECKING:
    from torch import nn

PROJECTION = 256  # SPEC of MOON: the projection head's output


@dataclass(frozen=True)
class ModelInfo:
    """One model.

    Args:
        factory: `module:function` of (channels, batchnorm), giving the body.
        summary: one line.
        features: D, the body's output.
        body_parameters: trainable numbers of the body, by input channels.
        size: height and width that it needs, or None for any.
        batchnorm_form: whether a `+bn` form exists.
        batchnorm_parameters: trainable numbers that the `+bn` form adds.
    """

    factory: str
    summary: str
    features: int
    body_parameters: Callable[[int], int]
    size: int | None = None
    batchnorm_form: bool = False
    batchnorm_parameters: int = 0


MODELS: dict[str, ModelInfo] = {
    "mlp": ModelInfo(
        "bench.models.mlp:MLP",
        "two hidden layers of 64 units, for 8x8 inputs",
        64,
        lambda channels: (64 * channels + 1) * 64 + 65 * 64,
        size=8,
        batchnorm_form=True,
        batchnorm_parameters=256,
    ),
    "cnn_digits": ModelInfo(
        "bench.models.cnn:DigitsCNN",
        "two 3x3 convolutions of 16 and 32 channels, for 8x8 inputs",
        128,
        lambda channels: (9 * channels + 1) * 16 + (9 * 16 + 1) * 32,
        size=8,
        batchnorm_form=True,
        batchnorm_parameters=96,
    ),
    "cnn_cifar": ModelInfo(
        "bench.models.cnn:CifarCNN",
        "FedCAD: 5x5 convolutions of 6 and 16 channels, dense layers of 120 and 84",
        84,
        lambda channels: (25 * channels + 1) * 6 + (25 * 6 + 1) * 16 + 401 * 120 + 121 * 84,
        size=32,
    ),
    "resnet8": ModelInfo(
        "bench.models.resnet:resnet8",
        "FedGKD: ResNet-8 of 16/32/64 channels, GroupNorm of 16 channels a group",
        64,
        lambda channels: _resnet8_parameters(channels, 16),
        batchnorm_form=True,
    ),
    "resnet8_wide": ModelInfo(
        "bench.models.resnet:resnet8_wide",
        "FedKF: ResNet-8 of 64/128/256 channels, GroupNorm of 1 channel a group",
        256,
        lambda channels: _resnet8_parameters(channels, 64),
        batchnorm_form=True,
    ),
}


def _resnet8_parameters(channels: int, width: int) -> int:
    w = width
    convolutions = 9 * channels * w + 18 * w * w + 9 * (2 * w * w + 4 * w * w) + 9 * (8 * w * w + 16 * w * w)
    shortcuts = 2 * w * w + 8 * w * w
    norms = 2 * (w + 2 * w + 3 * 2 * w + 3 * 4 * w)
    return convolutions + shortcuts + norms


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
    if "bn" in forms and not info.batchnorm_form:
        having = ", ".join(key for key, value in MODELS.items() if value.batchnorm_form)
        raise UsageError(f"model {base!r} has no +bn form; models that have one: {having}")
    return info, "head" in forms, "bn" in forms


def check_model(name: str, input_shape: tuple[int, ...]) -> None:
    """Raise UsageError if the model does not exist or cannot take such inputs."""
    info, _, _ = parse(name)
    if info.size and input_shape[1:] != (info.size, info.size):
        fitting = ", ".join(key for key, value in MODELS.items() if value.size in (None, input_shape[1]))
        raise UsageError(
            f"model {name!r} takes {info.size}x{info.size} inputs, the data set has "
            f"{'x'.join(map(str, input_shape[1:]))}; models that fit: {fitting}"
        )


def num_parameters(name: str, input_shape: tuple[int, ...], num_classes: int) -> int:
    """Trainable parameters of a model, without building it."""
    info, head, batchnorm = parse(name)
    total = info.body_parameters(input_shape[0]) + (info.batchnorm_parameters if batchnorm else 0)
    features = info.features
    if head:
        total += (features + 1) * features + (features + 1) * PROJECTION
        features = PROJECTION
    return total + (features + 1) * num_classes


def make(name: str, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """The module, freshly initialised from torch's current generator.

    Raises:
        UsageError: no such model, or inputs of another size.
    """
    from bench.models.heads import Classifier

    check_model(name, input_shape)
    info, head, batchnorm = parse(name)
    module, _, function = info.factory.partition(":")
    body = getattr(importlib.import_module(module), function)(input_shape[0], batchnorm)
    return Classifier(body, info.features, num_classes, PROJECTION if head else None)


__all__ = ["MODELS", "ModelInfo", "check_model", "make", "num_parameters", "parse"]
