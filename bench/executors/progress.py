"""The events of a sweep, and its progress on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.errors import EXIT_ENVIRONMENT, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from bench.planning.run_spec import RunSpec
from bench.planning.trial_names import Varied, trial_name
from bench.planning.work import samples_of
from bench.terminal.console import tell
from bench.terminal.words import counted, duration
from leaderboards.shell_text import printable

if TYPE_CHECKING:
    from rich.progress import TaskID

PLAIN_SECONDS = 10.0


@dataclass(frozen=True)
class Watched:
    """A trial as observers see it: its name and its runs."""

    name: str
    run_specs: tuple[RunSpec, ...]

    @property
    def key(self) -> str:
        """The run key of the first run, because names may be equal."""
        return self.run_specs[0].key

    @property
    def rounds(self) -> int:
        """Rounds of the longest run."""
        return max(run_spec.setting.rounds for run_spec in self.run_specs)

    def share(self, report: Mapping[str, Any]) -> float:
        """Return the share of the trial's rounds that is done."""
        return float(
            report["rounds_done"] / sum(run_spec.setting.rounds for run_spec in self.run_specs)
        )


def watched(run_specs: Sequence[RunSpec], varied: Mapping[str, Varied]) -> Watched:
    """Name the trial of some runs of one algorithm.

    `varied`: the names that differ in the sweep, by algorithm.
    """
    return Watched(trial_name(run_specs, varied), tuple(run_specs))


class Observer:
    """An observer of a sweep's trials."""

    def started(self, trial: Watched) -> None:
        """Handle the start of a trial."""

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Handle a report of a trial."""

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Handle the end of a trial, with its status in the report."""


class Events(Observer):
    """The events of a sweep: it passes them on to observers, and records how trials ended.

    Args:
        observers: who are told.

    Attributes:
        statuses: of the trials that ended.
        problems: of trials, and of the machine.
        tracebacks: of failed runs.
        interrupted: whether the sweep was stopped before its end.
    """

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self.statuses: list[str] = []
        self.problems: list[str] = []
        self.tracebacks: list[str] = []
        self.interrupted = False
        self._observers = tuple(observers)

    def started(self, trial: Watched) -> None:
        """Pass on the start of a trial."""
        for observer in self._observers:
            observer.started(trial)

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Pass on a report of a trial."""
        for observer in self._observers:
            observer.reported(trial, report)

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Pass on the end of a trial, and record its last report."""
        for observer in self._observers:
            observer.ended(trial, report)
        self.note(report)

    def note(self, report: Mapping[str, Any]) -> None:
        """Record how a trial ended, or that the machine is not ready."""
        self.statuses.append(report.get("status", "finished"))
        if report.get("error"):
            self.problems.append(str(report["error"]))
        if report.get("traceback"):
            self.tracebacks.append(str(report["traceback"]))

    @property
    def exit_status(self) -> int:
        """The command's exit status; a problem that the user has to solve takes precedence."""
        if "environment" in self.statuses:
            return EXIT_ENVIRONMENT
        if self.interrupted or "interrupted" in self.statuses:
            return EXIT_INTERRUPTED
        return EXIT_FAILED if "failed" in self.statuses else EXIT_OK


def work_of(run_specs: Sequence[RunSpec]) -> float:
    """Count the samples that runs train on, by which a sweep's progress is measured."""
    return sum(map(samples_of, run_specs))


class Tally:
    """Counts of finished trials, the share of the work that is done, and the time left.

    `work`: of all `trials`.
    """

    def __init__(self, trials: int, work: float) -> None:
        self.done = self.failed = 0
        self._trials = trials
        self._work = work
        # Key of a trial -> its work that is done, or will never be.
        self._over: dict[str, float] = {}
        # Time and share at the first report, because the start-up before it says nothing about the
        # pace.
        self._first: tuple[float, float] | None = None

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Record a report."""
        self._over[trial.key] = work_of(trial.run_specs) * trial.share(report)
        self._first = self._first or (time.monotonic(), self.fraction)

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Record the end of a trial."""
        if report.get("status") != "interrupted":
            self._over[trial.key] = work_of(trial.run_specs)
            self.done += 1
            if report.get("status") == "failed":
                self.failed += 1

    @property
    def fraction(self) -> float:
        """Share of the whole work that is done."""
        return min(1.0, sum(self._over.values()) / self._work) if self._work else 1.0

    @property
    def seconds_left(self) -> float:
        """Time left at the pace since the first report; NaN before there is one."""
        if self._first is None:
            return math.nan
        began, before = self._first
        if self.fraction <= before:
            return math.nan
        return (time.monotonic() - began) * (1 - self.fraction) / (self.fraction - before)

    def counts(self) -> str:
        """Format the trials that are done: `2/3 trials, 1 failed`."""
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.done}/{counted(self._trials, 'trial')}{failed}"

    def line(self, news: str) -> str:
        """Describe the sweep in a line, with `news` at its end."""
        time_left = f", about {duration(self.seconds_left)} left" if self.seconds_left > 0 else ""
        return f"{self.counts()}{time_left} · {news}"


