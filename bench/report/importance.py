"""How much of the spread between configurations a hyper-parameter explains alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Effect:
    """The main effect of one hyper-parameter.

    Args:
        name: of the hyper-parameter.
        share: of the variance between configurations, in [0, 1].
        chance: the share expected of one without any effect.
    """

    name: str
    share: float
    chance: float


@dataclass(frozen=True)
class Effects:
    """The main effects of an algorithm's hyper-parameters.

    Args:
        each: by share, the largest first.
        complete: whether every combination of the values occurs once; then what is left to 1 are interactions,
            else shares may overlap.
        spread: standard deviation of the scores (n - 1), in their unit.
    """

    each: tuple[Effect, ...]
    complete: bool
    spread: float


def main_effects(
    configurations: Sequence[Mapping[str, Any]], scores: Sequence[float], names: Sequence[str]
) -> Effects | None:
    """The share of variance that each hyper-parameter explains alone.

    With m the mean of all N scores y, and m_v the mean of those n_v whose hyper-parameter has the value v,

        share = Σ_v n_v (m_v - m)² / Σ_i (y_i - m)²

    On a complete grid it is the main effect of a functional ANOVA (Hutter, Hoos and Leyton-Brown 2014, "An efficient
    approach for assessing hyperparameter importance", section 3), taken over the grid as it is, without a model in
    between. Of a hyper-parameter with k values and no effect (k - 1) / (N - 1) is expected.

    Args:
        configurations: hyper-parameters by name.
        scores: one per configuration, in whatever unit.
        names: the hyper-parameters to look at.

    Returns:
        None where there is nothing to explain or to tell apart: fewer than two names with several values, fewer than
        four configurations, equal scores, or a name whose values are nearly all different (those of a random search).
    """
    columns = {name: [repr(one.get(name)) for one in configurations] for name in names}
    levels = {name: len(set(column)) for name, column in columns.items() if len(set(column)) > 1}
    size = len(scores)
    if len(levels) < 2 or size < 4 or max(levels.values()) > size / 2:
        return None
    mean = math.fsum(scores) / size
    total = math.fsum((score - mean) ** 2 for score in scores)
    if total <= 1e-24 * size * mean**2:
        return None
    each = [
        Effect(name, min(1.0, _between(columns[name], scores, mean) / total), (count - 1) / (size - 1))
        for name, count in levels.items()
    ]
    distinct = len(set(zip(*(columns[name] for name in levels), strict=True)))
    complete = size == distinct == math.prod(levels.values())
    return Effects(tuple(sorted(each, key=lambda one: -one.share)), complete, math.sqrt(total / (size - 1)))


def _between(column: Sequence[str], scores: Sequence[float], mean: float) -> float:
    found: dict[str, list[float]] = {}
    for value, score in zip(column, scores, strict=True):
        found.setdefault(value, []).append(score)
    return math.fsum(len(own) * (math.fsum(own) / len(own) - mean) ** 2 for own in found.values())
