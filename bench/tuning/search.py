"""A `Search` for Optuna: distributions that keep the relations, and a sampler filled with what is stored."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algorithms import entry
from bench.identity import identity_json
from bench.planning.plan import Plan, Search, units_of
from leaderboards import Store
from search_spaces import Grid, Range, Value, holds, names_in

if TYPE_CHECKING:
    import optuna

SAMPLER_SEED = 0
PATIENCE = 20  # proposals per wanted configuration: a sampler repeats itself on a small grid


def joint_names(search: Search) -> tuple[str, ...]:
    """The hyper-parameters that relations bind together and whose values are grids: they are chosen as one."""
    bound = {name for relation in search.where for name in names_in(relation)}
    return tuple(name for name, value in search.values.items() if name in bound and isinstance(value, Grid))


def distributions(search: Search) -> dict[str, Any]:
    """Optuna's distributions by name; a joint choice is called by its names joined with commas, its values JSON lists.

    Names with a single value are left out.
    """
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    made: dict[str, Any] = {}
    joint = joint_names(search)
    if joint:
        choices = [
            json.dumps(values)
            for values in product(*(_grid(search.values[name]) for name in joint))
            if _keeps(search, dict(zip(joint, values, strict=True)))
        ]
        made[",".join(joint)] = CategoricalDistribution(choices)
    for name, value in search.values.items():
        if isinstance(value, Range):
            made[name] = FloatDistribution(value.low, value.high, log=value.log)
        elif name not in joint and len(value.values) > 1:
            made[name] = CategoricalDistribution(value.values)
    return made


def size(search: Search) -> float:
    """How many configurations the search can propose; infinite with an interval."""
    counts = [len(getattr(dist, "choices", ())) or math.inf for dist in distributions(search).values()]
    return math.prod(counts)


def decode(search: Search, chosen: Mapping[str, Any]) -> dict[str, Value]:
    """A full configuration from Optuna's values."""
    configuration = {name: value.values[0] for name, value in search.values.items() if isinstance(value, Grid)}
    for name, value in chosen.items():
        names = name.split(",")
        configuration |= dict(zip(names, json.loads(value), strict=True)) if len(names) > 1 else {name: value}
    return entry(search.algorithm).resolve(configuration)


def encode(search: Search, configuration: Mapping[str, Value]) -> dict[str, Any] | None:
    """Optuna's values of a configuration; None where the search could not have chosen it."""
    chosen: dict[str, Any] = {}
    for name, distribution in distributions(search).items():
        names = name.split(",")
        value = json.dumps([configuration[n] for n in names]) if len(names) > 1 else configuration[name]
        if not _inside(distribution, value):
            return None
        chosen[name] = value
    fixed = {n: v.values[0] for n, v in search.values.items() if isinstance(v, Grid) and len(v.values) == 1}
    return chosen if all(configuration[name] == value for name, value in fixed.items()) else None


def varied(search: Search) -> list[str]:
    """The hyper-parameters that the search chooses."""
    return [name for name, value in search.values.items() if isinstance(value, Range) or len(value.values) > 1]


def remaining(plan: Plan, search: Search, out: str) -> int:
    """Configurations that are still to be tried: asked for, possible, and not stored."""
    return int(max(0, min(plan.request.num_samples, size(search)) - len(known_results(plan, search, out))))


def known_results(plan: Plan, search: Search, out: str) -> list[tuple[dict[str, Any], float]]:
    """(Optuna's values, objective) of stored configurations that have all the seeds; none if they shall run again.

    Under ASHA a configuration that was stopped counts as tried, with what it had reached.
    """
    runs = Store(Path(out)).runs()
    if runs.empty or plan.request.force:
        return []
    tried = ("finished", "stopped") if plan.request.scheduler == "asha" else ("finished",)
    setting = identity_json(search.setting)
    runs = runs[(runs.algorithm == search.algorithm) & (runs.setting_json == setting) & runs.status.isin(tried)]
    values = {
        str(key): float(value) for key, value in zip(runs.run_key, runs.best_val_accuracy.astype(float), strict=True)
    }
    found = []
    for text in sorted(set(runs.hp_json)):
        try:
            configuration = entry(search.algorithm).resolve(json.loads(text))
        except ValueError:  # stored by a version of the algorithm with other fields
            continue
        chosen = encode(search, configuration)
        keys = [unit.key for unit in units_of(search, configuration, plan.request.seeds)]
        if chosen is not None and all(key in values for key in keys):
            found.append((chosen, math.fsum(values[key] for key in keys) / len(keys)))
    return found


def study_for(search: Search, known: list[tuple[dict[str, Any], float]]) -> optuna.Study:
    """A study that has seen `known`."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=SAMPLER_SEED + len(known))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    space = distributions(search)
    for chosen, value in known:
        study.add_trial(optuna.trial.create_trial(params=chosen, distributions=space, value=value))
    return study


def _inside(distribution: Any, value: Any) -> bool:
    """Whether a distribution could have given the value."""
    if hasattr(distribution, "choices"):
        return value in distribution.choices
    return bool(distribution.low <= value <= distribution.high)


def _grid(value: Grid | Range) -> tuple[Value, ...]:
    assert isinstance(value, Grid)
    return value.values


def _keeps(search: Search, values: Mapping[str, Value]) -> bool:
    """Whether values keep the relations among the names that they hold."""
    inside = [relation for relation in search.where if names_in(relation) <= set(values)]
    return all(holds(relation, values) for relation in inside)
