"""Figures of curves: accuracy, loss and FedKF's measures over rounds, communications and steps.

The instances at the end are the figures; `bench.figures.catalogue` names them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from bench.charts.lines import MARKED, Axis, lines, mean_and_spread, own_colours
from bench.charts.panels import SIDE, WIDE_SIDE, picture
from bench.charts.theme import Spec
from bench.figures.comparisons import comparisons, further, seeds_said
from bench.figures.stored_runs import Pictures, Runs
from bench.stored.groups import on_clients
from bench.stored.results import Record
from leaderboards.numbers import METRICS, VARIANCE
from leaderboards.problems import Cell, Problem, label_of
from leaderboards.tables.captions import labels_of, of_whose_models, title

Row = dict[str, Any]

ROUND = Axis("round", "round")
COMMUNICATIONS = Axis("communications", "communications")
STEPS = Axis("train_steps", "local steps of a client")
ACCURACY = Axis("accuracy", "test accuracy, %", 100)
OWN_ACCURACY = Axis("amp", "accuracy on the clients' own tests, %", 100)


class Panel(NamedTuple):
    """The points of a panel and its axes; without points it is not drawn."""

    title: str
    y: Axis
    points: list[Row]


@dataclass(frozen=True)
class Curves:
    """A figure whose panels are curves, a line per algorithm.

    Args:
        ys: what is measured; panels from top to bottom, or from left to right if `across` is empty.
    """

    what: str
    x: Axis = ROUND
    ys: tuple[Axis, ...] = (ACCURACY,)
    across: tuple[str, ...] = ()  # fields of the setting; panels from left to right
    where: Mapping[str, Any] = field(default_factory=dict)
    equal: bool = False  # lines end where the first of them does, so that all have spent the same
    several: bool = False  # nothing is drawn if there is only one panel in a row

    def __call__(self, runs: Runs) -> Pictures:
        """Find the pictures of this figure that the runs allow."""
        for comparison in comparisons(runs.records, self.across, self.where):
            panels = self._panels(runs, comparison)
            if self._is_measured(panels):
                yield comparison, partial(self._spec, runs, comparison, panels)

    def _spec(self, runs: Runs, comparison: Problem, panels: list[list[Panel]]) -> Spec:
        """Draw one picture."""
        if not self.across:
            panels = [list(chain.from_iterable(panels))]
        panels_drawn = [panel for panel in chain.from_iterable(panels) if panel.points]
        points = list(chain.from_iterable(panel.points for panel in panels_drawn))
        names = {point["algorithm"] for point in points}
        longest = max(_longest_line(panel.points) for panel in panels_drawn)
        keys = own_colours(runs.labels, names, signs=longest <= MARKED)
        width = SIDE if max(map(len, panels)) > 1 else WIDE_SIDE
        rows = []
        for row in panels:
            specs = []
            for panel in row:
                if panel.points:
                    spec = lines(
                        panel.points, keys, self.x, panel.y, title=panel.title, width=width
                    )
                    specs.append(spec)
            if specs:
                rows.append(specs)
        return picture(title(comparison), self._notes(comparison, points, names), rows)

    def _panels(self, runs: Runs, comparison: Problem) -> list[list[Panel]]:
        """Return the panels of each of `ys`; some panels may have no points."""
        titles = labels_of(comparison)
        panels = []
        for y in self.ys:
            row = []
            for cell in comparison.cells:
                axis = _axis(cell, y)
                row.append(Panel(titles[cell.place], axis, self._lines(runs, cell, axis)))
            panels.append(row)
        return panels

    def _notes(
        self, comparison: Problem, points: Sequence[Row], names: Collection[str]
    ) -> list[str]:
        records = _selected(comparison)
        what = self.what
        if on_clients(records):
            what = what.replace(_GLOBAL, METRICS["amp"].quantity.capitalize())
        seeds = seeds_said({point["n"] for point in points}, names)
        notes = [f"{of_whose_models(what, records)}; {seeds}"]
        why = "not measured"
        if self.equal:
            notes.append(f"As many {self.x.title} for all: lines end where the first of them does")
            why = "no round of it lies within these"
        return notes + further(comparison, names, why)

    def _is_measured(self, panels: Sequence[Sequence[Panel]]) -> bool:
        """Tell whether all of `ys` are measured, each in as many cells as the figure needs."""
        needed = 2 if self.several else 1
        for row in panels:
            measured = [panel for panel in row if panel.points]
            if len(measured) < needed:
                return False
        return True

    def _lines(self, runs: Runs, cell: Cell, y: Axis) -> list[Row]:
        """Return the points of a panel."""
        records = list(cell.selected)
        # The loss of a diverged run would set the scale of all lines, and where it ends all lines
        # of equal cost would end.
        if self.equal or y.field == "train_loss":
            records = [record for record in records if not record["diverged"]]
        line_of = {label_of(record): list(self._line(runs, record, y)) for record in records}
        if not self.equal:
            return list(chain.from_iterable(line_of.values()))
        # An algorithm that never communicates has no cost at which it could be compared.
        costly = [line for line in line_of.values() if line and line[-1]["x"] > 0]
        if not costly:
            return []
        end = min(line[-1]["x"] for line in costly)
        return [point for point in chain.from_iterable(costly) if point["x"] <= end]

    def _line(self, runs: Runs, record: Record, y: Axis) -> Iterator[Row]:
        """Yield the points of one algorithm: the rounds that all its seeds have."""
        seed_runs = list(record["run_of_seed"].values())
        values = [runs.results.curve(run, y.field) for run in seed_runs]
        rounds = set.intersection(*map(set, values))
        costs = []
        if self.x != ROUND:
            costs = [runs.results.curve(run, self.x.field) for run in seed_runs]
            rounds.intersection_update(*costs)
        for at in sorted(rounds):
            yield {
                "algorithm": label_of(record),
                "round": at,
                "x": math.fsum(curve[at] for curve in costs) / len(costs) if costs else at,
                **mean_and_spread([curve[at] for curve in values]),
            }


def _longest_line(points: Sequence[Row]) -> int:
    """Return the number of points of the algorithm that has most."""
    counts = Counter(point["algorithm"] for point in points)
    return max(counts.values())


def _selected(comparison: Problem) -> list[Record]:
    """List the records that a picture may show."""
    return list(chain.from_iterable(cell.selected for cell in comparison.cells))


def _axis(cell: Cell, y: Axis) -> Axis:
    """Return the axis of a panel: accuracy is that by which the cell's runs are selected."""
    return OWN_ACCURACY if y == ACCURACY and on_clients(cell.selected) else y


