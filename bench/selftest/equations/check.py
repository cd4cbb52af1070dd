"""One comparison of an algorithm with its paper, and how two answers are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from algorithms.base import Algorithm

TOLERANCE = 1e-10

Make = Callable[..., Algorithm]


@dataclass(frozen=True)
class Outcome:
    """What a check found.

    Args:
        gap: largest absolute difference from the formula, in the compared quantity's own unit; inf where the answers
            could not be compared.
        reason: the algorithm's own error, or nothing.
    """

    gap: float
    reason: str = ""

    @property
    def passed(self) -> bool:
        """Whether the algorithm computes what is printed."""
        return self.gap <= TOLERANCE


@dataclass(frozen=True)
class Check:
    """One comparison of an algorithm, seen through its hooks alone, with a formula.

    Args:
        title: what is compared, unique within an algorithm.
        source: where the formula is printed.
        run: drives the algorithm that `make(**hyperparameters)` gives, and returns the largest absolute gap; the
            algorithm's own errors pass through.
    """

    title: str
    source: str
    run: Callable[[Make], float]

    def outcome(self, make: Make) -> Outcome:
        """The gap, or the reason why there is none."""
        try:
            return Outcome(self.run(make))
        except Exception as error:
            return Outcome(math.inf, f"{type(error).__name__}: {error}")


def gap(got: Any, expected: Any) -> float:
    """The largest absolute difference between two trees of tensors; inf where keys, lengths or shapes differ."""
    if isinstance(expected, Mapping):
        if not isinstance(got, Mapping) or set(got) != set(expected):
            return math.inf
        return max((gap(got[key], expected[key]) for key in expected), default=0.0)
    if isinstance(expected, list | tuple):
        return gap(dict(enumerate(got)), dict(enumerate(expected)))
    if not isinstance(got, Tensor) or got.shape != expected.shape:
        return math.inf
    largest = float((got.detach() - expected.detach()).abs().max())
    return math.inf if math.isnan(largest) else largest  # nothing is near what is not a number
