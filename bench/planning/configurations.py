"""The configurations of one algorithm that satisfy its relations: a grid, draws, a budget.

Under `--budget N` every algorithm gets N configurations and the learning rate is tuned as well:
otherwise an algorithm with more hyper-parameters or a longer grid would get more tries, and one
that inherits another's learning rate might lose for that reason alone. The i-th learning rate is
the same for all algorithms; hyper-parameters are drawn from each algorithm's own grid. Imports
neither torch nor ray.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from algorithms import Entry
from bench.errors import UsageError, refusing_values
from bench.planning.options import SweepOptions
from bench.planning.search import Search
from bench.terminal.words import counted
from search_spaces import Grid, Range, Setting, Value, check, combinations, holds, names_in

TRIES = 100  # draws for each configuration; some repeat or violate a relation
TUNED = ("lr",)  # setting fields that `--budget` selects over
REACH = 10.0  # the learning rate is drawn between a tenth and ten times the setting's
MANY = 500  # learning rates that differ in three digits


def configurations_of(
    algorithm: Entry, search: Search, options: SweepOptions, notes: list[str]
) -> list[dict[str, Value]]:
    """List the configurations of a grid or random search that satisfy the relations, each checked.

    For Optuna, which chooses as it goes, list those of the grid. Raises UsageError if a value is
    not allowed, or no combination satisfies the relations.
    """
    check_values(algorithm, search.values)
    if options.search == "random":
        candidates = _draw_distinct(algorithm, search, options.num_samples)
    else:
        candidates = list(combinations(search.values))
    valid = [candidate for candidate in candidates if keeps_relations(search, candidate)]
    if not valid:
        raise unsatisfiable(algorithm, search)
    dropped = len(candidates) - len(valid)
    if dropped:
        broken = " and ".join(search.where)
        notes.append(
            f"{algorithm.name}: {dropped} of {len(candidates)} combinations break {broken}: left "
            "out"
        )
    return [algorithm.resolve(candidate) for candidate in valid]


def tries(
    algorithm: Entry, search: Search, rates: Sequence[float], count: int
) -> list[tuple[Mapping[str, Value], Setting]]:
    """Draw `count` distinct configurations of an algorithm, each with its setting.

    They are always the same for one command. `rates` are learning rates to take in turn; if there
    are none, they are drawn. Raises UsageError if a value is not allowed, no combination satisfies
    the relations, or there are too few with these rates.
    """
    check_values(algorithm, search.values)
    generator = random.Random(f"fedkd-bench budget {algorithm.name}")
    configurations: list[tuple[Mapping[str, Value], Setting]] = []
    used: Counter[tuple[Value, ...]] = Counter()
    seen: set[tuple[Value, ...]] = set()
    for lr in learning_rates(search.setting, rates, count):
        drawn = []
        for values in draws(algorithm, search, generator):
            if (lr, *values.values()) not in seen:
                drawn.append(values)
        if not drawn:  # the draws missed what is left, if anything is
            drawn = _first_left(search, lr, seen)
        if not configurations and not drawn:
            raise unsatisfiable(algorithm, search)
        if not drawn:
            raise too_few(algorithm, len(configurations), count)
        # The first of the least tried ones.
        values = min(drawn, key=lambda values: used[tuple(values.values())])
        used[tuple(values.values())] += 1
        seen.add((lr, *values.values()))
        configurations.append((algorithm.resolve(values), replace(search.setting, lr=lr)))
    return configurations


def _first_left(
    search: Search, lr: float, seen: Collection[tuple[Value, ...]]
) -> list[dict[str, Value]]:
    """List the first combination that was not `seen` with this learning rate, if there is one."""
    for values in combinations(search.values):
        if (lr, *values.values()) not in seen and keeps_relations(search, values):
            return [values]
    return []


def too_few(algorithm: Entry, count: int, budget: int) -> UsageError:
    """Make the error for an algorithm with fewer configurations than `--budget` asks for."""
    return UsageError(
        f"{algorithm.name} has only {counted(count, 'configuration')} with these learning rates, "
        f"not {budget}: lower --budget, give more values, or leave --lr out so that it is drawn"
    )


def learning_rates(setting: Setting, given: Sequence[float], count: int) -> list[float]:
    """Return `count` learning rates, the setting's own first.

    The others are log-uniformly spaced within a factor `REACH`. If the user has `given` values,
    these are taken in turn instead.
    """
    if given:
        return [given[i % len(given)] for i in range(count)]
    rates: dict[float, None] = {}
    number = 1
    while len(rates) < count:
        digits = 3 if number < MANY else 6  # enough to print; more if they would repeat
        # Van der Corput's sequence, the binary digits reversed: 1/2, 1/4, 3/4, 1/8, 5/8, ... fills
        # (0, 1) evenly.
        place = int(f"{number:b}"[::-1], 2) / 2 ** number.bit_length()
        rates.setdefault(float(f"{setting.lr * REACH ** (2 * place - 1):.{digits}g}"))
        number += 1
    return list(rates)


def draws(algorithm: Entry, search: Search, generator: random.Random) -> Iterator[dict[str, Value]]:
    """Draw `TRIES` times from a space; yield the draws that satisfy its relations, also repeats.

    An optional hyper-parameter that stays at its default is not drawn: it joined the algorithm
    later, and would change what was drawn of the others before.
    """
    drawn = dict(search.values)
    constant: dict[str, Value] = {}
    for parameter in algorithm.fields:
        if parameter.optional and drawn[parameter.name] == Grid(parameter.default):
            del drawn[parameter.name]
            constant[parameter.name] = parameter.default
    for _ in range(TRIES):
        values = {name: choices.draw(generator) for name, choices in drawn.items()} | constant
        if keeps_relations(search, values):
            yield values


def keeps_relations(search: Search, values: Mapping[str, Value]) -> bool:
    """Tell whether a configuration satisfies all relations of its space."""
    return all(holds(relation, values) for relation in search.where)


def _draw_distinct(algorithm: Entry, search: Search, count: int) -> list[dict[str, Value]]:
    """Draw `count` distinct configurations, or fewer if the draws meet no more in the space.

    The draws depend only on the algorithm's name, so that the same command draws the same
    configurations.
    """
    generator = random.Random(f"fedkd-bench random search {algorithm.name}")
    drawn: dict[tuple[Value, ...], dict[str, Value]] = {}
    for _ in range(count):
        for candidate in draws(algorithm, search, generator):
            drawn[tuple(candidate.values())] = candidate
            if len(drawn) == count:
                return list(drawn.values())
    return list(drawn.values())


def check_values(algorithm: Entry, values: Mapping[str, Grid | Range]) -> None:
    """Check the bounds of every value.

    That is before relations, which a value out of bounds may violate as well.
    """
    with refusing_values():
        for field in algorithm.fields:
            for value in values[field.name].values:
                check(f"{algorithm.name}.{field.name}", value, field.bounds)


def unsatisfiable(algorithm: Entry, search: Search) -> UsageError:
    """Make the error for a space without a combination that satisfies the relations."""
    involved = set().union(*map(names_in, search.where))
    got = []
    for name, value in search.values.items():
        if name in involved:
            got.append(f"{name} in {value}")
    relations = " and ".join(search.where)
    return UsageError(f"{algorithm.name}: no combination keeps {relations}; got {', '.join(got)}")
