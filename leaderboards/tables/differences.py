"""Every algorithm against a reference, seed by seed: the same partition, participants and batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leaderboards.metrics import Metric
from leaderboards.stats.paired import Comparison, corrected, paired
from leaderboards.tables.captions import measured
from leaderboards.tables.model import Head, Sheet, Table, limits, number, sheet

_NOTES = (
    "[low, high] 95 % interval of each difference by itself, Student's t over common seeds",
    "p of the paired t test, corrected by Holm over all comparisons of the table in that metric",
    "not separable: p above 0.05; not tested: fewer than 3 common seeds",
)


def against(table: Table, reference: str) -> Sheet | None:
    """Compare a table's algorithms with one of them; None if it has no values in the table.

    Runs that diverged or failed, and configurations that were not selected, have no difference.

    Args:
        table: of a leaderboard made `with_seeds`.
        reference: an algorithm, or its label with its model's variant.
    """
    name = named([row.label for row in table.rows], reference)
    if name is None:
        return None
    metrics = {head.metric.name: head.metric for head in table.heads}
    compared: dict[tuple[str, Head], Comparison] = {}
    for metric in metrics:  # each a family of its own
        places: list[tuple[str, Head]] = []
        family: list[Comparison] = []
        for column, head in enumerate(table.heads):
            cells = {row.label: row.cells[column] for row in table.rows if row.cells[column].competes}
            values = {label: cell.seeds for label, cell in cells.items() if cell.seeds}
            if head.metric.name == metric and name in values:
                others = [label for label in values if label != name]
                places += [(label, head) for label in others]
                family += [paired(values, label, name) for label in others]
        compared |= zip(places, corrected(family), strict=True)
    if not compared:
        return None
    texts = {place: _text(comparison, place[1].metric) for place, comparison in compared.items()}
    return sheet(
        f"{table.title} · difference from {name}",
        [f"{name} is subtracted; positive is more", *map(measured, metrics.values())],
        [(head.metric.short, head.label) for head in table.heads],
        {row.label: [texts.get((row.label, head), "") for head in table.heads] for row in table.rows}
        | {name: ["reference"] * len(table.heads)},
        _NOTES,
        [_record(table, head, comparison) for (_, head), comparison in compared.items()],
    )


def named(labels: Sequence[str], reference: str) -> str | None:
    """Find the row that an algorithm's name means: the one so called, else its only variant, as `moon (+head)`."""
    if reference in labels:
        return reference
    variants = dict.fromkeys(label for label in labels if label.startswith(f"{reference} (+"))
    return next(iter(variants)) if len(variants) == 1 else None


def _text(one: Comparison, metric: Metric) -> str:
    if one.difference is None:
        return "no common seed"
    text = number(one.difference, metric, sign=True)
    if one.interval is None:
        return f"{text} ({one.n}) not tested"
    text += f" [{number(one.interval.low, metric, True)}, {number(one.interval.high, metric, True)}] ({one.n})"
    return f"{text} p {one.adjusted:.2g}" if one.separable else f"{text} not separable"


def _record(table: Table, head: Head, one: Comparison) -> Mapping[str, Any]:
    return {
        "table": table.title,
        **{name: value for name, value in table.setting.items() if name not in table.by},
        **dict(zip(table.by, head.place, strict=True)),
        "metric": head.metric.name,
        "algorithm": one.algorithm,
        "reference": one.reference,
        "difference": one.difference,
        **limits(one.interval),
        "n": one.n,
        "p": one.p,
        "p_holm": one.adjusted,
        "separable": one.separable if one.p is not None else None,
        "unpaired_seeds": list(one.unpaired),
    }
