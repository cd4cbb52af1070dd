"""Comparison tables: each algorithm against a reference, or against the best of its column."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from leaderboards.flags import FLAGS
from leaderboards.numbers import Number
from leaderboards.stats.best import FromBest, from_best
from leaderboards.stats.seeds import Comparison, Seeds, corrected, paired
from leaderboards.tables.captions import (
    differ_in_seeds,
    measured,
    of_whose_models,
    records_of,
)
from leaderboards.tables.model import (
    EXCLUDED,
    WHEN_EXCLUDED,
    Head,
    ResultTable,
    Sheet,
    TableCell,
    interval_text,
    limits,
    number_text,
    sheet,
)

CellKey = tuple[str, Head]  # of a cell: the label of its row, and its column

BEST = "best"  # as a reference: the best of the other algorithms in each column
_FROM_BEST = (
    "[low, high] 95 % intervals of the difference from the truly best of the others; those of a "
    "column hold at once (Hsu 1984)"
)
_UNLIKE_SEEDS = (
    "algorithms ran on different seeds: a difference is of all seeds of each, its interval of "
    "common seeds"
)
_UNBOUNDED = (
    "no interval: with some rival fewer than 3 common seeds, or the same difference at all of too "
    "few seeds"
)
_UNLIKE = {  # flag of a difference -> meaning of its mark
    "data": "between copies of the data, or partitions",
    "mixed": FLAGS["mixed"].meaning,
}
_COMMON = "(n) common seeds"
_NO_DIFFERENCE = "– no difference: one of the two did not run, has no value, or has a diverged run"
_DIFFERENCES = (
    "[low, high] 95 % interval of each difference by itself, Student's t over common seeds",
    "p of the paired t test, corrected by Holm over all comparisons of the table in that metric",
    "p above 0.05: the two cannot be told apart",
)


def against(table: ResultTable, reference: str) -> Sheet | None:
    """Compare a table's algorithms with one of them.

    Runs that diverged or failed, and configurations that were not selected, have no difference.

    Args:
        table: of a leaderboard made `with_seeds`.
        reference: an algorithm, or its label with its model's variant.

    Returns:
        None if the reference has no values in the table.
    """
    name = matching_label([row.label for row in table.rows], reference)
    if name is None:
        return None
    compared: dict[CellKey, Comparison] = {}
    for metric in table.metrics:
        compared |= _family(table, metric, name)
    if not compared:
        return None
    unlike = _unlike(table, name, compared)
    texts: dict[CellKey, str] = {}
    for key, comparison in compared.items():
        flags = [flag for flag in _UNLIKE if key in unlike[flag]]
        marks = [FLAGS[flag].mark for flag in flags if len(unlike[flag]) < len(compared)]
        texts[key] = _difference_text(comparison, key[1].metric) + "".join(marks)
    heads = [head for _, head in table.results]
    rows = {}
    for row in table.rows:
        rows[row.label] = [texts.get((row.label, head), "") for head in heads]
    rows[name] = ["reference"] * len(heads)
    notes = [_COMMON]
    if any(metric.differs_by_seed for metric in table.metrics):
        notes += _DIFFERENCES
        notes += _untested(texts.values())
    if any(not all(row_texts) for row_texts in rows.values()):
        notes.append(_NO_DIFFERENCE)
    notes += _notes_on(unlike, len(compared))
    return sheet(
        f"{table.title} · difference from {name}",
        [f"{name} is subtracted; positive is more", *_measures(table)],
        [(head.title, head.label) for head in heads],
        rows,
        notes,
        [
            _difference_record(table, key[1], comparison)
            | {"data_mixed": key in unlike["data"], "platforms_mixed": key in unlike["mixed"]}
            for key, comparison in compared.items()
        ],
    )


def _measures(table: ResultTable) -> list[str]:
    """Describe what each metric of a table measures."""
    records = records_of([table])
    return [of_whose_models(measured(metric), records) for metric in table.metrics]


def _family(table: ResultTable, metric: Number, reference: str) -> dict[CellKey, Comparison]:
    """Compare all algorithms with the reference in one metric, corrected as one family of tests."""
    family: dict[CellKey, Comparison] = {}
    for column, head in table.results_of(metric):
        values = {}
        for row in table.rows:
            cell = row.cells[column]
            if cell.competes and cell.seeds:
                values[row.label] = cell.seeds
        if reference in values:
            others = [label for label in values if label != reference]
            family |= {(label, head): paired(values, label, reference) for label in others}
    tests = list(family.values())
    if not metric.differs_by_seed:
        tests = [replace(test, interval=None, p=None) for test in tests]
    return dict(zip(family, corrected(tests), strict=True))


def _unlike(
    table: ResultTable, reference: str, keys: Collection[CellKey]
) -> dict[str, set[CellKey]]:
    """Return key of `_UNLIKE` -> the differences between runs on other data or platforms."""
    cells: dict[CellKey, TableCell] = {}
    for row in table.rows:
        for head, cell in zip(table.heads, row.cells, strict=True):
            if cell.competes:
                cells[row.label, head] = cell
    unlike: dict[str, set[CellKey]] = {flag: set() for flag in _UNLIKE}
    for label, head in keys:
        pair = (cells[label, head], cells[reference, head])
        if any(cell.record and cell.record["data_mixed"] for cell in pair):
            unlike["data"].add((label, head))
        if pair[0].is_unlike(pair[1]):
            unlike["mixed"].add((label, head))
    return unlike


def _untested(texts: Iterable[str]) -> list[str]:
    """Explain the words `not tested`, if they occur."""
    untested = any("not tested" in text for text in texts)
    return ["not tested: fewer than 3 common seeds"] if untested else []


def _notes_on(unlike: Mapping[str, Collection[CellKey]], count: int) -> list[str]:
    """Explain the marks of `_UNLIKE`; one that all differences would have is none of theirs."""
    notes = []
    for flag, meaning in _UNLIKE.items():
        if len(unlike[flag]) == count:
            notes.append(f"all differences: {meaning}")
        elif unlike[flag]:
            notes.append(f"{FLAGS[flag].mark} {meaning}")
    return notes


def against_best(table: ResultTable) -> Sheet | None:
    """Compare each algorithm of a column with the best of the others.

    None if no column has several algorithms.

    The intervals of a column hold at once. Runs that diverged or failed, and configurations that
    were not selected, take no part. The leaderboard must be made `with_seeds`.
    """
    texts: dict[str, list[str]] = {row.label: [] for row in table.rows}
    records = []
    unlike_seeds = False
    for column, head in table.results:
        distances = _distances(table, column, head.metric)
        compared = [row.cells[column] for row in table.rows if row.label in distances]
        unlike_seeds = unlike_seeds or differ_in_seeds(compared)
        for label, row_texts in texts.items():
            distance = distances.get(label)
            if distance is None:
                row_texts.append("")
            else:
                row_texts.append(_distance_text(distance, head.metric))
                records.append(_distance_record(table, head, distance))
    if not records:
        return None
    notes = [_FROM_BEST]
    if unlike_seeds:
        notes.append(_UNLIKE_SEEDS)
    if any(record["excluded"] for record in records):
        notes.append(f"{EXCLUDED} {WHEN_EXCLUDED}")
    if any(record["low"] is None for record in records):
        notes.append(_UNBOUNDED)
    return sheet(
        f"{table.title} · difference from the best of the others",
        [
            "The best mean of the other algorithms is subtracted; positive is more",
            *_measures(table),
        ],
        [(head.title, head.label) for _, head in table.results],
        {label: row_texts for label, row_texts in texts.items() if any(row_texts)},
        notes,
        records,
    )


def _distances(table: ResultTable, column: int, metric: Number) -> dict[str, FromBest]:
    """Compare each ranked algorithm of a column with the best of the others, by label."""
    values: dict[str, Seeds] = {}
    for row in table.rows:
        cell = row.cells[column]
        if cell.rank is not None and cell.competes and cell.seeds:
            values[row.label] = cell.seeds
    if not metric.better or not metric.differs_by_seed or len(values) < 2:
        return {}
    distances = from_best(values, metric.higher_is_better)
    return {distance.algorithm: distance for distance in distances}


def _distance_text(distance: FromBest, metric: Number) -> str:
    text = number_text(distance.difference, metric, sign=True)
    bounds = interval_text(distance.interval, metric) or " no interval"
    mark = EXCLUDED if distance.excluded else ""
    return text + bounds + mark


def _distance_record(table: ResultTable, head: Head, distance: FromBest) -> Mapping[str, Any]:
    return {
        **_column_fields(table, head),
        "algorithm": distance.algorithm,
        "reference": BEST,
        "difference": distance.difference,
        **limits(distance.interval),
        "excluded": distance.excluded,
    }


def _column_fields(table: ResultTable, head: Head) -> dict[str, Any]:
    """Return what a record says of the column: table, setting and metric."""
    return {
        "table": table.title,
        **{name: value for name, value in table.setting.items() if name not in table.by},
        **dict(zip(table.by, head.place, strict=True)),
        "metric": head.metric.name,
    }


def matching_label(labels: Sequence[str], reference: str) -> str | None:
    """Find the label that `reference` means.

    It is the same label, or else the only variant of it, such as `moon (+head)`.
    """
    if reference in labels:
        return reference
    variants = {label for label in labels if label.startswith(f"{reference} (+")}
    return variants.pop() if len(variants) == 1 else None


def _difference_text(test: Comparison, metric: Number) -> str:
    if test.difference is None:
        return "no common seed"
    text = number_text(test.difference, metric, sign=True)
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


def _difference_record(table: ResultTable, head: Head, comparison: Comparison) -> dict[str, Any]:
    return {
        **_column_fields(table, head),
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
