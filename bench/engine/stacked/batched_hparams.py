"""Numeric hyper-parameters as tensors, so that configurations which differ in them train in one program."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from algorithms.base import Algorithm, layers
from bench.engine.client_round import RoundWork

Place = tuple[
    int, str
]  # depth of a layer of the algorithm (a plug-in is above its base), and a field of the layer


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
    places: tuple[Place, ...]
    lr: bool

    @staticmethod
    def among(jobs: Sequence[RoundWork]) -> Differences:
        """Find the differences between runs."""
        numbers = [packable_numbers(job.context.algorithm) for job in jobs]
        places = tuple(
            place for place in numbers[0] if len({values[place] for values in numbers}) > 1
        )
        return Differences(len(jobs) > 1, places, len({job.lr for job in jobs}) > 1)


def packable_numbers(algorithm: Algorithm) -> dict[Place, float]:
    """Return the fields that may differ within a program, with their values."""
    return {
        (depth, item.name): getattr(layer, item.name)
        for depth, layer in enumerate(layers(algorithm))
        for item in fields(layer)
        if item.metadata.get("packable") and isinstance(getattr(layer, item.name), float)
    }


def constants(algorithm: Algorithm) -> tuple[object, ...]:
    """Return all that may not differ within a program: the classes, and the fields that are not `packable_numbers`."""
    numbers = packable_numbers(algorithm)

    def of_layer(depth: int, layer: Algorithm) -> tuple[object, ...]:
        names = [
            item.name
            for item in fields(layer)
            if item.name != "base" and (depth, item.name) not in numbers
        ]
        return type(layer), *((name, getattr(layer, name)) for name in names)

    return tuple(of_layer(depth, layer) for depth, layer in enumerate(layers(algorithm)))


def with_numbers(
    algorithm: Algorithm, places: Sequence[Place], values: Tensor, depth: int = 0
) -> Algorithm:
    """Copy an algorithm, with the entries of `values`, scalar tensors, as its fields at these places.

    Its own checks do not run, because a tensor is not a number and has no readable value within
    `vmap`. `depth` is that of the outermost layer.
    """
    changed = copy.copy(algorithm)
    for derived in set(vars(changed)) - {item.name for item in fields(algorithm)}:
        vars(changed).pop(
            derived
        )  # it may depend on the numbers, which were another configuration's
    for (layer, name), value in zip(places, torch.unbind(values), strict=True):
        if layer == depth:
            object.__setattr__(changed, name, value)
    if isinstance(base := getattr(algorithm, "base", None), Algorithm):
        object.__setattr__(changed, "base", with_numbers(base, places, values, depth + 1))
    return changed
