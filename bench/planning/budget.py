"""`--budget N`: the same number of configurations for every algorithm, the learning rate among what is tuned.

An algorithm with more hyper-parameters, or a longer grid, otherwise gets more tries, and one that inherits another's
learning rate may lose by it alone. The i-th learning rate is the same for all algorithms; hyper-parameters are drawn
from each one's own grid.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from algorithms import Entry
from bench.errors import UsageError
from bench.planning.configurations import check_values, draws, none_keeps
from bench.terminal.words import counted
from search_spaces import Grid, Range, Setting, Value

TUNED = ("lr",)
REACH = 10.0  # the learning rate is drawn between a tenth and ten times the setting's
MANY = 500  # learning rates that differ in three digits


@dataclass(frozen=True)
class Configuration:
    """One of an algorithm's tries: hyper-parameters, and the setting with the learning rate."""

    values: Mapping[str, Value]
    setting: Setting


def learning_rates(setting: Setting, given: Sequence[float], count: int) -> list[float]:
    """The learning rates of `count` tries: the setting's own first, then evenly within a factor of `REACH`, in the log.

    Args:
        setting: whose `lr` is the middle.
        given: values that the user gave, to be taken in turn instead.
        count: how many.
    """
    if given:
        return [given[i % len(given)] for i in range(count)]
    rates: dict[float, None] = {}
    number = 1
    while len(rates) < count:
        digits = 3 if number < MANY else 6  # enough to print; more where they would repeat
        rates.setdefault(float(f"{setting.lr * REACH ** (2 * _van_der_corput(number) - 1):.{digits}g}"))
        number += 1
    return list(rates)


def _van_der_corput(number: int) -> float:
    """1/2, 1/4, 3/4, 1/8, 5/8, ...: however many are taken from the start, they fill (0, 1) evenly."""
    value, step = 0.0, 0.5
    while number:
        value += step * (number & 1)
        number, step = number >> 1, step / 2
    return value


def tries(
    found: Entry,
    setting: Setting,
    space: Mapping[str, Grid | Range],
    relations: Sequence[str],
    given: Sequence[float],
    count: int,
) -> list[Configuration]:
    """An algorithm's `count` distinct tries; the same command asks for the same ones.

    Args:
        found: the algorithm.
        setting: the problem.
        space: what every hyper-parameter may be.
        relations: what they keep.
        given: learning rates to take in turn, or none to draw them.
        count: how many.

    Raises:
        UsageError: a value is not allowed, no combination keeps the relations, or there are not so many with these
            learning rates.
    """
    check_values(found, space)
    generator = random.Random(f"fedkd-bench budget {found.name}")
    made: list[Configuration] = []
    used: Counter[tuple[Value, ...]] = Counter()
    pairs: set[tuple[Value, ...]] = set()
    for lr in learning_rates(setting, given, count):
        drawn = [values for values in draws(space, relations, generator) if (lr, *values.values()) not in pairs]
        if not made and not drawn:
            raise none_keeps(found, space, relations)
        if not drawn:
            raise UsageError(
                f"{found.name} has only {counted(len(made), 'configuration')} with these learning rates, not {count}: "
                "lower --budget, give more values, or leave --lr out so that it is drawn"
            )
        values = min(drawn, key=lambda values: used[tuple(values.values())])  # the first of those tried least
        used[tuple(values.values())] += 1
        pairs.add((lr, *values.values()))
        made.append(Configuration(_resolved(found, values), replace(setting, lr=lr)))
    return made


def _resolved(found: Entry, values: dict[str, Value]) -> Mapping[str, Value]:
    try:
        return found.resolve(values)
    except ValueError as error:
        raise UsageError(str(error)) from None
