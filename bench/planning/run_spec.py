"""`RunSpec`, a fully resolved run with the keys of its rows.

Imports neither torch nor ray.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from algorithms import ALGORITHMS, Entry, algorithm_of, entry
from bench import data, models
from bench.errors import UsageError
from bench.planning.given import REPLICATE_STEP
from bench.terminal.words import text
from leaderboards import canonical_json, run_key
from leaderboards.problems import FINETUNED
from leaderboards.rows.schema import SHORTENING, own_name
from search_spaces import Setting, Value, setting_fields


@dataclass(frozen=True)
class RunSpec:
    """One run: an algorithm with its hyper-parameters in a setting, with a seed."""

    algorithm: str
    hyperparameters: Mapping[str, Value]
    setting: Setting
    seed: int
    paper: str | None = None
    shortened: bool = False

    @cached_property
    def key(self) -> str:
        """The run key: SHA-256 of everything that decides the numbers."""
        return run_key(*self.identity(entry(self.algorithm)))

    @property
    def configuration(self) -> RunSpec:
        """The run of seed 0, which the seeds and replicates of a configuration share."""
        setting = replace(self.setting, partition_seed=None)
        return replace(self, setting=setting, seed=0)

    @cached_property
    def rows(self) -> dict[str, str]:
        """Key of every result row that the run yields, by suffix.

        It is the key that the row would have as a separate run.
        """
        keys = {}
        for suffix, name in self.row_names.items():
            if name == self.algorithm:
                keys[suffix] = self.key
            else:
                keys[suffix] = run_key(*self.identity(row_entry(self.algorithm, suffix)))
        return keys

    @property
    def row_names(self) -> dict[str, str]:
        """Registry name of every result row that the run yields, by suffix."""
        return row_names(self.algorithm, self.setting)

    def identity(self, row: Entry) -> tuple[str, int, dict[str, Value], dict[str, Value], int]:
        """Return the arguments of `run_key` and `identity_columns` for one of the run's rows."""
        values = row.identifying(self.hyperparameters)
        setting = self.setting
        if setting.partition_seed == self.seed:  # the default, spelt out
            setting = replace(setting, partition_seed=None)
        return row.name, row.version, values, setting_identity(setting), self.seed

    @property
    def named_by(self) -> dict[str, str | int]:
        """The columns of the run's own row that tell it from other runs."""
        algorithm, _, hyperparameters, setting, seed = self.identity(entry(self.algorithm))
        return {
            "algorithm": algorithm,
            "hp_json": canonical_json(hyperparameters),
            "setting_json": canonical_json(setting),
            "seed": seed,
        }

    @property
    def label(self) -> str:
        """A short, readable name: `fedcad beta=0 gamma=0.7 seed 0`."""
        values = [
            f"{own_name(self.algorithm, name)}={text(value)}"
            for name, value in self.hyperparameters.items()
        ]
        return " ".join([self.algorithm, *values, f"seed {self.seed}"])


def distinct_runs(run_specs: Iterable[RunSpec]) -> list[RunSpec]:
    """Drop repeated run specs, and those whose row another run spec yields as well."""
    by_key = {run_spec.key: run_spec for run_spec in run_specs}
    other_keys = set[str]()
    for run_spec in by_key.values():
        other_keys |= {*run_spec.rows.values()} - {run_spec.key}
    return [run_spec for key, run_spec in by_key.items() if key not in other_keys]


def with_replicates(run_specs: Iterable[RunSpec], replicates: Mapping[str, int]) -> list[RunSpec]:
    """Follow each run spec by its replicates: other seeds on its partition and first weights.

    `replicates` has, by the name of a row, the number of runs of each seed; of a run spec with
    several rows the most count.
    """
    all_run_specs: list[RunSpec] = []
    for run_spec in run_specs:
        count = max(replicates.get(name, 1) for name in run_spec.row_names.values())
        partition_seed = run_spec.setting.partition_seed_of(run_spec.seed)
        setting = replace(run_spec.setting, partition_seed=partition_seed)
        all_run_specs.append(run_spec)
        for number in range(1, count):
            seed = run_spec.seed + REPLICATE_STEP * number
            all_run_specs.append(replace(run_spec, setting=setting, seed=seed))
    return all_run_specs


def row_names(algorithm: str, setting: Setting) -> dict[str, str]:
    """Return the names of the rows of an algorithm's run by suffix, also after further steps."""
    names = dict(entry(algorithm).rows)
    if not setting.finetune_steps:
        return names
    further = {suffix + FINETUNED: name + FINETUNED for suffix, name in names.items()}
    taken = sorted(further.keys() & names.keys())
    if taken:
        raise UsageError(
            f"finetune_steps adds a row {taken[0]}, which {algorithm} has as its own: rename that, "
            "or leave out finetune_steps"
        )
    return names | further


def row_entry(algorithm: str, suffix: str) -> Entry:
    """Return the entry of a row: a registered one, or an outside algorithm's under the row's name.

    A row after further local steps has the entry of the row without them, under its own name.
    """
    own_entry = entry(algorithm)
    if suffix not in own_entry.rows:
        before = row_entry(algorithm, suffix.removesuffix(FINETUNED))
        return replace(before, name=before.name + FINETUNED)
    name = own_entry.rows[suffix]
    return ALGORITHMS.get(name) or replace(own_entry, name=name)


def trained_by(row: str, setting_json: str) -> str:
    """Return the algorithm whose run yields a row.

    The row may be one after further local steps, or a second one such as `fedproto_proto`.

    `row`: its name; `setting_json`: its setting.
    """
    if json.loads(setting_json).get("finetune_steps"):
        row = row.removesuffix(FINETUNED)
    return algorithm_of(row)


def setting_identity(setting: Setting) -> dict[str, Value]:
    """Return `Setting.as_dict`, with the versions of data sets, models and partitions from outside.

    Data sets, models and partitions of this suite have none, because their results change with the
    suite's versions.

    Raises:
        UsageError: a data set, model or partition from outside cannot be imported any more.
    """
    from bench.data.partition import version  # numpy

    versions: dict[str, Value] = {
        "dataset_version": data.version(setting.dataset),
        "model_version": model_version(setting),
        "client_models_version": client_models_version(setting),
        "partition_version": version(setting.partition),
        "public_version": data.version(setting.public_set[0]) if setting.public_set else None,
    }
    return setting.as_dict() | {
        name: value for name, value in versions.items() if value is not None
    }


def model_version(setting: Setting) -> int | None:
    """Return the version of the setting's model, for the inputs of its data set.

    None for this suite's own models.
    """
    return _version_of(setting.model, setting)


def client_models_version(setting: Setting) -> str | None:
    """Return the versions of the clients' models, joined by `/`; None if all are our own."""
    if not setting.client_models:
        return None
    versions = [_version_of(name, setting) for name in setting.models_of_clients]
    if not any(version is not None for version in versions):
        return None
    return "/".join("" if version is None else str(version) for version in versions)


def _version_of(model: str, setting: Setting) -> int | None:
    if not models.is_from_outside(model):
        return None
    return models.version(model, data.info_of(setting).input_shape)


def setting_of(text: str) -> Setting:
    """Parse the setting of a row from its `setting_json`."""
    fields = setting_fields()
    return Setting(**{name: value for name, value in json.loads(text).items() if name in fields})


def shortened(setting: Setting, base: Setting) -> bool:
    """Tell whether a run has fewer rounds, fewer epochs or less data than the paper's."""
    return any(getattr(setting, name) < getattr(base, name) for name in SHORTENING)
