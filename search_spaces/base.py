"""What a paper tried: `Paper`, `Grid`, `Range`, `Space`; and what it printed: `Table`. Pure data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

from search_spaces.bounds import Value
from search_spaces.setting import Setting


@dataclass(frozen=True)
class Paper:
    """A paper whose experiments are encoded here, or this project's own settings.

    `key` is its name on the command line, `part_of` that of the same paper if this is a second problem on one data set.
    """

    key: str
    title: str
    authors: str
    year: int
    part_of: str = ""


@dataclass(frozen=True, init=False)
class Grid:
    """The values that were tried, in the order they are printed."""

    values: tuple[Value, ...]

    def __init__(self, *values: Value) -> None:
        if not values:
            raise ValueError("a Grid needs at least one value")
        object.__setattr__(self, "values", values)

    def __contains__(self, value: Value) -> bool:
        return value in self.values

    def __str__(self) -> str:
        shown = [f"{value:g}" if isinstance(value, float) else str(value) for value in self.values]
        return "{" + ", ".join(shown) + "}"


@dataclass(frozen=True)
class Range:
    """An interval of a field of the setting, whose logarithm Optuna draws uniformly."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high:
            raise ValueError(f"a Range needs 0 < low < high, got low={self.low}, high={self.high}")

    def __str__(self) -> str:
        return f"[{self.low:g}, {self.high:g}] log"


@dataclass(frozen=True)
class Space:
    """What one paper tried for one algorithm in one setting.

    Args:
        algorithm: name in the registry.
        setting: the problem; its model may differ from that of the paper's other algorithms.
        grid: values tried, by hyper-parameter.
        fixed: values without tuning, as the paper states them, or as the code that it ran does (`source` says which).
        where: relations that every configuration keeps, as `name op name`.
        source: section or table of the paper.
        chosen: the value that the paper reports with, for each name of `grid` where it says so; a sweep ignores it.
        chosen_at: the same for single values of the setting's alpha, where they differ.
        tuned: values tried of setting fields, such as `lr`; the setting has those that the paper reports with.
    """

    algorithm: str
    setting: Setting
    grid: Mapping[str, Grid] = field(default_factory=dict)
    fixed: Mapping[str, Value] = field(default_factory=dict)
    where: tuple[str, ...] = ()
    source: str = ""
    chosen: Mapping[str, Value] = field(default_factory=dict)
    chosen_at: Mapping[float, Mapping[str, Value]] = field(default_factory=dict)
    tuned: Mapping[str, Grid] = field(default_factory=dict)

    def reported(self, alpha: float | None = None) -> dict[str, Value]:
        """The fixed and the chosen values of a result at this alpha, or at the setting's own.

        Names of `grid` that are missing have no printed choice, names of neither have the algorithm's default.
        """
        alpha = self.setting.alpha if alpha is None else alpha
        return {**self.fixed, **self.chosen, **({} if alpha is None else self.chosen_at.get(alpha, {}))}


@dataclass(frozen=True)
class Table:
    """One table of a paper's results: every setting with every algorithm.

    An algorithm runs with what its `Space` reports, and on its `Space`'s model where that differs.

    Args:
        name: as printed, such as `3` or `IV`.
        settings: the problems.
        algorithms: names in the registry, as printed from first to last.
        tried: hyper-parameters that the table itself varies or holds, by algorithm, which go over its `Space`; and
            fields of the setting that were tuned for it.
        runs: behind a printed mean; 1 where the paper does not tell.
    """

    name: str
    settings: tuple[Setting, ...]
    algorithms: tuple[str, ...]
    tried: Mapping[str, Mapping[str, Grid]] = field(default_factory=dict)
    runs: int = 1


def combinations(grid: Mapping[str, Grid]) -> Iterator[dict[str, Value]]:
    """Every combination of a grid's values, the last name varying fastest."""
    for values in product(*(entry.values for entry in grid.values())):
        yield dict(zip(grid, values, strict=True))
