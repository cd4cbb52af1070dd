"""`--confirm N`: the configurations that a search on seed 0 chose, as runs of seeds 1 to N. Neither torch nor ray.

The choice is `leaderboards.confirmed`'s, of stored rows: the search of the same plan has to be stored before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from algorithms import entry
from bench.errors import UsageError
from bench.planning.request import canonical, distinct, supply
from bench.planning.run_spec import Plan, RunSpec, Search, distinct_runs, setting_of, shortened
from bench.terminal.words import counted, unknown
from search_spaces import SETTINGS, Setting, Value, combinations, setting_fields

if TYPE_CHECKING:
    import pandas as pd

_PLACE = ", as --confirm-at has it"


def stand_ins(plan: Plan) -> list[RunSpec]:
    """The runs that may follow the search, whose configurations are not chosen yet: they have none here.

    Raises:
        UsageError: a value of `--confirm-at` is not allowed, an algorithm does not run there, or the choices of several
            cells would be confirmed in one.
    """
    origins: dict[tuple[str, Setting], Setting] = {}
    units: list[RunSpec] = []
    for algorithm, tuned in _searched(plan):
        for place in _places(plan, tuned):
            setting = supply(entry(algorithm), place)
            cell, origin = (algorithm, _but_tuned(plan, setting)), _but_tuned(plan, tuned)
            if cell not in origins:
                units += [RunSpec(algorithm, {}, setting, seed) for seed in _seeds(plan)]
            if (other := origins.setdefault(cell, origin)) != origin:
                differing = [name for name, value in other.as_dict().items() if value != origin.as_dict()[name]]
                names = ", ".join(differing)
                raise UsageError(
                    f"--confirm-at {' '.join(plan.request.confirm_at)}=... would confirm in one cell what was tuned in "
                    f"several, which differ in {names}: tune at one value of {names}"
                )
    return units


def tuned_at(plan: Plan) -> dict[str, Value]:
    """The fields of the setting in which confirming cells differ from tuned ones, with the values of the tuned."""
    pairs = [(setting.as_dict(), place.as_dict()) for setting in plan.settings for place in _places(plan, setting)]
    return {name: value for old, new in pairs for name, value in old.items() if value != new[name]}


def confirmation(plan: Plan, runs: pd.DataFrame) -> Plan:
    """The runs that confirm the configurations chosen in stored `runs`; none if no run of the search has finished."""
    from leaderboards.confirmed import chosen

    asked = {(algorithm, _but_tuned(plan, setting)) for algorithm, setting in _searched(plan)}
    units: list[RunSpec] = []
    for row in chosen(runs, plan.tuned, tuned_at(plan)).to_dict("records"):
        algorithm, tuned = row["algorithm"], setting_of(row["setting_json"])
        if (algorithm, _but_tuned(plan, tuned)) in asked:
            values = entry(algorithm).resolve(json.loads(row["hp_json"]))
            for place in _places(plan, tuned):
                setting = supply(entry(algorithm), place)
                short = plan.paper is not None and shortened(setting, SETTINGS[plan.paper, setting.dataset])
                units += [RunSpec(algorithm, values, setting, seed, plan.paper, short) for seed in _seeds(plan)]
    note = f"confirming the configurations chosen on seed 0, on {counted(plan.request.confirm, 'other seed')}"
    return replace(
        plan,
        request=replace(plan.request, seeds=plan.request.confirm, scheduler="none"),
        units=tuple(distinct_runs(units)),
        searches=(),
        settings=tuple(dict.fromkeys(place for one in plan.settings for place in _places(plan, one))),
        notes=(note,),
    )


def _searched(plan: Plan) -> Iterator[tuple[str, Setting]]:
    """Each algorithm that was asked for, in each of its settings."""
    everything = plan.request.algorithms == ("all",)
    asked: list[RunSpec | Search] = [*plan.units, *plan.searches]
    for algorithm, setting in dict.fromkeys((one.algorithm, one.setting) for one in asked):
        for name in entry(algorithm).rows.values():
            if everything or name in plan.request.algorithms:
                yield name, setting


def _but_tuned(plan: Plan, setting: Setting) -> Setting:
    """The setting with fields that are selected over at their defaults: equal for all runs that compete."""
    return replace(setting, **{name: getattr(Setting(), name) for name in plan.tuned})


def _seeds(plan: Plan) -> range:
    return range(1, plan.request.confirm + 1)


def _places(plan: Plan, tuned: Setting) -> list[Setting]:
    """The settings where the choice of a tuned setting is confirmed."""
    fields, asked = setting_fields(), plan.request.confirm_at
    for name in asked:
        if name not in fields:
            raise unknown("field for --confirm-at", name, fields)
        if name in ("dataset", "start_from", *plan.tuned):
            why = "is selected over by this search" if name in plan.tuned else "makes another problem"
            raise UsageError(f"--confirm-at {name}=...: {name} {why}; take another field, such as participation")
    grids = {name: distinct(name, values, str(fields[name].type), _PLACE) for name, values in asked.items()}
    try:
        cells: list[dict[str, Any]] = list(combinations(grids))
        places = [canonical(replace(tuned, **cell)) for cell in cells]
    except ValueError as error:
        raise UsageError(f"{error}{_PLACE}") from None
    return places
