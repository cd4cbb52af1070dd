"""Numeric hyper-parameters as tensors, so that configurations which differ in them train in one program."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from algorithms.base import Algorithm
from algorithms.statements import layers
from bench.engine.tasks import Job

Place = tuple[int, str]  # a layer of the algorithm, a plug-in before its base, and a field of it
RATES: dict[str, Callable[[Job], float]] = {
    "lr": lambda job: job.lr,
    "weight_decay": lambda job: job.problem.setting.weight_decay,
}


@dataclass(frozen=True)
class Differences:
    """In what the runs of a stack, or of several stacks of one structure, differ.

    Args:
        several: whether they are several: what a run's clients have in common then gets the leading axis.
        places: their algorithms' numbers that are not all alike.
        rates: those of `RATES` that are not.
    """

    several: bool
    places: tuple[Place, ...]
    rates: frozenset[str]

    @staticmethod
    def among(jobs: Sequence[Job]) -> Differences:
        """Of these runs."""
        rates = frozenset(name for name, of in RATES.items() if len(set(map(of, jobs))) > 1)
        return Differences(len(jobs) > 1, differing([job.problem.algorithm for job in jobs]), rates)


def packable_numbers(algorithm: Algorithm) -> dict[Place, float]:
    """The fields that may differ within a program, with their values."""
    return {
        (depth, item.name): getattr(layer, item.name)
        for depth, layer in enumerate(layers(algorithm))
        for item in fields(layer)
        if item.metadata.get("packable") and isinstance(getattr(layer, item.name), float)
    }


def constants(algorithm: Algorithm) -> tuple[object, ...]:
    """All that may not differ within a program: the classes, and the fields that are not `packable_numbers`."""
    numbers = packable_numbers(algorithm)
    return tuple(
        (
            type(layer),
            *(
                (item.name, getattr(layer, item.name))
                for item in fields(layer)
                if item.name != "base" and (depth, item.name) not in numbers
            ),
        )
        for depth, layer in enumerate(layers(algorithm))
    )


def differing(algorithms: Sequence[Algorithm]) -> tuple[Place, ...]:
    """The packable numbers in which these algorithms are not all alike."""
    known = [packable_numbers(algorithm) for algorithm in algorithms]
    return tuple(place for place in known[0] if len({numbers[place] for numbers in known}) > 1)


def values_of(algorithm: Algorithm, places: Sequence[Place]) -> list[float]:
    """The algorithm's values at these places."""
    numbers = packable_numbers(algorithm)
    return [numbers[place] for place in places]


def with_numbers(algorithm: Algorithm, places: Sequence[Place], values: Tensor | Sequence[Tensor]) -> Algorithm:
    """A copy whose fields at these places are the entries of `values`, scalar tensors.

    Its own checks do not run: a tensor is no number, and within `vmap` it has no value to look at.
    """
    by_place = dict(zip(places, torch.unbind(values) if isinstance(values, Tensor) else values, strict=True))
    return _rebuilt(algorithm, by_place, 0)


def _rebuilt(layer: Algorithm, values: dict[Place, Tensor], depth: int) -> Algorithm:
    made = copy.copy(layer)
    own = {item.name for item in fields(layer)}
    for derived in set(vars(made)) - own:  # made of the numbers, perhaps: of another configuration's
        vars(made).pop(derived)
    for (at, name), value in values.items():
        if at == depth:
            object.__setattr__(made, name, value)
    if isinstance(base := getattr(layer, "base", None), Algorithm):
        object.__setattr__(made, "base", _rebuilt(base, values, depth + 1))
    return made
