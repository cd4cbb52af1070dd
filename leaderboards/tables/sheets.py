"""Comparison tables: each algorithm against a reference, seed by seed, and all algorithms over all cells."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from leaderboards.flags import FLAGS
from leaderboards.numbers import Number
from leaderboards.problems import REFERENCES, SPLIT_FIELDS, Record
from leaderboards.rows.schema import canonical_json
from leaderboards.stats.aggregate import (
    Improvement,
    Standing,
    critical_difference,
    improvement,
    pooled,
)
from leaderboards.stats.pooled import PooledDifference, Values, pooled_differences
from leaderboards.stats.seeds import Comparison, corrected, paired
from leaderboards.tables.captions import measured, of_whose_models
from leaderboards.tables.model import Cell, Head, Sheet, Table, limits, number, sheet

_PooledCell = tuple[Mapping[str, Any], Mapping[str, Cell]]  # its setting, and its cells by label

_DIFFERENCES = (
    "[low, high] 95 % interval of each difference by itself, Student's t over common seeds",
    "p of the paired t test, corrected by Holm over all comparisons of the table in that metric; above 0.05 the two "
    "cannot be told apart; not tested: fewer than 3 common seeds",
)
_POOLED = (
    "difference: mean over cells of the mean difference in the cell; the intervals of all algorithms hold at once with "
    "95 %",
    "p: sign flips of partitions, corrected for all algorithms (Westfall-Young max-T)",
    "ahead in: partitions in which the algorithm is better",
)
_DIVERGED = "diverged: runs that did; they count with the accuracy of their last model"
_IQM = (
    "IQM: mean of the middle half of all scores, interval by stratified bootstrap over seeds (too narrow with few "
    "seeds: at 3 it covers some 80 %); average rank: 1 is best; win rate: share of cells won, by means, untested"
)


def against(table: Table, reference: str) -> Sheet | None:
    """Compare a table's algorithms with one of them, `reference`; None if that has no values in the table.

    Runs that diverged or failed, and configurations that were not selected, have no difference. The
    leaderboard must be made `with_seeds`; `reference` is an algorithm, or its label with its
    model's variant.
    """
    name = _matching_label([row.label for row in table.rows], reference)
    if name is None:
        return None
    metrics = {head.metric.name: head.metric for head in table.heads}
    compared: dict[tuple[str, Head], Comparison] = {}
    for metric in metrics.values():  # each is a family of its own
        family: dict[tuple[str, Head], Comparison] = {}
        for column, head in enumerate(table.heads):
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
            *(of_whose_models(measured(metric), _records([table])) for metric in metrics.values()),
        ],
        [(head.metric.short, head.label) for head in table.heads],
        {
            row.label: [texts.get((row.label, head), "") for head in table.heads]
            for row in table.rows
        }
        | {name: ["reference"] * len(table.heads)},
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


def _matching_label(labels: Sequence[str], reference: str) -> str | None:
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
    text += f" [{number(test.interval.low, metric, True)}, {number(test.interval.high, metric, True)}] ({test.n})"
    return f"{text} p {p_text(test.adjusted)}"


def p_text(p: float) -> str:
    """Return p with two digits, or with three if two do not show on which side of 5 % it lies."""
    two = f"{p:.2g}"
    return f"{p:.3g}" if two == "0.05" else two


def _difference_record(table: Table, head: Head, comparison: Comparison) -> Mapping[str, Any]:
    return {
        "table": table.title,
        **{name: value for name, value in table.setting.items() if name not in table.by},
        **dict(zip(table.by, head.place, strict=True)),
        "metric": head.metric.name,
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


def _description(metric: Number, tables: Sequence[Table]) -> str:
    """Describe what is pooled: `Accuracy of the global model on the test set, last round, %`."""
    parts = (metric.quantity.capitalize(), metric.of, metric.unit.shown)
    rivals = [record for record in _records(tables) if record["algorithm"] not in REFERENCES]
    return of_whose_models(", ".join(filter(None, parts)), rivals)


def _records(tables: Sequence[Table]) -> list[Record]:
    """List the leaderboard's rows that tables show."""
    records: list[Record] = []
    for table in tables:
        for row in table.rows:
            records += [cell.record for cell in row.cells if cell.record is not None]
    return records


