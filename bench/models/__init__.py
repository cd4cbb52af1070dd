"""The models by name: `info` describes one, `make` builds one.

`bench.models.registry` has this suite's models and finds models of other packages. A model is a
*body* that turns an input into features (B, D); `Classifier` adds the head that gives logits, and
MOON's projection head for `+head`.
"""

from __future__ import annotations

import zlib
from itertools import pairwise
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from bench.errors import UsageError
from bench.models.registry import (
    MODELS,
    Form,
    ModelInfo,
    info,
    is_from_outside,
    parse,
    source_version,
)

if TYPE_CHECKING:
    from bench.models.modules import Classifier

PROJECTION = 256  # MOON, section 4.1: the projection head's output


def version(name: str, input_shape: tuple[int, ...]) -> int | None:
    """Return a number that changes with a model from outside.

    It covers the model's source, and weights that it loads. It is None for this suite's own
    models.

    Raises:
        UsageError: a model from outside is invalid.
    """
    base = parse(name).base
    source = source_version(base)
    if source is None:
        return None
    from bench.models.outside import examined

    loaded = examined(name, input_shape).loaded
    return source if loaded is None else zlib.crc32(loaded.to_bytes(4, "big"), source)


def check_model(name: str, input_shape: tuple[int, ...], kind: str | None = None) -> None:
    """Raise UsageError if there is no such model or it cannot take such inputs.

    Arguments are as in `ModelInfo.fits`.
    """
    entry = parse(name).entry
    if not entry.fits(input_shape, kind):
        fitting = [key for key, value in MODELS.items() if value.fits(input_shape, kind)]
        inputs = f"{kind or 'samples'} of {'x'.join(map(str, input_shape))}"
        raise UsageError(
            f"model {name!r} takes {entry.inputs}, the data set has {inputs}; "
            f"models that fit: {', '.join(fitting) or 'none here'}"
        )
    _body_size(name, input_shape)


def num_parameters(name: str, input_shape: tuple[int, ...], num_classes: int) -> int:
    """Return the number of a model's trainable parameters.

    The model is built only if its entry does not state them.
    """
    form = parse(name)
    features, total = _body_size(name, input_shape)
    features = form.width or features
    widths = [features]
    if form.head:
        widths += [features, PROJECTION]
    if form.entry.hidden:
        widths.append(form.entry.hidden)
    widths.append(num_classes)
    return total + sum((inputs + 1) * outputs for inputs, outputs in pairwise(widths))


def num_features(name: str, input_shape: tuple[int, ...]) -> int:
    """Return D, the number of features that a model's head reads."""
    form = parse(name)
    if form.head:
        return PROJECTION
    return form.width or _body_size(name, input_shape)[0]


def _body_size(name: str, input_shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the features and trainable numbers of a model's body, as stated or counted."""
    form = parse(name)
    entry = form.entry
    if entry.features and form.lora and entry.lora_parameters:
        return entry.features, entry.lora_parameters(form.lora)
    if entry.features and entry.body_parameters:
        added = entry.batchnorm_parameters if form.batchnorm else 0
        return entry.features, entry.body_parameters(input_shape[0]) + added
    from bench.models.outside import examined

    facts = examined(name, input_shape)
    return facts.features, facts.trainable


def make(name: str, input_shape: tuple[int, ...], num_classes: int) -> Classifier:
    """Build the module, freshly initialised from torch's current generator.

    Raises:
        UsageError: no such model, or inputs of another size.
        EnvironmentProblem: its pretrained weights are not here and cannot be fetched.
    """
    from bench.models.modules import Classifier

    check_model(name, input_shape)
    form = parse(name)
    entry = form.entry
    features, _ = _body_size(name, input_shape)
    if form.base in MODELS:
        body = resolve_name(entry.factory)(input_shape[0], form.batchnorm)
        if form.lora:
            body.add_factors(form.lora)
    else:
        from bench.models.outside import body_of

        body = body_of(name, input_shape)
    projection = PROJECTION if form.head else None
    return Classifier(
        body, features, num_classes, projection, entry.hidden, form.width, entry.dropout
    )


__all__ = [
    "MODELS",
    "Form",
    "ModelInfo",
    "check_model",
    "info",
    "is_from_outside",
    "make",
    "num_features",
    "num_parameters",
    "parse",
    "version",
]
