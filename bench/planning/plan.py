"""From a request to the runs it asks for, each fully resolved. Imports neither torch nor ray.

Command line goes over preset, preset over default; the plan remembers where each value came from.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import product

from algorithms import ALGORITHMS, Entry, entry
from bench.errors import UsageError
from bench.planning.configurations import REACH, TUNED, configurations_of, too_few, tries
from bench.planning.request import (
    Notes,
    Request,
    check_names,
    choose_setting,
    given_grids,
    settings_of,
    sort_values,
    supply,
)
from bench.planning.run_spec import Plan, RunSpec, Search, distinct_runs, shortened, units_of
from bench.terminal.words import text
from search_spaces import Grid, Range, Setting, Value, crossed, find, own_space

Fields = Mapping[str, tuple[Value, ...]]


def make_plan(request: Request) -> Plan:
    """Resolve a request; raises UsageError for an unknown name, a value out of range, or nothing left to run."""
    if request.table and request.budget:
        raise UsageError("--table runs a paper's own configurations: leave out --budget, or --table")
    if request.table:
        from bench.planning.table_plan import make_table_plan

        return make_table_plan(request)
    check_names(request)
    skip_unfit = request.algorithms == ("all",)
    entries = [entry(name) for name in (ALGORITHMS if skip_unfit else request.algorithms)]
    notes = Notes()
    paper, base = choose_setting(entries, request, notes)
    fields, hyper = sort_values(request, entries)
    rates = _tuned_rates(request, fields)
    settings, origins = settings_of(base, fields, entries, request, notes)
    tuned = dict.fromkeys(TUNED if request.budget else ())
    origins = {
        **origins,
        **{name: request.origins.get(name, "command line") for name in tuned if name in request.values},
    }
    given = {*fields, *tuned}
    units: list[RunSpec] = []
    searches: list[Search] = []
    for setting, algorithm in product(settings, entries):
        own = _own_fields(algorithm, setting, paper, given)
        try:
            fitted = [supply(algorithm, one) for one in crossed(setting, **own)]
        except UsageError as error:
            if not skip_unfit:
                raise
            notes.add(f"left out: {error}")
            continue
        spaces = [_space_of(algorithm, one, paper, hyper, paper is not None and shortened(one, base)) for one in fitted]
        if request.budget:
            drawn, chosen = _budgeted(algorithm, spaces[0], rates, request, notes)
            units += drawn
            searches += chosen
            continue
        configurations = configurations_of(algorithm, spaces[0], request, notes)
        several = {name: values for name, values in own.items() if len(values) > 1}
        _check_selectable(algorithm, fitted[0], configurations, several, request)
        for name, values in several.items():
            tuned[name] = None
            alone = f"--set {name}={text(getattr(base, name))} runs the value that it reports with"
            notes.add(f"{algorithm.name}: {name} is selected among {Grid(*values)}, as {paper} tuned it; {alone}")
        if request.search == "optuna" and len(configurations) > 1:
            searches += spaces
        else:
            tried = product(spaces, configurations)
            units += [unit for space, values in tried for unit in units_of(space, values, request.seeds)]
    _note_untuned(units, searches, notes)
    units = _without_repeats(units, notes)
    if not units and not searches:
        raise UsageError("nothing to run: " + "; ".join(notes.lines or ["no algorithm fits the setting"]))
    return Plan(
        request, paper, tuple(units), tuple(searches), tuple(settings), origins, tuple(notes.lines), tuned=tuple(tuned)
    )


def _note_untuned(units: list[RunSpec], searches: list[Search], notes: Notes) -> None:
    """Say which algorithms a search leaves at one configuration."""
    if searches and (single := dict.fromkeys(unit.algorithm for unit in units)):
        notes.add(
            f"{', '.join(single)}: nothing to tune, one configuration; --budget N gives every algorithm as many, over "
            "lr as well, in place of --search"
        )


def _tuned_rates(request: Request, fields: dict[str, tuple[str, ...]]) -> list[float]:
    """Take the learning rates given with `--budget` out of the fields, which would make settings of them."""
    if not request.budget:
        return []
    rates = []
    for value in fields.pop("lr", ()):
        try:
            rates.append(Setting(lr=float(value)).lr)
        except ValueError as error:
            raise UsageError(f"--lr {value}: {error}") from None
    return rates


def _budgeted(
    algorithm: Entry, search: Search, rates: list[float], request: Request, notes: Notes
) -> tuple[list[RunSpec], list[Search]]:
    """The configurations that `--budget` gives an algorithm, as runs of all seeds; under Optuna their space."""
    setting, budget = search.setting, request.budget
    if budget > 1 and not setting.validation_fraction:
        raise UsageError(
            f"--budget {budget} chooses among configurations and validation_fraction is 0: a choice on the test set "
            "is not offered; set validation_fraction above 0"
        )
    if request.search != "optuna":
        tried = tries(algorithm, search, rates, budget)
        return [
            unit for values, one in tried for unit in units_of(replace(search, setting=one), values, request.seeds)
        ], []
    count = len(configurations_of(algorithm, search, request, notes)) * len(rates)
    if rates and count < budget:
        raise too_few(algorithm, count, budget)
    lr = Grid(*rates) if rates else Range(setting.lr / REACH, setting.lr * REACH)
    return [], [replace(search, tuned={"lr": lr})]


def _without_repeats(units: list[RunSpec], notes: Notes) -> list[RunSpec]:
    """The runs that give all the units' rows, and a note on those that are part of another's."""
    kept = distinct_runs(units)
    yielding = {key: unit.algorithm for unit in kept for key in unit.rows.values()}
    others: dict[str, dict[str, None]] = {}
    for unit in units:
        if yielding[unit.key] != unit.algorithm:
            others.setdefault(unit.algorithm, {})[f"{yielding[unit.key]}'s"] = None
    for name, owners in others.items():
        which = "some of its runs" if any(unit.algorithm == name for unit in kept) else "its runs"
        notes.add(f"{name}: {which} are part of {' and '.join(owners)} and are not repeated")
    return kept


def _space_of(
    algorithm: Entry,
    setting: Setting,
    paper: str | None,
    given: Mapping[tuple[str | None, str], tuple[str, ...]],
    shortened: bool,
) -> Search:
    """The values of every hyper-parameter: as given, else the setting's paper's, its own paper's, or the default."""
    space = (find(algorithm.name, setting.dataset, paper) if paper else None) or own_space(
        algorithm.name, setting.dataset, algorithm.paper
    )
    values: dict[str, Grid] = {field.name: Grid(field.default) for field in algorithm.fields}
    relations = algorithm.where
    if space:
        values |= {**{name: Grid(value) for name, value in space.fixed.items()}, **space.grid}
        relations = tuple(dict.fromkeys((*algorithm.where, *space.where)))
    own = given_grids(algorithm, given)
    sources = [space.source if space else "defaults", *([f"given: {', '.join(own)}"] if own else [])]
    return Search(algorithm.name, setting, {**values, **own}, relations, paper, shortened, "; ".join(sources))


def _own_fields(algorithm: Entry, setting: Setting, paper: str | None, given: Collection[str]) -> Fields:
    """The values of setting fields that the paper has for this algorithm alone, unless they were `given`."""
    space = find(algorithm.name, setting.dataset, paper) if paper else None
    if space is None:
        return {}
    own = {"model": (space.setting.model,), **{name: grid.values for name, grid in space.tuned.items()}}
    return {name: values for name, values in own.items() if name not in given}


def _check_selectable(
    algorithm: Entry,
    setting: Setting,
    configurations: list[dict[str, Value]],
    tuned: Fields,
    request: Request,
) -> None:
    if request.scheduler == "asha" and not setting.validation_fraction:
        raise UsageError("--scheduler asha compares validation accuracies: set validation_fraction above 0")
    count = len(configurations) * math.prod(map(len, tuned.values()))
    if count > 1 and not setting.validation_fraction:
        varied = [name for name in configurations[0] if len({c[name] for c in configurations}) > 1]
        raise UsageError(
            f"{algorithm.name} has {count} configurations to choose among and validation_fraction is 0: "
            "a choice on the test set is not offered; set validation_fraction above 0, or give one value to each of "
            + ", ".join([*varied, *tuned])
        )
