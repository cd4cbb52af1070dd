"""The rules of selection: on which samples, by which number, and what a diverged run counts.

The samples are the server's, on which the global model is measured, or the clients' own, on which
each client's model is measured. A configuration that diverged on a selecting seed is chosen only if
all configurations did.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from leaderboards.rows.frames import by_text

if TYPE_CHECKING:
    import pandas as pd

# Number by which configurations are chosen. The best round is a maximum over noisy rounds; boards
# made by it name it.
RULES = {"last10": "mean_last10_val_accuracy", "best": "best_val_accuracy"}
DEFAULT_RULE = "last10"
CLIENT_RULES = {  # the same, on the clients' own validation samples
    "last10": "mean_last10_client_val_accuracy",
    "best": "best_client_val_accuracy",
}
PROTOCOLS = ("global", "clients")  # of `--select-on`
CLIENTS = "clients"  # value of the column `selected_on`
# Short names of the numbers that a table shows unless others are asked for, by what it selects on.
SHOWN = ("best", "final")
SHOWN_ON_CLIENTS = ("client_selected", "client_final")


class Selection(NamedTuple):
    """The rules by which configurations are selected, and their runs reported.

    Args:
        tuned: setting fields over which configurations are selected.
        confirmed_at: setting field -> value in the cells that were tuned; None shows all seeds,
            confirming or not.
        chosen_by: rule of `RULES`.
        select_on: of `PROTOCOLS`; None is each run's own.
    """

    tuned: tuple[str, ...] = ()
    confirmed_at: Mapping[str, Any] | None = None
    chosen_by: str = DEFAULT_RULE
    select_on: str | None = None


ALL_RUNS = Selection()  # no field was tuned, and runs of all seeds are reported


def shown_of(rows: pd.DataFrame) -> tuple[str, ...]:
    """Return the numbers to show of rows with a column `selected_on`: on clients if all are."""
    of_clients = len(rows) > 0 and bool((rows["selected_on"] == CLIENTS).all())
    return SHOWN_ON_CLIENTS if of_clients else SHOWN


def selected_on(setting: Mapping[str, Any], protocol: str | None = None) -> str:
    """Return what configurations are selected on in a setting, a value of the column `selected_on`.

    Args:
        setting: its fields by name; a field at its default may be missing.
        protocol: of `PROTOCOLS`; None for the setting's own, the clients' samples if it has any.
    """
    if setting.get("local_validation_fraction") and protocol != "global":
        return CLIENTS
    held_out = setting.get("validation_fraction") and protocol != CLIENTS
    return "validation" if held_out else "none"


def selecting_number(chosen_by: str, samples: str) -> str:
    """Return the number that selects configurations by a rule, on `samples`, of `selected_on`."""
    return CLIENT_RULES[chosen_by] if samples == CLIENTS else RULES[chosen_by]


def with_protocol(runs: pd.DataFrame, protocol: str | None) -> pd.DataFrame:
    """Replace the column `selected_on` of runs by what `--select-on` asks for; None leaves it."""
    if protocol is None:
        return runs
    settings = runs["setting_json"]
    samples = by_text(settings, lambda text: selected_on(json.loads(text), protocol))
    return runs.assign(selected_on=samples.astype(str))


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
    """Return which configurations can be selected, because they ended finite on all their seeds.

    If a contest has no such configuration, all of its configurations can.

    Args:
        board: one row per configuration, with a column `diverged`: whether any of its runs did.
        contest: the columns that name the contest of a configuration.
    """
    finite = ~board["diverged"].astype(bool)
    finite_exists = finite.groupby([board[name] for name in contest]).transform("any")
    return finite | ~finite_exists
