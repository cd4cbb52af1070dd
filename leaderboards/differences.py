"""Every algorithm against a reference, seed by seed: the same partition, participants and batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leaderboards.cells import Cell, Head, Table
from leaderboards.metrics import Metric
from leaderboards.sheets import Column, Sheet, limits, number, sheet
from leaderboards.stats.paired import Comparison, corrected, paired

_NOTES = (
    "[low, high] 95 % interval of each difference by itself, Student's t over common seeds",
    "p of the paired t test, corrected by Holm over all comparisons of the table in that metric",
    "not separable: p above 0.05; not tested: fewer than 3 common seeds",
)


@dataclass(frozen=True)
class _Place:
    """One comparison and where it stands."""

    row: str
    head: Head
    comparison: Comparison


def against(table: Table, reference: str) -> Sheet | None:
    """The differences of a table's algorithms from one of them; None where it has no values in the table.

    What diverged, failed, was not run or was not selected has no difference.

    Args:
        table: of a leaderboard made `with_seeds`.
        reference: an algorithm, or its label with its model's variant.
    """
    name = named([row.label for row in table.rows], reference)
    if name is None:
        return None
    places = list(_compared(table, name))
    if not places:
        return None
    metrics = {head.metric.name: head.metric for head in table.heads}
    places = [place for name in metrics for place in _corrected([p for p in places if p.head.metric.name == name])]
    texts = {(place.row, place.head): _text(place.comparison, place.head.metric) for place in places}
    return sheet(
        f"{table.title} · difference from {name}",
        [f"{name} is subtracted; positive is more", *(_measured(metric) for metric in metrics.values())],
        [Column(head.metric.short, head.label) for head in table.heads],
        {row.label: [texts.get((row.label, head), "") for head in table.heads] for row in table.rows}
        | {name: ["reference"] * len(table.heads)},
        _NOTES,
        [_record(table, place) for place in places],
    )


def named(labels: Sequence[str], reference: str) -> str | None:
    """The row that an algorithm's name means: the one so called, else its only variant, as `moon (+head)`."""
    if reference in labels:
        return reference
    variants = dict.fromkeys(label for label in labels if label.startswith(f"{reference} (+"))
    return next(iter(variants)) if len(variants) == 1 else None


def _compared(table: Table, reference: str) -> Iterator[_Place]:
    for number_of, head in enumerate(table.heads):
        cells = [(row.label, row.cells[number_of]) for row in table.rows]
        values = {label: cell.seeds for label, cell in cells if _counts(cell)}
        if reference in values:
            for label in values:
                if label != reference:
                    yield _Place(label, head, paired(values, label, reference))


def _counts(cell: Cell) -> bool:
    """Whether it takes part: of several configurations only the selected one does."""
    return cell.state == "value" and bool(cell.seeds) and bool((cell.record or {}).get("selected"))


def _corrected(places: Sequence[_Place]) -> list[_Place]:
    comparisons = corrected([place.comparison for place in places])
    return [_Place(place.row, place.head, one) for place, one in zip(places, comparisons, strict=True)]


def _text(one: Comparison, metric: Metric) -> str:
    if one.difference is None:
        return "no common seed"
    text = number(one.difference, metric, sign=True)
    if one.interval is None:
        return f"{text} ({one.n}) not tested"
    text += f" [{number(one.interval.low, metric, True)}, {number(one.interval.high, metric, True)}] ({one.n})"
    return f"{text} p {one.adjusted:.2g}" if one.separable else f"{text} not separable"


def _measured(metric: Metric) -> str:
    parts = [metric.quantity, metric.of, metric.unit]
    return f"{metric.short}: {', '.join(part for part in parts if part)}"


def _record(table: Table, place: _Place) -> Mapping[str, Any]:
    one = place.comparison
    return {
        "table": table.title,
        **{name: value for name, value in table.setting.items() if name not in table.by},
        **dict(zip(table.by, place.head.place, strict=True)),
        "metric": place.head.metric.name,
        "algorithm": place.row,
        "reference": one.reference,
        "difference": one.difference,
        **limits(one.interval),
        "n": one.n,
        "p": one.p,
        "p_holm": one.adjusted,
        "separable": one.separable if one.p is not None else None,
        "unpaired_seeds": list(one.unpaired),
    }
