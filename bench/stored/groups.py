"""Groups of leaderboard cells that differ only in alpha and participation; facts of records."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from algorithms import ALGORITHMS
from bench.stored.fields import worth_telling
from bench.stored.results import Record
from bench.terminal.words import counted
from leaderboards import problems
from leaderboards.numbers import METRICS, Number
from leaderboards.problems import BY, FINETUNED, REFERENCES, Cell, Problem, label_of
from leaderboards.selection import CLIENTS
from leaderboards.shell_text import typed
from leaderboards.tables.captions import local_training


@dataclass(frozen=True)
class Group(Problem):
    """Cells of a page that share everything but alpha and participation, and perhaps partition.

    `key` is `s1`, `s2`, ... in the order of the page.
    """

    key: str = ""

    @property
    def models(self) -> str:
        """The model, and the clients' models if they have their own."""
        return problems.model_words(self.setting)

    @property
    def name(self) -> str:
        """Data set and model, and the fields that distinguish it from the page's other groups."""
        others = field_words(self, {"client_models"})
        return " · ".join([self.setting["dataset"], self.models, *others])

    @property
    def title(self) -> str:
        """The main facts of the setting, which all its numbers share."""
        setting = self.setting
        included = ("partition", "num_clients", "rounds", "local_epochs", "client_models")
        rounds = counted(setting["rounds"], "round")
        epochs = counted(setting["local_epochs"], "local epoch")
        others = [name for name in self.differing if name not in included]
        parts = [
            f"{setting['dataset']} · {self.models}",
            f"{setting['partition']}, {counted(setting['num_clients'], 'client')}",
            f"{rounds} × {epochs}",
            local_training(setting, others),
        ]
        parts += field_words(self, {*setting, "client_models"})
        return " · ".join(parts)

    @cached_property
    def alphas(self) -> tuple[str, ...]:
        """The values of alpha, as printed, in ascending order."""
        return tuple(dict.fromkeys(number(alpha) for alpha, _ in self.places))

    @cached_property
    def participations(self) -> tuple[str, ...]:
        """The values of participation, as printed, in ascending order."""
        values = {participation for _, participation in self.places}
        return tuple(number(value) for value in sorted(values))


def field_words(problem: Problem, told: Collection[str]) -> list[str]:
    """Describe the fields in which a problem differs from its neighbours, as `lr 0.1`.

    Fields in `told` are left out, and those of which there is nothing to tell.
    """
    words = []
    for name in problem.differing:
        value = worth_telling(name, problem.setting)
        if name not in told and value is not None:
            words.append(f"{name} {number(value)}")
    return words


def groups_of(records: Iterable[Record], across: Sequence[str] = BY) -> tuple[Group, ...]:
    """Group the records of a leaderboard, by data set and model.

    `across`: the fields in which the cells of a group may differ.
    """
    first = ("dataset", "model", "num_clients", "rounds")
    grouped = problems.problems(records, across, beside=("dataset", "model"), first=first)
    return tuple(Group(**vars(problem), key=f"s{i}") for i, problem in enumerate(grouped, start=1))


def is_reference(record: Record) -> bool:
    """Tell whether a record is a bound to compare others with, not a competitor."""
    return record["algorithm"] in REFERENCES


def on_clients(records: Iterable[Record]) -> bool:
    """Tell whether all records are selected on clients' own samples; False if there are none."""
    return {record["selected_on"] for record in records} == {CLIENTS}


def accuracy_of(records: Iterable[Record]) -> Number:
    """Return the metric of curves that records are judged by."""
    return METRICS["amp" if on_clients(records) else "accuracy"]


def ranked(cell: Cell) -> dict[str, Record]:
    """Return by label the record of every algorithm that is ranked.

    Ranked are selected rows that did not diverge and are no reference.
    """
    return {
        label_of(record): record
        for record in cell.selected
        if record["run_of_seed"] and not record["diverged"] and not is_reference(record)
    }


def labels_of(records: Sequence[Record]) -> tuple[str, ...]:
    """Return every algorithm's label in the order of the colours: the registry's, then others."""
    positions = {name: position for position, name in enumerate(ALGORITHMS)}

    def place(record: Record) -> tuple[int, str, str]:
        trained = record["algorithm"].removesuffix(FINETUNED)
        return positions.get(trained, len(positions)), record["algorithm"], record["model"]

    return tuple(dict.fromkeys(map(label_of, sorted(records, key=place))))


def number(value: Any) -> str:
    """Format a field's value as the page prints it: `0.1`, `true`, `–` for none."""
    return "–" if value is None else typed(value)


def hyperparameters(record: Record) -> dict[str, Any]:
    """Return the hyper-parameters of a record, and the fields that were tuned, by name."""
    values: dict[str, Any] = json.loads(record["hp_json"])
    return values
