"""`--confirm SEEDS`: runs of other seeds with the configurations that a search on seed 0 chose.

`leaderboards.confirmed` chooses from stored rows, so the search of the same plan has to be stored
before. Imports neither torch nor ray.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from algorithms import ALGORITHMS, entry
from bench.errors import UsageError, refusing_values
from bench.planning.given import distinct
from bench.planning.plan import Plan
from bench.planning.run_spec import (
    RunSpec,
    distinct_runs,
    row_names,
    setting_of,
    shortened,
    with_replicates,
)
from bench.planning.settings import canonical, supply
from bench.planning.two_stage import waiting
from bench.terminal.words import seeds_in_words, unknown
from leaderboards.problems import FINETUNED
from search_spaces import SETTINGS, Setting, Value, crossed, setting_fields

if TYPE_CHECKING:
    import pandas as pd

_PLACE = " (from --confirm-at)"


def stand_ins(plan: Plan) -> list[RunSpec]:
    """List the runs that may follow the search, without hyper-parameters, not chosen yet.

    Rows of one algorithm may choose a configuration each, so they have a run each here.

    Raises:
        UsageError: a value of `--confirm-at` is not allowed, an algorithm does not run in that
            setting, or the choices of several cells would be confirmed in one.
    """
    origins: dict[tuple[str, Setting], Setting] = {}
    run_specs: list[RunSpec] = []
    other_values = _values_at(plan)
    seeds = plan.options.confirm
    for row, algorithm, tuned in _rows_and_settings(plan):
        origin = plan.without_tuned(tuned)
        for target in _targets(tuned, other_values):
            setting = supply(entry(algorithm), target)
            cell = (row, plan.without_tuned(setting))
            if cell not in origins:
                origins[cell] = origin
                run_specs += [RunSpec(algorithm, {}, setting, seed) for seed in seeds]
            elif origins[cell] != origin:
                raise _several_origins(plan, origins[cell], origin)
    return with_replicates(run_specs, plan.options.replicates)


def _several_origins(plan: Plan, first: Setting, second: Setting) -> UsageError:
    """Make the error for one cell that would confirm what was tuned in two."""
    before = vars(first)
    names = ", ".join(name for name, value in vars(second).items() if value != before[name])
    return UsageError(
        f"--confirm-at {' '.join(plan.options.confirm_at)}=... would confirm in one cell what was "
        f"tuned in several, which differ in {names}: tune at one value of {names}"
    )


def tuned_at(plan: Plan) -> dict[str, Value]:
    """Return the fields in which confirming cells differ from tuned ones: values where tuned."""
    fields: dict[str, Value] = {}
    other_values = _values_at(plan)
    for tuned in plan.settings:
        for target in _targets(tuned, other_values):
            new = vars(target)
            fields |= {name: value for name, value in vars(tuned).items() if value != new[name]}
    return fields


def confirmation(plan: Plan, runs: pd.DataFrame) -> Plan:
    """Plan the runs that confirm the configurations chosen from stored `runs`.

    There are none if no run of the search is done, and none of algorithms whose second stage is
    still to come.
    """
    held = waiting(plan, runs)
    searched: dict[tuple[str, Setting], str] = {}
    for name, trained, setting in _rows_and_settings(plan):
        if trained not in held:
            searched[name, plan.without_tuned(setting)] = trained
    confirmed_at = tuned_at(plan)
    seeds = plan.options.confirm
    run_specs: list[RunSpec] = []
    other_values = _values_at(plan)
    for row in plan.winners(plan.of_own_versions(runs), confirmed_at):
        tuned = setting_of(row["setting_json"])
        algorithm = searched.get((row["algorithm"], plan.without_tuned(tuned)))
        if algorithm is None:
            continue
        try:
            values = entry(algorithm).resolve(json.loads(row["hp_json"]))
        except ValueError:  # of a version of the algorithm with other hyper-parameters
            continue
        for target in _targets(tuned, other_values):
            setting = supply(entry(algorithm), target)
            base = SETTINGS[plan.paper, setting.dataset] if plan.paper else setting
            short = shortened(setting, base)
            for seed in seeds:
                run_specs.append(RunSpec(algorithm, values, setting, seed, plan.paper, short))
    note = f"confirming the configurations chosen on seed 0, on seeds {seeds_in_words(seeds)}"
    targets: dict[Setting, None] = {}
    for tuned in plan.settings:
        targets |= dict.fromkeys(_targets(tuned, other_values))
    return replace(
        plan,
        options=replace(plan.options, seeds=len(seeds), scheduler="none"),
        run_specs=tuple(distinct_runs(with_replicates(run_specs, plan.options.replicates))),
        searches=(),
        settings=tuple(targets),
        notes=(note,),
        confirming=(),
        confirmed_at=confirmed_at,
    )


def _rows_and_settings(plan: Plan) -> Iterator[tuple[str, str, Setting]]:
    """Yield each row of the algorithms that were asked for, its algorithm, and each setting."""
    for algorithm, setting in dict.fromkeys((part.algorithm, part.setting) for part in plan.parts):
        for suffix, row in row_names(algorithm, setting).items():
            # Without the ending of a row after further steps.
            before = entry(algorithm).rows.get(suffix.removesuffix(FINETUNED), row)
            trained = before if before in ALGORITHMS else algorithm
            if plan.options.asks_for(trained):
                yield row, trained, setting


def _values_at(plan: Plan) -> dict[str, tuple[Value, ...]]:
    """Return the values of `--confirm-at`; raises UsageError if one is not allowed."""
    fields = setting_fields()
    values = {}
    for name, texts in plan.options.confirm_at.items():
        if name not in fields:
            raise unknown("field for --confirm-at", name, fields)
        why = ""
        if name in plan.tuned:
            why = "is selected over by this search"
        elif name in ("dataset", "start_from", "partition_seed"):
            why = "makes another problem"
        if why:
            raise UsageError(
                f"--confirm-at {name}=...: {name} {why}; take another field, such as participation"
            )
        kind = str(fields[name].type)
        values[name] = distinct(name, texts, kind, _PLACE).values
    return values


def _targets(tuned: Setting, other_values: Mapping[str, tuple[Value, ...]]) -> list[Setting]:
    """List the settings in which the choice made in a tuned setting is confirmed."""
    with refusing_values(_PLACE):
        return [canonical(setting) for setting in crossed(tuned, **other_values)]
