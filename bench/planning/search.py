"""`Search`: one algorithm's space in one setting, and how two stages divide it.

Imports neither torch nor ray.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bench.planning.run_spec import RunSpec, setting_identity
from search_spaces import Grid, Range, Setting, Value


@dataclass(frozen=True)
class Search:
    """One algorithm's space in one setting.

    Args:
        values: values of every hyper-parameter.
        where: relations that every configuration satisfies.
        source: where the values come from.
        tuned: values of the setting's fields that are chosen as well, as under `--budget`.
    """

    algorithm: str
    setting: Setting
    values: Mapping[str, Grid | Range]
    where: tuple[str, ...]
    paper: str | None
    shortened: bool
    source: str = ""
    tuned: Mapping[str, Grid | Range] = field(default_factory=dict)

    def covers(self, setting_json: str) -> bool:
        """Tell whether a row's setting is that of the search, but for the fields that it tunes."""
        fields = {name: getattr(self.setting, name) for name in self.tuned}
        return bool({**json.loads(setting_json), **fields} == setting_identity(self.setting))


@dataclass(frozen=True)
class TwoStages:
    """The configurations of one algorithm in one setting, tried in two stages.

    `bench.planning.two_stage` divides them.

    Args:
        search: the algorithm, its setting and its values.
        rates: learning rates of the first stage.
        own: configurations of the algorithm's own hyper-parameters; the first is that of the first
            stage.
    """

    search: Search
    rates: tuple[float, ...]
    own: tuple[Mapping[str, Value], ...]


def first_run(search: Search, configuration: Mapping[str, Value]) -> RunSpec:
    """Make the run of a configuration with seed 0."""
    return RunSpec(
        search.algorithm, configuration, search.setting, 0, search.paper, search.shortened
    )


def run_specs_of(search: Search, configuration: Mapping[str, Value], seeds: int) -> list[RunSpec]:
    """Make the runs of a configuration, one for each seed."""
    first = first_run(search, configuration)
    return [replace(first, seed=seed) for seed in range(seeds)]
