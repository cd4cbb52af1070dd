"""Numeric hyper-parameters as tensors, for configurations that differ in them in one program."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from algorithms.base import Algorithm, layers
from bench.engine.client_round import RoundWork

# Depth of a layer of the algorithm (a plug-in is above its base), and a field of the layer.
FieldPlace = tuple[int, str]


@dataclass(frozen=True)
class Differences:
    """The differences between the runs of a stack, or of several stacks of one structure.

    Args:
        several: whether there are several runs; values that a run's clients share then get the
            leading axis, too.
        places: numbers of the algorithms that differ between runs.
        lr: whether learning rates differ between runs.
    """

    several: bool
    places: tuple[FieldPlace, ...]
    lr: bool

    @staticmethod
    def among(jobs: Sequence[RoundWork]) -> Differences:
        """Find the differences between runs."""
        numbers = [packable_numbers(job.context.algorithm) for job in jobs]
        places = []
        for place, first in numbers[0].items():
            if any(values[place] != first for values in numbers):
                places.append(place)
        rates = {job.lr for job in jobs}
        return Differences(len(jobs) > 1, tuple(places), len(rates) > 1)


def packable_numbers(algorithm: Algorithm) -> dict[FieldPlace, float]:
    """Return the fields that may differ within a program, with their values."""
    numbers = {}
    for depth, layer in enumerate(layers(algorithm)):
        for item in fields(layer):
            value = getattr(layer, item.name)
            if item.metadata.get("packable") and isinstance(value, float):
                numbers[depth, item.name] = value
    return numbers


def constants(algorithm: Algorithm) -> tuple[object, ...]:
    """Return all that may not differ within a program.

    These are the classes, and the fields that are not `packable_numbers`.
    """
    numbers = packable_numbers(algorithm)
    fixed: list[object] = []
    for depth, layer in enumerate(layers(algorithm)):
        fixed.append(type(layer))
        for item in fields(layer):
            if item.name != "base" and (depth, item.name) not in numbers:
                fixed.append((item.name, getattr(layer, item.name)))
    return tuple(fixed)


def with_numbers(
    algorithm: Algorithm, places: Sequence[FieldPlace], values: Tensor, depth: int = 0
) -> Algorithm:
    """Copy an algorithm, with the entries of `values`, scalar tensors, at these places.

    Its own checks do not run, because a tensor is not a number and has no readable value within
    `vmap`. `depth` is that of the outermost layer.
    """
    changed = copy.copy(algorithm)
    for derived in set(vars(changed)) - {item.name for item in fields(algorithm)}:
        # It may depend on the numbers, which were another configuration's.
        vars(changed).pop(derived)
    for (layer, name), value in zip(places, torch.unbind(values), strict=True):
        if layer == depth:
            object.__setattr__(changed, name, value)
    base = getattr(algorithm, "base", None)
    if isinstance(base, Algorithm):
        object.__setattr__(changed, "base", with_numbers(base, places, values, depth + 1))
    return changed
