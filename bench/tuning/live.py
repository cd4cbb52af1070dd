"""The live table of a sweep on a terminal: what is done, and a line for each running trial. Redrawn in place."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bench.planning.labels import in_common
from bench.terminal.foot import Foot
from bench.terminal.words import counted, duration, spread
from bench.tuning.events import Watched, differences
from bench.tuning.progress import Ahead, Tally, began, ending, trouble

if TYPE_CHECKING:
    from rich.text import Text

BAR = 24
GAP = "  "
OWN_COLUMNS = {"alpha": "α", "participation": "C"}  # settings that have columns of their own, if they vary
SOMETIMES = set(OWN_COLUMNS.values())
SHRINKS = "configuration"  # the column that gives way first, down to this many characters
LEAST = 12
GIVES_WAY = ("left", "accuracy", SHRINKS)  # what a narrow terminal does without, in this order
AROUND = 7  # lines of a screen that are not rows: head, column names, what is left out, the cursor's


@dataclass
class Row:
    """A running trial."""

    trial: Watched
    report: Mapping[str, Any] = field(default_factory=dict)
    share: float = 0.0
    at: float = math.nan
    # Time and work at the first report: what came before is start-up.
    first: tuple[float, float] | None = None

    def update(self, report: Mapping[str, Any]) -> None:
        """Note a report."""
        self.report, self.at = report, time.monotonic()
        self.share = self.trial.share(report)
        self.first = self.first or (self.at, self.share)

    @property
    def seconds_left(self) -> float:
        """Estimated from the rounds since the first report; NaN before there are any."""
        if self.first is None or self.share <= self.first[1]:
            return math.nan
        pace = (self.at - self.first[0]) / (self.share - self.first[1])
        return max(0.0, pace * (1 - self.share) - (time.monotonic() - self.at))

    @cached_property
    def _identity(self) -> dict[str, str]:
        """The columns that stay: what the trial's runs have in common, and the seeds, or how many runs they are."""
        units = self.trial.units
        parts = [*in_common(units, self.trial.varied, but=OWN_COLUMNS), *differences(units, but=OWN_COLUMNS)]
        seeds = [unit.seed for unit in units]
        alike = not differences(units)
        return {
            "algorithm": units[0].algorithm,
            **{title: spread(unit.setting.as_dict()[n] for unit in units) for n, title in OWN_COLUMNS.items()},
            SHRINKS: " ".join(parts if alike else [counted(len(units), "run"), *parts]),
            "seed": str(seeds[0]) if len(set(seeds)) == 1 else f"{min(seeds)}-{max(seeds)}",
        }

    def cells(self) -> dict[str, str]:
        """What each column says of it."""
        left = self.seconds_left
        return {
            **self._identity,
            "round": f"{self.report.get('round', 0)}/{self.trial.rounds}",
            "accuracy": _percent(self.report.get("accuracy", math.nan)),
            "best": _percent(self.report.get("best_accuracy", math.nan)),
            "left": "" if math.isnan(left) else duration(left),
        }


class Table:
    """The trials of a sweep that run: each has a row, in the order in which they began."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}
        self._columns: set[str] = set()  # those that have said something; they stay, so that nothing jumps about

    def started(self, trial: Watched) -> None:
        """Add the trial's row."""
        self._rows[trial.name] = Row(trial)
        self._columns |= {title for name, title in OWN_COLUMNS.items() if name in trial.varied.fields}

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Renew the trial's row."""
        if trial.name not in self._rows:
            self.started(trial)
        self._rows[trial.name].update(report)

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Take the trial's row away."""
        self._rows.pop(trial.name, None)

    @property
    def running(self) -> int:
        """Trials that have begun and not ended."""
        return len(self._rows)

    def lines(self, width: int, height: int) -> list[str]:
        """Column names and rows in at most `height` lines of at most `width` characters; none without rows."""
        rows = list(self._rows.values())
        if not rows:
            return []
        shown = max(1, height - 2) if len(rows) > height - 1 else len(rows)
        cells = [row.cells() for row in rows[:shown]]
        self._columns |= {name for row in cells for name, text in row.items() if text and name not in SOMETIMES}
        lines = list(laid_out(cells, [name for name in cells[0] if name in self._columns], width))
        return [*lines, f"… and {len(rows) - shown} more"[:width]] if shown < len(rows) else lines


