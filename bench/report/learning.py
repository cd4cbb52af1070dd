"""The sections of curves: accuracy by round, and against bytes and steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.charts.lines import MARKED, Axis, Keys, live_lines, mean_and_spread
from bench.report.charts import ChartColumn, Charts
from bench.stored.groups import Group, accuracy_of, number, on_clients
from bench.stored.results import Results
from bench.terminal.words import counted
from leaderboards.flags import why_not_selected
from leaderboards.problems import Cell, label_of

Row = dict[str, Any]

COSTS = {
    "bytes": Axis("bytes", "sent and received since round 1, MB", 1e-6),
    "steps": Axis("steps", "local steps of a client since round 1"),
}
POINTS = 100  # of one line, at most; a chart is some 300 pixels wide
LONG = 12  # characters of a name; three longer ones have no room beside each other in a legend
_ACCURACY = Axis("accuracy", "test accuracy, %", 100.0)
_OWN_ACCURACY = Axis("accuracy", "accuracy on the clients' own tests, %", 100.0)
_PERCENT = (100.0, 2)
_ALGORITHM = ChartColumn("algorithm", "algorithm")
_ROUND = ChartColumn("round", "round")
_CURVE_TABLE = (
    _ALGORITHM,
    _ROUND,
    ChartColumn("mean", "mean, %", *_PERCENT),
    ChartColumn("low", "lowest seed, %", *_PERCENT),
    ChartColumn("high", "highest seed, %", *_PERCENT),
    ChartColumn("n", "seeds"),
)


def learning_sections(
    groups: Sequence[Group], results: Results, labels: Sequence[str], charts: Charts
) -> list[dict[str, Any]]:
    """Return `group`, `columns` and `cells` of each group.

    A cell has `label`, `remarks`, the number of its `chart`, and `costs`: the number of the chart
    against each of `COSTS`. A number is None if there is nothing to draw.

    Args:
        groups: of the page.
        results: with the curves.
        labels: every algorithm, in the order of the colours.
        charts: to which new ones are added.
    """
    sections = []
    for group in groups:
        cells = []
        for cell in group.cells:
            rows = list(_curve_rows(cell, results))
            label = "α = {}, C = {}".format(*map(number, cell.place))
            where = f"{group.name}, {label}"
            what = f"Learning curves, {where}. {_ends(rows)}"
            chart = None
            if rows:
                spec = live_lines(rows, _keys(rows, labels), Axis("round", "round"), _axis(cell))
                chart = charts.add(spec, what, _CURVE_TABLE)
            cells.append(
                {
                    "label": label,
                    "remarks": list(_remarks(cell, rows)),
                    "chart": chart,
                    "costs": {
                        cost: _add_cost_chart(axis, _axis(cell), where, rows, labels, charts)
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
    step = (len(rounds) - 1) / (POINTS - 1)
    return [rounds[round(at * step)] for at in range(POINTS)]


def _axis(cell: Cell) -> Axis:
    """Return the axis of a cell's accuracies."""
    return _OWN_ACCURACY if on_clients(cell.selected) else _ACCURACY


def _add_cost_chart(
    axis: Axis,
    accuracy: Axis,
    where: str,
    rows: Sequence[Row],
    labels: Sequence[str],
    charts: Charts,
) -> int | None:
    """Add the chart of accuracy against a cost in the cell named `where`; return its number.

    Return None if no run has that cost.
    """
    priced = [row for row in rows if row[axis.field] is not None]
    if not priced:
        return None
    cost = ChartColumn(axis.field, axis.title, axis.factor, 2)
    spec = live_lines(priced, _keys(priced, labels), axis, accuracy)
    what = f"{accuracy.title.capitalize()}, against {axis.title}, {where}."
    return charts.add(
        spec, what, (_ALGORITHM, _ROUND, cost, ChartColumn("mean", "accuracy, %", *_PERCENT))
    )


def _keys(rows: Sequence[Row], labels: Sequence[str]) -> Keys:
    """Return the panel's legend, in as many columns as fit; few points have their signs."""
    rounds = {row["round"] for row in rows}
    shown = {row["algorithm"] for row in rows}
    columns = 3 if max(map(len, shown)) <= LONG else 2
    return Keys(labels, shown, signs=len(rounds) <= MARKED, columns=columns)


def _curve_rows(cell: Cell, results: Results) -> Iterator[Row]:
    metric = accuracy_of(cell.selected).name
    for record in cell.selected:
        runs = record["run_of_seed"].values()
        accuracies = [results.curve(run, metric) for run in runs]
        traffic = [_traffic(run, results) for run in runs]
        steps = [results.curve(run, "train_steps") for run in runs]
        common = sorted(set.intersection(*map(set, accuracies))) if accuracies else []
        for at in _thin(common):
            yield {
                "algorithm": label_of(record),
                "round": at,
                **mean_and_spread([accuracy[at] for accuracy in accuracies]),
                "bytes": _mean_at(traffic, at),
                "steps": _mean_at(steps, at),
            }


def _mean_at(curves: Sequence[Mapping[int, float]], at: int) -> float | None:
    """Return the mean over seeds at a round; None if one seed has no value there."""
    if not all(at in curve for curve in curves):
        return None
    return math.fsum(curve[at] for curve in curves) / len(curves)


def _traffic(run: Mapping[str, Any], results: Results) -> dict[int, float]:
    """Return the bytes sent and received since round 1, by round."""
    down = results.curve(run, "bytes_down")
    up = results.curve(run, "bytes_up")
    return {at: down[at] + up[at] for at in down.keys() & up.keys()}


def _ends(rows: Sequence[Row]) -> str:
    """Describe where each line ends."""
    last = {row["algorithm"]: row for row in rows}
    return "; ".join(
        f"{name} {100 * row['mean']:.1f} % after round {row['round']}" for name, row in last.items()
    )


def _remarks(cell: Cell, rows: Sequence[Row]) -> Iterator[str]:
    """Yield remarks on what the lines do not show."""
    drawn = {row["algorithm"]: row["n"] for row in rows}
    if drawn:
        fewest = min(drawn.values())
        most = max(drawn.values())
        seeds = counted(most, "seed")
        yield seeds if fewest == most else f"{fewest} to {seeds}"
    diverged = []
    for record in cell.selected:
        if record["diverged"]:
            share = f"{record['diverged_count']}/{record['n']}"
            diverged.append(f"{label_of(record)} {share}")
    if diverged:
        yield f"DIVERGED: {', '.join(diverged)}"
    reasons: dict[str, str] = {}
    for record in cell.records:
        name = label_of(record)
        if name not in drawn:
            if record["selected"]:
                reasons[name] = "no curve is stored"
            elif record["n"] or name not in reasons:
                reasons[name] = why_not_selected(record)
    for name, why in reasons.items():
        yield f"no line for {name}: {why}"
