"""Samples of each class at each client: Figure 3 of FedCAD and Figure 2 of FedKF.

Figure 3 of FedGKD shows accuracies below them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.charts.class_panels import holdings
from bench.charts.lines import Axis, Keys, lines, mean_and_spread, own_colours
from bench.charts.panels import SIDE, WIDE_SIDE, picture
from bench.charts.theme import Spec
from bench.data.splits import FIELDS
from bench.errors import EnvironmentProblem
from bench.figures.comparisons import comparisons, further, others, seeds_said
from bench.figures.stored_runs import Pictures, Runs
from bench.stored.results import Record, Run
from bench.terminal.words import listed
from leaderboards.problems import BY, Cell, Problem, label_of
from leaderboards.rows.schema import canonical_json
from leaderboards.tables.captions import labels_of, of_whose_models, title

Counts = NDArray[np.int64]

_BEST = Axis("best_accuracy", "best test accuracy, %", 100)


@dataclass(frozen=True, eq=False)
class Holding:
    """A partition of the training samples among clients."""

    label: str
    seed: int
    counts: Counts  # (K, C) training samples of each class that each client holds


def partitions(runs: Runs, *, shaded: bool) -> Pictures:
    """Find pictures with a panel for each alpha.

    Only fields on which a partition depends tell pictures apart. `shaded`: draw shaded fields
    instead of bubbles.
    """
    for comparison in comparisons(runs.records, ("alpha",), only=FIELDS):
        labels = labels_of(comparison)
        holdings_of_cells = [held_by(runs, cell, labels[cell.place]) for cell in comparison.cells]
        shown = list(filter(None, holdings_of_cells))
        if shown:
            yield comparison, partial(_partitions, comparison, shown, shaded)


def _partitions(comparison: Problem, shown: Sequence[Holding], shaded: bool) -> Spec:
    what = "Training samples of each client and class, by " + ("colour" if shaded else "area")
    notes = [f"{what}; {seeds_of(shown)}", *others(comparison)]
    return picture(title(comparison), notes, [panels_of(shown, shaded)])


bubbles = partial(partitions, shaded=False)
heat_map = partial(partitions, shaded=True)


def held_by(runs: Runs, cell: Cell, label: str) -> Holding | None:
    """Return the partition of a cell's lowest seed, tracked or counted in the data.

    Return None if the cell has neither tracked counts nor data to count in.
    """

    def is_tracked(run: Run) -> bool:
        return "classes" in runs.held(run)

    cell_runs = chain.from_iterable(record["runs"] for record in cell.records)
    finished = [run for run in cell_runs if run["status"] == "finished"]
    for run in sorted(finished, key=lambda run: (run["seed"], not is_tracked(run))):
        counts = _tracked_counts(runs, run) if is_tracked(run) else _recount(run)
        if counts is not None:
            return Holding(label, run["seed"], counts)
    return None


def panels_of(shown: Sequence[Holding], shaded: bool) -> list[Spec]:
    """Draw a panel for each partition, all with the same scale of bubbles or colours."""
    most = max(int(holding.counts.max()) for holding in shown)
    side = SIDE if len(shown) > 1 else WIDE_SIDE
    return [
        holdings(holding.counts.tolist(), most=most, title=holding.label, shaded=shaded, side=side)
        for holding in shown
    ]


def seeds_of(shown: Iterable[Holding]) -> str:
    """Format the seeds: `seeds 0, 1`."""
    return listed("seed", {holding.seed for holding in shown})


def _tracked_counts(runs: Runs, run: Run) -> Counts | None:
    """Return the tracked counts; None for a run on pooled data, which has only one client."""
    counts = np.asarray(runs.arrays(run, ["classes/counts"])["classes/counts"], np.int64)
    return counts if counts.shape[0] == run["num_clients"] else None


def _recount(run: Run) -> Counts | None:
    """Deal the samples again and count them; None if the partition is not the run's."""
    setting = json.loads(run["setting_json"])
    # A setting leaves out the fields at their defaults that it got later.
    fields = {name: setting[name] for name in FIELDS if name in setting}
    partition = _count_partition(canonical_json(fields), run["seed"])
    if partition is None:
        return None
    counts, partition_hash = partition
    return counts if partition_hash == run["partition_hash"] else None


