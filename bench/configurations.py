"""The configurations of one algorithm: every combination, or draws, that keep the relations."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from algorithms import Entry
from bench.errors import UsageError
from search_spaces import Grid, Range, Value, combinations, holds

if TYPE_CHECKING:
    from bench.plan import Search
    from bench.request import Notes, Request


def configurations_of(found: Entry, search: Search, request: Request, notes: Notes) -> list[dict[str, Value]]:
    """The configurations of a grid or random search that keep the relations, each checked.

    For Optuna, which chooses as it goes: those of the grid, an interval standing for its two ends.

    Raises:
        UsageError: a value is not allowed, or no combination keeps the relations.
    """
    values = search.values
    if request.search == "random":
        candidates = _draws(found, values, request.num_samples)
    else:
        candidates = list(combinations({name: _as_grid(found, name, value, request) for name, value in values.items()}))
    kept = [candidate for candidate in candidates if all(holds(relation, candidate) for relation in search.where)]
    if not kept:
        raise UsageError(
            f"{found.name}: no combination keeps {' and '.join(search.where)}; got "
            + ", ".join(f"{name} in {value}" for name, value in values.items() if name in " ".join(search.where))
        )
    if len(kept) < len(candidates):
        dropped = len(candidates) - len(kept)
        broken = " and ".join(search.where)
        notes.add(f"{found.name}: {dropped} of {len(candidates)} combinations break {broken}: left out")
    try:
        return [found.resolve(candidate) for candidate in kept]
    except ValueError as error:
        raise UsageError(str(error)) from None


def _as_grid(found: Entry, name: str, value: Grid | Range, request: Request) -> Grid:
    if isinstance(value, Grid):
        return value
    if request.search == "optuna":
        return Grid(value.low, value.high)
    raise UsageError(
        f"{found.name}.{name} is an interval {value}: give values with --set {name}=..., or --search random or optuna"
    )


def _draws(found: Entry, values: Mapping[str, Grid | Range], count: int) -> list[dict[str, Value]]:
    """`count` distinct configurations drawn from the space; all of them if it holds no more.

    The draws depend on the algorithm's name alone: the same command asks for the same configurations.
    """
    generator = random.Random(f"fedkd-bench random search {found.name}")
    drawn: dict[tuple[Value, ...], dict[str, Value]] = {}
    for _ in range(100 * count):
        candidate = {name: draw(value, generator) for name, value in values.items()}
        if all(holds(relation, candidate) for relation in found.where):
            drawn[tuple(candidate.values())] = candidate
        if len(drawn) == count:
            break
    return list(drawn.values())


def draw(value: Grid | Range, generator: random.Random) -> Value:
    """One value of a grid or an interval."""
    if isinstance(value, Grid):
        return generator.choice(value.values)
    if value.log:
        return float(value.low * (value.high / value.low) ** generator.random())
    return generator.uniform(value.low, value.high)
