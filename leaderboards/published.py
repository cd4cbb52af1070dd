"""The numbers that papers print, cell by cell.

They are kept in `published.csv`, in this suite's names; docs/make.py makes `published.parquet` of
it. Accuracies, AMP and WLP are fractions, FM is a variance of fractions, rounds and steps are plain
counts, whatever scale the paper prints. FedDKD's "FEMNIST" is EMNIST's letters, as in FedMAX. Of
FedProto's Table 1 they are MNIST's, of algorithms that this suite has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from leaderboards.numbers import (
    METRICS,
    Curve,
    Number,
    RoundRule,
    Unit,
    at_round,
    best_round,
    cut,
    last_round,
    reached,
    value_at,
)

PUBLISHED = Path(__file__).with_name("published.parquet")

# Quantity (a metric of our curves, or `rounds`) -> its unit.
UNITS = {"rounds": Unit("rounds"), **{name: metric.unit for name, metric in METRICS.items()}}
# Rule for the round at which a number is read -> its definition.
RULES = {
    "best": "highest test accuracy of all rounds",
    "final": "last round",
    "at_round": "after so many rounds",
    "selected": "round of the best validation accuracy",
    "to_target": "first round whose test accuracy reaches the target",
    "unstated": "which round is not stated: the last is compared",
}
_SHORT_QUANTITIES = {
    "accuracy": "",
    "local_accuracy": "local",
    "client_mean": "clients' mean",
    "client_std": "clients' std",
    "communications": "exchanges",
    "train_steps": "steps",
}
_SHORT_RULES = {"at_round": "round", "to_target": "to", "unstated": "test"}
_FIND: dict[str, RoundRule] = {
    "best": best_round("accuracy"),
    "final": last_round,
    "selected": best_round("val_accuracy"),
    "unstated": last_round,
}


def printed_number(name: str, quantity: str, rule: str, argument: float | None = None) -> Number:
    """Make the number of a run that a paper prints.

    Its `quantity` is its definition in words.

    Args:
        name: in `published.parquet`, such as `acc_at_round_50`.
        quantity: key of `UNITS`.
        rule: key of `RULES`.
        argument: the round of `at_round`, the accuracy of `to_target`; None for the other rules.
    """
    if rule == "at_round":
        find = at_round(int(argument or 0))
    elif rule == "to_target":
        find = reached(argument or 0.0)
    else:
        find = _FIND[rule]
    read = find if quantity == "rounds" else value_at(quantity, find)
    meaning = f"{quantity.replace('_', ' ')}: {RULES[rule]}"
    short = _short_name(quantity, rule, argument)
    return Number(name, meaning, UNITS[quantity], read, short)


def _short_name(quantity: str, rule: str, argument: float | None) -> str:
    """Return a name for a heading: `best`, `round 50`, `steps to 0.74`."""
    if quantity in ("amp", "fm", "wlp"):
        return quantity.upper()
    number = "" if argument is None else f"{argument:g}"
    words = (_SHORT_QUANTITIES.get(quantity, quantity), _SHORT_RULES.get(rule, rule), number)
    return " ".join(filter(None, words))


@dataclass(frozen=True)
class PrintedCell:
    """One printed number: a row of `published.parquet`.

    Args:
        table: as printed, such as `3` or `IV`; `fig2` is the caption of FedGKD's Figure 2.
        dataset: name in this suite, like `model`, which is without the variants that some
            algorithms need.
        heterogeneity: `dirichlet`, `pathological`, `by_source`, `by_writer` or `n_way`, numbers of
            classes around `classes_per_client`.
        alpha: Dirichlet concentration; None for other kinds of heterogeneity.
        classes_per_client: None where it has no meaning.
        client_models: the clients' models, as in a setting; None if all have `model`.
        rounds: of the run as the row describes it; None if not stated.
        read_to: the round up to which the paper reads the row off a longer run; None for a whole
            run.
        printed: the row's name in print.
        hyperparameters: as the row's name states them, as canonical JSON.
        metric: name of a `printed_number`; its quantity, rule and argument follow.
        unit: of `value`, the printed mean, and `std`, the printed spread over runs (None if there
            is none).
        note: known inconsistencies or doubts about it; None if there are none.
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
    classes_per_client: int | None
    client_models: str | None
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
    def measured(self) -> Number:
        """The definition of `metric`."""
        return printed_number(self.metric, self.quantity, self.rule, self.argument)

    def value_of(self, curve: Curve) -> float | None:
        """Read the number off a run's curve; None if the curve does not tell it."""
        read = cut(curve, self.read_to) if self.read_to else curve
        return self.measured.value(read)

    @property
    def variant(self) -> Mapping[str, Any]:
        """Hyper-parameters that the row's name states, by name."""
        values: dict[str, Any] = json.loads(self.hyperparameters)
        return values


@dataclass(frozen=True)
class Counterpart:
    """A printed number with one configuration of ours that may correspond to it.

    Args: printed: the number. algorithm: its name in our rows. hp_json: its hyper-parameters in our
        rows. setting: every field of its setting. label: the hyper-parameters that distinguish it
        from the number's other counterparts; empty if it is the only one.
    """

    printed: PrintedCell
    algorithm: str
    hp_json: str
    setting: Mapping[str, Any]
    label: str


@cache
def printed_cells() -> tuple[PrintedCell, ...]:
    """Read all printed numbers, in the order of print."""
    import pyarrow.parquet as pq

    return tuple(PrintedCell(**record) for record in pq.read_table(PUBLISHED).to_pylist())
