"""Figures of curves: accuracy, training loss and FedKF's measures over rounds, communications and steps.

The instances at the end are the figures; `bench.figures.catalogue` names them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from bench.charts.lines import MARKED, Axis, lines, mean_and_spread, own_colours
from bench.charts.panels import SIDE, WIDE_SIDE, picture
from bench.charts.theme import Spec
from bench.figures.comparisons import comparisons, file_name, further, seeds_said
from bench.figures.stored_runs import Found, Runs, Sketch, untracked
from bench.stored.groups import label_of, on_clients
from bench.stored.results import Record
from leaderboards.numbers import METRICS, VARIANCE
from leaderboards.problems import Cell, Problem
from leaderboards.tables.captions import labels_of, of_whose_models, title

Row = dict[str, Any]

ROUND = Axis("round", "round")
COMMUNICATIONS = Axis("communications", "communications")
STEPS = Axis("train_steps", "local steps of a client")
ACCURACY = Axis("accuracy", "test accuracy, %", 100)
OWN_ACCURACY = Axis("amp", "accuracy on the clients' own tests, %", 100)


@dataclass(frozen=True)
class Curves:
    """A figure whose panels are curves, a line per algorithm.

    Args:
        ys: what is measured; panels from top to bottom, or from left to right if `across` is empty.
    """

    what: str
    lacking: str
    x: Axis = ROUND
    ys: tuple[Axis, ...] = (ACCURACY,)
    across: tuple[str, ...] = ()  # fields of the setting; panels from left to right
    where: Mapping[str, Any] = field(default_factory=dict)
    equal: bool = False  # lines end where the first of them does, so that all have spent the same
    several: bool = False  # nothing is drawn if there is only one panel in a row

    def __call__(self, runs: Runs, figure: str) -> Found:
        """Find the pictures of this figure that the runs allow."""
        sketches = [
            Sketch(file_name(figure, comparison), partial(self.spec, runs, comparison))
            for comparison in comparisons(runs.records, self.across, self.where)
            if self._measured(runs, comparison)
        ]
        return Found(tuple(sketches), self.lacking)

    def spec(self, runs: Runs, comparison: Problem) -> Spec:
        """Draw one picture."""
        what = self.what
        if on_clients(_selected(comparison)):
            what = what.replace(_GLOBAL, METRICS["amp"].quantity.capitalize())
        titles = labels_of(comparison)
        panels = [
            [
                (titles[cell.place], _axis(cell, y), self._lines(runs, cell, _axis(cell, y)))
                for y in ys
                for cell in comparison.cells
            ]
            for ys in ([(y,) for y in self.ys] if self.across else [self.ys])
        ]
        drawn = [points_of for row in panels for _, _, points_of in row if points_of]
        points = [point for points_of in drawn for point in points_of]
        names = {point["algorithm"] for point in points}
        longest = max(
            Counter(point["algorithm"] for point in points_of).most_common(1)[0][1]
            for points_of in drawn
        )
        keys = own_colours(runs.labels, names, signs=longest <= MARKED)
        width = SIDE if max(map(len, panels)) > 1 else WIDE_SIDE
        charts = [
            [
                lines(points_of, keys, self.x, y, title=title, width=width)
                for title, y, points_of in row
                if points_of
            ]
            for row in panels
        ]
        what = of_whose_models(what, _selected(comparison))
        notes = [f"{what}; {seeds_said({point['n'] for point in points})}"]
        notes += [
            f"As many {self.x.title} for all: lines end where the first of them does"
        ] * self.equal
        notes += further(
            comparison, names, "no round of it lies within these" if self.equal else "not measured"
        )
        return picture(title(comparison), notes, [row for row in charts if row])

    def _measured(self, runs: Runs, comparison: Problem) -> bool:
        """Tell whether all of `ys` are measured."""
        counts = [
            sum(bool(self._lines(runs, cell, _axis(cell, y))) for cell in comparison.cells)
            for y in self.ys
        ]
        return min(counts) >= (2 if self.several else 1)

    def _lines(self, runs: Runs, cell: Cell, y: Axis) -> list[Row]:
        """Return the points of a panel."""
        # A diverged run's loss would set the scale of all, and its end the end of lines of equal
        # cost.
        sound = self.equal or y.field == "train_loss"
        records = [record for record in cell.selected if not (sound and record["diverged"])]
        points = {label_of(record): list(self._line(runs, record, y)) for record in records}
        if self.equal:
            # An algorithm that never communicates has no cost at which it could be compared.
            points = {name: line for name, line in points.items() if line and line[-1]["x"] > 0}
            end = min((line[-1]["x"] for line in points.values()), default=0.0)
            points = {
                name: [row for row in line if row["x"] <= end] for name, line in points.items()
            }
        return [row for line in points.values() for row in line]

    def _line(self, runs: Runs, record: Record, y: Axis) -> Iterator[Row]:
        """Yield the points of one algorithm: the rounds that all its seeds have."""
        seed_runs = list(record["run_of_seed"].values())
        values = [runs.curve(run, y.field) for run in seed_runs]
        places = values if self.x == ROUND else [runs.curve(run, self.x.field) for run in seed_runs]
        for at in sorted(set.intersection(*map(set, values), *map(set, places))):
            yield {
                "algorithm": label_of(record),
                "round": at,
                "x": at
                if self.x == ROUND
                else math.fsum(curve[at] for curve in places) / len(places),
                **mean_and_spread([curve[at] for curve in values]),
            }


def _selected(comparison: Problem) -> list[Record]:
    """List the records that a picture may show."""
    records: list[Record] = []
    for cell in comparison.cells:
        records += cell.selected
    return records


def _axis(cell: Cell, y: Axis) -> Axis:
    """Return the axis of a panel: accuracy is that by which the cell's runs are selected."""
    return OWN_ACCURACY if y == ACCURACY and on_clients(cell.selected) else y


