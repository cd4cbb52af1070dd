"""`--log`: every result row as one run of TensorBoard, Weights & Biases or MLflow, written while the sweep goes on.

A log is a view of the curve that the engine keeps: steps are rounds, keys are the curve's metrics and `best_accuracy`,
the best test accuracy so far. Workers put what their curves gained into their reports, and one thread of the driver
writes it (`bench.tuning.log_writer`), so that a slow or broken tool holds up no run. A run that goes on after an
interruption gives its whole curve again, and each tool skips what it has, or writes all anew.

Ray Tune's own callbacks are not used. They know trials and reports: one series for all seeds of a trial and all rows of
a run, means over the seeds, values only of the rounds that a report fell on, steps that count reports and begin at 1
again after an interruption; and the inline executor has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from bench.planning.unit import Unit, row_entry

if TYPE_CHECKING:
    from bench.engine.simulation import Point
    from bench.tuning.trial import Trial

Rounds = Mapping[int, Mapping[str, float]]


@dataclass(frozen=True)
class Series:
    """One result row as a tool's run.

    Args:
        key: run key of the row.
        algorithm: its registry name.
        config: what it was run with, named like the columns of `runs`: `hp_*`, every field of the setting, `seed`,
            `algorithm`, `algorithm_version`, `paper`, `run_key`.
    """

    key: str
    algorithm: str
    config: Mapping[str, Any]

    @property
    def name(self) -> str:
        """`fedavg-0123456789abcdef`: the algorithm, and what the row's own files begin with."""
        return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', self.algorithm)}-{self.key[:16]}"


class Log(Protocol):
    """A series being written. `begins`: the last round that the tool had of it when it was opened, or 0."""

    begins: int

    def scalars(self, rounds: Rounds) -> None:
        """Values by metric of some rounds, in ascending order; they can be seen at once."""

    def end(self, status: str, summary: Mapping[str, float]) -> None:
        """Close it. `status`: finished, failed, stopped or interrupted; `summary`: best and final accuracy."""


class Tool(Protocol):
    """Where series go. `where` tells one destination from another; `look` is how a person sees them."""

    where: str
    look: str

    def open(self, series: Series, fresh: bool) -> Log:
        """Begin a series, or go on with it unless `fresh`."""


def series_of(unit: Unit, key: str) -> Series:
    """One of the rows that a run yields."""
    suffix = next(suffix for suffix, own in unit.rows.items() if own == key)
    return make_series(key, *unit.identity(row_entry(unit.algorithm, suffix)), unit.paper)


def make_series(
    key: str,
    algorithm: str,
    version: int,
    hyperparameters: Mapping[str, Any],
    setting: Mapping[str, Any],
    seed: int,
    paper: str | None,
) -> Series:
    """A series from what identifies a run."""
    named = {f"hp_{name}": value for name, value in hyperparameters.items()}
    about = {"seed": seed, "algorithm": algorithm, "algorithm_version": version, "paper": paper, "run_key": key}
    return Series(key, algorithm, {**named, **setting, **about})


class Feed:
    """What the curves of a trial's runs gained since the last report. Lives where the trial does."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._given: dict[str, int] = {}

    def attach(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """The report with `curves`, run key -> new points, and `statuses`, run key -> status of its run."""
        curves: dict[str, list[Point]] = {}
        statuses: dict[str, str] = {}
        for run in self._trial.runs:
            for suffix, key in run.unit.rows.items():
                curve = run.simulation.progress.curves.get(suffix, []) if run.simulation else []
                curves[key], statuses[key] = curve[self._given.get(key, 0) :], run.status
                self._given[key] = len(curve)
        return {**report, "curves": curves, "statuses": statuses}
