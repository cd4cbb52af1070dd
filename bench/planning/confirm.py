"""`--confirm SEEDS`: runs of other seeds with the configurations that a search on seed 0 chose.

`leaderboards.confirmed` chooses from stored rows, so the search of the same plan has to be stored
before. Imports neither torch nor ray.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from algorithms import entry
from bench.errors import UsageError
from bench.planning.request import canonical, distinct, supply
from bench.planning.run_spec import (
    Plan,
    RunSpec,
    Search,
    distinct_runs,
    setting_of,
    shortened,
    with_replicates,
)
from bench.terminal.words import seeds_in_words, unknown
from leaderboards.problems import FINETUNED
from search_spaces import SETTINGS, Setting, Value, combinations, setting_defaults, setting_fields

if TYPE_CHECKING:
    import pandas as pd

_PLACE = " (from --confirm-at)"


def stand_ins(plan: Plan) -> list[RunSpec]:
    """List the runs that may follow the search, without hyper-parameters, because those are not chosen yet.

    Raises:
        UsageError: a value of `--confirm-at` is not allowed, an algorithm does not run in that
            setting, or the choices of several cells would be confirmed in one.
    """
    origins: dict[tuple[str, Setting], Setting] = {}
    run_specs: list[RunSpec] = []
    for algorithm, tuned in _algorithms_and_settings(plan):
        for target in _target_settings(plan, tuned):
            setting = supply(entry(algorithm), target)
            cell, origin = (algorithm, _without_tuned(plan, setting)), _without_tuned(plan, tuned)
            if cell not in origins:
                run_specs += [
                    RunSpec(algorithm, {}, setting, seed) for seed in plan.request.confirm
                ]
            if (other := origins.setdefault(cell, origin)) != origin:
                differing = [
                    name for name, value in vars(other).items() if value != vars(origin)[name]
                ]
                names = ", ".join(differing)
                raise UsageError(
                    f"--confirm-at {' '.join(plan.request.confirm_at)}=... would confirm in one cell what was tuned in "
                    f"several, which differ in {names}: tune at one value of {names}"
                )
    return with_replicates(run_specs, plan.request.replicates)


def tuned_at(plan: Plan) -> dict[str, Value]:
    """Return the setting fields in which confirming cells differ from tuned cells, with the values of the latter."""
    pairs = [
        (vars(tuned), vars(target))
        for tuned in plan.settings
        for target in _target_settings(plan, tuned)
    ]
    return {name: value for old, new in pairs for name, value in old.items() if value != new[name]}


def confirmation(plan: Plan, runs: pd.DataFrame) -> Plan:
    """Plan the runs that confirm the configurations chosen from stored `runs`; none if no run of the search is done."""
    from leaderboards.confirmed import chosen

    searched = {
        (algorithm, _without_tuned(plan, setting))
        for algorithm, setting in _algorithms_and_settings(plan)
    }
    run_specs: list[RunSpec] = []
    own_runs = plan.of_own_versions(runs)
    winners = chosen(
        own_runs, plan.tuned, tuned_at(plan), plan.request.chosen_by, setting_defaults()
    )
    for row in winners.to_dict("records"):
        tuned = setting_of(row["setting_json"])
        algorithm = row["algorithm"]
        if tuned.finetune_steps:  # a row after further steps is confirmed by the run that has it
            algorithm = algorithm.removesuffix(FINETUNED)
        if (algorithm, _without_tuned(plan, tuned)) in searched:
            try:
                values = entry(algorithm).resolve(json.loads(row["hp_json"]))
            except ValueError:  # of a version of the algorithm with other hyper-parameters
                continue
            for target in _target_settings(plan, tuned):
                setting = supply(entry(algorithm), target)
                short = plan.paper is not None and shortened(
                    setting, SETTINGS[plan.paper, setting.dataset]
                )
                run_specs += [
                    RunSpec(algorithm, values, setting, seed, plan.paper, short)
                    for seed in plan.request.confirm
                ]
    note = f"confirming the configurations chosen on seed 0, on seeds {seeds_in_words(plan.request.confirm)}"
    return replace(
        plan,
        request=replace(plan.request, seeds=len(plan.request.confirm), scheduler="none"),
        run_specs=tuple(distinct_runs(with_replicates(run_specs, plan.request.replicates))),
        searches=(),
        settings=tuple(
            dict.fromkeys(
                target for tuned in plan.settings for target in _target_settings(plan, tuned)
            )
        ),
        notes=(note,),
    )


def _algorithms_and_settings(plan: Plan) -> Iterator[tuple[str, Setting]]:
    """Yield each requested algorithm with each of its settings."""
    everything = plan.request.algorithms == ("all",)
    items: list[RunSpec | Search] = [*plan.run_specs, *plan.searches]
    for algorithm, setting in dict.fromkeys((item.algorithm, item.setting) for item in items):
        for name in entry(algorithm).rows.values():
            if everything or name in plan.request.algorithms:
                yield name, setting


def _without_tuned(plan: Plan, setting: Setting) -> Setting:
    """Reset the tuned fields of a setting to their defaults, so that all runs that compete have the same one."""
    return replace(setting, **{name: getattr(Setting(), name) for name in plan.tuned})


def _target_settings(plan: Plan, tuned: Setting) -> list[Setting]:
    """List the settings in which the choice made in a tuned setting is confirmed."""
    fields, values_at = setting_fields(), plan.request.confirm_at
    for name in values_at:
        if name not in fields:
            raise unknown("field for --confirm-at", name, fields)
        if name in ("dataset", "start_from", "partition_seed", *plan.tuned):
            why = (
                "is selected over by this search" if name in plan.tuned else "makes another problem"
            )
            raise UsageError(
                f"--confirm-at {name}=...: {name} {why}; take another field, such as participation"
            )
    grids = {
        name: distinct(name, values, str(fields[name].type), _PLACE)
        for name, values in values_at.items()
    }
    try:
        cells: list[dict[str, Any]] = list(combinations(grids))
        return [canonical(replace(tuned, **cell)) for cell in cells]
    except ValueError as error:
        raise UsageError(f"{error}{_PLACE}") from None
