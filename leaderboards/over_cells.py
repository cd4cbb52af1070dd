"""Algorithms over all cells: interquartile mean, average rank, win rate, probability of improvement."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from leaderboards.cells import Table
from leaderboards.differences import named
from leaderboards.identity import canonical_json
from leaderboards.metrics import Metric
from leaderboards.sheets import Column, Sheet, limits, number, sheet
from leaderboards.stats.aggregate import Improvement, Pooled, Standing, improvement, pooled

Values = dict[Hashable, dict[str, list[float]]]


def over_cells(tables: Sequence[Table], metric: Metric, reference: str | None = None) -> Sheet | None:
    """What holds over the cells of all tables; None where fewer than two cells have values of two algorithms.

    Reference rows (`centralized`, `local`), diverged runs and configurations that were not selected take no part.

    Args:
        tables: of one leaderboard, made `with_seeds`.
        metric: one of its columns.
        reference: an algorithm to be compared with, by its name or, with its model's variant, its label; or None.
    """
    values = {cell: found for cell, found in _values(tables, metric).items() if len(found) > 1}
    result = pooled(values, metric.higher_is_better, metric.differs_by_seed)
    if result.cells < 2 or len(result.standings) < 2:
        return None
    label = reference and named([one.algorithm for one in result.standings], reference)
    better = _improvements(values, result, label, metric) if label else {}
    columns = [Column("IQM [95 %]"), Column("average rank"), Column("win rate")]
    columns += [Column(f"P(better than {label}) [95 %]")] * bool(better)
    rows = {
        one.algorithm: [*_texts(one, metric), *[_probability(better.get(one.algorithm))] * bool(better)]
        for one in result.standings
    }
    measured = ", ".join(part for part in (metric.quantity.capitalize(), metric.of, metric.unit) if part)
    notes = _notes(result, bool(better))
    if reference and not better:
        notes.append(f"{reference} is not ranked in every cell: nothing is compared with it")
    return sheet(
        f"Over {result.cells} cells · {metric.short}",
        [f"{measured}: scores of all cells and seeds"],
        columns,
        rows,
        notes,
        [_record(one, metric, label, better.get(one.algorithm)) for one in result.standings],
    )


def _values(tables: Sequence[Table], metric: Metric) -> Values:
    values: Values = {}
    for table in tables:
        for column, head in enumerate(table.heads):
            if head.metric.name != metric.name:
                continue
            for row in table.rows:
                cell = row.cells[column]
                if row.reference or cell.state != "value" or not (cell.record or {}).get("selected"):
                    continue
                place = (canonical_json(dict(table.setting)), head.place)
                values.setdefault(place, {})[row.label] = list(cell.seeds.values())
    return values


def _improvements(values: Values, result: Pooled, reference: str, metric: Metric) -> dict[str, Improvement]:
    others = [one.algorithm for one in result.standings if one.algorithm != reference]
    found = {name: improvement(values, name, reference, metric.higher_is_better) for name in others}
    return {name: one for name, one in found.items() if one is not None}


def _texts(one: Standing, metric: Metric) -> list[str]:
    limits = (
        f" [{number(one.interval.low, metric)}, {number(one.interval.high, metric)}]"
        if one.interval is not None
        else ""
    )
    return [number(one.iqm, metric) + limits, f"{one.average_rank:.2f}", f"{100 * one.win_rate:.0f} %"]


def _probability(one: Improvement | None) -> str:
    if one is None:
        return ""
    limits = f" [{one.interval.low:.2f}, {one.interval.high:.2f}]" if one.interval else ""
    return f"{one.probability:.2f}{limits}"


def _notes(result: Pooled, compared: bool) -> list[str]:
    notes = [
        "IQM: mean of the middle half of all scores, interval by stratified bootstrap over seeds (too narrow with few "
        "seeds: at 3 it covers some 80 %); average rank: 1 is best; win rate: share of cells won, by means, untested"
    ]
    notes += ["P: probability that a run is better than one of the reference in the same cell"] * compared
    return notes + result.remarks


def _record(one: Standing, metric: Metric, reference: str | None, better: Improvement | None) -> Mapping[str, Any]:
    return {
        "metric": metric.name,
        "algorithm": one.algorithm,
        "iqm": one.iqm,
        **limits(one.interval, "iqm_"),
        "average_rank": one.average_rank,
        "win_rate": one.win_rate,
        "n": one.n,
        "reference": reference if better else None,
        "probability_of_improvement": better.probability if better else None,
        **limits(better.interval if better else None, "probability_"),
    }
