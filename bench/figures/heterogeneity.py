"""FedGKD's Fig. 3: a column for each alpha, its partition above, accuracy over participation below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from bench.charts.lines import Axis, Keys, lines
from bench.charts.panels import SIDE, picture
from bench.charts.theme import Spec
from bench.figures.comparisons import Cell, Comparison, comparisons, file_name, further, mean_and_spread, seeds_said
from bench.figures.partitions import Holding, held_by, panels_of, seeds_of
from bench.figures.runs import Runs
from bench.figures.sketch import Found, Sketch
from bench.stored.groups import label_of

_LACKING = "no setting here has finished runs at several values of alpha or participation"
_BEST = Axis("best_accuracy", "best test accuracy, %", 100)


def find(runs: Runs, figure: str) -> Found:
    """The pictures that some runs make."""
    made = comparisons(runs.records, ("alpha", "participation"))
    several = [one for one in made if len({cell.place for cell in one.cells if list(_points(cell))}) > 1]
    return Found(tuple(Sketch(file_name(figure, [one]), partial(spec, runs, one)) for one in several), _LACKING)


def spec(runs: Runs, one: Comparison) -> Spec:
    """One picture."""
    held = list(_partitions(runs, one))
    points = {cell.place: list(_points(cell)) for cell in one.cells}
    everything = [point for own in points.values() for point in own]
    names = {point["algorithm"] for point in everything}
    keys = Keys(runs.labels, [name for name in runs.labels if name in names])
    seeds = seeds_said({point["n"] for point in everything})
    notes = [f"Partitions: training samples of each client and class, by area; {seeds_of(held)}"] * bool(held)
    notes += [f"Best test accuracy of the global model; {seeds}", *further([one], names, "not measured")]
    above = panels_of(held, shaded=False)
    width = max((panel["width"] for panel in above), default=SIDE)
    return picture(one.title, notes, [*([above] if above else []), _below(everything, keys, width)])


def _partitions(runs: Runs, one: Comparison) -> Iterator[Holding]:
    """One for each alpha: a partition does not depend on participation."""
    alphas = dict.fromkeys(cell.place[0] for cell in one.cells)
    for alpha in alphas:
        records = tuple(record for cell in one.cells if cell.place[0] == alpha for record in cell.records)
        if found := held_by(runs, one, Cell((alpha, None), records)):
            yield replace(found, label=_label(alpha))


def _below(points: Sequence[dict[str, Any]], keys: Keys, width: int) -> list[Spec]:
    """Accuracy over participation, a panel for each alpha; over alpha where all have one participation."""
    alphas = list(dict.fromkeys(point["alpha"] for point in points))
    participations = sorted({point["participation"] for point in points})
    if len(participations) == 1:
        rows = [point | {"x": point["alpha"]} for point in points if point["alpha"] is not None]
        known = tuple(sorted({row["x"] for row in rows}))
        return [lines(rows, keys, Axis("alpha", "α", ticks=known, log=True), _BEST, width=width)]
    x = Axis("participation", "participation", ticks=tuple(participations))
    panels = []
    for alpha in alphas:
        rows = [point | {"x": point["participation"]} for point in points if point["alpha"] == alpha]
        panels.append(lines(rows, keys, x, _BEST, title=_label(alpha), width=width))
    return panels


def _points(cell: Cell) -> Iterator[dict[str, Any]]:
    alpha, participation = cell.place
    for record in cell.selected:
        values = [run[_BEST.field] for run in record["run_of_seed"].values() if run[_BEST.field] is not None]
        if values:
            place = {"algorithm": label_of(record), "alpha": alpha, "participation": participation}
            yield place | mean_and_spread(values)


def _label(alpha: float | None) -> str:
    return "" if alpha is None else f"α = {alpha:g}"
