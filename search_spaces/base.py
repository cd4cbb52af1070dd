"""What a paper tried: `Paper`, `Grid`, `Range`, `Space`. Pure data."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from search_spaces.bounds import Value
from search_spaces.setting import Setting


@dataclass(frozen=True)
class Paper:
    """A paper whose experiments are encoded here, or this project's own settings."""

    key: str
    title: str
    authors: str
    year: int
    link: str = ""


@dataclass(frozen=True, init=False)
class Grid:
    """The values that were tried, in the order they are printed."""

    values: tuple[Value, ...]

    def __init__(self, *values: Value) -> None:
        if not values:
            raise ValueError("a Grid needs at least one value")
        object.__setattr__(self, "values", values)

    def __str__(self) -> str:
        return "{" + ", ".join(_show(value) for value in self.values) + "}"


@dataclass(frozen=True)
class Range:
    """An interval to draw from; `log` draws the logarithm uniformly. Random search and Optuna only."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError(f"a Range needs low < high, and low > 0 if log, got low={self.low}, high={self.high}")

    def __str__(self) -> str:
        return f"[{self.low:g}, {self.high:g}]{' log' if self.log else ''}"


def _show(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_RELATION = re.compile(r"\s*(\w+)\s*(<=|>=|==|!=|<|>)\s*(\w+)\s*")


def holds(relation: str, values: Mapping[str, Value]) -> bool:
    """Whether `name op name` holds, for instance `beta <= gamma`.

    Raises:
        ValueError: the relation is not of that form.
    """
    match = _RELATION.fullmatch(relation)
    if not match:
        raise ValueError(f"a relation is 'name op name' with op in {' '.join(_RELATIONS)}, got {relation!r}")
    left, sign, right = match.groups()
    return _RELATIONS[sign](values[left], values[right])


@dataclass(frozen=True)
class Space:
    """What one paper tried for one algorithm in one setting.

    Args:
        algorithm: name in the registry.
        setting: the problem.
        grid: values tried, by hyper-parameter.
        fixed: values the paper states without tuning them, where they differ from the algorithm's default.
        where: relations that every configuration keeps, as `name op name`.
        source: section or table of the paper.
    """

    algorithm: str
    setting: Setting
    grid: Mapping[str, Grid | Range] = field(default_factory=dict)
    fixed: Mapping[str, Value] = field(default_factory=dict)
    where: tuple[str, ...] = ()
    source: str = ""


def combinations(grid: Mapping[str, Grid]) -> Iterator[dict[str, Value]]:
    """Every combination of a grid's values, the last name varying fastest."""
    for values in product(*(entry.values for entry in grid.values())):
        yield dict(zip(grid, values, strict=True))
