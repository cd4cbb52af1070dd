"""Parts of a table: cells with their numbers, states, ranks and marks, in rows under heads. No looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leaderboards.flags import FLAGS, STATES
from leaderboards.metrics import Metric
from leaderboards.problems import BY, REFERENCES, Place, Record, label_of
from leaderboards.rows.schema import canonical_json
from leaderboards.stats.seeds import Interval

_COMMON = ("dataset", "model", "partition", "num_clients", "rounds", "local_epochs")
_OWN = (
    *("n", "selected", "selected_on", "configurations", "chosen_on", "validation_gap"),
    *("failed", "stopped", "shortened", "uncertified", "versions_mixed", "cell"),
)


@dataclass(frozen=True)
class Head:
    """A column's heading: a metric at one place.

    Args:
        place: values of the fields that the table is laid out by.
        label: the words that tell the place from the table's others; empty if there is only one.
    """

    place: Place
    label: str
    metric: Metric


@dataclass(frozen=True)
class Cell:
    """The result of one algorithm, or of one of its configurations, in one column.

    Args:
        state: `value`; `diverged` (a run did: the numbers are there, but mean little); `failed`, `stopped` (every run
            was); `unreached` (some seeds have no such value); `missing`.
        metric: of the column.
        record: row of the leaderboard; None if nothing was run.
        rank: 1 is best among the ranked cells of the column, ties share the smaller; None is not ranked.
        emphasis: of the column's best mean `best`, of others on rank 1 `shared`, on rank 2 `second`; empty if all
            share one rank.
        marks: keys of `flags.FLAGS` to be printed as marks.
        interval: whether the interval is printed, instead of the standard deviation.
        words: the text, if it is not made of the record.
    """

    state: str
    metric: Metric
    record: Record | None = None
    rank: int | None = None
    emphasis: str = ""
    marks: tuple[str, ...] = ()
    interval: bool = False
    words: str | None = None

    def statistic(self, part: str) -> float | None:
        """`mean`, `std`, `low` or `high` over seeds as stored (accuracies are fractions); None if there is none."""
        value = None if self.record is None else self.record[f"{self.metric.name}_{part}"]
        return None if value is None else float(value)

    @property
    def n(self) -> int:
        """Seeds that finished."""
        return 0 if self.record is None else int(self.record["n"])

    @property
    def seeds(self) -> Mapping[int, float]:
        """Seed -> value as stored, if the leaderboard was made `with_seeds`."""
        known = {} if self.record is None else self.record.get("seeds") or {}
        return known.get(self.metric.name) or {}

    @property
    def competes(self) -> bool:
        """Whether it takes part in ranks and comparisons: of several configurations only the selected one does."""
        return self.state == "value" and self.record is not None and bool(self.record["selected"])

    def text(self) -> str:
        """As printed, without emphasis: `71.29 ± 0.31 (3)`, `71.29 (1)`, or a word for the state."""
        if self.words is not None:
            return self.words
        marks = "".join(FLAGS[mark].mark for mark in self.marks)
        if self.state == "unreached" and self.record is not None:
            return f"{self.record[f'{self.metric.name}_count']} of {self.record['n']}{marks}"
        if self.state != "value" or self.record is None:
            return STATES[self.state][0] + marks
        parts = ("mean", "low", "high") if self.interval else ("mean", "std")
        values = [value for part in parts if (value := self.statistic(part)) is not None]
        mean, *rest = (number(value, self.metric) for value in values)
        spread = f" [{', '.join(rest)}]" if self.interval and rest else "".join(f" ± {text}" for text in rest)
        return f"{mean}{spread} ({self.record['n']}){marks}"


@dataclass(frozen=True)
class Row:
    """One line: an algorithm, the model it used, and its hyper-parameters as far as they are worth showing."""

    algorithm: str
    model: str
    hyperparameters: str
    cells: tuple[Cell, ...]

    @property
    def label(self) -> str:
        """As `problems.label_of`."""
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
        notes: lines to stand below: the meaning of its marks and words.
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

    def legend(self, best: str, shared: str, second: str) -> str:
        """The line below: how these are set off, each if it occurs, and the notes."""
        used = {cell.emphasis for row in self.rows for cell in row.cells}
        words = {"best": best, "shared": f"{shared} not told apart from the best", "second": second}
        signs = ", ".join(text for name, text in words.items() if name in used)
        return "; ".join([signs] * bool(signs) + list(self.notes))


def flat(table: Table) -> Iterator[dict[str, Any]]:
    """Give every cell of a table as a flat record, numbers as stored: for CSV, JSON and further computing."""
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


@dataclass(frozen=True)
class Sheet:
    """A table whose cells are text; `records` are the numbers behind it as stored (accuracies are fractions)."""

    table: Table
    records: tuple[Mapping[str, Any], ...]


def sheet(
    title: str,
    captions: Sequence[str],
    headings: Sequence[tuple[str, str]],
    rows: Mapping[str, Sequence[str]],
    notes: Sequence[str],
    records: Sequence[Mapping[str, Any]],
) -> Sheet:
    """Make a table of text.

    Args:
        title: to stand above.
        captions: lines below it.
        headings: of the columns after the algorithm, from left to right, each with what stands above it and above its
            neighbours with the same; empty for none.
        rows: algorithm -> its texts; an empty one is a place without a value.
        notes: lines at the end.
        records: see `Sheet`.
    """
    heads = tuple(Head((label,), label, Metric(name, name, name, unit="", scale=1.0)) for name, label in headings)
    lines = tuple(
        Row(
            name,
            "",
            "",
            tuple(
                Cell("value" if text else "missing", head.metric, words=text or STATES["missing"][0])
                for text, head in zip(texts, heads, strict=True)
            ),
        )
        for name, texts in rows.items()
    )
    return Sheet(Table(title, tuple(captions), heads, lines, tuple(notes), {}, ("place",)), tuple(records))


def number(value: float | None, metric: Metric, sign: bool = False) -> str:
    """Print a stored value as its metric does; nothing for None."""
    if value is None:
        return ""
    shown = round(value * metric.scale, metric.decimals) + 0.0  # no -0
    return f"{shown:{'+' if sign else ''}.{metric.decimals}f}"


def limits(interval: Interval | None, prefix: str = "") -> dict[str, float | None]:
    """Give the fields of an interval in a record: `low` and `high`, both None if there is none."""
    low, high = (None, None) if interval is None else (interval.low, interval.high)
    return {f"{prefix}low": low, f"{prefix}high": high}
