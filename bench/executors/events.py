"""The events of a sweep: executors tell `Events`, which tell displays and logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bench.planning.labels import Varied, trial_name, varied_names
from bench.planning.run_spec import RunSpec
from bench.terminal.words import spread


@dataclass(frozen=True)
class Watched:
    """A trial as observers know it: its name and its runs."""

    name: str
    units: tuple[RunSpec, ...]

    @property
    def key(self) -> str:
        """The run key of its first run: names may be shortened alike."""
        return self.units[0].key

    @property
    def rounds(self) -> int:
        """Rounds of its longest run."""
        return max(unit.setting.rounds for unit in self.units)

    def share(self, report: Mapping[str, Any]) -> float:
        """The share of its rounds that is done."""
        return float(report["rounds_done"] / sum(unit.setting.rounds for unit in self.units))

    def share_before(self, report: Mapping[str, Any]) -> float:
        """The share of its rounds that was done when it began here, from saved states or stored rows."""
        return float(report["rounds_before"] / sum(unit.setting.rounds for unit in self.units))


class Observer(Protocol):
    """Watches the trials of a sweep. `needs_curves`: it reads the curves of reports (`Execution.report_curves`)."""

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
    """Passes the events of a sweep on to observers, in their order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        self.needs_curves = any(observer.needs_curves for observer in observers)

    def started(self, trial: Watched) -> None:
        """Tell that a trial begins."""
        for observer in self._observers:
            observer.started(trial)

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Tell a trial's report."""
        for observer in self._observers:
            observer.reported(trial, report)

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Tell that a trial ended."""
        for observer in self._observers:
            observer.ended(trial, report)


def watched(units: Sequence[RunSpec], varied: Mapping[str, Varied]) -> Watched:
    """Name the trial of some runs of one algorithm; a pack's name ends with what differs in it: `(mu=0.1 seeds 0-3)`.

    `varied` has the names that differ in the sweep, by algorithm.
    """
    name = trial_name(units, varied)
    inside = varied_names(units)[units[0].algorithm]
    fields = [unit.setting.as_dict() for unit in units]
    parts = [f"{field}={spread(values[field] for values in fields)}" for field in inside.fields]
    parts += [f"{field}={spread(unit.hyperparameters[field] for unit in units)}" for field in inside.hyperparameters]
    seeds = sorted({unit.seed for unit in units})
    if parts and len(seeds) > 1:
        parts.append(f"seeds {seeds[0]}-{seeds[-1]}")
    return Watched(f"{name} ({' '.join(parts)})" if parts else name, tuple(units))
