"""The rules of selection: the number on validation samples, and what a run that diverged counts.

A configuration that diverged on a selecting seed is chosen only if every other one did.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# Number by which configurations are chosen. The best round is a maximum over noisy rounds; boards
# made by it name it.
RULES = {"last10": "mean_last10_val_accuracy", "best": "best_val_accuracy"}
DEFAULT_RULE = "last10"


def selection_value(accuracies: Collection[float], diverged: bool) -> float:
    """Compute the value of a configuration, the largest of which is selected.

    Args:
        accuracies: of each seed, the number of a rule of `RULES`, a fraction; at least one.
        diverged: whether a run of any seed diverged.

    Returns:
        Their mean, in [0, 1]; 1 less, in [-1, 0], if a seed diverged, so that none that ended
        finite loses to it.
    """
    mean = math.fsum(accuracies) / len(accuracies)
    return mean - 1 if diverged else mean


def selectable(board: pd.DataFrame, contest: list[str]) -> pd.Series:
    """Return which configurations can be selected: those that ended finite on all their seeds.

    If there are none in a contest, all of it can.

    Args:
        board: one row per configuration, with a column `diverged`: whether any of its runs did.
        contest: the columns that name the contest of a configuration.
    """
    finite = ~board["diverged"].astype(bool)
    finite_exists = finite.groupby([board[name] for name in contest]).transform("any")
    return finite | ~finite_exists
