"""The models by name: `info` says what they are, `make` builds one.

`MODELS` has this suite's own; `bench.models.plugins` finds those of other packages. A model is a *body* that turns an
input into features (B, D); `Classifier` adds the head that gives logits, and MOON's projection head where `+head` asks
for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from bench.errors import UsageError
from bench.models.sizes import dense
from bench.models.table import MODELS, ModelInfo
from bench.terminal.names import unknown

if TYPE_CHECKING:
    from torch import nn

PROJECTION = 256  # MOON, section 4.1: the projection head's output


def info(name: str) -> ModelInfo:
    """A model's entry, or that of one from outside: an entry point's name, or `module:name`; without its form.

    Raises:
        UsageError: no such model, or one from outside is not what it should be; the message says why.
    """
    if name in MODELS:
        return MODELS[name]
    from bench.models import plugins  # looks into installed packages, which few commands need

    entry = plugins.find(name)
    if entry is None:
        raise unknown("model", name, [*MODELS, *plugins.KIND.names()], importable=True)
    return entry


def version(name: str) -> int | None:
    """A number that changes with the source of a model from outside, whatever its form; None for this suite's own.

    Raises:
        UsageError: one from outside is not what it should be.
    """
    base = name.partition("+")[0]
    if base in MODELS:
        return None
    from bench.models import plugins

    return plugins.version(base)


def parse(name: str) -> tuple[ModelInfo, bool, bool]:
    """A model's entry, whether it has a projection head, and whether it is the BatchNorm form.

    Raises:
        UsageError: no such model, or no such form of it.
    """
    base, *forms = name.split("+")
    entry = info(base)
    other = sorted(set(forms) - {"head", "bn"})
    if other or len(set(forms)) != len(forms):
        raise UsageError(f"model {name!r}: a form is +head or +bn, each once, got {'+'.join(forms)!r}")
    if "bn" in forms and entry.always_batchnorm:
        raise UsageError(f"model {base!r} has BatchNorm as it is: leave out +bn")
    if "bn" in forms and not entry.batchnorm_form:
        having = ", ".join(key for key, value in MODELS.items() if value.batchnorm_form)
        always = ", ".join(key for key, value in MODELS.items() if value.always_batchnorm)
        raise UsageError(
            f"model {base!r} has no +bn form; models that have one: {having}; with BatchNorm as they are: {always}"
        )
    return entry, "head" in forms, "bn" in forms


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
    entry, _, batchnorm = parse(name)
    return batchnorm or entry.always_batchnorm


def check_model(name: str, input_shape: tuple[int, ...], kind: str | None = None) -> None:
    """Raise UsageError if there is no such model or it cannot take such inputs, said as in `ModelInfo.fits`."""
    entry, _, _ = parse(name)
    if not entry.fits(input_shape, kind):
        fitting = ", ".join(key for key, value in MODELS.items() if value.fits(input_shape, kind)) or "none here"
        has = _inputs(input_shape, kind)
        raise UsageError(f"model {name!r} takes {entry.inputs}, the data set has {has}; models that fit: {fitting}")
    _body_size(name, input_shape)


def _inputs(shape: tuple[int, ...], kind: str | None) -> str:
    if len(shape) > 1:
        return "x".join(map(str, shape[1:]))
    return f"vectors of {shape[0]} numbers" if kind == "vectors" else f"texts of {shape[0]} tokens"


def num_parameters(name: str, input_shape: tuple[int, ...], num_classes: int) -> int:
    """Trainable parameters of a model, without building it unless its entry leaves them to be counted."""
    entry, head, _ = parse(name)
    features, total = _body_size(name, input_shape)
    if head:
        total += dense(features, features) + dense(features, PROJECTION)
        features = PROJECTION
    if entry.hidden:
        total += dense(features, entry.hidden)
        features = entry.hidden
    return total + dense(features, num_classes)


def _body_size(name: str, input_shape: tuple[int, ...]) -> tuple[int, int]:
    """Features and trainable numbers of a model's body: as stated, else counted."""
    entry, _, batchnorm = parse(name)
    if entry.features and entry.body_parameters:
        added = entry.batchnorm_parameters if batchnorm else 0
        return entry.features, entry.body_parameters(input_shape[0]) + added
    from bench.models.counting import counted

    return counted(name, input_shape)


def make(name: str, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """The module, freshly initialised from torch's current generator.

    Raises:
        UsageError: no such model, or inputs of another size.
        EnvironmentProblem: its pretrained weights are not here and cannot be fetched.
    """
    from bench.models.heads import Classifier

    check_model(name, input_shape)
    entry, head, _ = parse(name)
    features, _ = _body_size(name, input_shape)
    projection = PROJECTION if head else None
    return Classifier(_body(name, input_shape), features, num_classes, projection, entry.hidden)


def _body(name: str, input_shape: tuple[int, ...]) -> nn.Module:
    """The body alone; of a model from outside, looked at."""
    entry, _, batchnorm = parse(name)
    if name.partition("+")[0] not in MODELS:
        from bench.models.counting import body_of

        return body_of(name, input_shape)
    module, _, function = entry.factory.partition(":")
    body: nn.Module = getattr(importlib.import_module(module), function)(input_shape[0], batchnorm)
    return body


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
