"""Figures of any board: average ranks over its cells, and accuracy against what it cost."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.charts.lines import Axis, Keys, fronts, mean_and_spread
from bench.charts.panels import WIDE_SIDE, panel, picture
from bench.charts.theme import FAINT, Spec, colour, whole_numbers
from bench.figures.comparisons import comparisons, file_name, further
from bench.figures.runs import Found, Runs, Sketch
from bench.stored.groups import (
    accuracy_of,
    on_clients,
    ranked_runs,
    scores_by_place,
    values_of,
)
from leaderboards.numbers import NUMBERS
from leaderboards.problems import BY, Cell, Problem
from leaderboards.stats.aggregate import Pooled, critical_difference, pooled
from leaderboards.tables.captions import labels_of, of_whose_models, title

_ROW = 20  # pixels of an algorithm's rank
_FINAL = Axis("final_accuracy", "final test accuracy, %", 100)
_OWN_FINAL = Axis("amp", "final accuracy on the clients' own tests, %", 100)
_COSTS = (
    Axis("traffic", "traffic of a run, MB", log=True),
    Axis("seconds", "time of a run, s", log=True),
)


def ranks(runs: Runs, figure: str) -> Found:
    """Find a critical-difference diagram for each setting with several cells that rank the same algorithms."""
    candidates = [(comparison, _pools(comparison)) for comparison in comparisons(runs.records, BY)]
    sketches = [
        Sketch(file_name(figure, comparison), partial(_ranks, runs, comparison, pools))
        for comparison, pools in candidates
        if all(pool.cells > 1 and len(pool.standings) > 1 for pool in pools.values())
    ]
    return Found(tuple(sketches), "no setting here has two algorithms that are ranked in two cells")


def _pools(comparison: Problem) -> dict[str, Pooled]:
    """Pool each accuracy over the cells, under the name of the models that it is of.

    They are the round that validation selects, or without validation the best one, and the last.
    """
    names = ("selected_accuracy", "best_accuracy", "final_accuracy")
    if on_clients(comparison.records):
        names = ("selected_client_accuracy", "best_client_accuracy", "amp")
    selected, best, final = (NUMBERS[name] for name in names)
    validated = all(
        values_of(cell, selected) for cell in comparison.cells if values_of(cell, final)
    )
    pools = {}
    for metric in (selected if validated else best, final):
        pools[metric.of] = pooled(scores_by_place(comparison.cells, metric))
    return pools


def _ranks(runs: Runs, comparison: Problem, pools: dict[str, Pooled]) -> Spec:
    panels = [_rank_panel(pool, runs.labels, of) for of, pool in pools.items()]
    drawn = {standing.algorithm for pool in pools.values() for standing in pool.standings}
    cells = max(pool.cells for pool in pools.values())
    accuracy = accuracy_of(comparison.records).quantity
    by = of_whose_models(f"mean {accuracy}", comparison.records)
    notes = [
        f"Average rank over {cells} cells, by {by}. The Nemenyi test at "
        "5 % tells two apart whose intervals do not overlap; the band is the interval of the best",
        *further(comparison, drawn, "not ranked in every cell"),
    ]
    return picture(title(comparison), notes, [panels], beside=160)


def _rank_panel(pool: Pooled, labels: tuple[str, ...], of: str) -> Spec:
    """Draw average ranks, the best on top, each with half the critical difference on either side."""
    last = len(pool.standings)
    critical = critical_difference(last, pool.cells)
    data = [
        {
            "algorithm": standing.algorithm,
            "rank": standing.average_rank,
            "low": max(
                1, standing.average_rank - critical / 2
            ),  # no rank is less than 1, or more than the last
            "high": min(last, standing.average_rank + critical / 2),
        }
        for standing in pool.standings
    ]
    ticks = {"values": [1, *(at for at in whole_numbers(1, last) if at > 1)], "format": "d"}
    scale = {"domain": [1, last], "padding": 8, "nice": False}
    along = {
        "type": "quantitative",
        "title": "average rank (1 is best)",
        "scale": scale,
        "axis": ticks,
    }
    names = {
        "type": "nominal",
        "sort": [row["algorithm"] for row in data],
        "title": None,
        "axis": {"grid": False},
    }
    ends = {"x": {"field": "low", **along}, "x2": {"field": "high"}}
    band = {
        "data": {"values": data[:1]},
        "mark": {"type": "rect", "opacity": 0.12, "color": FAINT[0]},
        "encoding": {**ends, "y": {"value": 0}, "y2": {"value": _ROW * last}, "color": None},
    }
    interval = {"mark": {"type": "rule", "strokeWidth": 2}, "encoding": ends}
    point = {
        "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
        "encoding": {"x": {"field": "rank", **along}},
    }
    return panel(
        data,
        f"{of} (critical difference {critical:.1f})",
        WIDE_SIDE,
        _ROW * last,
        encoding={"y": {"field": "algorithm", **names}, "color": colour(labels, field="algorithm")},
        layer=[band, interval, point],
    )


def costs(runs: Runs, figure: str) -> Found:
    """Find a picture of accuracy against traffic and time for each setting with two algorithms in a cell."""
    sketches = [
        Sketch(file_name(figure, comparison), partial(_costs, runs, comparison))
        for comparison in comparisons(runs.records, ("alpha",))
        if any(len(ranked_runs(cell)) > 1 for cell in comparison.cells)
    ]
    return Found(tuple(sketches), "no cell here has two algorithms to compare")


def _costs(runs: Runs, comparison: Problem) -> Spec:
    cells = [cell for cell in comparison.cells if ranked_runs(cell)]
    drawn = {name for cell in cells for name in ranked_runs(cell)}
    keys, labels = Keys(runs.labels, drawn), labels_of(comparison)
    y = _OWN_FINAL if on_clients(comparison.records) else _FINAL
    panels = [
        [fronts(list(_points(cell, x, y)), keys, x, y, title=labels[cell.place]) for cell in cells]
        for x in _COSTS
    ]
    accuracy = accuracy_of(comparison.records).quantity.capitalize()
    notes = [
        of_whose_models(f"{accuracy}, last round", comparison.records)
        + ": mean over seeds, with the lowest and the highest; mean traffic; time of the shortest "
        "run, on the machines that ran them. The grey line is the front: what lies below it can "
        "be had better at no more cost",
        *further(comparison, drawn, "not ranked"),
    ]
    return picture(title(comparison), notes, panels)


def _points(cell: Cell, x: Axis, y: Axis) -> Iterator[dict[str, Any]]:
    """Yield the points of a panel: cost and accuracy of each algorithm that is ranked."""
    for name, runs in ranked_runs(cell).items():
        if x.field == "seconds":
            cost = min(
                run["seconds"] for run in runs.values()
            )  # disturbances only make a run longer
        else:
            cost = (
                math.fsum(run["bytes_up"] + run["bytes_down"] for run in runs.values())
                / len(runs)
                / 1e6
            )
        yield {
            "algorithm": name,
            "x": cost,
            **mean_and_spread([run[y.field] for run in runs.values()]),
        }
