"""The sections of curves: accuracy by round, and against bytes, steps and seconds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.charts import accuracy_against, learning_curves
from bench.charts.costs import COSTS, scale_of
from bench.report.embed import Charts, Column, figure
from bench.report.html import Html, join, tag
from bench.stored.groups import Cell, Group, label_of
from bench.stored.results import Record, Results

Row = dict[str, Any]

MOST_POINTS = 40_000  # of all curves of the page together, for its size
_LINE = (12, 120)  # points of one line: at least, at most; a chart is some 300 pixels wide
_PERCENT = (100.0, 2)

_CURVE_TABLE = (
    Column("algorithm", "algorithm"),
    Column("round", "round"),
    Column("mean", "mean, %", *_PERCENT),
    Column("low", "lowest seed, %", *_PERCENT),
    Column("high", "highest seed, %", *_PERCENT),
    Column("n", "seeds"),
)


def learning_sections(groups: Sequence[Group], results: Results, labels: Sequence[str], charts: Charts) -> list[Html]:
    """Both sections: the curves, and what they cost.

    Args:
        groups: of the page.
        results: of the page.
        labels: every algorithm, in the order of the colours.
        charts: the page's; the new ones are added.
    """
    most = points_per_line(sum(len(cell.selected) for group in groups for cell in group.cells))
    curves, costs = [], []
    for group in groups:
        rows = [list(_curve_rows(cell, results, most)) for cell in group.cells]
        pairs = list(zip(group.cells, rows, strict=True))
        by_round = [_curves_of(group, cell, own, labels, charts) for cell, own in pairs]
        by_cost = [_costs_of(group, cell, own, labels, charts) for cell, own in pairs]
        curves.append(_block(group, by_round, len(groups)))
        costs.append(_block(group, by_cost, len(groups)))
    return [join(*curves), join(*costs)]


def points_per_line(lines: int) -> int:
    """How many rounds of a curve are drawn, given how many curves there are."""
    return max(_LINE[0], min(_LINE[1], MOST_POINTS // max(1, lines)))


def thinned(rounds: Sequence[int], most: int) -> list[int]:
    """At most so many of the rounds, evenly spaced, the first and the last among them."""
    if len(rounds) <= most:
        return list(rounds)
    return [rounds[round(at * (len(rounds) - 1) / (most - 1))] for at in range(most)]


def _block(group: Group, figures: Sequence[Html], groups: int) -> Html:
    columns = 2 if len(figures) in (2, 4) else 3
    grid = tag("div", *figures, class_="grid", style=f"--columns:{columns}")
    return join(tag("h3", group.name) if groups > 1 else None, grid)


def _curves_of(group: Group, cell: Cell, rows: Sequence[Row], labels: Sequence[str], charts: Charts) -> Html:
    caption = join(cell.label, " ", tag("span", *_remarks(cell, rows), class_="note"))
    if not rows:
        return figure(caption)
    what = f"Learning curves, {group.name}, {cell.label}. {_in_words(rows)}"
    plot = charts.plot(learning_curves(rows, labels), what, _CURVE_TABLE)
    return figure(caption, plot)


def _costs_of(group: Group, cell: Cell, rows: Sequence[Row], labels: Sequence[str], charts: Charts) -> Html:
    plots = []
    for cost in COSTS:
        own = list(_run_rows(cell)) if cost == "seconds" else [row for row in rows if row[cost] is not None]
        at = Column("seed", "seed") if cost == "seconds" else Column("round", "round")
        scale = scale_of(cost, own)
        columns = (
            _CURVE_TABLE[0],
            at,
            Column(cost, scale.title, scale.factor, 2),
            Column("mean", "accuracy, %", *_PERCENT),
        )
        what = f"Test accuracy against {scale.title}, {group.name}, {cell.label}."
        hidden = {"data_when": cost, "hidden": cost != "bytes"}
        if own:
            plots.append(charts.plot(accuracy_against(cost, own, labels), what, columns, **hidden))
        else:
            plots.append(tag("p", "No run has this number.", class_="note", **hidden))
    return figure(cell.label, *plots)


def _curve_rows(cell: Cell, results: Results, most: int) -> Iterator[Row]:
    for record in cell.selected:
        curves = [results.curves.get(run["run_key"], {}) for run in record["run_of_seed"].values()]
        accuracies = [curve.get("accuracy", {}) for curve in curves]
        common = sorted(set.intersection(*map(set, accuracies))) if accuracies else []
        for at in thinned(common, most):
            values = [accuracy[at] for accuracy in accuracies]
            several = len(values) > 1
            yield {
                "algorithm": label_of(record),
                "round": at,
                "mean": math.fsum(values) / len(values),
                "low": min(values) if several else None,
                "high": max(values) if several else None,
                "n": len(values),
                "bytes": _mean_at(curves, at, "bytes_down", "bytes_up"),
                "steps": _mean_at(curves, at, "train_steps"),
            }


def _mean_at(curves: Sequence[Mapping[str, Mapping[int, float]]], at: int, *metrics: str) -> float | None:
    """The sum of some metrics at a round, mean over seeds; None where one of them was not recorded."""
    values = [curve.get(metric, {}).get(at) for curve in curves for metric in metrics]
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(curves) if len(known) == len(values) else None


def _run_rows(cell: Cell) -> Iterator[Row]:
    for record in cell.selected:
        for seed, run in sorted(record["run_of_seed"].items()):
            if run["seconds"] is not None and run["best_accuracy"] is not None:
                yield {
                    "algorithm": label_of(record),
                    "seed": seed,
                    "seconds": run["seconds"],
                    "mean": run["best_accuracy"],
                }


def _in_words(rows: Sequence[Row]) -> str:
    """Where each line ends."""
    last = {row["algorithm"]: row for row in rows}
    return "; ".join(f"{name} {100 * row['mean']:.1f} % after round {row['round']}" for name, row in last.items())


def _remarks(cell: Cell, rows: Sequence[Row]) -> Iterator[str]:
    """What the lines do not show."""
    drawn = {row["algorithm"]: row["n"] for row in rows}
    counts = sorted(set(drawn.values()))
    if counts:
        several = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
        yield f"{several} seed{'s' * (counts[-1] > 1)} "
    single = [name for name, n in drawn.items() if n == 1]
    if single and len(counts) > 1:
        yield f"· one seed, no band: {', '.join(single)} "
    diverged = [label_of(record) for record in cell.selected if record["diverged"]]
    if diverged:
        yield f"· DIVERGED: {', '.join(diverged)} "
    for name, why in _without_line(cell, set(drawn)).items():
        yield f"· no line for {name}: {why} "


def _without_line(cell: Cell, drawn: set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for record in cell.records:
        name = label_of(record)
        if name not in drawn:
            found[name] = _why(record, found.get(name))
    return found


def _why(record: Record, before: str | None) -> str:
    if record["selected"]:
        return "no curve is stored"
    if record["n"]:
        return "none of its configurations could be selected"
    return before or ("every run failed" if record["failed"] else "every run was stopped")
