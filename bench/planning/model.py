"""`Plan`, and `Search`: one algorithm's space in one setting. Imports neither torch nor ray."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from algorithms import entry
from bench.planning.request import Request
from bench.planning.run_spec import RunSpec, setting_identity
from leaderboards.rows.schema import SHORTENING
from search_spaces import Grid, Range, Setting, Value

if TYPE_CHECKING:
    from bench.planning.tables import Cell


@dataclass(frozen=True)
class Search:
    """One algorithm's space in one setting.

    Args:
        values: of every hyper-parameter.
        where: relations that every configuration keeps.
        source: where the values come from.
        tuned: values of the setting's fields that are chosen as well, as under `--budget`.
    """

    algorithm: str
    setting: Setting
    values: Mapping[str, Grid]
    where: tuple[str, ...]
    paper: str | None
    shortened: bool
    source: str = ""
    tuned: Mapping[str, Grid | Range] = field(default_factory=dict)

    def covers(self, setting_json: str) -> bool:
        """Tell whether a row's setting is that of the search, but for the fields that the search chooses."""
        fields = {name: getattr(self.setting, name) for name in self.tuned}
        return bool({**json.loads(setting_json), **fields} == setting_identity(self.setting))


@dataclass(frozen=True)
class Plan:
    """Everything a sweep will run."""

    request: Request
    paper: str | None  # whose setting it is, None if nobody's
    units: tuple[RunSpec, ...]  # the runs; for Optuna none in advance
    searches: tuple[Search, ...]  # for Optuna, the spaces
    settings: tuple[Setting, ...]  # the distinct problems, before an algorithm's own needs
    origins: Mapping[str, str]  # setting field -> where its value came from, if not from the preset
    notes: tuple[str, ...]  # what was left out or added, in sentences
    cells: tuple[Cell, ...] = ()
    tuned: tuple[str, ...] = ()  # setting fields over which configurations are selected

    def of_searches(self, rows: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        """Select the (algorithm, `setting_json`) of rows that the searches may have made."""
        names = [(search, entry(search.algorithm).rows.values()) for search in self.searches]
        return {row for row in set(rows) if any(row[0] in own and search.covers(row[1]) for search, own in names)}


def units_of(search: Search, configuration: Mapping[str, Value], seeds: int) -> list[RunSpec]:
    """All seeds of a configuration."""
    return [
        RunSpec(search.algorithm, configuration, search.setting, seed, search.paper, search.shortened)
        for seed in range(seeds)
    ]


def shortened(setting: Setting, base: Setting) -> bool:
    """Tell whether a run has fewer rounds, fewer epochs or less data than the paper's."""
    return any(getattr(setting, name) < getattr(base, name) for name in SHORTENING)
