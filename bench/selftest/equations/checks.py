"""One comparison of an algorithm with its paper, one limit at which it is another, and how answers are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from algorithms.base import Algorithm
from bench.selftest.toy import EQUAL_SIZES, SIZES

TOLERANCE = 1e-10
SAME_ARITHMETIC = 0.0
ROUNDING = 1e-12  # float64
MODELS = ("mlp", "mlp+bn", "cnn_digits")
NO_BATCHNORM = ("mlp", "cnn_digits")
ONE_CLIENT = (sum(SIZES),)
EVERYONE = {"participation": 1.0}
_CLIENTS = {EQUAL_SIZES: "equal clients", ONE_CLIENT: "one client"}

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


@dataclass(frozen=True)
class Limit:
    """One equality of two algorithms: what a formula becomes when a weight is 0 or a buffer holds one model.

    Args:
        values: hyper-parameters at the limit.
        other: the algorithm that it then is.
        other_values: that one's hyper-parameters.
        rows: the suffix of the row that is compared, of either.
        tolerance: 0 where both do the same arithmetic, which is then compared in float32, bit for bit.
        rounds: how long they are equal.
        models: on which they are.
        exact_models: these models as they are, even where the algorithm needs another form.
        sizes: samples of each client of the algorithm.
        other_sizes: of the other one.
        fields: of the setting.
    """

    values: Mapping[str, Any]
    other: str = "fedavg"
    other_values: Mapping[str, Any] = field(default_factory=dict)
    rows: tuple[str, str] = ("", "")
    tolerance: float = SAME_ARITHMETIC
    rounds: int = 3
    models: tuple[str, ...] = MODELS
    exact_models: bool = False
    sizes: tuple[int, ...] = SIZES
    other_sizes: tuple[int, ...] = SIZES
    fields: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of_equal_clients(rounds: int = 3, **values: Any) -> Limit:
        """FedAvg, if all clients have as many samples, and so take as many steps."""
        return Limit(values, tolerance=ROUNDING, rounds=rounds, sizes=EQUAL_SIZES, other_sizes=EQUAL_SIZES)

    def __str__(self) -> str:
        said = [f"{name}={value}" for name, value in {**self.values, **self.fields}.items()]
        said += [f"row {self.rows[0]}"] if self.rows[0] else []
        said += [text for sizes, text in _CLIENTS.items() if self.sizes == sizes]
        said += ["round 1"] if self.rounds == 1 else []
        said += ["no BatchNorm"] if self.exact_models else []
        others = ", ".join(f"{name}={value}" for name, value in self.other_values.items())
        return f"{', '.join(said) or 'as it is'} = {self.other} {others}".rstrip()


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