def over_cells(
    tables: Sequence[Table], metric: Number, reference: str | None = None
) -> Sheet | None:
    """Pool the cells of all tables; None if fewer than two algorithms have values in all of two or more cells.

    None as well if neither higher nor lower is better.

    A cell counts if several algorithms have finished runs there, and one of them a value: those
    without are left out. Reference rows (`centralized`, `local`), diverged runs and configurations
    that were not selected take no part. The tables must be of one leaderboard, made `with_seeds`,
    with a column of the metric; `reference` is as for `against`.
    """
    if not metric.better:
        return None
    values = _values_by_cell(tables, metric)
    result = pooled(values, metric.higher_is_better, metric.differs_by_seed)
    if result.cells < 2 or len(result.standings) < 2:
        return None
    names = [entry.algorithm for entry in result.standings]
    label = _matching_label(names, reference) if reference else None
    better: dict[str, Improvement] = {}
    if label:  # every cell has all of `names`
        better = {
            name: improvement(values, name, label, metric.higher_is_better)
            for name in names
            if name != label
        }
    critical = critical_difference(len(names), result.cells)
    notes = [
        _IQM,
        f"average ranks less than {critical:.2f} apart are not told apart (Nemenyi, 5 %)",
    ]
    notes += [
        "P: probability that a run is better than one of the reference in the same cell"
    ] * bool(better)
    notes += result.remarks
    if reference and not better:
        notes.append(f"{reference} is not ranked in every cell: nothing is compared with it")
    description = _description(metric, tables)
    headings = [
        "IQM [95 %]",
        "average rank",
        "win rate",
        *[f"P(better than {label}) [95 %]"] * bool(better),
    ]
    return sheet(
        f"Over {result.cells} cells · {metric.short}",
        [f"{description}: scores of all cells and seeds"],
        [(name, "") for name in headings],
        {
            entry.algorithm: [
                *_texts(entry, metric),
                *[_probability(better.get(entry.algorithm))] * bool(better),
            ]
            for entry in result.standings
        },
        notes,
        [
            _standing_record(entry, metric, label, better.get(entry.algorithm))
            for entry in result.standings
        ],
    )


def pooled_against(tables: Sequence[Table], metric: Number, reference: str) -> Sheet | None:
    """Compare the algorithms with a reference over all cells of the tables, by one test for all of them.

    None if neither higher nor lower is better, if the reference has no value, or if no algorithm
    has a cell with it. Runs that diverged count, with the accuracy of their last model. The tables
    must be of one leaderboard, made `with_seeds`, with a column of the metric; `reference` is as
    for `against`.
    """
    labels = list(dict.fromkeys(row.label for table in tables for row in table.rows))
    name = _matching_label(labels, reference)
    if name is None or not metric.better or not metric.differs_by_seed:
        return None
    cells = _pooled_cells(tables, metric)
    differences = pooled_differences(_values_by_cluster(cells), name)
    if not differences:
        return None
    by_gain = sorted(
        differences,
        key=lambda each: -each.difference if metric.higher_is_better else each.difference,
    )
    counts = {each.method: _diverged(cells, each.method) for each in by_gain}
    description = _description(metric, tables)
    return sheet(
        f"Over {counted_cells(cells)} · {metric.short}: difference from {name}",
        [f"{description}; {name} is subtracted; partitions are paired"],
        [
            ("difference [simultaneous 95 %]", ""),
            ("p", ""),
            ("ahead in", ""),
            ("cells", ""),
            ("diverged", ""),
        ],
        {each.method: _pooled_texts(each, metric, counts[each.method]) for each in by_gain},
        [*_POOLED, *([_DIVERGED] if any(count for count, _ in counts.values()) else [])],
        [_pooled_record(each, metric, name, counts[each.method]) for each in by_gain],
    )


def _pooled_cells(tables: Sequence[Table], metric: Number) -> list[_PooledCell]:
    """List the cells of a metric in which algorithms have values."""
    found: list[_PooledCell] = []
    for table in tables:
        for column, head in enumerate(table.heads):
            if head.metric.name == metric.name:
                setting = {**table.setting, **dict(zip(table.by, head.place, strict=True))}
                rows = {
                    row.label: row.cells[column]
                    for row in table.rows
                    if row.cells[column].is_pooled
                }
                found.append((setting, rows))
    return found


