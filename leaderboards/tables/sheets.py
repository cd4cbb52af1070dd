"""Comparison tables: each algorithm against a reference, or against the best of its column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from leaderboards.flags import FLAGS
from leaderboards.numbers import Number
from leaderboards.stats.best import FromBest, from_best
from leaderboards.stats.seeds import Comparison, Seeds, corrected, paired
from leaderboards.tables.captions import measured, of_whose_models, records_of
from leaderboards.tables.model import (
    EXCLUDED,
    WHEN_EXCLUDED,
    Head,
    ResultTable,
    Sheet,
    interval_text,
    limits,
    number,
    sheet,
)

BEST = "best"  # as a reference: the best of the other algorithms in each column
_FROM_BEST = (
    "[low, high] 95 % intervals of the difference from the truly best of the others; those of a "
    "column hold at once (Hsu 1984)",
    f"{EXCLUDED} {WHEN_EXCLUDED}",
    "not tested: fewer than 3 common seeds",
)
_DIFFERENCES = (
    "[low, high] 95 % interval of each difference by itself, Student's t over common seeds",
    "p of the paired t test, corrected by Holm over all comparisons of the table in that metric",
    "p above 0.05: the two cannot be told apart",
    "not tested: fewer than 3 common seeds",
)


def against(table: ResultTable, reference: str) -> Sheet | None:
    """Compare a table's algorithms with one of them, `reference`; None if that has no values in the table.

    Runs that diverged or failed, and configurations that were not selected, have no difference. The
    leaderboard must be made `with_seeds`; `reference` is an algorithm, or its label with its
    model's variant.
    """
    name = matching_label([row.label for row in table.rows], reference)
    if name is None:
        return None
    metrics = {head.metric.name: head.metric for head in table.heads}
    compared: dict[tuple[str, Head], Comparison] = {}
    for metric in metrics.values():  # each is a family of its own
        family: dict[tuple[str, Head], Comparison] = {}
        for column, head in table.results:
            cells = {
                row.label: row.cells[column] for row in table.rows if row.cells[column].competes
            }
            values = {label: cell.seeds for label, cell in cells.items() if cell.seeds}
            if head.metric.name == metric.name and name in values:
                family |= {
                    (label, head): paired(values, label, name) for label in values if label != name
                }
        if not metric.differs_by_seed:
            family = {place: replace(test, interval=None, p=None) for place, test in family.items()}
        compared |= zip(family, corrected(list(family.values())), strict=True)
    if not compared:
        return None
    unlike = {
        (row.label, head)
        for row in table.rows
        for head, cell in zip(table.heads, row.cells, strict=True)
        if cell.record is not None and cell.record["data_mixed"]
    }
    texts: dict[tuple[str, Head], str] = {}
    for (label, head), comparison in compared.items():
        marked = not unlike.isdisjoint({(label, head), (name, head)})
        mark = FLAGS["data"].mark if marked else ""
        texts[label, head] = _difference_text(comparison, head.metric) + mark
    return sheet(
        f"{table.title} · difference from {name}",
        [
            f"{name} is subtracted; positive is more",
            *(
                of_whose_models(measured(metric), records_of([table]))
                for metric in metrics.values()
            ),
        ],
        [(head.title, head.label) for _, head in table.results],
        {
            row.label: [texts.get((row.label, head), "") for _, head in table.results]
            for row in table.rows
        }
        | {name: ["reference"] * len(table.results)},
        [
            *(_DIFFERENCES if any(metric.differs_by_seed for metric in metrics.values()) else ()),
            *(
                [f"{FLAGS['data'].mark} between copies of the data, or partitions"]
                if unlike
                else ()
            ),
        ],
        [_difference_record(table, head, comparison) for (_, head), comparison in compared.items()],
    )


def against_best(table: ResultTable) -> Sheet | None:
    """Compare each algorithm of a column with the best of the others; None if none has several.

    The intervals of a column hold at once. Runs that diverged or failed, and configurations that
    were not selected, take no part. The leaderboard must be made `with_seeds`.
    """
    texts: dict[str, list[str]] = {row.label: [] for row in table.rows}
    records = []
    for column, head in table.results:
        distances: dict[str, FromBest] = {}
        if head.metric.better and head.metric.differs_by_seed:
            values: dict[str, Seeds] = {}
            for row in table.rows:
                cell = row.cells[column]
                if cell.rank is not None and cell.competes and cell.seeds:
                    values[row.label] = cell.seeds
            compared = from_best(values, head.metric.higher_is_better) if len(values) > 1 else ()
            distances = {entry.algorithm: entry for entry in compared}
        for label, own in texts.items():
            entry = distances.get(label)
            own.append("" if entry is None else _distance_text(entry, head.metric))
            if entry is not None:
                records.append(_distance_record(table, head, entry))
    if not records:
        return None
    metrics = {head.metric.name: head.metric for head in table.heads}
    return sheet(
        f"{table.title} · difference from the best of the others",
        [
            "The best mean of the other algorithms is subtracted; positive is more",
            *map(measured, metrics.values()),
        ],
        [(head.title, head.label) for _, head in table.results],
        {label: own for label, own in texts.items() if any(own)},
        _FROM_BEST,
        records,
    )


def _distance_text(entry: FromBest, metric: Number) -> str:
    text = number(entry.difference, metric, sign=True)
    if entry.interval is None:
        return f"{text} not tested"
    mark = EXCLUDED if entry.excluded else ""
    return text + interval_text(entry.interval, metric) + mark


def _distance_record(table: ResultTable, head: Head, entry: FromBest) -> Mapping[str, Any]:
    return {
        **_place(table, head),
        "algorithm": entry.algorithm,
        "reference": BEST,
        "difference": entry.difference,
        **limits(entry.interval),
        "excluded": entry.excluded,
    }


def _place(table: ResultTable, head: Head) -> dict[str, Any]:
    """Return what a record says of the column: table, setting and metric."""
    return {
        "table": table.title,
        **{name: value for name, value in table.setting.items() if name not in table.by},
        **dict(zip(table.by, head.place, strict=True)),
        "metric": head.metric.name,
    }


def matching_label(labels: Sequence[str], reference: str) -> str | None:
    """Find the label that `reference` means: the same label, else its only variant, such as `moon (+head)`."""
    if reference in labels:
        return reference
    variants = dict.fromkeys(label for label in labels if label.startswith(f"{reference} (+"))
    return next(iter(variants)) if len(variants) == 1 else None


def _difference_text(test: Comparison, metric: Number) -> str:
    if test.difference is None:
        return "no common seed"
    text = number(test.difference, metric, sign=True)
    if not metric.differs_by_seed:
        return f"{text} ({test.n})"
    if test.interval is None or test.adjusted is None:
        return f"{text} ({test.n}) not tested"
    text += interval_text(test.interval, metric)
    return f"{text} ({test.n}) p {p_text(test.adjusted)}"


def p_text(p: float) -> str:
    """Return p with two digits, or with three if two do not show on which side of 5 % it lies."""
    two = f"{p:.2g}"
    return f"{p:.3g}" if two == "0.05" else two


def _difference_record(table: ResultTable, head: Head, comparison: Comparison) -> Mapping[str, Any]:
    return {
        **_place(table, head),
        "algorithm": comparison.algorithm,
        "reference": comparison.reference,
        "difference": comparison.difference,
        **limits(comparison.interval),
        "n": comparison.n,
        "p": comparison.p,
        "p_holm": comparison.adjusted,
        "separable": comparison.separable if comparison.p is not None else None,
        "unpaired_seeds": list(comparison.unpaired),
    }
