"""The sections of curves: accuracy by round, and against bytes, steps and seconds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.charts.lines import MARKED, Axis, Keys, live_lines, mean_and_spread
from bench.report.charts import Charts, Column
from bench.stored.groups import Cell, Group, label_of
from bench.stored.results import Results
from leaderboards.flags import why_not_selected

Row = dict[str, Any]

COSTS = {
    "bytes": "sent and received since round 1",
    "steps": "local steps of a client since round 1",
    "seconds": "wall-clock time of the whole run, s",
}
MOST_POINTS = 40_000  # of all curves of the page together, for its size
_LINE = (12, 120)  # points of one line: at least, at most; a chart is some 300 pixels wide
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
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

    `labels` are every algorithm, in the order of the colours; `charts` get the new ones.
    """
    most = points_per_line(sum(len(cell.selected) for group in groups for cell in group.cells))
    sections = []
    for group in groups:
        cells = []
        for cell in group.cells:
            rows = list(_curve_rows(cell, results, most))
            what = f"Learning curves, {group.name}, {cell.label}. {_ends(rows)}"
            spec = live_lines(rows, _keys(rows, labels), Axis("round", "round"), _ACCURACY) if rows else None
            cells.append(
                {
                    "label": cell.label,
                    "remarks": list(_remarks(cell, rows)),
                    "chart": charts.add(spec, what, _CURVE_TABLE) if spec else None,
                    "costs": {cost: _against(cost, group, cell, rows, labels, charts) for cost in COSTS},
                }
            )
        columns = 2 if len(cells) in (2, 4) else 3
        sections.append({"group": group, "columns": columns, "cells": cells})
    return sections


def points_per_line(lines: int) -> int:
    """Return how many rounds of a curve are drawn, given how many curves there are."""
    return max(_LINE[0], min(_LINE[1], MOST_POINTS // max(1, lines)))


def thinned(rounds: Sequence[int], most: int) -> list[int]:
    """Return at most so many of the rounds, evenly spaced, the first and the last among them."""
    if len(rounds) <= most:
        return list(rounds)
    return [rounds[round(at * (len(rounds) - 1) / (most - 1))] for at in range(most)]


def cost_axis(cost: str, rows: Sequence[Row]) -> Axis:
    """Return the axis of a cost: bytes in the largest unit that leaves the dearest row a number of 1 or more."""
    if cost != "bytes":
        return Axis(cost, COSTS[cost])
    most = max((row[cost] for row in rows), default=0.0)
    size, unit = next((scale for scale in _SIZES if most >= scale[0]), _SIZES[-1])
    return Axis(cost, f"{COSTS[cost]}, {unit}", 1 / size)


def _against(
    cost: str, group: Group, cell: Cell, rows: Sequence[Row], labels: Sequence[str], charts: Charts
) -> int | None:
    """Add the chart of accuracy against a cost, for `seconds` a point per run; None if no run has that number."""
    whole = cost == "seconds"
    priced = list(_run_rows(cell)) if whole else [row for row in rows if row[cost] is not None]
    if not priced:
        return None
    axis = cost_axis(cost, priced)
    accuracy = Axis("mean", "best test accuracy, %", 100.0) if whole else _ACCURACY
    spec = live_lines(priced, _keys(priced, labels, whole), axis, accuracy, joined=not whole)
    at = Column("seed", "seed") if whole else _ROUND
    table = (_ALGORITHM, at, Column(cost, axis.title, axis.factor, 2), Column("mean", "accuracy, %", *_PERCENT))
    return charts.add(spec, f"Test accuracy against {axis.title}, {group.name}, {cell.label}.", table)


def _keys(rows: Sequence[Row], labels: Sequence[str], signs: bool = False) -> Keys:
    """Return the panel's legend; each point has its sign if there is room."""
    present = {row["algorithm"] for row in rows}
    few = signs or len({row["round"] for row in rows}) <= MARKED
    return Keys(labels, [name for name in labels if name in present], signs=few, columns=3)


def _curve_rows(cell: Cell, results: Results, most: int) -> Iterator[Row]:
    for record in cell.selected:
        curves = [results.curves.get(run["run_key"], {}) for run in record["run_of_seed"].values()]
        accuracies = [curve.get("accuracy", {}) for curve in curves]
        common = sorted(set.intersection(*map(set, accuracies))) if accuracies else []
        for at in thinned(common, most):
            yield {
                "algorithm": label_of(record),
                "round": at,
                **mean_and_spread([accuracy[at] for accuracy in accuracies]),
                "bytes": _mean_at(curves, at, "bytes_down", "bytes_up"),
                "steps": _mean_at(curves, at, "train_steps"),
            }


def _mean_at(curves: Sequence[Mapping[str, Mapping[int, float]]], at: int, *metrics: str) -> float | None:
    """Return the sum of metrics at a round, mean over seeds; None if one of them was not recorded."""
    values = [curve.get(metric, {}).get(at) for curve in curves for metric in metrics]
    recorded = [value for value in values if value is not None]
    return math.fsum(recorded) / len(curves) if len(recorded) == len(values) else None


def _run_rows(cell: Cell) -> Iterator[Row]:
    for record in cell.selected:
        for seed, run in sorted(record["run_of_seed"].items()):
            if run["seconds"] is not None and run["best_accuracy"] is not None:
                row = {"seed": seed, "seconds": run["seconds"], "mean": run["best_accuracy"]}
                yield {"algorithm": label_of(record), **row}


def _ends(rows: Sequence[Row]) -> str:
    """Say where each line ends."""
    last = {row["algorithm"]: row for row in rows}
    return "; ".join(f"{name} {100 * row['mean']:.1f} % after round {row['round']}" for name, row in last.items())


def _remarks(cell: Cell, rows: Sequence[Row]) -> Iterator[str]:
    """Say what the lines do not show."""
    drawn = {row["algorithm"]: row["n"] for row in rows}
    counts = sorted(set(drawn.values()))
    if counts:
        several = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
        yield f"{several} seed{'s' * (counts[-1] > 1)}"
    single = [name for name, n in drawn.items() if n == 1]
    if single and len(counts) > 1:
        yield f"one seed, no band: {', '.join(single)}"
    diverged = [label_of(record) for record in cell.selected if record["diverged"]]
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
