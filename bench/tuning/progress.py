"""What a person sees while a sweep runs: a live table on a terminal, plain lines elsewhere. All on stderr.

Executors tell `Events` what happens; a `Display` hears of trials by name, an `Observer` of the trials themselves.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from bench.planning.labels import Varied, trial_name, varied_names
from bench.planning.unit import Unit
from bench.terminal.words import counted, duration, spread

PLAIN_SECONDS = 10.0


class Display(Protocol):
    """Shows a sweep's progress."""

    def update(self, trial: str, report: Mapping[str, Any], share: float) -> None:
        """A trial reported; `share` of it is done."""

    def finish(self, trial: str, report: Mapping[str, Any]) -> None:
        """A trial ended."""

    def say(self, line: str) -> None:
        """A sentence for the user."""

    def close(self) -> None:
        """The sweep is over."""


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
        return float(report["round"] / self.rounds)


class Observer(Protocol):
    """Watches the trials of a sweep. `needs_curves`: reports shall carry what `bench.tuning.logs.Feed` attaches."""

    needs_curves: bool

    def started(self, trial: Watched) -> None:
        """A trial begins."""

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """A trial reported."""

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """A trial ended, its status in the report."""


class Events:
    """Passes on what happens in a sweep.

    Args:
        display: told of reports and ends.
        observers: told of everything.
    """

    def __init__(self, display: Display, observers: Sequence[Observer] = ()) -> None:
        self._display, self._observers = display, observers
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
        self._display.update(trial.name, report, trial.share(report))

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """A trial ended."""
        trial = self._distinct(trial)
        for observer in self._observers:
            observer.ended(trial, report)
        self._display.finish(trial.name, report)

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


class Tally:
    """Counts shared by both displays: trials done, the best value so far, the time left.

    Args:
        total: trials of the sweep.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = self.failed = 0
        self.shares: dict[str, float] = {}
        self.best, self.best_trial, self.best_of = math.nan, "", ""
        # Time and work at the first report: what came before is start-up, and says nothing of what is left.
        self._first: tuple[float, float] | None = None

    def update(self, trial: str, report: Mapping[str, Any], share: float) -> None:
        """Note a report."""
        self.shares[trial] = share
        self._first = self._first or (time.monotonic(), self.fraction)
        if report.get("status") == "failed":
            return
        value, of = report.get("objective", math.nan), "validation"
        if math.isnan(value) and self.best_of != of:
            value, of = report.get("best_accuracy", math.nan), "test"
        if not math.isnan(value) and not value <= self.best:
            self.best, self.best_trial, self.best_of = value, trial, of

    def finish(self, trial: str, report: Mapping[str, Any]) -> None:
        """Note an end."""
        if report.get("status") == "interrupted":
            return
        self.shares[trial] = 1.0
        self.done += 1
        self.failed += report.get("status") == "failed"

    @property
    def fraction(self) -> float:
        """Share of the whole work that is done."""
        return min(1.0, sum(self.shares.values()) / self.total) if self.total else 1.0

    @property
    def seconds_left(self) -> float:
        """Estimated from the work done since the first report; NaN before there is any."""
        if self._first is None or self.fraction <= self._first[1]:
            return math.nan
        elapsed = time.monotonic() - self._first[0]
        return elapsed * (1 - self.fraction) / (self.fraction - self._first[1])

    def line(self, news: str = "") -> str:
        """All of it in one line, what is new after the counts."""
        parts = [f"{self.done}/{counted(self.total, 'trial')}", *([] if self._first or self.done else ["starting"])]
        if self.failed:
            parts.append(f"{self.failed} failed")
        parts += [news] if news else []
        if self.done < self.total and not math.isnan(self.seconds_left):
            parts.append(f"about {duration(self.seconds_left)} left")
        if self.best_trial:
            parts.append(f"best {self.best_of} so far {100 * self.best:.2f} % ({self.best_trial})")
        return " · ".join(parts)


class Plain:
    """Lines on stderr: when a trial ends, and now and then in between."""

    def __init__(self, total: int) -> None:
        self.tally = Tally(total)
        self._last = time.monotonic()

    def update(self, trial: str, report: Mapping[str, Any], share: float) -> None:
        """A line if the last one is a while ago."""
        self.tally.update(trial, report, share)
        if time.monotonic() - self._last >= PLAIN_SECONDS:
            self._line(self.tally.line(f"{trial} round {report.get('round')}"))

    def finish(self, trial: str, report: Mapping[str, Any]) -> None:
        """A line; none of a trial that never began."""
        self.tally.finish(trial, report)
        if began(report):
            self._line(self.tally.line(f"{ending(report)}: {trial}"))
        if report.get("status") != "failed" and trouble(report):
            self._line(trouble(report, trial))

    def say(self, line: str) -> None:
        """A line."""
        self._line(line)

    def close(self) -> None:
        """Nothing to do."""

    def _line(self, text: str) -> None:
        self._last = time.monotonic()
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


class Quiet:
    """Nothing but failures."""

    def update(self, trial: str, report: Mapping[str, Any], share: float) -> None:
        """Nothing."""

    def finish(self, trial: str, report: Mapping[str, Any]) -> None:
        """A line if it failed."""
        if trouble(report):
            self.say(trouble(report, trial))

    def say(self, line: str) -> None:
        """A line."""
        sys.stderr.write(line + "\n")

    def close(self) -> None:
        """Nothing to do."""


def trouble(report: Mapping[str, Any], trial: str = "") -> str:
    """What went wrong in a trial, in a line; empty if nothing did."""
    if report.get("status") == "failed":
        return f"failed: {trial}: {report.get('error')}"
    return f"diverged: {trial}: {report['diverged']}" if report.get("diverged") else ""


def began(report: Mapping[str, Any]) -> bool:
    """Whether a trial that ended had begun, of its last report: of those that had not there may be hundreds."""
    return bool(report.get("round")) or report.get("status") not in ("interrupted", "environment")


def ending(report: Mapping[str, Any]) -> str:
    """How a trial ended, of its last report: `finished`, `finished, 3 of its runs stopped early`, `failed`."""
    status, rounds = str(report.get("status")), report.get("round")
    if status == "finished" and report.get("stopped"):
        return f"finished, {report['stopped']} of its runs stopped early"
    return f"{status} after {counted(rounds, 'round')}" if status == "stopped" and rounds else status


def make_display(total: int, quiet: bool) -> tuple[Display, list[Observer]]:
    """The display that fits where stderr goes, and what of it watches the trials themselves."""
    if quiet:
        return Quiet(), []
    if not sys.stderr.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        return Plain(total), []
    from bench.tuning.live import Live

    live = Live(total)
    return live, [live.table]
