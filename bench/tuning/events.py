"""What happens in a sweep, and who hears of it: executors tell `Events`, which tell displays and logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from bench.planning.labels import Varied, trial_name, varied_names
from bench.planning.unit import Unit
from bench.terminal.words import spread


@dataclass(frozen=True)
class Watched:
    """A trial as observers know it: its name, its runs, and what is varied of them."""

    name: str
    units: tuple[Unit, ...]
    varied: Varied

    @property
    def rounds(self) -> int:
        """Of its longest run."""
        return max(unit.setting.rounds for unit in self.units)

    def share(self, report: Mapping[str, Any]) -> float:
        """How much of it is done."""
        return float(report["rounds_done"] / sum(unit.setting.rounds for unit in self.units))

    def share_before(self, report: Mapping[str, Any]) -> float:
        """How much of it was done when it began here: it went on from saved states, or was stored."""
        return float(report["rounds_before"] / sum(unit.setting.rounds for unit in self.units))


class Observer(Protocol):
    """Watches the trials of a sweep. `needs_curves`: reports shall carry what `bench.tuning.logs.Feed` attaches."""

    needs_curves: bool

    def started(self, trial: Watched) -> None:
        """A trial begins."""

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """A trial reported."""

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """A trial ended, its status in the report."""


class Display(Observer, Protocol):
    """An observer that shows a sweep's progress to a person."""

    def say(self, line: str) -> None:
        """A sentence for the user."""

    def close(self) -> None:
        """The sweep is over."""


class Events:
    """Passes on what happens in a sweep.

    Args:
        observers: told of everything, in this order.
    """

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        self._known: dict[str, Watched] = {}
        self._names: Counter[str] = Counter()

    @property
    def needs_curves(self) -> bool:
        """Whether somebody reads the curves of the reports."""
        return any(observer.needs_curves for observer in self._observers)

    def started(self, trial: Watched) -> None:
        """A trial begins."""
        trial = self._distinct(trial)
        for observer in self._observers:
            observer.started(trial)

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """A trial reported."""
        trial = self._distinct(trial)
        for observer in self._observers:
            observer.reported(trial, report)

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """A trial ended."""
        trial = self._distinct(trial)
        for observer in self._observers:
            observer.ended(trial, report)

    def _distinct(self, trial: Watched) -> Watched:
        """With a name that no other trial has: what many values are shortened to, others may be as well."""
        key = trial.units[0].key
        if key not in self._known:
            self._names[trial.name] += 1
            number = self._names[trial.name]
            self._known[key] = trial if number == 1 else replace(trial, name=f"{trial.name} ({number})")
        return self._known[key]


def watched(units: Sequence[Unit], varied: Mapping[str, Varied]) -> Watched:
    """The trial of these runs. `varied`: of the sweep, by algorithm."""
    name = " ".join([trial_name(units, varied), *_inside(units)])
    return Watched(name, tuple(units), varied.get(units[0].algorithm, Varied()))


def _inside(units: Sequence[Unit]) -> list[str]:
    """What tells the runs of a pack apart, in brackets, and with it this pack from others: `(mu=0.1,1 seeds 0-3)`."""
    parts = differences(units)
    if not parts:  # the seeds of one configuration
        return []
    seeds = sorted({unit.seed for unit in units})
    return [f"({' '.join([*parts, *([f'seeds {seeds[0]}-{seeds[-1]}'] if len(seeds) > 1 else [])])})"]


def differences(units: Sequence[Unit], but: Collection[str] = ()) -> list[str]:
    """The values in which runs of one algorithm differ, by name: `mu=0.1,1`.

    Args:
        units: the runs.
        but: setting fields that are left out.
    """
    inside = varied_names(units)[units[0].algorithm]
    fields = [unit.setting.as_dict() for unit in units]
    values = [unit.hyperparameters for unit in units]
    found = [f"{name}={spread(own[name] for own in fields)}" for name in inside.fields if name not in but]
    return found + [f"{name}={spread(own[name] for own in values)}" for name in inside.hyperparameters]
