"""Short, readable names of a sweep's trials: the algorithm and what is varied of it. Imports neither torch nor ray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.planning.run_spec import RunSpec
from bench.terminal.words import text
from leaderboards.rows.schema import own_name


@dataclass(frozen=True)
class Varied:
    """The setting fields and hyper-parameters that differ between the runs of one algorithm."""

    fields: tuple[str, ...] = ()
    hyperparameters: tuple[str, ...] = ()


def varied_names(units: Sequence[RunSpec]) -> dict[str, Varied]:
    """Find, by algorithm, the names in which its runs differ; the model, too, if most runs have another."""
    usual = Counter(unit.setting.model for unit in units).most_common(1)
    by_algorithm: dict[str, list[RunSpec]] = {}
    for unit in units:
        by_algorithm.setdefault(unit.algorithm, []).append(unit)
    names = {}
    for algorithm, runs in by_algorithm.items():
        settings = {id(unit.setting): unit.setting for unit in runs}  # the seeds of a configuration share one
        fields = _differing(setting.as_dict() for setting in settings.values())
        if "model" not in fields and runs[0].setting.model != usual[0][0]:
            fields = ("model", *fields)
        values = {id(unit.hyperparameters): unit.hyperparameters for unit in runs}
        names[algorithm] = Varied(fields, _differing(values.values()))
    return names


def trial_name(units: Sequence[RunSpec], varied: Mapping[str, Varied]) -> str:
    """The name of a trial that runs these seeds of one configuration, or these runs of one algorithm."""
    unit = units[0]
    differing, inside = varied.get(unit.algorithm, Varied()), varied_names(units)[unit.algorithm]
    fields, values = unit.setting.as_dict(), unit.hyperparameters
    parts = [f"{name}={text(fields[name])}" for name in differing.fields if name not in inside.fields]
    own = [name for name in differing.hyperparameters if name not in inside.hyperparameters]
    parts += [f"{own_name(unit.algorithm, name)}={text(values[name])}" for name in own]
    alike = len({replace(member, seed=0).key for member in units}) == 1
    if alike:
        own_seeds = f"seed {unit.seed}" if len(units) == 1 else f"{len(units)} seeds"
        return " ".join([unit.algorithm, *parts, own_seeds])
    one_seed = f" of seed {unit.seed}" if len({member.seed for member in units}) == 1 else ""
    return " ".join([unit.algorithm, *parts, f"{len(units)} runs{one_seed}"])


def _differing(mappings: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The names whose values are not all the same."""
    values: dict[str, set[Any]] = {}
    for mapping in mappings:
        for name, value in mapping.items():
            values.setdefault(name, set()).add(value)
    return tuple(name for name, texts in values.items() if len(texts) > 1)
