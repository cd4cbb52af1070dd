"""Algorithms over all cells: interquartile mean, average rank, win rate, probability of improvement."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from leaderboards.metrics import Metric
from leaderboards.rows.identity import canonical_json
from leaderboards.stats.aggregate import Improvement, Standing, critical_difference, improvement, pooled
from leaderboards.tables.differences import named
from leaderboards.tables.model import Sheet, Table, limits, number, sheet

_IQM = (
    "IQM: mean of the middle half of all scores, interval by stratified bootstrap over seeds (too narrow with few "
    "seeds: at 3 it covers some 80 %); average rank: 1 is best; win rate: share of cells won, by means, untested"
)


def over_cells(tables: Sequence[Table], metric: Metric, reference: str | None = None) -> Sheet | None:
    """Pool the cells of all tables; None if fewer than two have values of two algorithms.

    Reference rows (`centralized`, `local`), diverged runs and configurations that were not selected take no part.

    Args:
        tables: of one leaderboard, made `with_seeds`.
        metric: one of its columns.
        reference: an algorithm to be compared with, by its name or, with its model's variant, its label; or None.
    """
    values = {cell: scores for cell, scores in _values(tables, metric).items() if len(scores) > 1}
    result = pooled(values, metric.higher_is_better, metric.differs_by_seed)
    if result.cells < 2 or len(result.standings) < 2:
        return None
    names = [one.algorithm for one in result.standings]
    label = named(names, reference) if reference else None
    better: dict[str, Improvement] = {}
    for name in names:
        if label and name != label and (one := improvement(values, name, label, metric.higher_is_better)) is not None:
            better[name] = one
    critical = critical_difference(len(names), result.cells)
    notes = [_IQM, f"average ranks less than {critical:.2f} apart are not told apart (Nemenyi, 5 %)"]
    notes += ["P: probability that a run is better than one of the reference in the same cell"] * bool(better)
    notes += result.remarks
    if reference and not better:
        notes.append(f"{reference} is not ranked in every cell: nothing is compared with it")
    measured = ", ".join(part for part in (metric.quantity.capitalize(), metric.of, metric.unit) if part)
    return sheet(
        f"Over {result.cells} cells · {metric.short}",
        [f"{measured}: scores of all cells and seeds"],
        ["IQM [95 %]", "average rank", "win rate", *[f"P(better than {label}) [95 %]"] * bool(better)],
        {
            one.algorithm: [*_texts(one, metric), *[_probability(better.get(one.algorithm))] * bool(better)]
            for one in result.standings
        },
        notes,
        [_record(one, metric, label, better.get(one.algorithm)) for one in result.standings],
    )


def _values(tables: Sequence[Table], metric: Metric) -> dict[Hashable, dict[str, list[float]]]:
    """Cell -> algorithm -> values of its seeds."""
    values: dict[Hashable, dict[str, list[float]]] = {}
    for table in tables:
        for column, head in enumerate(table.heads):
            for row in table.rows:
                if head.metric.name == metric.name and row.cells[column].competes and not row.reference:
                    place = (canonical_json(dict(table.setting)), head.place)
                    values.setdefault(place, {})[row.label] = list(row.cells[column].seeds.values())
    return values


def _texts(one: Standing, metric: Metric) -> list[str]:
    text = number(one.iqm, metric)
    if one.interval is not None:
        text += f" [{number(one.interval.low, metric)}, {number(one.interval.high, metric)}]"
    return [text, f"{one.average_rank:.2f}", f"{100 * one.win_rate:.0f} %"]


def _probability(one: Improvement | None) -> str:
    if one is None:
        return ""
    between = f" [{one.interval.low:.2f}, {one.interval.high:.2f}]" if one.interval else ""
    return f"{one.probability:.2f}{between}"


def _record(
    one: Standing, metric: Metric, reference: str | None, better: Improvement | None
) -> dict[str, str | float | None]:
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
