"""Numeric hyper-parameters as tensors, so that configurations which differ in them train in one program."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from algorithms.base import Algorithm, layers
from bench.engine.client_round import RoundWork

Place = tuple[int, str]  # a layer of the algorithm, a plug-in before its base, and a field of it


@dataclass(frozen=True)
class Differences:
    """In what the runs of a stack, or of several stacks of one structure, differ.

    Args:
        several: whether they are several: what a run's clients have in common then gets the leading axis.
        places: their algorithms' numbers that are not all alike.
        lr: whether their learning rates are not.
    """

    several: bool
    places: tuple[Place, ...]
    lr: bool

    @staticmethod
    def among(jobs: Sequence[RoundWork]) -> Differences:
        """Compare runs."""
        numbers = [packable_numbers(job.problem.algorithm) for job in jobs]
        places = tuple(place for place in numbers[0] if len({values[place] for values in numbers}) > 1)
        return Differences(len(jobs) > 1, places, len({job.lr for job in jobs}) > 1)


def packable_numbers(algorithm: Algorithm) -> dict[Place, float]:
    """The fields that may differ within a program, with their values."""
    return {
        (depth, item.name): getattr(layer, item.name)
        for depth, layer in enumerate(layers(algorithm))
        for item in fields(layer)
        if item.metadata.get("packable") and isinstance(getattr(layer, item.name), float)
    }


def constants(algorithm: Algorithm) -> tuple[object, ...]:
    """Everything that may not differ within a program: the classes, and the fields that are not `packable_numbers`."""
    numbers = packable_numbers(algorithm)

    def of_layer(depth: int, layer: Algorithm) -> tuple[object, ...]:
        names = [item.name for item in fields(layer) if item.name != "base" and (depth, item.name) not in numbers]
        return type(layer), *((name, getattr(layer, name)) for name in names)

    return tuple(of_layer(depth, layer) for depth, layer in enumerate(layers(algorithm)))


def with_numbers(algorithm: Algorithm, places: Sequence[Place], values: Tensor, depth: int = 0) -> Algorithm:
    """Copy an algorithm, its fields at these places being the entries of `values`, scalar tensors.

    Its own checks do not run: a tensor is no number, and within `vmap` it has no value to look at. `depth` is that of
    the outermost layer.
    """
    changed = copy.copy(algorithm)
    for derived in set(vars(changed)) - {item.name for item in fields(algorithm)}:
        vars(changed).pop(derived)  # made of the numbers, perhaps: of another configuration's
    for (layer, name), value in zip(places, torch.unbind(values), strict=True):
        if layer == depth:
            object.__setattr__(changed, name, value)
    if isinstance(base := getattr(algorithm, "base", None), Algorithm):
        object.__setattr__(changed, "base", with_numbers(base, places, values, depth + 1))
    return changed
