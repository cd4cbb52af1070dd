"""The events of a sweep, and its progress on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.planning.run_spec import RunSpec, Varied, samples_of, trial_name
from bench.terminal.console import tell
from bench.terminal.words import counted, duration
from leaderboards.shell_text import printable

if TYPE_CHECKING:
    from rich.progress import TaskID

PLAIN_SECONDS = 10.0


@dataclass(frozen=True)
class Watched:
    """A trial as observers know it: its name and its runs."""

    name: str
    units: tuple[RunSpec, ...]

    @property
    def key(self) -> str:
        """The run key of its first run: names may be alike."""
        return self.units[0].key

    @property
    def rounds(self) -> int:
        """Rounds of its longest run."""
        return max(unit.setting.rounds for unit in self.units)

    def share(self, report: Mapping[str, Any]) -> float:
        """The share of its rounds that is done."""
        return float(report["rounds_done"] / sum(unit.setting.rounds for unit in self.units))


def watched(units: Sequence[RunSpec], varied: Mapping[str, Varied]) -> Watched:
    """Name the trial of some runs of one algorithm. `varied` has the names that differ in the sweep, by algorithm."""
    return Watched(trial_name(units, varied), tuple(units))


class Observer:
    """Watches the trials of a sweep. `needs_curves`: it reads the curves of reports (`Execution.report_curves`)."""

    needs_curves = False

    def started(self, trial: Watched) -> None:
        """A trial begins."""

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """A trial reported."""

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """A trial ended, its status in the report."""


def work_of(units: Sequence[RunSpec]) -> float:
    """The samples that runs train on: by them a sweep's progress is told."""
    return sum(samples_of(unit.setting)[0] for unit in units)


class Tally:
    """Trials done, the share of the work that is over, and the time left, of so many trials and their work together."""

    def __init__(self, trials: int, work: float) -> None:
        self.done = self.failed = 0
        self._trials, self._work = trials, work
        self._over: dict[str, float] = {}  # key -> work of a trial that is done, or that nobody will do
        # Time and share at the first report: start-up before it says nothing about the pace.
        self._first: tuple[float, float] | None = None

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Note a report."""
        self._over[trial.key] = work_of(trial.units) * trial.share(report)
        self._first = self._first or (time.monotonic(), self.fraction)

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Note an end."""
        if report.get("status") != "interrupted":
            self._over[trial.key] = work_of(trial.units)
            self.done += 1
            self.failed += report.get("status") == "failed"

    @property
    def fraction(self) -> float:
        """Share of the whole work that is over."""
        return min(1.0, sum(self._over.values()) / self._work) if self._work else 1.0

    @property
    def seconds_left(self) -> float:
        """Time left at the pace since the first report; NaN before there is one."""
        began, before = self._first or (0.0, 1.0)
        if self.fraction <= before:
            return math.nan
        return (time.monotonic() - began) * (1 - self.fraction) / (self.fraction - before)

    def counts(self) -> str:
        """`2/3 trials, 1 failed`."""
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.done}/{counted(self._trials, 'trial')}{failed}"

    def line(self, news: str) -> str:
        """Describe the sweep in a line, with `news` at its end."""
        left = f", about {duration(self.seconds_left)} left" if self.seconds_left > 0 else ""
        return f"{self.counts()}{left} · {news}"


class Quiet(Observer):
    """A display of failures alone; the base of the others."""

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Show what went wrong in a trial."""
        if trouble(trial, report):
            self.say(trouble(trial, report))

    def say(self, line: str) -> None:
        """Write a line to stderr."""
        tell(line)

    def close(self) -> None:
        """Leave stderr as it was."""


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
    """A bar for the sweep and one for each running trial, redrawn in place; other lines scroll above them."""

    def __init__(self, trials: int, work: float) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.table import Column

        self._tally = Tally(trials, work)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
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
        self._tasks[trial.key] = self._progress.add_task(trial.name, total=1.0, round="", accuracy="")

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Renew the trial's bar and the sweep's."""
        self._tally.reported(trial, report)
        self._progress.update(
            self._tasks[trial.key],
            completed=trial.share(report),
            round=f"{report['round']}/{trial.rounds}",
            accuracy=_percent(report["accuracy"]),
        )
        self._renew()

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Replace the trial's bar by a line that stays; a trial that never began leaves none."""
        self._tally.ended(trial, report)
        if trial.key in self._tasks:
            self._progress.remove_task(self._tasks.pop(trial.key))
        self._renew()
        if line := ending(trial, report):
            self.say(line)

    def say(self, line: str) -> None:
        """Write a line above the bars."""
        self._progress.console.print(printable(line), markup=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the sweep's bar, and the terminal as it was."""
        self._progress.stop()

    def _renew(self) -> None:
        """Draw the sweep's bar as the tally stands."""
        self._progress.update(self._sweep, description=self._tally.counts(), completed=self._tally.fraction)


def _percent(value: float | None) -> str:
    """`93.50 %`; empty without a value."""
    return "" if value is None or math.isnan(value) else f"{100 * value:.2f} %"


def trouble(trial: Watched, report: Mapping[str, Any]) -> str:
    """Describe what went wrong in a trial in a line; empty if nothing did."""
    if report.get("status") == "failed":
        return f"failed: {trial.name}: {report.get('error')}"
    return f"diverged: {trial.name}: {report['diverged']}" if report.get("diverged") else ""


def ending(trial: Watched, report: Mapping[str, Any]) -> str:
    """Say how a trial ended; empty if it never began, as hundreds of a sweep that is interrupted."""
    how = str(report.get("status"))
    if not report.get("round") and how in ("interrupted", "environment"):
        return ""
    if how == "environment":  # the reason is said when the sweep ends
        how = "not all of it can go on"
    values = {"accuracy": report.get("accuracy"), "best": report.get("best_accuracy")}
    shown = [f", {name} {_percent(value)}" for name, value in values.items() if _percent(value)]
    return trouble(trial, report) or f"{how}{''.join(shown)}: {trial.name}"


def make_display(trials: int, work: float, quiet: bool) -> Quiet:
    """Choose the display that fits where stderr goes."""
    if quiet:
        return Quiet()
    terminal = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    return Live(trials, work) if terminal else Plain(trials, work)
