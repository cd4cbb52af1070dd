"""A sweep's progress on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.executors.events import Display, Watched
from bench.terminal.console import tell
from bench.terminal.words import counted, duration
from leaderboards.shell_text import printable

if TYPE_CHECKING:
    from rich.progress import TaskID

PLAIN_SECONDS = 10.0


@dataclass(frozen=True)
class Ahead:
    """A sweep's number of trials, their work together, and the work `of` one of them in the same unit."""

    trials: int
    work: float
    of: Callable[[Watched], float]


class Tally:
    """Trials done, the best value so far, and the time left."""

    def __init__(self, ahead: Ahead) -> None:
        self.total = ahead.trials
        self.done = self.failed = 0
        self.best, self.best_trial, self.best_of = math.nan, "", ""
        self._ahead = ahead
        self._trials: dict[str, tuple[float, float, float]] = {}  # key -> work, its share done before, its share now
        self._ended: set[str] = set()
        self._dropped = 0.0  # work that nobody will do, of trials that failed or were stopped
        # Time and work at the first report: start-up before it says nothing about the pace.
        self._first: tuple[float, float] | None = None

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Note a report."""
        work, before, _ = self._trials.get(trial.key) or (self._ahead.of(trial), trial.share_before(report), 0.0)
        self._trials[trial.key] = work, before, trial.share(report)
        self._first = self._first or (time.monotonic(), self._worked)
        if report.get("status") == "failed":
            return
        value, of = report.get("objective", math.nan), "validation"
        if value < 0:  # of what failed
            return
        if math.isnan(value) and self.best_of != of:
            value, of = report.get("best_accuracy", math.nan), "test"
        if not math.isnan(value) and not value <= self.best:
            self.best, self.best_trial, self.best_of = value, trial.name, of

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Note an end, once for a trial that a sampler proposes again."""
        if report.get("status") == "interrupted" or trial.key in self._ended:
            return
        self._ended.add(trial.key)
        work, _, share = self._trials.get(trial.key) or (self._ahead.of(trial), 0.0, 0.0)
        self._dropped += work * (1 - share)
        self.done += 1
        self.failed += report.get("status") == "failed"

    @property
    def fraction(self) -> float:
        """Share of the whole work that is done or dropped."""
        over = self._dropped + sum(work * share for work, _, share in self._trials.values())
        return min(1.0, over / self._ahead.work) if self._ahead.work else 1.0

    @property
    def seconds_left(self) -> float:
        """Time left at the pace since the first report; NaN before there is one."""
        if self._first is None or self._worked <= self._first[1]:
            return math.nan
        pace = (time.monotonic() - self._first[0]) / (self._worked - self._first[1])
        return pace * self._ahead.work * (1 - self.fraction)

    @property
    def _worked(self) -> float:
        """Work done here, by this command."""
        return sum(work * (share - before) for work, before, share in self._trials.values())

    def line(self, news: str = "") -> str:
        """Describe the sweep in a line, with `news` after the counts."""
        parts = [f"{self.done}/{counted(self.total, 'trial')}", *([] if self._first or self.done else ["starting"])]
        if self.failed:
            parts.append(f"{self.failed} failed")
        parts += [news] if news else []
        if self.done < self.total and not math.isnan(self.seconds_left):
            parts.append(f"about {duration(self.seconds_left)} left")
        if self.best_trial:
            parts.append(f"best {self.best_of} so far {100 * self.best:.2f} % ({self.best_trial})")
        return " · ".join(parts)


class Quiet:
    """A display of failures alone; the base of the others."""

    needs_curves = False

    def started(self, trial: Watched) -> None:
        """Show that a trial begins."""

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Show what a trial reached."""

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Show how a trial ended."""
        if trouble(report):
            self.say(trouble(report, trial.name))

    def say(self, line: str) -> None:
        """Write a line to stderr."""
        tell(line)

    def close(self) -> None:
        """Leave stderr as it was."""