@lru_cache(maxsize=64)
def _count_partition(fields: str, seed: int) -> tuple[Counts, str] | None:
    """Return (K, C) counts and the hash of a partition; None if the data are not here.

    `fields`: `FIELDS`, as JSON.
    """
    from bench import data
    from bench.data.splits import split
    from search_spaces.setting import Setting

    try:
        setting = Setting(**json.loads(fields))
        dataset = data.read(setting.dataset)
        if dataset is None:
            return None
        labels = dataset.train_y
        shares = split(setting, labels, seed, dataset.train_groups)
        classes = data.info(setting.dataset).num_classes
    except (ValueError, EnvironmentProblem):  # a data set or partition is not installed here
        return None
    return shares.class_counts(labels, classes), shares.hash


def with_accuracy(runs: Runs) -> Pictures:
    """Find the pictures of Figure 3 of FedGKD.

    They have a column for each alpha, with its partition above and accuracy below.
    """
    for comparison in comparisons(runs.records, BY):
        measured = [cell for cell in comparison.cells if list(_points(cell))]
        if len(measured) > 1:
            yield comparison, partial(_with_accuracy, runs, comparison)


def _with_accuracy(runs: Runs, comparison: Problem) -> Spec:
    shown = list(_partition_of_each_alpha(runs, comparison))
    points = list(chain.from_iterable(map(_points, comparison.cells)))
    names = {point["algorithm"] for point in points}
    keys = own_colours(runs.labels, names)
    seeds = seeds_said({point["n"] for point in points}, names)
    notes = [
        of_whose_models(f"Best test accuracy of the global model; {seeds}", comparison.records),
        *further(comparison, names, "not measured"),
    ]
    width = SIDE
    rows = []
    if shown:
        above = panels_of(shown, shaded=False)
        width = max(panel["width"] for panel in above)
        rows.append(above)
        what = "Partitions: training samples of each client and class, by area"
        notes.insert(0, f"{what}; {seeds_of(shown)}")
    rows.append(_accuracy_panels(points, keys, width))
    return picture(title(comparison), notes, rows)


def _partition_of_each_alpha(runs: Runs, comparison: Problem) -> Iterator[Holding]:
    """Yield one partition for each alpha, because it does not depend on participation."""
    records_of: dict[float | None, list[Record]] = {}  # alpha -> rows
    for cell in comparison.cells:
        alpha = cell.place[0]
        records_of.setdefault(alpha, []).extend(cell.records)
    for alpha, records in records_of.items():
        holding = held_by(runs, Cell((alpha, None), tuple(records)), _label(alpha))
        if holding:
            yield holding


def _accuracy_panels(points: Sequence[dict[str, Any]], keys: Keys, width: int) -> list[Spec]:
    """Draw accuracy over participation, in a panel for each alpha.

    If all points have one participation, draw accuracy over alpha in one panel.
    """
    alphas = list(dict.fromkeys(point["alpha"] for point in points))
    participations = sorted({point["participation"] for point in points})
    if len(participations) == 1:
        rows = [point | {"x": point["alpha"]} for point in points if point["alpha"] is not None]
        ticks = tuple(sorted({row["x"] for row in rows}))
        x = Axis("alpha", "α", ticks=ticks, log=True)
        return [lines(rows, keys, x, _BEST, width=width)]
    x = Axis("participation", "participation", ticks=tuple(participations))
    panels = []
    for alpha in alphas:
        rows = [
            point | {"x": point["participation"]} for point in points if point["alpha"] == alpha
        ]
        panels.append(lines(rows, keys, x, _BEST, title=_label(alpha), width=width))
    return panels


def _points(cell: Cell) -> Iterator[dict[str, Any]]:
    alpha, participation = cell.place
    for record in cell.selected:
        bests = [run[_BEST.field] for run in record["run_of_seed"].values()]
        values = [best for best in bests if best is not None]
        if values and not record["diverged"]:
            place = {"algorithm": label_of(record), "alpha": alpha, "participation": participation}
            yield place | mean_and_spread(values)


def _label(alpha: float | None) -> str:
    return "" if alpha is None else f"α = {alpha:g}"
