"""Stored runs and their tracked data, for figures; the pictures that can be drawn from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from bench.artifacts import Arrays, Tracked
from bench.charts.theme import Spec
from bench.compare.boards import runs_named
from bench.compare.filters import filtered
from bench.errors import EnvironmentProblem
from bench.figures.comparisons import comparisons
from bench.stored.groups import labels_of
from bench.stored.results import Record, Results, Run, shown_accuracies
from bench.stored.results import read as read_results
from bench.terminal.render import note_superseded
from leaderboards.numbers import Number
from leaderboards.problems import Problem, label_of
from leaderboards.selection import ALL_RUNS, Selection

Drawing = Callable[[], Spec]  # makes a picture's specification, which takes time
Pictures = Iterator[tuple[Problem, Drawing]]  # each with the cells that it shows


def picture_of_each(
    runs: Runs,
    choose: Callable[[Runs, Problem], Mapping[str, Run]],
    spec: Callable[[Runs, Problem, Mapping[str, Run]], Spec],
) -> Pictures:
    """Find a picture for each setting of which `choose` returns runs, by label; `spec` draws it."""
    for comparison in comparisons(runs.records, ()):
        chosen_runs = choose(runs, comparison)
        if chosen_runs:
            yield comparison, partial(spec, runs, comparison, chosen_runs)


@dataclass(frozen=True)
class Runs:
    """Stored runs, for figures."""

    outs: tuple[Path, ...]
    results: Results
    records: tuple[Record, ...]
    stated: tuple[str, ...] | None = None  # the board's metrics, the primary one first

    @property
    def primary(self) -> Number:
        """The accuracy in which algorithms are compared."""
        return shown_accuracies(self.records, self.stated)[0]

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Every algorithm of the folders, in the order of the colours, as in the report."""
        return labels_of(self.results.records)

    def held(self, run: Run) -> set[str]:
        """Return the names of `TRACKS` that the run has files for, in any folder."""
        return set[str]().union(*(tracked.names(run["run_key"]) for tracked in self._tracked))

    def keeping(self, records: Iterable[Record], track: str) -> dict[str, Run]:
        """Return label -> run of one cell that keeps `track`, in the order of `labels`.

        All runs have the same seed: the lowest one that most algorithms have.
        """
        runs_of_seed: dict[int, dict[str, Run]] = {}
        for record in records:
            if record["selected"] and not record["diverged"]:
                for seed, run in record["run_of_seed"].items():
                    if track in self.held(run):
                        runs_of_seed.setdefault(seed, {})[label_of(record)] = run
        if not runs_of_seed:
            return {}
        seed = min(runs_of_seed, key=lambda seed: (-len(runs_of_seed[seed]), seed))
        run_of = runs_of_seed[seed]
        return {label: run_of[label] for label in self.labels if label in run_of}

    def arrays(self, run: Run, names: Iterable[str]) -> Arrays:
        """Read the tracked arrays of a run.

        Raises EnvironmentProblem if a file is damaged, or lacks one of `names`.
        """
        arrays: Arrays = {}
        for tracked in self._tracked:
            if tracked.has(run["run_key"]):
                arrays = {**tracked.arrays(run["run_key"]), **arrays}
        missing = [name for name in names if name not in arrays]
        if missing:
            path = self._first_file(run, "npz")
            raise EnvironmentProblem(
                f"{path} lacks {', '.join(missing)}, which a file of tracked data has: delete it; "
                "--track with --force makes it again"
            )
        return arrays

    def model_folder(self, run: Run) -> Path:
        """Return the folder that keeps the final model of a run."""
        return self._first_file(run, "safetensors").parent.parent

    def _first_file(self, run: Run, ending: str) -> Path:
        key = run["run_key"]
        holders = (tracked for tracked in self._tracked if tracked.has(key, ending))
        return next(holders, self._tracked[0]).path(key, ending)

    @cached_property
    def _tracked(self) -> tuple[Tracked, ...]:
        """The tracked files of each folder."""
        return tuple(map(Tracked, self.outs))


def read(
    outs: Sequence[Path],
    where: Mapping[str, Sequence[Any]],
    selection: Selection = ALL_RUNS,
    stated: Sequence[str] | None = None,
) -> Runs:
    """Read result folders.

    Args:
        outs: the folders.
        where: as `bench.compare.filters.filters` gives it.
        selection: of configurations and their runs.
        stated: names of the board's metrics, the primary one first; None if it states none.

    Raises:
        UsageError: there is no run in any of them, or none of those asked for.
        leaderboards.StoreError: a file is broken, foreign, or of a newer schema.
    """
    results = read_results(outs, selection)
    frame = filtered(results.source.runs(), where, runs_named(outs, selection))
    note_superseded(frame, selection.tuned)
    keys = set(frame["run_key"])
    records = []
    for record in results.records:
        if not keys.isdisjoint(run["run_key"] for run in record["runs"]):
            records.append(record)
    metrics = None if stated is None else tuple(stated)
    return Runs(tuple(outs), results, tuple(records), metrics)
