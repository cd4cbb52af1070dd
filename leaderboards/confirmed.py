"""Tune on seed 0, report other seeds: the configurations that the search chose, and their runs of further seeds."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from leaderboards.board import CONFIGURATION, current, leaderboard
from leaderboards.problems import base_model, setting_of
from leaderboards.rows.schema import canonical_json
from leaderboards.rows.store import Results
from leaderboards.shell_text import typed

SEARCH_SEED = 0
_SAME = ["algorithm", "algorithm_version", "hp_json", "elsewhere"]  # what a chosen run and those that confirm it share


def chosen(runs: pd.DataFrame, tuned: Collection[str], at: Mapping[str, Any]) -> pd.DataFrame:
    """Select the run of seed 0 of each configuration that wins on seed 0 alone, by the rule of `board.leaderboard`.

    `runs` and `tuned` are as there. `at` has, by field of the setting, the values of the cells that were tuned; other
    cells choose nothing.

    Returns:
        One row for each algorithm and model variant in each cell that has a selected configuration, with a column
        `configurations`: how many it was chosen from.
    """
    searched = current(runs[runs["seed"] == SEARCH_SEED])
    known = {text: _is_at(text, at) for text in searched["setting_json"].unique()}
    searched = searched[searched["setting_json"].map(known).astype(bool)]
    board = leaderboard(searched, tuned=tuned)
    winners = board.loc[board["selected"], [*CONFIGURATION, "configurations"]]
    return searched[searched["status"] == "finished"].merge(winners, on=CONFIGURATION)


def confirmed(runs: pd.DataFrame, tuned: Collection[str], at: Mapping[str, Any]) -> pd.DataFrame:
    """Select the runs that confirm: of the configurations that are `chosen`, those of every seed but 0.

    A cell takes the choice of the cell that has the values `at` and is otherwise the same; its own if `at` is empty.

    Returns:
        Some rows of `runs`, with two more columns, which a leaderboard of them has as well: `configurations`, how
        many the row's was chosen from, and `chosen_on`, where that was: `seed 0 at participation=0.2`.
    """
    winners = _elsewhere(chosen(runs, tuned, at), at)[[*_SAME, "configurations"]]
    others = _elsewhere(runs[runs["seed"] != SEARCH_SEED], at)
    where = ", ".join(f"{name}={typed(value)}" for name, value in at.items())
    kept = others.merge(winners, on=_SAME).drop(columns="elsewhere")
    return kept.assign(chosen_on=f"seed {SEARCH_SEED}" + (where and f" at {where}"))


@dataclass(frozen=True)
class Confirmed:
    """The runs of a source that confirm, in the place of all that it has; `tuned` and `at` as of `confirmed`."""

    source: Results
    tuned: tuple[str, ...] = ()
    at: Mapping[str, Any] = field(default_factory=dict)

    def runs(self) -> pd.DataFrame:
        """Read the runs that confirm, as `confirmed` gives them."""
        return self._runs

    def curves(self, keys: Collection[str] | None = None) -> pd.DataFrame:
        """Read the curves of the rows that `runs` gives, as `Store.curves` does."""
        own = set(self._runs["run_key"])
        return self.source.curves(own if keys is None else own & set(keys))

    @cached_property
    def _runs(self) -> pd.DataFrame:
        return confirmed(self.source.runs(), self.tuned, self.at)


def _is_at(setting_json: str, at: Mapping[str, Any]) -> bool:
    """Tell whether a setting has the values of `at`, whatever the variant of its model."""
    setting = setting_of(setting_json)
    return all(setting.get(name) == (base_model(value) if name == "model" else value) for name, value in at.items())


def _elsewhere(runs: pd.DataFrame, at: Mapping[str, Any]) -> pd.DataFrame:
    """Add a column `elsewhere`: the setting without the fields of `at` and their versions; of a model its variant."""

    def without(setting_json: str) -> str:
        setting = json.loads(setting_json)
        variant = setting["model"].removeprefix(base_model(setting["model"]))
        kept = {name: value for name, value in setting.items() if name.removesuffix("_version") not in at}
        return canonical_json(kept | ({"model": variant} if "model" in at else {}))

    texts = {text: without(text) for text in runs["setting_json"].unique()}
    return runs.assign(elsewhere=runs["setting_json"].map(texts).astype(str))