class Plain(Quiet):
    """Lines on stderr: when a trial ends, and every `PLAIN_SECONDS` in between."""

    def __init__(self, ahead: Ahead) -> None:
        self.tally = Tally(ahead)
        self._last = time.monotonic()

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Write a line if the last one is a while ago."""
        self.tally.reported(trial, report)
        if time.monotonic() - self._last >= PLAIN_SECONDS:
            self._last = time.monotonic()
            self.say(self.tally.line(f"{trial.name} round {report.get('round')}"))

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Write a line, but none for a trial that never began."""
        self.tally.ended(trial, report)
        if began(report):
            self._last = time.monotonic()
            self.say(self.tally.line(f"{ending(report)}: {trial.name}"))
        if report.get("status") != "failed" and trouble(report):
            self.say(trouble(report, trial.name))


class Live(Quiet):
    """A bar for the sweep and one for each running trial, redrawn in place; other lines scroll above them."""

    def __init__(self, ahead: Ahead) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.table import Column

        self.tally = Tally(ahead)
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
        self.tally.reported(trial, report)
        self._progress.update(
            self._tasks[trial.key],
            completed=trial.share(report),
            round=f"{report['round']}/{trial.rounds}",
            accuracy=_percent(report["accuracy"]),
        )
        self._renew()

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Replace the trial's bar by a line that stays; a trial that never began leaves none."""
        self.tally.ended(trial, report)
        if trial.key in self._tasks:
            self._progress.remove_task(self._tasks.pop(trial.key))
        self._renew()
        if began(report):
            values = {"accuracy": report.get("accuracy"), "best": report.get("best_accuracy")}
            shown = [f", {name} {_percent(value)}" for name, value in values.items() if _percent(value)]
            self.say(trouble(report, trial.name) or f"{ending(report)}{''.join(shown)}: {trial.name}")

    def say(self, line: str) -> None:
        """Write a line above the bars."""
        self._progress.console.print(printable(line), markup=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the sweep's bar, and the terminal as it was."""
        self._progress.stop()

    def _renew(self) -> None:
        """Draw the sweep's bar as the tally stands."""
        tally = self.tally
        parts = [f"{tally.done}/{counted(tally.total, 'trial')}", *([f"{tally.failed} failed"] * bool(tally.failed))]
        if tally.best_trial:
            parts.append(f"best {tally.best_of} {_percent(tally.best)}")
        self._progress.update(self._sweep, description=", ".join(parts), completed=tally.fraction)


def _percent(value: float | None) -> str:
    """`93.50 %`; empty without a value."""
    return "" if value is None or math.isnan(value) else f"{100 * value:.2f} %"


def trouble(report: Mapping[str, Any], trial: str = "") -> str:
    """Describe what went wrong in a trial in a line; empty if nothing did."""
    if report.get("status") == "failed":
        return f"failed: {trial}: {report.get('error')}"
    return f"diverged: {trial}: {report['diverged']}" if report.get("diverged") else ""


def began(report: Mapping[str, Any]) -> bool:
    """Whether a trial had begun when it ended: a sweep that is interrupted may end hundreds that had not."""
    return bool(report.get("round")) or report.get("status") not in ("interrupted", "environment")


def ending(report: Mapping[str, Any]) -> str:
    """Say how a trial ended, from its last report: `finished`, `stopped after 2 rounds`, `failed`."""
    status, rounds = str(report.get("status")), report.get("round")
    if status == "finished" and report.get("stopped"):
        return f"finished, {report['stopped']} of its runs stopped early"
    if status == "environment":  # the reason is said when the sweep ends
        return "not all of it can go on"
    return f"{status} after {counted(rounds, 'round')}" if status == "stopped" and rounds else status


def make_display(ahead: Ahead, quiet: bool) -> Display:
    """Choose the display that fits where stderr goes."""
    if quiet:
        return Quiet()
    terminal = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    return Live(ahead) if terminal else Plain(ahead)
