"""Figures of any board: differences from a baseline over its cells, and accuracy against costs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from bench.charts.forest import forest
from bench.charts.lines import Axis, fronts, mean_and_spread, own_colours
from bench.charts.panels import picture
from bench.charts.theme import Spec
from bench.figures.comparisons import comparisons, further
from bench.figures.stored_runs import Pictures, Runs
from bench.stored.groups import accuracy_of, on_clients, ranked
from leaderboards.numbers import Number
from leaderboards.problems import BY, REFERENCES, Cell, Problem
from leaderboards.tables import ResultTable, tables_of
from leaderboards.tables.captions import labels_of, of_whose_models, title
from leaderboards.tables.over_cells import (
    Gain,
    description_of,
    gains,
    remarks_on,
    texts_of,
    usual_baseline,
)

_BESIDE = 40  # pixels that a panel of the forest plot takes beside its plot
_FINAL = Axis("final_accuracy", "final test accuracy, %", 100)
_OWN_FINAL = Axis("amp", "final accuracy on the clients' own tests, %", 100)
_COSTS = (
    Axis("traffic", "traffic of a run, MB", log=True),
    Axis("seconds", "time of a run, s", log=True),
)


def differences(runs: Runs) -> Pictures:
    """Find a forest plot for each setting in which algorithms have a cell with the baseline."""
    for comparison in comparisons(runs.records, (*BY, "partition")):
        tables = tables_of(comparison.records, [runs.primary])
        label = usual_baseline(tables)
        compared = gains(tables, runs.primary, label)
        drawn = [gain for gain in compared if gain.pooled.method not in REFERENCES]
        if drawn:
            yield comparison, partial(_differences, runs.primary, comparison, tables, drawn)


def _differences(
    metric: Number, comparison: Problem, tables: Sequence[ResultTable], drawn: Sequence[Gain]
) -> Spec:
    baseline = usual_baseline(tables)
    rows = [_line(gain, metric) for gain in drawn]
    most = max(gain.pooled.cells for gain in drawn)
    cells = f"the cells that both have, {most} at most" if most > 1 else "one cell"
    axis = f"points over {baseline}" if metric.unit.shown == "%" else f"over {baseline}"
    intervals = "no intervals, which take six partitions or more"
    if any(gain.pooled.interval for gain in drawn):
        intervals = "all intervals hold at once with 95 %. Blue: the interval excludes 0"
    notes = [
        f"{description_of(metric, tables, {baseline})}: mean difference from {baseline} over "
        f"{cells}, paired by partition; {intervals}",
    ]
    columns = []
    if any(gain.traffic is not None for gain in drawn):
        columns.append("traffic")
        notes.append(f"Traffic of a run in multiples of {baseline}'s")
    elif any(gain.sent is not None for gain in drawn):
        columns.append("traffic")  # in MB, as the remarks say
    if any(gain.time is not None for gain in drawn):
        columns.append("time")
        notes.append(f"Time in multiples of {baseline}'s, where both ran in one environment")
    columns.append("diverged")
    remarks = remarks_on(tables, metric, baseline, drawn)
    notes += [note[0].upper() + note[1:] for note in remarks]
    panels = forest(rows, axis, columns)
    return picture(title(comparison), notes, [panels], beside=_BESIDE)


def _line(gain: Gain, metric: Number) -> dict[str, Any]:
    """Return a line of the forest plot: numbers as printed."""
    scale = metric.unit.scale
    interval = gain.pooled.interval
    return {
        **texts_of(gain, metric),
        "algorithm": gain.pooled.method,
        "difference": scale * gain.pooled.difference,
        "low": None if interval is None else scale * interval.low,
        "high": None if interval is None else scale * interval.high,
        "told": gain.pooled.separable,
    }


def costs(runs: Runs) -> Pictures:
    """Find a picture of accuracy against traffic and time for each setting.

    A setting needs two algorithms in one cell.
    """
    for comparison in comparisons(runs.records, ("alpha",)):
        if max(len(ranked(cell)) for cell in comparison.cells) > 1:
            yield comparison, partial(_costs, runs, comparison)


def _costs(runs: Runs, comparison: Problem) -> Spec:
    cells = [cell for cell in comparison.cells if ranked(cell)]
    drawn = set(chain.from_iterable(map(ranked, cells)))
    keys = own_colours(runs.labels, drawn)
    labels = labels_of(comparison)
    y = _OWN_FINAL if on_clients(comparison.records) else _FINAL
    panels = []
    for x in _COSTS:
        row = []
        for cell in cells:
            points = list(_points(cell, x, y))
            row.append(fronts(points, keys, x, y, title=labels[cell.place]))
        panels.append(row)
    accuracy = accuracy_of(comparison.records).quantity.capitalize()
    notes = [
        of_whose_models(f"{accuracy}, last round", comparison.records)
        + ": mean over seeds, with the lowest and the highest; mean traffic; time of the shortest "
        "run. The grey line is the front: what lies below it can be had better at no more cost",
        *_untimed(cells, labels),
        *further(comparison, drawn, "not ranked"),
    ]
    return picture(title(comparison), notes, panels)


def _points(cell: Cell, x: Axis, y: Axis) -> Iterator[dict[str, Any]]:
    """Yield the points of a panel: cost and accuracy of each algorithm that is ranked."""
    times = _times(cell) if x.field == "seconds" else {}
    for name, record in ranked(cell).items():
        runs = list(record["run_of_seed"].values())
        if x.field == "seconds":
            if name not in times:
                continue
            cost = times[name]
        else:
            total = math.fsum(run["bytes_up"] + run["bytes_down"] for run in runs)
            cost = total / len(runs) / 1e6
        accuracies = mean_and_spread([run[y.field] for run in runs])
        yield {"algorithm": name, "x": cost, **accuracies}


def _times(cell: Cell) -> dict[str, float]:
    """Return the seconds of each algorithm's shortest run where most algorithms of the cell ran.

    Only times of one environment (device, processor, threads, backend, pack, versions) can be
    compared. The shortest run is taken, because disturbances only make a run longer.
    """
    records = ranked(cell)
    counts = Counter(chain.from_iterable(record["shortest"] for record in records.values()))
    most = max(counts, key=lambda environment: (counts[environment], environment))
    return {
        name: record["shortest"][most]
        for name, record in records.items()
        if most in record["shortest"]
    }


def _untimed(cells: Sequence[Cell], labels: Mapping[Any, str]) -> Iterator[str]:
    """Yield which algorithms have no time, by cell."""
    missing = []
    for cell in cells:
        times = _times(cell)
        names = [name for name in ranked(cell) if name not in times]
        if names:
            place = f" ({labels[cell.place]})" if labels[cell.place] else ""
            missing.append(f"{', '.join(names)}{place}")
    if missing:
        yield f"No time, because they ran in another environment than most: {'; '.join(missing)}"
