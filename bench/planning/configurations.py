"""The configurations of one algorithm: every combination, or draws, that keep the relations."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from algorithms import Entry
from bench.errors import UsageError
from search_spaces import Grid, Range, Value, check, combinations, holds, names_in

if TYPE_CHECKING:
    from bench.planning.plan import Search
    from bench.planning.request import Notes, Request

TRIES = 100  # draws for each configuration, of which some repeat or break a relation


def configurations_of(found: Entry, search: Search, request: Request, notes: Notes) -> list[dict[str, Value]]:
    """The configurations of a grid or random search that keep the relations, each checked.

    For Optuna, which chooses as it goes: those of the grid, an interval standing for its two ends.

    Raises:
        UsageError: a value is not allowed, or no combination keeps the relations.
    """
    values = search.values
    check_values(found, values)
    if request.search == "random":
        candidates = _drawn(found, search, request.num_samples)
    else:
        candidates = list(combinations({name: _as_grid(found, name, value, request) for name, value in values.items()}))
    kept = [candidate for candidate in candidates if all(holds(relation, candidate) for relation in search.where)]
    if not kept:
        raise none_keeps(found, values, search.where)
    if len(kept) < len(candidates):
        dropped = len(candidates) - len(kept)
        broken = " and ".join(search.where)
        notes.add(f"{found.name}: {dropped} of {len(candidates)} combinations break {broken}: left out")
    try:
        return [found.resolve(candidate) for candidate in kept]
    except ValueError as error:
        raise UsageError(str(error)) from None


def check_values(found: Entry, values: Mapping[str, Grid | Range]) -> None:
    """Every value to be tried is in its range. Checked before relations, which a value out of range may break too.

    Raises:
        UsageError: a value lies outside its hyper-parameter's bounds.
    """
    for field in found.fields:
        grid = values.get(field.name)
        for value in grid.values if isinstance(grid, Grid) else ():
            try:
                check(f"{found.name}.{field.name}", value, field.bounds)
            except ValueError as error:
                raise UsageError(str(error)) from None


def none_keeps(found: Entry, values: Mapping[str, Grid | Range], relations: Sequence[str]) -> UsageError:
    """The error where no combination of the values keeps the relations, with the values that take part."""
    taking_part = {name for relation in relations for name in names_in(relation)}
    got = ", ".join(f"{name} in {value}" for name, value in values.items() if name in taking_part)
    return UsageError(f"{found.name}: no combination keeps {' and '.join(relations)}; got {got}")


def _as_grid(found: Entry, name: str, value: Grid | Range, request: Request) -> Grid:
    if isinstance(value, Grid):
        return value
    if request.search == "optuna":
        return Grid(value.low, value.high)
    raise UsageError(
        f"{found.name}.{name} is an interval {value}: give values with --set {name}=..., or --search random or optuna"
    )


def _drawn(found: Entry, search: Search, count: int) -> list[dict[str, Value]]:
    """`count` distinct configurations drawn from the space; all that were met if it holds no more.

    The draws depend on the algorithm's name alone: the same command asks for the same configurations.
    """
    generator = random.Random(f"fedkd-bench random search {found.name}")
    drawn: dict[tuple[Value, ...], dict[str, Value]] = {}
    candidates = (one for _ in range(count) for one in draws(search.values, search.where, generator))
    for candidate in candidates:
        drawn[tuple(candidate.values())] = candidate
        if len(drawn) == count:
            break
    return list(drawn.values())


def draws(
    space: Mapping[str, Grid | Range], relations: Sequence[str], generator: random.Random
) -> Iterator[dict[str, Value]]:
    """What keeps all relations among `TRIES` draws from a space; draws may repeat.

    Args:
        space: what every hyper-parameter may be.
        relations: what they keep, the algorithm's own and the space's.
        generator: moves on by a draw for each that is looked at, kept or not.
    """
    for _ in range(TRIES):
        values = {name: _draw(value, generator) for name, value in space.items()}
        if all(holds(relation, values) for relation in relations):
            yield values


def _draw(value: Grid | Range, generator: random.Random) -> Value:
    """One value of a grid or an interval."""
    if isinstance(value, Grid):
        return generator.choice(value.values)
    if value.log:
        return float(value.low * (value.high / value.low) ** generator.random())
    return generator.uniform(value.low, value.high)