def laid_out(cells: Sequence[Mapping[str, str]], names: Sequence[str], width: int) -> Iterator[str]:
    """Column names, then rows, in columns that fit the width: one shrinks, then some are left out, then lines are cut.

    Args:
        cells: of each row by column.
        names: the columns in order.
        width: characters of a line.
    """
    wide = {name: max(len(name), *(len(row[name]) for row in cells)) for name in names}
    for dropped in range(len(GIVES_WAY) + 1):
        kept = {name: wide[name] for name in names if name not in GIVES_WAY[:dropped]}
        excess = sum(kept.values()) + len(GAP) * (len(kept) - 1) - width
        spare = max(0, kept.get(SHRINKS, 0) - LEAST)
        if excess <= spare:
            break
    if SHRINKS in kept:
        kept[SHRINKS] -= max(0, min(excess, spare))
    for row in ({name: name for name in names}, *cells):
        yield _cut(GAP.join(_cut(row[name], size).ljust(size) for name, size in kept.items()).rstrip(), width)


class Live:
    """A display with a table below its counts; what else is said scrolls above them.

    Args:
        ahead: what the sweep has to do.
    """

    needs_curves = False

    def __init__(self, ahead: Ahead) -> None:
        self.tally, self.table = Tally(ahead), Table()
        self._began = time.monotonic()
        self._foot = Foot(self._drawn)

    def started(self, trial: Watched) -> None:
        """Note it; the next redrawing shows it."""
        self.table.started(trial)

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """Note it; the next redrawing shows it."""
        self.table.reported(trial, report)
        self.tally.reported(trial, report)

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        """A line that stays, whole if something went wrong; none of a trial that never began."""
        self.table.ended(trial, report)
        self.tally.ended(trial, report)
        line = trouble(report, trial.name) or _cut(_ended(trial.name, report), self._foot.width)
        if began(report):
            self.say(line)

    def say(self, line: str) -> None:
        """A line above the table, whole."""
        self._foot.say(line)

    def close(self) -> None:
        """Leave the counts, and the terminal as it was."""
        self._foot.close()

    def _drawn(self, width: int, height: int) -> Iterator[Text]:
        yield from self._head(width)
        yield from self._body(width, height - AROUND)

    def _head(self, width: int) -> Iterator[Text]:
        """A bar, counts, and the best value so far."""
        from rich.text import Text

        share, left = self.tally.fraction, self.tally.seconds_left
        full = round(BAR * share)
        ahead = "" if math.isnan(left) or self.tally.done >= self.tally.total else f", about {duration(left)} left"
        elapsed = _clock(time.monotonic() - self._began)
        bar = Text.assemble(("━" * full, "cyan"), ("━" * (BAR - full), "dim"))
        yield _line(bar.append(f" {math.floor(100 * share):3d} %  {elapsed}{ahead}"), width)
        yield _line(Text(self._counts()), width)
        if self.tally.best_trial:
            best = f"best {self.tally.best_of} so far {100 * self.tally.best:.2f} %  {self.tally.best_trial}"
            yield _line(Text(best), width)

    def _counts(self) -> str:
        """Trials by what became of them."""
        tally, running = self.tally, self.table.running
        parts = [
            f"{tally.done}/{counted(tally.total, 'trial')} done",
            *([f"{tally.failed} failed"] if tally.failed else []),
        ]
        pending = max(0, tally.total - tally.done - running)
        parts += [f"{count} {what}" for count, what in ((running, "running"), (pending, "pending")) if count]
        return ", ".join(parts)

    def _body(self, width: int, height: int) -> Iterator[Text]:
        """An empty line, column names, rows."""
        from rich.text import Text

        for index, line in enumerate(self.table.lines(width, height)):
            if index == 0:
                yield Text()
            yield _line(Text(line, style="dim" if index == 0 or line.startswith("…") else ""), width)


def _line(text: Text, width: int) -> Text:
    """One line, cut to the width."""
    text.no_wrap, text.overflow = True, "ellipsis"
    text.truncate(width, overflow="ellipsis")
    return text


def _ended(trial: str, report: Mapping[str, Any]) -> str:
    """`finished, accuracy 93.50 %, best 94.10 %: fedavg seed 0`."""
    known = {"accuracy": report.get("accuracy", math.nan), "best": report.get("best_accuracy", math.nan)}
    values = [f", {name} {_percent(value)} %" for name, value in known.items() if not math.isnan(value)]
    return f"{ending(report)}{''.join(values)}: {trial}"


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.2f}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"[:width]


def _clock(seconds: float) -> str:
    """`0:01:12`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