def _values_by_cluster(cells: Sequence[_PooledCell]) -> Values:
    """Return cell -> algorithm -> partition -> value; cells of one split and seed share the partition."""
    values: dict[Hashable, dict[str, dict[Hashable, float]]] = {}
    for place, (setting, rows) in enumerate(cells):
        split = tuple(setting.get(name) for name in SPLIT_FIELDS)
        values[place] = {
            label: {(*split, seed): value for seed, value in cell.seeds.items()}
            for label, cell in rows.items()
        }
    return values


def _diverged(cells: Sequence[_PooledCell], method: str) -> tuple[int, int]:
    """Count an algorithm's runs that diverged, and all of its runs."""
    records = [rows[method].record or {} for _, rows in cells if method in rows]
    diverged = sum(int(record["diverged_count"]) for record in records)
    return diverged, sum(int(record["n"]) for record in records)


def counted_cells(cells: Sequence[_PooledCell]) -> str:
    """Count cells in words."""
    return f"{len(cells)} cell{'s' * (len(cells) != 1)}"


def _pooled_texts(each: PooledDifference, metric: Number, diverged: tuple[int, int]) -> list[str]:
    text = number(each.difference, metric, sign=True)
    if each.interval is not None:
        text += f" [{number(each.interval.low, metric, True)}, {number(each.interval.high, metric, True)}]"
    count, runs = diverged
    ahead = each.ahead if metric.higher_is_better else each.clusters - each.ahead
    return [
        text,
        p_text(each.p),
        f"{ahead} of {each.clusters}",
        str(each.cells),
        f"{count} of {runs}" if count else "0",
    ]


def _pooled_record(
    each: PooledDifference, metric: Number, reference: str, diverged: tuple[int, int]
) -> dict[str, str | float | bool | None]:
    return {
        "metric": metric.name,
        "algorithm": each.method,
        "reference": reference,
        "difference": each.difference,
        **limits(each.interval),
        "p": each.p,
        "separable": each.separable,
        "ahead": each.ahead,
        "partitions": each.clusters,
        "cells": each.cells,
        "diverged": diverged[0],
        "runs": diverged[1],
    }


def _values_by_cell(
    tables: Sequence[Table], metric: Number
) -> dict[Hashable, dict[str, list[float]]]:
    """Collect the values of all seeds in the cells that count: cell -> algorithm -> values."""
    values: dict[Hashable, dict[str, list[float]]] = {}
    for table in tables:
        for column, head in enumerate(table.heads):
            if head.metric.name == metric.name:
                cells = [(row.label, row.cells[column]) for row in table.rows if not row.reference]
                scores = {
                    label: list(cell.seeds.values()) for label, cell in cells if cell.competes
                }
                if scores and len({label for label, cell in cells if cell.n}) > 1:
                    values[canonical_json(dict(table.setting)), head.place] = scores
    return values


def _texts(standing: Standing, metric: Number) -> list[str]:
    text = number(standing.iqm, metric)
    if standing.interval is not None:
        text += (
            f" [{number(standing.interval.low, metric)}, {number(standing.interval.high, metric)}]"
        )
    return [text, f"{standing.average_rank:.2f}", f"{100 * standing.win_rate:.0f} %"]


def _probability(better: Improvement | None) -> str:
    if better is None:
        return ""
    between = f" [{better.interval.low:.2f}, {better.interval.high:.2f}]" if better.interval else ""
    return f"{better.probability:.2f}{between}"


def _standing_record(
    standing: Standing, metric: Number, reference: str | None, better: Improvement | None
) -> dict[str, str | float | None]:
    return {
        "metric": metric.name,
        "algorithm": standing.algorithm,
        "iqm": standing.iqm,
        **limits(standing.interval, "iqm_"),
        "average_rank": standing.average_rank,
        "win_rate": standing.win_rate,
        "n": standing.n,
        "reference": reference if better else None,
        "probability_of_improvement": better.probability if better else None,
        **limits(better.interval if better else None, "probability_"),
    }
