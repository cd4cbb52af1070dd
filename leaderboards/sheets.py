"""Tables whose cells are text: differences from a reference, what holds over all cells, what selecting on test adds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leaderboards.cells import Cell, Head, Row, Table, Words
from leaderboards.metrics import Metric
from leaderboards.stats.intervals import Interval


@dataclass(frozen=True)
class Sheet:
    """A table of text with the numbers behind it.

    Args:
        table: to be printed.
        records: one per number or comparison, as stored (accuracies are fractions): for CSV and JSON.
    """

    table: Table
    records: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Column:
    """One column of text.

    Args:
        name: heading.
        label: what stands above it, and above its neighbours with the same.
    """

    name: str
    label: str = ""


def sheet(
    title: str,
    captions: Sequence[str],
    columns: Sequence[Column],
    rows: Mapping[str, Sequence[str]],
    notes: Sequence[str],
    records: Sequence[Mapping[str, Any]],
) -> Sheet:
    """A table of text.

    Args:
        title: to stand above.
        captions: lines below it.
        columns: from left to right, after the algorithm.
        rows: algorithm -> its texts; an empty one is a place without a value.
        notes: lines at the end.
        records: see `Sheet`.
    """
    places = {label: number for number, label in enumerate(dict.fromkeys(column.label for column in columns))}
    metrics = [Metric(column.name, column.name, column.name, unit="", scale=1.0) for column in columns]
    heads = tuple(
        Head((places[column.label],), column.label, metric) for column, metric in zip(columns, metrics, strict=True)
    )
    made = tuple(Row(name, "", "", tuple(_cells(texts, metrics))) for name, texts in rows.items())
    return Sheet(Table(title, tuple(captions), heads, made, tuple(notes), {}, ("place",)), tuple(records))


def number(value: float | None, metric: Metric, sign: bool = False) -> str:
    """A stored value as the metric prints it; nothing for None."""
    if value is None:
        return ""
    shown = round(value * metric.scale, metric.decimals) + 0.0  # no -0
    return f"{shown:{'+' if sign else ''}.{metric.decimals}f}"


def limits(interval: Interval | None, prefix: str = "") -> dict[str, float | None]:
    """The fields of an interval in a record: `low` and `high`, both None where there is none."""
    low, high = (None, None) if interval is None else (interval.low, interval.high)
    return {f"{prefix}low": low, f"{prefix}high": high}


def _cells(texts: Sequence[str], metrics: Sequence[Metric]) -> Iterator[Cell]:
    for text, metric in zip(texts, metrics, strict=True):
        yield Words("value" if text else "missing", metric, words=text or "–")
