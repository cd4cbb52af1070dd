"""`Plan`, and `Search`: one algorithm's space in one setting. Imports neither torch nor ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.planning.request import Request
from bench.planning.run_spec import RunSpec
from bench.planning.tables import Cell
from leaderboards.rows.schema import SHORTENING
from search_spaces import Grid, Range, Setting, Value


@dataclass(frozen=True)
class Search:
    """One algorithm's space in one setting: the values of every hyper-parameter, their relations and their source."""

    algorithm: str
    setting: Setting
    values: Mapping[str, Grid | Range]
    where: tuple[str, ...]
    paper: str | None
    shortened: bool
    source: str = ""


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


def units_of(search: Search, configuration: Mapping[str, Value], seeds: int) -> list[RunSpec]:
    """All seeds of a configuration."""
    return [
        RunSpec(search.algorithm, configuration, search.setting, seed, search.paper, search.shortened)
        for seed in range(seeds)
    ]


def shortened(setting: Setting, base: Setting) -> bool:
    """Whether a run has fewer rounds, fewer epochs or less data than the paper's."""
    return any(getattr(setting, name) < getattr(base, name) for name in SHORTENING)