_GLOBAL = METRICS["accuracy"].quantity.capitalize()
_LONG = {"local_epochs": 15}  # of FedDKD's second half of figures

by_round = Curves(_GLOBAL, across=("alpha",))

at_equal_communication = Curves(_GLOBAL, COMMUNICATIONS, across=("participation",), equal=True)
at_equal_steps = Curves(_GLOBAL, STEPS, across=("participation",), equal=True)
long_at_equal_communication = replace(at_equal_communication, where=_LONG)
long_at_equal_steps = replace(at_equal_steps, where=_LONG)
# In print the two numbers of epochs have different weight decays.
at_equal_steps_by_epochs = replace(
    at_equal_steps, across=("local_epochs", "weight_decay"), several=True
)

training_loss = Curves(
    "Training loss, that of each algorithm's own local problem, mean over the round's clients",
    ys=(Axis("train_loss", "training loss, nats"),),
)

global_and_local = Curves(
    "Accuracy on the test set of the global model, and of its round's clients' own models, "
    "mean over these",
    ys=(
        Axis("accuracy", "global accuracy, %", 100),
        Axis("local_accuracy", "mean local accuracy, %", 100),
    ),
)

fairness = Curves(
    "On the clients' own test samples: AMP, accuracy over all of them; FM, variance between "
    "clients; WLP, the worst client's accuracy",
    ys=(
        Axis("amp", "AMP, %", 100),
        Axis("fm", "FM, × 0.001", VARIANCE.scale),
        Axis("wlp", "WLP, %", 100),
    ),
    across=("alpha",),
)
