"""FedCAD's Fig. 3, FedKF's Fig. 2 and the upper half of FedGKD's Fig. 3: who holds how many samples of which class."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from bench.charts.holdings import holdings
from bench.charts.panels import SIDE, WIDE_SIDE, picture
from bench.charts.theme import Spec
from bench.data.splits import FIELDS
from bench.errors import EnvironmentProblem
from bench.figures.comparisons import Cell, Comparison, comparisons, file_name
from bench.figures.runs import Runs
from bench.figures.sketch import Found, Sketch, untracked
from bench.stored.results import Run
from leaderboards.identity import canonical_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Counts = NDArray[np.int64]

_LACKING = f"{untracked('the class counts of clients', 'classes')}; and the data are not here to count in"


@dataclass(frozen=True, eq=False)
class Holding:
    """A partition.

    Args:
        label: what tells it from those beside it.
        seed: of its draws.
        counts: (K, C) training samples of each class that each client holds.
    """

    label: str
    seed: int
    counts: Counts


@dataclass(frozen=True)
class Partitions:
    """A figure of partitions, a panel for each alpha; it looks at nothing that a partition does not depend on.

    Args:
        shaded: as fields, else as bubbles.
    """

    shaded: bool

    def __call__(self, runs: Runs, figure: str) -> Found:
        """The pictures that some runs make."""
        sketches = []
        for one in comparisons(runs.records, ("alpha",), only=FIELDS):
            if found := [holding for cell in one.cells if (holding := held_by(runs, one, cell))]:
                sketches.append(Sketch(file_name(figure, [one]), partial(self.spec, one, found)))
        return Found(tuple(sketches), _LACKING)

    def spec(self, one: Comparison, found: Sequence[Holding]) -> Spec:
        """One picture."""
        what = "Training samples of each client and class, by " + ("colour" if self.shaded else "area")
        panels = panels_of(found, self.shaded)
        return picture(one.title, [f"{what}; {seeds_of(found)}", *one.others], [panels])


bubbles, heat_map = Partitions(shaded=False), Partitions(shaded=True)


def held_by(runs: Runs, one: Comparison, cell: Cell) -> Holding | None:
    """The partition of a cell's lowest seed, as tracked, else counted in the data; None where neither can be had."""
    finished = [run for record in cell.records for run in record["runs"] if run["status"] == "finished"]
    for run in sorted(finished, key=lambda run: (run["seed"], "classes" not in runs.held(run))):
        counts = _tracked(runs, run) if "classes" in runs.held(run) else _counted(run)
        if counts is not None:
            return Holding(one.label(cell), run["seed"], counts)
    return None


def panels_of(found: Sequence[Holding], shaded: bool) -> list[Spec]:
    """A panel for each partition, alike in what a bubble or a colour means."""
    most = max((int(one.counts.max()) for one in found), default=1)
    side = SIDE if len(found) > 1 else WIDE_SIDE
    return [
        holdings(_rows(one.counts), *one.counts.shape, most=most, title=one.label, shaded=shaded, side=side)
        for one in found
    ]


def seeds_of(found: Iterable[Holding]) -> str:
    """As said below a title."""
    seeds = sorted({one.seed for one in found})
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def _rows(counts: Counts) -> list[dict[str, int]]:
    return [
        {"client": int(client), "class": int(label), "samples": int(counts[client, label])}
        for client, label in zip(*counts.nonzero(), strict=True)
    ]


def _tracked(runs: Runs, run: Run) -> Counts | None:
    """None of a run on pooled data, which has but one client."""
    counts = np.asarray(runs.arrays(run, ["classes/counts"])["classes/counts"], np.int64)
    return counts if counts.shape[0] == run["num_clients"] else None


def _counted(run: Run) -> Counts | None:
    """What the run's setting and seed give, if it is what the run had."""
    setting = json.loads(run["setting_json"])
    found = _shared_out(canonical_json({name: setting[name] for name in FIELDS}), run["seed"])
    return found[0] if found and found[1] == run["partition_hash"] else None


@lru_cache(maxsize=64)
def _shared_out(fields: str, seed: int) -> tuple[Counts, str] | None:
    """(K, C) counts and the hash of a partition; None where the data are not here. `fields`: `FIELDS`, as JSON."""
    from bench import data
    from bench.data.splits import split
    from search_spaces.setting import Setting

    try:
        setting = Setting(**json.loads(fields))
        labels = data.labels(setting.dataset)
        if labels is None:
            return None
        shares = split(setting, labels, seed, data.groups(setting.dataset))
        classes = data.info(setting.dataset).num_classes
    except (ValueError, EnvironmentProblem):  # of a data set or partition that is not installed here, say
        return None
    return np.stack([np.bincount(labels[index], minlength=classes) for index in shares.clients]), shares.hash
