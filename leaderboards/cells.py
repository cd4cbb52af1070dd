"""What a table is made of: cells with their numbers, states, ranks and marks, in rows under heads. No looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from leaderboards.boards import REFERENCES, label_of
from leaderboards.captions import MARKS, WORDS
from leaderboards.identity import canonical_json
from leaderboards.metrics import Metric

Record = Mapping[str, Any]  # one row of a leaderboard; empty values are None
Place = tuple[Any, ...]  # values of the fields that a table is laid out by

BY = ("alpha", "participation")  # those fields, where nothing else is asked for

_COMMON = ("dataset", "model", "partition", "num_clients", "rounds", "local_epochs")
_OWN = (
    *("n", "selected", "selected_on", "configurations", "chosen_on", "validation_gap"),
    *("failed", "stopped", "shortened", "versions_mixed", "cell"),
)


@dataclass(frozen=True)
class Head:
    """What a column shows: a metric at one place.

    Args:
        place: values of the fields that the table is laid out by.
        label: what tells the place from the table's others; empty where there is only one.
        metric: shown there.
    """

    place: Place
    label: str
    metric: Metric


@dataclass(frozen=True)
class Cell:
    """What one algorithm, or one of its configurations, reached in one column.

    Args:
        state: `value`; `diverged` (a run did: the numbers are there, but mean little); `failed`, `stopped` (every run
            was); `unreached` (some seeds have no such value); `missing`.
        metric: of the column.
        record: row of the leaderboard; None where nothing was run.
        rank: 1 is best among the ranked cells of the column, ties share the smaller; None is not ranked.
        emphasis: `best` or `second`, where at least two cells of the column are ranked.
        marks: keys of `captions.MARKS` that apply.
        interval: whether the interval is printed, instead of the standard deviation.
    """

    state: str
    metric: Metric
    record: Record | None = None
    rank: int | None = None
    emphasis: str = ""
    marks: tuple[str, ...] = ()
    interval: bool = False

    def statistic(self, part: str) -> float | None:
        """`mean`, `std`, `low` or `high` over seeds as stored (accuracies are fractions); None where there is none."""
        value = None if self.record is None else self.record[f"{self.metric.name}_{part}"]
        return None if value is None else float(value)

    @property
    def n(self) -> int:
        """Seeds that finished."""
        return 0 if self.record is None else int(self.record["n"])

    @property
    def seeds(self) -> Mapping[int, float]:
        """Seed -> value as stored, where the leaderboard was made `with_seeds`."""
        known = {} if self.record is None else self.record.get("seeds") or {}
        return known.get(self.metric.name) or {}

    def text(self) -> str:
        """As printed, without emphasis: `71.29 ± 0.31 (3)`, `71.29 (1)`, or a word for the state."""
        marks = "".join(MARKS[mark] for mark in self.marks)
        if self.state == "unreached" and self.record is not None:
            return f"{self.record[f'{self.metric.name}_count']} of {self.record['n']}{marks}"
        if self.state != "value" or self.record is None:
            return WORDS[self.state] + marks
        parts = ("mean", "low", "high") if self.interval else ("mean", "std")
        values = [value for part in parts if (value := self.statistic(part)) is not None]
        mean, *rest = (f"{value * self.metric.scale:.{self.metric.decimals}f}" for value in values)
        spread = f" [{', '.join(rest)}]" if self.interval and rest else "".join(f" ± {text}" for text in rest)
        return f"{mean}{spread} ({self.record['n']}){marks}"


@dataclass(frozen=True)
class Words(Cell):
    """A cell whose text is ready."""

    words: str = ""

    def text(self) -> str:
        """As printed."""
        return self.words


@dataclass(frozen=True)
class Row:
    """One line: an algorithm, the model it used, and its hyper-parameters as far as they are worth showing."""

    algorithm: str
    model: str
    hyperparameters: str
    cells: tuple[Cell, ...]

    @property
    def label(self) -> str:
        """As `boards.label_of`."""
        return label_of(self.algorithm, self.model)

    @property
    def reference(self) -> bool:
        """Whether it is a bound to read the others against, not a competitor."""
        return self.algorithm in REFERENCES


@dataclass(frozen=True)
class Table:
    """Results that differ in nothing but the algorithm and the fields that columns stand for.

    Args:
        title: data set, model, partition and schedule.
        captions: lines to stand above.
        heads: one per column, the metrics of one place side by side.
        rows: best first, reference rows last.
        notes: lines to stand below: what the marks and words in it mean.
        setting: every field of the setting but those of `by`.
        by: the fields that columns stand for.
    """

    title: str
    captions: tuple[str, ...]
    heads: tuple[Head, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    setting: Mapping[str, Any]
    by: tuple[str, ...] = BY

    @property
    def shows_hyperparameters(self) -> bool:
        """Whether some row has any to show."""
        return any(row.hyperparameters for row in self.rows)

    def legend(self, emphasis: str) -> str:
        """The line below: `emphasis` (how best and second are set off), if some cell is, and the notes."""
        used = any(cell.emphasis for row in self.rows for cell in row.cells)
        return "; ".join([emphasis] * used + list(self.notes))


def flat(table: Table) -> Iterator[dict[str, Any]]:
    """Every cell of a table as a flat record, numbers as stored: for CSV, JSON and further computing."""
    for row in table.rows:
        for head, cell in zip(table.heads, row.cells, strict=True):
            record: Record = cell.record or {}
            setting = {**table.setting, **dict(zip(table.by, head.place, strict=True))}
            chosen = record.get("chosen")
            yield {
                **{name: setting.get(name) for name in dict.fromkeys([*_COMMON, *BY, *table.by])},
                "algorithm": row.algorithm,
                "variant": row.model,
                "hyperparameters": None if chosen is None else canonical_json(chosen),
                "metric": head.metric.name,
                "state": cell.state,
                **{part: cell.statistic(part) for part in ("mean", "std", "low", "high")},
                "rank": cell.rank,
                **{name: record.get(name) for name in _OWN},
            }
