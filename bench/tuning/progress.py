"""What a person sees while a sweep runs: a live table on a terminal, plain lines elsewhere. All on stderr."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.terminal.words import counted, duration
from bench.tuning.events import Display, Watched

PLAIN_SECONDS = 10.0


@dataclass(frozen=True)
class Ahead:
    """What a sweep has to do.

    Args:
        trials: how many.
        work: that they take together, in a unit that is the same for all of them.
        of: what one of them takes.
    """

    trials: int
    work: float
    of: Callable[[Watched], float]


@dataclass
class _Trial:
    """A trial's work, and the shares of it that were done before, and are done now."""

    work: float
    before: float
    now: float


class Tally:
    """Counts shared by both displays: trials done, the best value so far, the time left.

    Args:
        ahead: what the sweep has to do.
    """

    def __init__(self, ahead: Ahead) -> None:
        self.total = ahead.trials
        self.done = self.failed = 0
        self.best, self.best_trial, self.best_of = math.nan, "", ""
        self._ahead = ahead
        self._trials: dict[str, _Trial] = {}
        self._ended: set[str] = set()
        self._dropped = 0.0  # work that nobody will do: of trials that failed or were stopped
        # Time and work at the first report: what came before is start-up, and says nothing of what is left.
        self._first: tuple[float, float] | None = None

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Note a report."""
        before = trial.share_before(report)
        self._trials.setdefault(trial.name, _Trial(self._ahead.of(trial), before, before)).now = trial.share(report)
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
        """Note an end; what a sampler proposes again is the trial that it was."""
        if report.get("status") == "interrupted" or trial.name in self._ended:
            return
        self._ended.add(trial.name)
        known = self._trials.get(trial.name)
        self._dropped += known.work * (1 - known.now) if known else self._ahead.of(trial)
        self.done += 1
        self.failed += report.get("status") == "failed"

    @property
    def fraction(self) -> float:
        """Share of the whole work that is done, or that nobody will do."""
        over = self._dropped + sum(trial.work * trial.now for trial in self._trials.values())
        return min(1.0, over / self._ahead.work) if self._ahead.work else 1.0

    @property
    def seconds_left(self) -> float:
        """Estimated from the work done here since the first report; NaN before there is any."""
        if self._first is None or self._worked <= self._first[1]:
            return math.nan
        pace = (time.monotonic() - self._first[0]) / (self._worked - self._first[1])
        return pace * self._ahead.work * (1 - self.fraction)

    @property
    def _worked(self) -> float:
        """Work done here, by this command."""
        return sum(trial.work * (trial.now - trial.before) for trial in self._trials.values())

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

    needs_curves = False

    def __init__(self, ahead: Ahead) -> None:
        self.tally = Tally(ahead)
        self._last = time.monotonic()

    def started(self, trial: Watched) -> None:
        """Nothing."""

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """A line if the last one is a while ago."""
        self.tally.reported(trial, report)
        if time.monotonic() - self._last >= PLAIN_SECONDS:
            self.say(self.tally.line(f"{trial.name} round {report.get('round')}"))

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """A line; none of a trial that never began."""
        self.tally.ended(trial, report)
        if began(report):
            self.say(self.tally.line(f"{ending(report)}: {trial.name}"))
        if report.get("status") != "failed" and trouble(report):
            self.say(trouble(report, trial.name))

    def say(self, line: str) -> None:
        """A line."""
        self._last = time.monotonic()
        sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def close(self) -> None:
        """Nothing to do."""


class Quiet:
    """Nothing but failures."""

    needs_curves = False

    def started(self, trial: Watched) -> None:
        """Nothing."""

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Nothing."""

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """A line if it failed."""
        if trouble(report):
            self.say(trouble(report, trial.name))

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
    if status == "environment":  # why is said at the end
        return "not all of it can go on"
    return f"{status} after {counted(rounds, 'round')}" if status == "stopped" and rounds else status


def make_display(ahead: Ahead, quiet: bool) -> Display:
    """The display that fits where stderr goes."""
    if quiet:
        return Quiet()
    if not sys.stderr.isatty() or os.environ.get("TERM") in ("dumb", "unknown"):
        return Plain(ahead)
    from bench.tuning.live import Live

    return Live(ahead)
