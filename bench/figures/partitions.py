"""Samples of each class at each client: FedCAD's Fig.

3, FedKF's Fig. 2, and FedGKD's Fig. 3 with accuracies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.charts.class_panels import holdings
from bench.charts.lines import Axis, Keys, lines, mean_and_spread, own_colours
from bench.charts.panels import SIDE, WIDE_SIDE, picture
from bench.charts.theme import Spec
from bench.data.splits import FIELDS
from bench.errors import EnvironmentProblem
from bench.figures.comparisons import comparisons, file_name, further, others, seeds_said
from bench.figures.stored_runs import Found, Runs, Sketch, untracked
from bench.stored.groups import label_of
from bench.stored.results import Run
from leaderboards.problems import Cell, Problem
from leaderboards.rows.schema import canonical_json
from leaderboards.tables.captions import labels_of, of_whose_models, title

Counts = NDArray[np.int64]

_BEST = Axis("best_accuracy", "best test accuracy, %", 100)
_NO_PARTITION = (
    f"{untracked('the class counts of clients', 'classes')}; and the data are not here to count in"
)


@dataclass(frozen=True, eq=False)
class Holding:
    """A partition of the training samples among clients."""

    label: str
    seed: int
    counts: Counts  # (K, C) training samples of each class that each client holds


def partitions(runs: Runs, figure: str, *, shaded: bool) -> Found:
    """Find pictures with a panel for each alpha; only fields on which a partition depends tell them apart.

    `shaded`: draw shaded fields instead of bubbles.
    """
    sketches = []
    for comparison in comparisons(runs.records, ("alpha",), only=FIELDS):
        labels = labels_of(comparison)
        if shown := [
            holding
            for cell in comparison.cells
            if (holding := held_by(runs, cell, labels[cell.place]))
        ]:
            sketches.append(
                Sketch(
                    file_name(figure, comparison), partial(_partitions, comparison, shown, shaded)
                )
            )
    return Found(tuple(sketches), _NO_PARTITION)


def _partitions(comparison: Problem, shown: Sequence[Holding], shaded: bool) -> Spec:
    what = "Training samples of each client and class, by " + ("colour" if shaded else "area")
    notes = [f"{what}; {seeds_of(shown)}", *others(comparison)]
    return picture(title(comparison), notes, [panels_of(shown, shaded)])


bubbles, heat_map = partial(partitions, shaded=False), partial(partitions, shaded=True)


def held_by(runs: Runs, cell: Cell, label: str) -> Holding | None:
    """Return the partition of a cell's lowest seed, as tracked, else counted in the data; None if neither is here."""
    finished = [
        run for record in cell.records for run in record["runs"] if run["status"] == "finished"
    ]
    for run in sorted(finished, key=lambda run: (run["seed"], "classes" not in runs.held(run))):
        counts = _tracked_counts(runs, run) if "classes" in runs.held(run) else _recount(run)
        if counts is not None:
            return Holding(label, run["seed"], counts)
    return None


def panels_of(found: Sequence[Holding], shaded: bool) -> list[Spec]:
    """Draw a panel for each partition, all with the same scale of bubbles or colours."""
    most = max((int(holding.counts.max()) for holding in found), default=1)
    side = SIDE if len(found) > 1 else WIDE_SIDE
    return [
        holdings(holding.counts.tolist(), most=most, title=holding.label, shaded=shaded, side=side)
        for holding in found
    ]


def seeds_of(found: Iterable[Holding]) -> str:
    """Format the seeds: `seeds 0, 1`."""
    seeds = sorted({holding.seed for holding in found})
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def _tracked_counts(runs: Runs, run: Run) -> Counts | None:
    """Return the tracked counts; None for a run on pooled data, which has only one client."""
    counts = np.asarray(runs.arrays(run, ["classes/counts"])["classes/counts"], np.int64)
    return counts if counts.shape[0] == run["num_clients"] else None


def _recount(run: Run) -> Counts | None:
    """Deal the samples again and count them; None if the partition is not the run's."""
    setting = json.loads(run["setting_json"])
    fields = {
        name: setting[name] for name in FIELDS if name in setting
    }  # a later field is left out at its default
    partition = _count_partition(canonical_json(fields), run["seed"])
    return partition[0] if partition and partition[1] == run["partition_hash"] else None


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
    except (
        ValueError,
        EnvironmentProblem,
    ):  # such as for a data set or partition that is not installed here
        return None
    return np.stack(
        [np.bincount(labels[index], minlength=classes) for index in shares.clients]
    ), shares.hash


def with_accuracy(runs: Runs, figure: str) -> Found:
    """Find the pictures of FedGKD's Fig.

    3: a column for each alpha, its partition above, accuracy below.
    """
    candidates = comparisons(runs.records, ("alpha", "participation"))
    several = [
        comparison
        for comparison in candidates
        if len({cell.place for cell in comparison.cells if list(_points(cell))}) > 1
    ]
    sketches = [
        Sketch(file_name(figure, comparison), partial(_with_accuracy, runs, comparison))
        for comparison in several
    ]
    return Found(
        tuple(sketches),
        "no setting here has finished runs at several values of alpha or participation",
    )


def _with_accuracy(runs: Runs, comparison: Problem) -> Spec:
    shown = list(_partition_of_each_alpha(runs, comparison))
    points = {cell.place: list(_points(cell)) for cell in comparison.cells}
    all_points = [point for cell_points in points.values() for point in cell_points]
    names = {point["algorithm"] for point in all_points}
    keys = own_colours(runs.labels, names)
    seeds = seeds_said({point["n"] for point in all_points})
    notes = [
        f"Partitions: training samples of each client and class, by area; {seeds_of(shown)}"
    ] * bool(shown)
    notes += [
        of_whose_models(f"Best test accuracy of the global model; {seeds}", comparison.records),
        *further(comparison, names, "not measured"),
    ]
    above = panels_of(shown, shaded=False)
    width = max((panel["width"] for panel in above), default=SIDE)
    return picture(
        title(comparison),
        notes,
        [*([above] if above else []), _accuracy_panels(all_points, keys, width)],
    )


def _partition_of_each_alpha(runs: Runs, comparison: Problem) -> Iterator[Holding]:
    """Yield one partition for each alpha, because it does not depend on participation."""
    alphas = dict.fromkeys(cell.place[0] for cell in comparison.cells)
    for alpha in alphas:
        records = tuple(
            record for cell in comparison.cells if cell.place[0] == alpha for record in cell.records
        )
        if holding := held_by(runs, Cell((alpha, None), records), _label(alpha)):
            yield holding


def _accuracy_panels(points: Sequence[dict[str, Any]], keys: Keys, width: int) -> list[Spec]:
    """Draw accuracy over participation, a panel for each alpha; over alpha if all have one participation."""
    alphas = list(dict.fromkeys(point["alpha"] for point in points))
    participations = sorted({point["participation"] for point in points})
    if len(participations) == 1:
        rows = [point | {"x": point["alpha"]} for point in points if point["alpha"] is not None]
        ticks = tuple(sorted({row["x"] for row in rows}))
        return [lines(rows, keys, Axis("alpha", "α", ticks=ticks, log=True), _BEST, width=width)]
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
        values = [
            run[_BEST.field]
            for run in record["run_of_seed"].values()
            if run[_BEST.field] is not None
        ]
        if values and not record["diverged"]:
            place = {"algorithm": label_of(record), "alpha": alpha, "participation": participation}
            yield place | mean_and_spread(values)


def _label(alpha: float | None) -> str:
    return "" if alpha is None else f"α = {alpha:g}"
