"""The numbers that the four papers print, cell by cell.

`published.parquet` beside this file is made from `published.csv` by `leaderboards.published_source`. Accuracies, AMP
and WLP are fractions, FM is a variance of fractions, rounds and steps are single ones, whatever scale the paper prints.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from leaderboards.metrics import METRICS

PUBLISHED = Path(__file__).with_name("published.parquet")

# Quantity, which is a metric of our curves unless it is `rounds` -> its unit.
UNITS = {
    "accuracy": "fraction",
    "local_accuracy": "fraction",
    "amp": "fraction",
    "fm": "fraction^2",
    "wlp": "fraction",
    "rounds": "rounds",
    "communications": "exchanges",
    "train_steps": "steps",
}
# Rule of the round that a number is read at -> its definition.
RULES = {
    "best": "highest test accuracy of all rounds",
    "final": "last round",
    "at_round": "after so many rounds",
    "selected": "round of the best validation accuracy",
    "to_target": "first round whose test accuracy reaches the target",
    "unstated": "which round is not stated: the last is compared",
}


@dataclass(frozen=True)
class PrintedMetric:
    """The definition of a printed number.

    Args:
        name: in `published.parquet`, such as `acc_at_round_50`.
        quantity: key of `UNITS`.
        rule: key of `RULES`.
        argument: the round of `at_round`, the accuracy of `to_target`; None for the other rules.
    """

    name: str
    quantity: str
    rule: str
    argument: float | None = None

    @property
    def meaning(self) -> str:
        """The definition in words, without its argument."""
        return f"{self.quantity.replace('_', ' ')}: {RULES[self.rule]}"

    @property
    def short(self) -> str:
        """For a heading: `best`, `round 50`, `steps to 0.74`."""
        if self.quantity in ("amp", "fm", "wlp"):
            return self.quantity.upper()
        what = {"accuracy": "", "local_accuracy": "local", "communications": "exchanges", "train_steps": "steps"}
        rule = {"at_round": "round", "to_target": "to", "unstated": "test"}.get(self.rule, self.rule)
        number = "" if self.argument is None else f"{self.argument:g}"
        return " ".join(part for part in (what.get(self.quantity, self.quantity), rule, number) if part)

    @property
    def scale(self) -> float:
        """Number to show = scale x stored number: percent for accuracies, thousandths for FM."""
        return {"fraction": 100.0, "fraction^2": METRICS["fm"].scale}.get(UNITS[self.quantity], 1.0)

    @property
    def decimals(self) -> int:
        """Digits after the point to show."""
        return {"fraction": 2, "fraction^2": METRICS["fm"].decimals}.get(UNITS[self.quantity], 0)


_PLAIN = {
    "best_acc": ("accuracy", "best"),
    "final_acc": ("accuracy", "final"),
    "test_acc": ("accuracy", "unstated"),
    "final_local_model_acc": ("local_accuracy", "final"),
    "acc_best_val": ("accuracy", "selected"),
    "round_best_val": ("rounds", "selected"),
    "comm_round_best_val": ("communications", "selected"),
    "train_steps_best_val": ("train_steps", "selected"),
    "amp": ("amp", "unstated"),
    "fm": ("fm", "unstated"),
    "wlp": ("wlp", "unstated"),
}
_TO_TARGET = {"rounds": "rounds", "comm_rounds": "communications", "train_steps": "train_steps"}


def metric_called(name: str) -> PrintedMetric:
    """Define a metric by its name in `published.parquet`.

    Raises:
        ValueError: no table has a metric of that name.
    """
    if name in _PLAIN:
        return PrintedMetric(name, *_PLAIN[name])
    if match := re.fullmatch(r"acc_at_round_(\d+)", name):
        return PrintedMetric(name, "accuracy", "at_round", float(match[1]))
    if match := re.fullmatch(r"(rounds|comm_rounds|train_steps)_to_acc_(0\.\d+)", name):
        return PrintedMetric(name, _TO_TARGET[match[1]], "to_target", float(match[2]))
    raise ValueError(f"no printed metric {name!r}; known: {', '.join(_PLAIN)}, acc_at_round_N, rounds_to_acc_X, ...")


@dataclass(frozen=True)
class PrintedCell:
    """One printed number: a row of `published.parquet`.

    Args:
        table: as printed, such as `3` or `IV`; `fig2` is the caption of FedGKD's Figure 2.
        dataset: name in this suite, as `model` is, which goes without the forms that single algorithms need.
        heterogeneity: `dirichlet`, `pathological`, `by_source` or `by_writer`.
        alpha: Dirichlet concentration; None for the others.
        rounds: of the run as the row describes it; None where not stated.
        read_to: a row that the paper reads off the first so many rounds of a longer run; None for a whole run.
        printed: the row's name in print.
        hyperparameters: what the row's name itself says, as canonical JSON.
        metric: see `metric_called`; its quantity, rule and argument follow.
        unit: of `value`, the printed mean, and `std`, the printed spread over runs (None where there is none).
        note: what is known to be inconsistent or unclear about it; None if nothing.
    """

    paper: str
    table: str
    dataset: str
    model: str
    heterogeneity: str
    alpha: float | None
    num_clients: int
    participation: float
    local_epochs: int
    rounds: int | None
    read_to: int | None
    algorithm: str
    printed: str
    hyperparameters: str
    metric: str
    quantity: str
    rule: str
    argument: float | None
    unit: str
    value: float
    std: float | None
    note: str | None

    @property
    def measured(self) -> PrintedMetric:
        """The definition of `metric`."""
        return PrintedMetric(self.metric, self.quantity, self.rule, self.argument)

    @property
    def variant(self) -> Mapping[str, Any]:
        """Hyper-parameters that the row's name says, by name."""
        values: dict[str, Any] = json.loads(self.hyperparameters)
        return values


@cache
def printed_cells() -> tuple[PrintedCell, ...]:
    """Read all printed numbers, in the order of print."""
    import pyarrow.parquet as pq

    return tuple(PrintedCell(**record) for record in pq.read_table(PUBLISHED).to_pylist())