class Quiet(Observer):
    """A display that shows only failures; the base of the others."""

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Show what went wrong in a trial."""
        if trouble(trial, report):
            self.say(trouble(trial, report))

    def say(self, line: str) -> None:
        """Write a line to stderr."""
        tell(line)

    def close(self) -> None:
        """Restore stderr."""


class Plain(Quiet):
    """Lines on stderr: when a trial ends, and every `PLAIN_SECONDS` in between."""

    def __init__(self, trials: int, work: float) -> None:
        self._tally = Tally(trials, work)
        self._last = time.monotonic()

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Write a line if the last one is a while ago."""
        self._tally.reported(trial, report)
        if time.monotonic() - self._last >= PLAIN_SECONDS:
            self._last = time.monotonic()
            self.say(self._tally.line(f"{trial.name} round {report['round']}"))

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Write a line, but none for a trial that never began."""
        self._tally.ended(trial, report)
        if line := ending(trial, report):
            self._last = time.monotonic()
            self.say(self._tally.line(line))


class Live(Quiet):
    """A bar for the sweep and one for each running trial, redrawn in place.

    Other lines scroll above them.
    """

    def __init__(self, trials: int, work: float) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.table import Column

        self._tally = Tally(trials, work)
        self._progress = Progress(
            TextColumn(
                "{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)
            ),
            TextColumn("{task.fields[round]}"),
            TextColumn("{task.fields[accuracy]}"),
            BarColumn(bar_width=10),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True, highlight=False, emoji=False),
            refresh_per_second=2,
            speed_estimate_period=3600,  # a round may take minutes
            redirect_stdout=False,  # the tables of results
            expand=True,
        )
        self._sweep = self._progress.add_task("starting", total=1.0, round="", accuracy="")
        self._tasks: dict[str, TaskID] = {}
        self._progress.start()
        self._progress.console.show_cursor()  # a killed sweep cannot bring a hidden cursor back

    def started(self, trial: Watched) -> None:
        """Add the trial's bar."""
        self._tasks[trial.key] = self._progress.add_task(
            trial.name, total=1.0, round="", accuracy=""
        )

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Update the trial's bar and the sweep's."""
        self._tally.reported(trial, report)
        self._progress.update(
            self._tasks[trial.key],
            completed=trial.share(report),
            round=f"{report['round']}/{trial.rounds}",
            accuracy=_percent(report["accuracy"]),
        )
        self._update_sweep()

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Replace the trial's bar by a line that stays; a trial that never began leaves none."""
        self._tally.ended(trial, report)
        if trial.key in self._tasks:
            self._progress.remove_task(self._tasks.pop(trial.key))
        self._update_sweep()
        if line := ending(trial, report):
            self.say(line)

    def say(self, line: str) -> None:
        """Write a line above the bars."""
        self._progress.console.print(printable(line), markup=False, soft_wrap=True)

    def close(self) -> None:
        """Stop the display and restore the terminal; the sweep's bar stays visible."""
        self._progress.stop()

    def _update_sweep(self) -> None:
        """Draw the sweep's bar according to the tally."""
        self._progress.update(
            self._sweep, description=self._tally.counts(), completed=self._tally.fraction
        )


def _percent(value: float | None) -> str:
    """Format a share as `93.50 %`; empty without a value."""
    return "" if value is None or math.isnan(value) else f"{100 * value:.2f} %"


def trouble(trial: Watched, report: Mapping[str, Any]) -> str:
    """Describe the failure or divergence of a trial in a line; empty if there is none."""
    if report.get("status") == "failed":
        return f"failed: {trial.name}: {report.get('error')}"
    return f"diverged: {trial.name}: {report['diverged']}" if report.get("diverged") else ""


def ending(trial: Watched, report: Mapping[str, Any]) -> str:
    """Describe how a trial ended.

    Empty if it never began, like many trials of an interrupted sweep.
    """
    status = str(report.get("status"))
    if not report.get("round") and status in ("interrupted", "environment"):
        return ""
    if problem := trouble(trial, report):
        return problem
    # The reason of an environment's problem is printed when the sweep ends.
    text = "some of its runs cannot continue" if status == "environment" else status
    for name, number in (("accuracy", "accuracy"), ("best", "best_accuracy")):
        if value := _percent(report.get(number)):
            text += f", {name} {value}"
    return f"{text}: {trial.name}"


def make_display(trials: int, work: float, quiet: bool) -> Quiet:
    """Choose a display: only failures, bars on a terminal, or plain lines."""
    if quiet:
        return Quiet()
    terminal = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    return Live(trials, work) if terminal else Plain(trials, work)
