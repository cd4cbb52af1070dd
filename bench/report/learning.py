"""The sections of curves: accuracy by round, and against bytes and steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.charts.lines import MARKED, Axis, Keys, live_lines, mean_and_spread
from bench.report.charts import Charts, Column
from bench.stored.groups import Group, label_of, number
from bench.stored.results import Results
from leaderboards.flags import why_not_selected
from leaderboards.problems import Cell

Row = dict[str, Any]

COSTS = {
    "bytes": Axis("bytes", "sent and received since round 1, MB", 1e-6),
    "steps": Axis("steps", "local steps of a client since round 1"),
}
POINTS = 100  # of one line, at most; a chart is some 300 pixels wide
LONG = 12  # characters of a name; three longer ones have no room beside each other in a legend
_ACCURACY = Axis("accuracy", "test accuracy, %", 100.0)
_PERCENT = (100.0, 2)
_ALGORITHM, _ROUND = Column("algorithm", "algorithm"), Column("round", "round")
_CURVE_TABLE = (
    _ALGORITHM,
    _ROUND,
    Column("mean", "mean, %", *_PERCENT),
    Column("low", "lowest seed, %", *_PERCENT),
    Column("high", "highest seed, %", *_PERCENT),
    Column("n", "seeds"),
)


def learning_sections(
    groups: Sequence[Group], results: Results, labels: Sequence[str], charts: Charts
) -> list[dict[str, Any]]:
    """Return `group`, `columns` and `cells` of each group: `label`, `remarks`, number of its `chart`, and `costs`.

    `labels` are every algorithm, in the order of the colours; new charts are added to `charts`.
    """
    sections = []
    for group in groups:
        cells = []
        for cell in group.cells:
            rows = list(_curve_rows(cell, results))
            label = "α = {}, C = {}".format(*map(number, cell.place))
            where = f"{group.name}, {label}"
            what = f"Learning curves, {where}. {_ends(rows)}"
            spec = (
                live_lines(rows, _keys(rows, labels), Axis("round", "round"), _ACCURACY)
                if rows
                else None
            )
            cells.append(
                {
                    "label": label,
                    "remarks": list(_remarks(cell, rows)),
                    "chart": charts.add(spec, what, _CURVE_TABLE) if spec else None,
                    "costs": {
                        cost: _add_cost_chart(axis, where, rows, labels, charts)
                        for cost, axis in COSTS.items()
                    },
                }
            )
        columns = 2 if len(cells) in (2, 4) else 3
        sections.append({"group": group, "columns": columns, "cells": cells})
    return sections


def _thin(rounds: Sequence[int]) -> list[int]:
    """Return at most `POINTS` of the rounds, evenly spaced, the first and the last among them."""
    if len(rounds) <= POINTS:
        return list(rounds)
    return [rounds[round(at * (len(rounds) - 1) / (POINTS - 1))] for at in range(POINTS)]


def _add_cost_chart(
    axis: Axis, where: str, rows: Sequence[Row], labels: Sequence[str], charts: Charts
) -> int | None:
    """Add the chart of accuracy against a cost in the cell named `where`; None if no run has that cost."""
    priced = [row for row in rows if row[axis.field] is not None]
    if not priced:
        return None
    cost = Column(axis.field, axis.title, axis.factor, 2)
    spec = live_lines(priced, _keys(priced, labels), axis, _ACCURACY)
    what = f"Test accuracy against {axis.title}, {where}."
    return charts.add(
        spec, what, (_ALGORITHM, _ROUND, cost, Column("mean", "accuracy, %", *_PERCENT))
    )


def _keys(rows: Sequence[Row], labels: Sequence[str]) -> Keys:
    """Return the panel's legend, in columns that its width has room for; each point has its sign if there is room."""
    few, shown = len({row["round"] for row in rows}) <= MARKED, {row["algorithm"] for row in rows}
    return Keys(labels, shown, signs=few, columns=3 if max(map(len, shown)) <= LONG else 2)


def _curve_rows(cell: Cell, results: Results) -> Iterator[Row]:
    for record in cell.selected:
        curves = [results.curves.get(run["run_key"], {}) for run in record["run_of_seed"].values()]
        accuracies = [curve.get("accuracy", {}) for curve in curves]
        common = sorted(set.intersection(*map(set, accuracies))) if accuracies else []
        for at in _thin(common):
            yield {
                "algorithm": label_of(record),
                "round": at,
                **mean_and_spread([accuracy[at] for accuracy in accuracies]),
                "bytes": _mean_at(curves, at, "bytes_down", "bytes_up"),
                "steps": _mean_at(curves, at, "train_steps"),
            }


def _mean_at(
    curves: Sequence[Mapping[str, Mapping[int, float]]], at: int, *metrics: str
) -> float | None:
    """Return the sum of metrics at a round, mean over seeds; None if one of them was not recorded."""
    values = [curve.get(metric, {}).get(at) for curve in curves for metric in metrics]
    recorded = [value for value in values if value is not None]
    return math.fsum(recorded) / len(curves) if len(recorded) == len(values) else None


def _ends(rows: Sequence[Row]) -> str:
    """Describe where each line ends."""
    last = {row["algorithm"]: row for row in rows}
    return "; ".join(
        f"{name} {100 * row['mean']:.1f} % after round {row['round']}" for name, row in last.items()
    )


def _remarks(cell: Cell, rows: Sequence[Row]) -> Iterator[str]:
    """Yield remarks on what the lines do not show."""
    drawn = {row["algorithm"]: row["n"] for row in rows}
    counts = sorted(set(drawn.values()))
    if counts:
        several = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
        yield f"{several} seed{'s' * (counts[-1] > 1)}"
    diverged = []
    for record in cell.selected:
        if record["diverged"]:
            share = f"{record['diverged_count']}/{record['n']}"
            diverged.append(f"{label_of(record)} {share}")
    if diverged:
        yield f"DIVERGED: {', '.join(diverged)}"
    reasons: dict[str, str] = {}
    for record in cell.records:
        if (name := label_of(record)) not in drawn:
            if record["selected"]:
                reasons[name] = "no curve is stored"
            elif record["n"] or name not in reasons:
                reasons[name] = why_not_selected(record)
    for name, why in reasons.items():
        yield f"no line for {name}: {why}"
