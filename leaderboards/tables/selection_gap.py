"""The gap between selecting on the test set and on validation: how much higher the best configuration on test is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from leaderboards.board import CONTEST
from leaderboards.metrics import Metric
from leaderboards.problems import label_of, setting_of
from leaderboards.tables.captions import title
from leaderboards.tables.model import Sheet, number, sheet

if TYPE_CHECKING:
    import pandas as pd


def selection_gap(board: pd.DataFrame, metric: Metric) -> list[Sheet]:
    """Make a sheet for each cell: how much higher a number is if its configuration was selected by that very number.

    Only configurations with the most seeds of their contest take part, as in `board.leaderboard`.

    Args:
        board: as `board.leaderboard` gives it, or some of its rows, all configurations of a contest among them.
        metric: the number.
    """
    sheets = []
    for _, cell in board[board["n"] > 0].groupby("cell", sort=False):
        records = list(_records(cell, metric))
        if not records:
            continue
        setting = setting_of(cell.iloc[0]["setting_json"])
        rates = sorted({json.loads(text)["lr"] for text in cell["setting_json"]})
        lines = [
            f"{metric.quantity.capitalize()}, {metric.of}, {metric.unit}, mean over seeds",
            f"Local training: {setting['optimizer']}, lr {', '.join(f'{lr:g}' for lr in rates)}",
        ]
        rows = {
            record["label"]: [
                number(record["on_validation"], metric) or "none",
                number(record["on_test"], metric),
                number(record["gap"], metric, sign=True),
                str(record["configurations"]),
            ]
            for record in records
        }
        headings = ["selected on validation", "selected on test", "optimism gap", "configurations"]
        note = "optimism gap: what selecting on the test set adds to the number, without a better algorithm"
        sheets.append(sheet(title(setting, (), ()), lines, headings, rows, [note], records))
    return sheets


def _records(cell: pd.DataFrame, metric: Metric) -> Iterator[dict[str, Any]]:
    mean = f"{metric.name}_mean"
    for _, contest in cell.groupby(CONTEST, sort=False):
        full = contest[(contest["n"] == contest["n"].max()) & contest[mean].notna()]
        if full.empty:
            continue
        selected = full[full["selected"]]
        best = full.loc[full[mean].idxmax() if metric.higher_is_better else full[mean].idxmin()]
        validated = None if selected.empty else selected.iloc[0]
        first = contest.iloc[0]
        yield {
            "cell": first["cell"],
            "label": label_of(first["algorithm"], first["model"]),
            "algorithm": first["algorithm"],
            "metric": metric.name,
            "configurations": int(first["configurations"]),
            "on_validation": None if validated is None else float(validated[mean]),
            "on_validation_hp": None if validated is None else validated["hp_json"],
            "on_test": float(best[mean]),
            "on_test_hp": best["hp_json"],
            "gap": None if validated is None else float(best[mean] - validated[mean]),
        }