_GLOBAL = METRICS["accuracy"].quantity.capitalize()
_NO_CURVE = "no finished run here has a curve of test accuracy"
_LONG = {"local_epochs": 15}  # of FedDKD's second half of figures

by_round = Curves(_GLOBAL, _NO_CURVE, across=("alpha",))

at_equal_communication = Curves(
    _GLOBAL,
    "no finished run here communicates, or none has a curve of it",
    COMMUNICATIONS,
    across=("participation",),
    equal=True,
)
at_equal_steps = Curves(
    _GLOBAL,
    "no finished run here has a curve of its local steps",
    STEPS,
    across=("participation",),
    equal=True,
)
long_at_equal_communication = replace(
    at_equal_communication, where=_LONG, lacking="no finished run here has 15 local epochs"
)
long_at_equal_steps = replace(
    at_equal_steps, where=_LONG, lacking=long_at_equal_communication.lacking
)
# In print the two numbers of epochs have different weight decays.
at_equal_steps_by_epochs = replace(
    at_equal_steps,
    lacking="no setting here has finished runs with several numbers of local epochs",
    across=("local_epochs", "weight_decay"),
    several=True,
)

training_loss = Curves(
    "Training loss, that of each algorithm's own local problem, mean over the round's clients",
    "no finished run here has a curve of training loss",
    ys=(Axis("train_loss", "training loss, nats"),),
)

global_and_local = Curves(
    "Accuracy on the test set of the global model, and of its round's clients' own models, mean over these",
    untracked("the accuracy of the clients' own models", "local"),
    ys=(
        Axis("accuracy", "global accuracy, %", 100),
        Axis("local_accuracy", "mean local accuracy, %", 100),
    ),
)

fairness = Curves(
    "On the clients' own test samples: AMP, accuracy over all of them; FM, variance between clients; WLP, the worst "
    "client's accuracy",
    "no run here keeps samples of its clients to test on: local_test_fraction is 0 in all",
    ys=(
        Axis("amp", "AMP, %", 100),
        Axis("fm", "FM, × 0.001", VARIANCE.scale),
        Axis("wlp", "WLP, %", 100),
    ),
    across=("alpha",),
)
