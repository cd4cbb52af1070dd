"""`--tuning two-stage`: learning rates first, then other own values at the best rate.

The first stage has the middle own value, the second one the best rate. All at once, each learning
rate meets a single value of a method's own hyper-parameters, so that neither is tuned. In two
stages, with as many runs, both are. An algorithm without as many own values tries rates between the
best one and its neighbours instead, so that every algorithm gets the same number of configurations.
The second stage is planned from the stored results of the first. Imports neither torch nor ray.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from math import inf
from typing import TYPE_CHECKING

from algorithms import Entry, entry
from bench.errors import UsageError
from bench.planning.configurations import check_values, keeps_relations, unsatisfiable
from bench.planning.options import SweepOptions
from bench.planning.plan import Plan
from bench.planning.run_spec import RunSpec, distinct_runs, setting_of
from bench.planning.search import Search, TwoStages, run_specs_of
from bench.terminal.words import counted
from search_spaces import Setting, Value, combinations

if TYPE_CHECKING:
    import pandas as pd

DIGITS = 3  # of a learning rate between two others
MOST_HALVINGS = 8


def two_stages(algorithm: Entry, search: Search, rates: Sequence[float], budget: int) -> TwoStages:
    """Divide the configurations of one algorithm's budget into two stages.

    Raises:
        UsageError: there are fewer than two rates, no runs are left for the second stage, a value
            is not allowed, no combination of values satisfies the relations, or own values and
            rates are too few for the budget.
    """
    if not 2 <= len(rates) < budget:
        raise UsageError(
            "--tuning two-stage begins with the learning rates of --lr, at least two and fewer "
            f"than the {counted(budget, 'configuration')} of --budget; got "
            f"{counted(len(rates), 'rate')}"
        )
    check_values(algorithm, search.values)
    own = tuple(algorithm.resolve(values) for values in _own_configurations(algorithm, search))
    near = min(len(list(rates_around(rate, rates))) for rate in rates)
    most = len(rates) + len(own) - 1 + near
    if budget > most:
        raise UsageError(
            f"--budget {budget}: {algorithm.name} has {counted(len(own), 'own configuration')}, "
            f"and only {counted(near, 'other learning rate')} can be told apart near one of --lr: "
            f"give at most --budget {most}, or rates that are further apart"
        )
    return TwoStages(search, tuple(rates), own)


def first_stage(stages: TwoStages, seeds: int) -> list[RunSpec]:
    """List the runs of the first stage: every learning rate at the middle own value."""
    run_specs: list[RunSpec] = []
    for rate in stages.rates:
        run_specs += _at_rate(stages, rate, stages.own[0], seeds)
    return run_specs


def with_common_values(stages: Sequence[TwoStages], bases: Mapping[str, str]) -> list[TwoStages]:
    """Let each algorithm in `bases` try the own values of its base, in their order.

    Hyper-parameters that the base lacks keep their values, taken in turn.
    """
    by_algorithm = {(each.search.algorithm, each.search.setting): each for each in stages}
    common = []
    for each in stages:
        name = each.search.algorithm
        base = by_algorithm.get((bases.get(name, name), each.search.setting), each)
        own: list[Mapping[str, Value]] = []
        for number in range(max(len(base.own), len(each.own))):
            further = each.own[number % len(each.own)]
            values = {**further, **base.own[number % len(base.own)]}
            if values not in own and keeps_relations(each.search, values):
                own.append(values)
        common.append(replace(each, own=tuple(own)))
    return common


def second_stage(plan: Plan, runs: pd.DataFrame) -> Plan:
    """Plan the second stage from stored `runs`.

    The best rate is that of the configuration which the runs of seed 0 select, so that it stays
    when seeds are added. A run with rows of two algorithms follows the choice of the one that it is
    built on, if that was asked for, so that neither gets more tries than others. What `waiting`
    lists has no second stage yet, as a note says.
    """
    keys = set[str]()
    for run_spec in plan.run_specs:
        keys |= {*run_spec.rows.values()}
    best: dict[tuple[str, Setting], float] = {}
    own_runs = runs[runs["run_key"].isin(keys)]
    for row in plan.winners(own_runs, {}):
        setting = setting_of(row["setting_json"])
        best[row["algorithm"], plan.without_tuned(setting)] = setting.lr
    held = waiting(plan, runs)
    run_specs: list[RunSpec] = []
    for stages in plan.stages:
        name = stages.search.algorithm
        rate = best.get((_leader(plan, name), plan.without_tuned(stages.search.setting)))
        if rate is not None and name not in held:
            run_specs += _second_run_specs(stages, rate, plan.options)
    notes: tuple[str, ...] = ()
    if held:
        notes = (
            f"no second stage of {', '.join(held)} yet: runs of the first have not finished, which "
            "the same command tries again",
        )
    return replace(plan, run_specs=tuple(distinct_runs(run_specs)), notes=notes, confirming=())


def waiting(plan: Plan, runs: pd.DataFrame) -> list[str]:
    """List the algorithms of which a run of seed 0 in the first stage has not finished.

    Once it has, the best rate may be another one, and an algorithm that had gone on would get
    further tries. So algorithms wait whose rate follows that of such a one, too.
    """
    done = set(runs["run_key"][runs["status"] == "finished"])
    unfinished = set()
    for stages in plan.stages:
        if any(run_spec.key not in done for run_spec in first_stage(stages, seeds=1)):
            unfinished.add(stages.search.algorithm)
    names = dict.fromkeys(stages.search.algorithm for stages in plan.stages)
    return [name for name in names if {name, _leader(plan, name)} & unfinished]


def count_second_stage(plan: Plan) -> int:
    """Count the runs of the second stage, which are as many whatever the best rates are."""
    run_specs: list[RunSpec] = []
    for stages in plan.stages:
        run_specs += _second_run_specs(stages, stages.rates[0], plan.options)
    return len(distinct_runs(run_specs))


def _own_configurations(algorithm: Entry, search: Search) -> list[dict[str, Value]]:
    """List the combinations of own values that satisfy the relations, the middle one first.

    The middle is the combination nearest to the middle of each grid, the lower of two. The others
    come in an order that is drawn from the algorithm's name alone.
    """
    valid = [values for values in combinations(search.values) if keeps_relations(search, values)]
    if not valid:
        raise unsatisfiable(algorithm, search)
    middle = min(valid, key=lambda values: _distance(search, values))
    others = [values for values in valid if values != middle]
    random.Random(f"fedkd-bench two-stage {algorithm.name}").shuffle(others)
    return [middle, *others]


def _distance(search: Search, values: Mapping[str, Value]) -> int:
    """Sum up how many places each value is from the middle of its grid."""
    distance = 0
    for name, grid in search.values.items():
        middle = (len(grid.values) - 1) // 2
        distance += abs(grid.values.index(values[name]) - middle)
    return distance


def _second_run_specs(stages: TwoStages, best: float, options: SweepOptions) -> Iterator[RunSpec]:
    """Yield the runs of other own values at the best rate.

    If those are too few, runs of rates near it follow.
    """
    count = options.budget - len(stages.rates)
    others = stages.own[1 : 1 + count]
    for values in others:
        yield from _at_rate(stages, best, values, options.seeds)
    for rate in islice(rates_around(best, stages.rates), count - len(others)):
        yield from _at_rate(stages, rate, stages.own[0], options.seeds)


def rates_around(best: float, rates: Sequence[float]) -> Iterator[float]:
    """Yield learning rates between the best one and its neighbours, below and above in turn.

    They are spaced on a logarithmic scale. At an end of the rates, the missing neighbour is as far
    away as the other one.
    """
    ordered = sorted(set(rates))
    place = ordered.index(best)
    below = ordered[place - 1] if place else best * best / ordered[place + 1]
    above = ordered[place + 1] if place + 1 < len(ordered) else best * best / below
    seen = set(ordered)
    for share in _places_between():
        for neighbour in (below, above):
            rate = float(f"{best * (neighbour / best) ** share:.{DIGITS}g}")
            # Of rates that are far apart, a neighbour may be too small or too large for a number.
            if rate not in seen and 0 < rate < inf:
                seen.add(rate)
                yield rate


def _places_between() -> Iterator[float]:
    """Yield the places between two rates that are tried: halves, quarters, eighths, ..."""
    for halvings in range(1, MOST_HALVINGS + 1):
        for odd in range(1, 2**halvings, 2):
            yield odd / 2**halvings


def _at_rate(stages: TwoStages, rate: float, own: Mapping[str, Value], seeds: int) -> list[RunSpec]:
    """Make the runs of own values at a learning rate, one for each seed."""
    setting = replace(stages.search.setting, lr=rate)
    return run_specs_of(replace(stages.search, setting=setting), own, seeds)


def _leader(plan: Plan, algorithm: str) -> str:
    """Return the algorithm whose choice a run follows."""
    for name in entry(algorithm).rows.values():
        if name != algorithm and plan.options.asks_for(name):
            return name
    return algorithm
