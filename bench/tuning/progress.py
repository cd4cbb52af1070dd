"""What a person sees while a sweep runs: one live display on a terminal, plain lines elsewhere. All on stderr."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol

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

    def line(self) -> str:
        """All of it in one line."""
        parts = [f"{self.done}/{self.total} trials", *([] if self._first else ["starting"])]
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.best_trial:
            parts.append(f"best {self.best_of} so far {100 * self.best:.2f} % ({self.best_trial})")
        if self.done < self.total and not math.isnan(self.seconds_left):
            parts.append(f"about {duration(self.seconds_left)} left")
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
            self._line(f"{self.tally.line()} · {trial} round {report.get('round')}")

    def finish(self, trial: str, report: Mapping[str, Any]) -> None:
        """A line."""
        self.tally.finish(trial, report)
        self._line(f"{self.tally.line()} · {report.get('status')}: {trial}")
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


class Live:
    """One bar on a terminal, redrawn in place."""

    def __init__(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self.tally = Tally(total)
        columns = (
            BarColumn(24),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
        )
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._bar = self._progress.add_task(self.tally.line(), total=1.0)
        self._progress.start()

    def update(self, trial: str, report: Mapping[str, Any], share: float) -> None:
        """Redraw."""
        self.tally.update(trial, report, share)
        self._redraw()

    def finish(self, trial: str, report: Mapping[str, Any]) -> None:
        """Redraw, and keep a line of a failure."""
        self.tally.finish(trial, report)
        if trouble(report):
            self.say(trouble(report, trial))
        self._redraw()

    def say(self, line: str) -> None:
        """A line above the bar."""
        self._progress.console.print(line, markup=False, highlight=False)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._redraw()
        self._progress.stop()

    def _redraw(self) -> None:
        self._progress.update(self._bar, completed=self.tally.fraction, description=self.tally.line())


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


def make_display(total: int, quiet: bool) -> Display:
    """The display that fits where stderr goes."""
    if quiet:
        return Quiet()
    return Live(total) if sys.stderr.isatty() else Plain(total)


def duration(seconds: float) -> str:
    """`90 s`, `12 min`, `3.4 h`, `2.1 days`."""
    if math.isnan(seconds):
        return "unknown"
    for size, unit, top in ((1, "s", 120), (60, "min", 7200), (3600, "h", 172800)):
        if seconds < top:
            return f"{seconds / size:.1f} {unit}" if size == 3600 else f"{max(1, round(seconds / size))} {unit}"
    return f"{seconds / 86400:.1f} days"
