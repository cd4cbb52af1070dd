"""Names of trials: the algorithm, and the fields and hyper-parameters that vary in a sweep.

Imports neither torch nor ray.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.planning.run_spec import RunSpec
from bench.terminal.words import text
from leaderboards.rows.schema import own_name
from search_spaces import Setting


@dataclass(frozen=True)
class Varied:
    """The setting fields and hyper-parameters that differ between the runs of one algorithm."""

    fields: tuple[str, ...] = ()
    hyperparameters: tuple[str, ...] = ()


def varied_names(run_specs: Sequence[RunSpec]) -> dict[str, Varied]:
    """Find by algorithm the names in which its runs differ.

    The model is one if most runs of the sweep have another.
    """
    usual = Counter(run_spec.setting.model for run_spec in run_specs).most_common()
    by_algorithm: dict[str, list[RunSpec]] = {}
    for run_spec in run_specs:
        by_algorithm.setdefault(run_spec.algorithm, []).append(run_spec)
    names = {}
    for algorithm, runs in by_algorithm.items():
        # The seeds of a configuration share one setting and one mapping of hyper-parameters.
        settings = {id(run_spec.setting): run_spec.setting for run_spec in runs}
        values = {id(run_spec.hyperparameters): run_spec.hyperparameters for run_spec in runs}
        fields = _differing(_named_fields(setting) for setting in settings.values())
        if "model" not in fields and runs[0].setting.model != usual[0][0]:
            fields = ("model", *fields)
        names[algorithm] = Varied(fields, _differing(values.values()))
    return names


def trial_name(run_specs: Sequence[RunSpec], varied: Mapping[str, Varied]) -> str:
    """Name the trial of some seeds of one configuration, or of some runs of one algorithm."""
    run_spec = run_specs[0]
    algorithm = run_spec.algorithm
    differing = varied.get(algorithm, Varied())
    inside = varied_names(run_specs)[algorithm]
    parts = [algorithm]
    fields = _named_fields(run_spec.setting)
    for name in differing.fields:
        if name not in inside.fields:
            parts.append(f"{name}={text(fields[name])}")
    for name in differing.hyperparameters:
        if name not in inside.hyperparameters:
            value = text(run_spec.hyperparameters[name])
            parts.append(f"{own_name(algorithm, name)}={value}")
    count = len(run_specs)
    seeds = {member.seed for member in run_specs}
    if count == 1:
        parts.append(f"seed {run_spec.seed}")
    elif len({member.configuration.key for member in run_specs}) == 1:
        parts.append(f"{count} seeds")
    elif len(seeds) == 1:
        parts.append(f"{count} runs of seed {run_spec.seed}")
    else:
        parts.append(f"{count} runs")
    return " ".join(parts)


def _named_fields(setting: Setting) -> dict[str, Any]:
    """Return the fields that may name a trial.

    The partition's seed is none of them, because a run's own seed tells it.
    """
    return {name: value for name, value in vars(setting).items() if name != "partition_seed"}


def _differing(mappings: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """List the names whose values are not all the same."""
    values: dict[str, set[Any]] = {}
    for mapping in mappings:
        for name, value in mapping.items():
            values.setdefault(name, set()).add(value)
    return tuple(name for name, texts in values.items() if len(texts) > 1)
