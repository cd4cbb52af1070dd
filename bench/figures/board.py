"""Figures of any board, whatever its settings: average ranks over its cells, and accuracy against what it cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.charts.lines import Axis, Keys, fronts, mean_and_spread
from bench.charts.panels import picture
from bench.charts.ranks import ranks as rank_panel
from bench.charts.theme import Spec
from bench.figures.comparisons import Comparison, comparisons, file_name, further, shared_title
from bench.figures.runs import Found, Runs, Sketch
from bench.stored.groups import ranked_runs, values_of
from leaderboards.metrics import METRICS
from leaderboards.problems import BY, Cell
from leaderboards.stats.aggregate import Pooled, critical_difference, pooled

_SHOWN = tuple(METRICS[name] for name in ("best_accuracy", "final_accuracy"))
_FINAL = METRICS["final_accuracy"]
_ACCURACY = Axis("final_accuracy", "final test accuracy, %", _FINAL.scale)
_COSTS = (Axis("traffic", "traffic of a run, MB", log=True), Axis("seconds", "time of a run, s", log=True))


def ranks(runs: Runs, figure: str) -> Found:
    """Find a picture of average ranks for each setting with several cells that rank the same algorithms."""
    found = [
        (comparison, {metric.name: _pooled(comparison, metric.name) for metric in _SHOWN})
        for comparison in comparisons(runs.records, BY)
    ]
    sketches = [
        Sketch(file_name(figure, [comparison]), partial(_ranks, runs, comparison, pools))
        for comparison, pools in found
        if all(pool.cells > 1 and len(pool.standings) > 1 for pool in pools.values())
    ]
    return Found(tuple(sketches), "no setting here has two algorithms that are ranked in two cells")


def _pooled(comparison: Comparison, metric: str) -> Pooled:
    cells = {cell.place: values_of(cell, METRICS[metric]) for cell in comparison.cells}
    return pooled({place: {name: own.values() for name, own in cell.items()} for place, cell in cells.items()})


def _ranks(runs: Runs, comparison: Comparison, pools: dict[str, Pooled]) -> Spec:
    panels = []
    for metric in _SHOWN:
        pool = pools[metric.name]
        rows = [{"algorithm": one.algorithm, "rank": one.average_rank} for one in pool.standings]
        critical = critical_difference(len(rows), pool.cells)
        panels.append(rank_panel(rows, runs.labels, critical, f"{metric.of} (critical difference {critical:.1f})"))
    drawn = {one.algorithm for pool in pools.values() for one in pool.standings}
    cells = pools[_FINAL.name].cells
    notes = [
        f"Average rank over {cells} cells, by mean accuracy of the global model on the test set. The Nemenyi test at "
        "5 % tells two apart whose intervals do not overlap; the band is the interval of the best",
        *further([comparison], drawn, "not ranked in every cell"),
    ]
    return picture(shared_title([comparison]), notes, [panels], beside=160)


def costs(runs: Runs, figure: str) -> Found:
    """Find a picture of accuracy against traffic and time for each setting with two algorithms in a cell."""
    sketches = [
        Sketch(file_name(figure, [comparison]), partial(_costs, runs, comparison))
        for comparison in comparisons(runs.records, ("alpha",))
        if any(len(values_of(cell, _FINAL)) > 1 for cell in comparison.cells)
    ]
    return Found(tuple(sketches), "no cell here has two algorithms to compare")


def _costs(runs: Runs, comparison: Comparison) -> Spec:
    cells = [cell for cell in comparison.cells if ranked_runs(cell)]
    drawn = {name for cell in cells for name in ranked_runs(cell)}
    keys = Keys(runs.labels, [name for name in runs.labels if name in drawn])
    panels = [
        [fronts(list(_points(cell, x)), keys, x, _ACCURACY, title=comparison.label(cell)) for cell in cells]
        for x in _COSTS
    ]
    notes = [
        "Mean accuracy over seeds, with the lowest and the highest; mean traffic; time of the shortest run, on the "
        "machines that ran them. The grey line is the front: what lies below it can be had better at no more cost",
        *further([comparison], drawn, "not measured"),
    ]
    return picture(shared_title([comparison]), notes, panels)


def _points(cell: Cell, x: Axis) -> Iterator[dict[str, Any]]:
    """Give the points of a panel: cost and accuracy of each algorithm that is ranked."""
    for name, runs in ranked_runs(cell).items():
        if x.field == "seconds":
            cost = min(run["seconds"] for run in runs.values())  # what disturbs a run only makes it longer
        else:
            cost = math.fsum(run["bytes_up"] + run["bytes_down"] for run in runs.values()) / len(runs) / 1e6
        yield {"algorithm": name, "x": cost, **mean_and_spread([run[_FINAL.name] for run in runs.values()])}
