"""Tuning on seed 0, reporting other seeds: the chosen configurations and their confirming runs."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import pandas as pd

from leaderboards.board import current, leaderboard
from leaderboards.problems import CONFIGURATION, base_model, setting_of, with_base_models
from leaderboards.replicates import FIELD, partitions
from leaderboards.rows.frames import by_text
from leaderboards.rows.schema import canonical_json
from leaderboards.selection import DEFAULT_RULE
from leaderboards.shell_text import typed

SEARCH_SEED = 0
_COUNTS = ["configurations", "configurations_diverged"]
# Equal in a chosen run and in those that confirm it.
_SAME = ["algorithm", "algorithm_version", "hp_json", "elsewhere"]


def chosen(
    runs: pd.DataFrame,
    tuned: Collection[str],
    at: Mapping[str, Any],
    defaults: Mapping[str, Any],
    chosen_by: str = DEFAULT_RULE,
) -> pd.DataFrame:
    """Select the run of seed 0 of each configuration that wins on seed 0 alone.

    The rule, `runs`, `tuned` and `chosen_by` are those of `board.leaderboard`. `at` maps fields of
    the setting to their values in the cells that were tuned; nothing is chosen in other cells.
    `defaults` has the values of fields that a row's setting lacks.

    Returns:
        One row for each algorithm and model variant in each cell that has a selected configuration,
        with two columns: `configurations`, the number that it was chosen from, and
        `configurations_diverged`, how many of these diverged.
    """
    is_search = (runs["seed"] == SEARCH_SEED) & (partitions(runs) == SEARCH_SEED)
    searched = current(runs[is_search], tuned)
    values = with_base_models(at)

    def was_tuned(setting_json: str) -> bool:
        setting = {**defaults, **setting_of(setting_json)}
        return all(setting[name] == value for name, value in values.items())

    searched = searched[by_text(searched["setting_json"], was_tuned).astype(bool)]
    board = leaderboard(searched, tuned=tuned, chosen_by=chosen_by)
    winners = board.loc[board["selected"], [*CONFIGURATION, *_COUNTS]]
    return searched[searched["status"] == "finished"].merge(winners, on=CONFIGURATION)


def confirmed(
    runs: pd.DataFrame,
    tuned: Collection[str],
    at: Mapping[str, Any],
    defaults: Mapping[str, Any],
    chosen_by: str = DEFAULT_RULE,
) -> pd.DataFrame:
    """Select the confirming runs: other seeds of the configurations that `chosen` selects.

    A cell uses the choice of the cell that has the values `at` and is otherwise the same. If `at`
    is empty, a cell uses its own choice. `defaults` are those of `chosen`.

    Returns:
        Some rows of `runs`, with three more columns, which their leaderboard has as well:

        - `configurations`: from how many the row's configuration was chosen;
        - `configurations_diverged`: how many of these diverged on seed 0;
        - `chosen_on`: where it was chosen, such as `seed 0 at participation=0.2`.
    """
    winners = _add_elsewhere(chosen(runs, tuned, at, defaults, chosen_by), at)
    winners = winners[[*_SAME, *_COUNTS]]
    others = _add_elsewhere(runs[partitions(runs) != SEARCH_SEED], at)
    where = ", ".join(f"{name}={typed(value)}" for name, value in at.items())
    confirming = others.merge(winners, on=_SAME).drop(columns="elsewhere")
    chosen_on = f"seed {SEARCH_SEED}"
    if where:
        chosen_on += f" at {where}"
    return confirming.assign(chosen_on=chosen_on)


def _add_elsewhere(runs: pd.DataFrame, at: Mapping[str, Any]) -> pd.DataFrame:
    """Add a column `elsewhere`: the setting without the fields in `at`.

    It also lacks their versions and the partition's seed. Of a model in `at` it has the variant.
    """

    def without(setting_json: str) -> str:
        setting = json.loads(setting_json)
        variant = setting["model"].removeprefix(base_model(setting["model"]))
        left_out = {*at, FIELD}
        others = {
            name: value
            for name, value in setting.items()
            if name.removesuffix("_version") not in left_out
        }
        if "model" in at:
            others["model"] = variant
        return canonical_json(others)

    return runs.assign(elsewhere=by_text(runs["setting_json"], without).astype(str))
