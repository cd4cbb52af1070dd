"""What selecting on the test set would hide: the best configuration on test beside the one selected on validation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from leaderboards.boards import CONTEST, base_model, label_of
from leaderboards.captions import title
from leaderboards.metrics import METRICS, Metric
from leaderboards.sheets import Column, Sheet, number, sheet

if TYPE_CHECKING:
    import pandas as pd

METRIC = METRICS["best_accuracy"]  # what somebody who selects on test looks at
_COLUMNS = ("selected on validation", "selected on test", "optimism gap", "configurations")


def optimism(board: pd.DataFrame, metric: Metric = METRIC) -> list[Sheet]:
    """A sheet for each cell: how much higher a number is whose configuration was selected by that very number.

    Only configurations with the most seeds of their contest take part, as in `boards.leaderboard`.

    Args:
        board: as `boards.leaderboard` gives it, or some of its rows, all configurations of a contest among them.
        metric: the number.
    """
    sheets = []
    for _, cell in board[board["n"] > 0].groupby("cell", sort=False):
        records = list(_records(cell, metric))
        first = cell.iloc[0]
        setting = json.loads(first["setting_json"])
        name = title(setting | {"model": base_model(setting["model"])}, (), ())
        rates = sorted({json.loads(text)["lr"] for text in cell["setting_json"]})
        local = f"local training: {setting['optimizer']}, lr {', '.join(f'{lr:g}' for lr in rates)}"
        rows = {record["label"]: _texts(record, metric) for record in records}
        if rows:
            sheets.append(
                sheet(
                    name,
                    [
                        f"{metric.quantity.capitalize()}, {metric.of}, {metric.unit}, mean over seeds",
                        local.capitalize(),
                    ],
                    [Column(name) for name in _COLUMNS],
                    rows,
                    ["optimism gap: what selecting on the test set adds to the number, without a better algorithm"],
                    records,
                )
            )
    return sheets


def _records(cell: pd.DataFrame, metric: Metric) -> Iterator[dict[str, Any]]:
    mean = f"{metric.name}_mean"
    for _, contest in cell.groupby(CONTEST, sort=False):
        full = contest[(contest["n"] == contest["n"].max()) & contest[mean].notna()]
        if full.empty:
            continue
        chosen = full[full["selected"]]
        best = full.loc[full[mean].idxmax() if metric.higher_is_better else full[mean].idxmin()]
        validated = None if chosen.empty else chosen.iloc[0]
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


def _texts(record: Mapping[str, Any], metric: Metric) -> Sequence[str]:
    selected = number(record["on_validation"], metric) or "none"
    gap = number(record["gap"], metric, sign=True)
    return [selected, number(record["on_test"], metric), gap, str(record["configurations"])]
