"""What figures are drawn from: the stored runs that are asked for, and what was tracked of them. Nothing is changed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bench import tracked
from bench.compare.filters import chosen
from bench.errors import EnvironmentProblem
from bench.stored.groups import label_of, labels_of
from bench.stored.results import Record, Results, Run
from bench.stored.results import read as read_results
from bench.tracked import Arrays


@dataclass(frozen=True)
class Runs:
    """Stored runs as figures see them.

    Args:
        outs: the result folders.
        results: all that they hold.
        records: rows of their leaderboard that are asked for.
    """

    outs: tuple[Path, ...]
    results: Results
    records: tuple[Record, ...]

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Every algorithm of the folders, in the order of the colours; as in the report of the same folders."""
        return labels_of(self.results.records)

    @cached_property
    def _held(self) -> dict[str, set[str]]:
        return {}

    def curve(self, run: Run, metric: str) -> Mapping[int, float]:
        """Round -> value; empty if the run has no such curve.

        Args:
            run: whose.
            metric: of the run's curve, or an array of `bench.tracked` with a number for each evaluated round.

        Raises:
            EnvironmentProblem: a file of tracked data is damaged.
        """
        track, _, name = metric.partition("/")
        if name:
            rounds = f"{track}/rounds"
            found = self.arrays(run, (rounds, metric)) if track in self.held(run) else {}
            points = zip(found[rounds].tolist(), found[metric].tolist(), strict=True) if found else ()
            return {at: value for at, value in points if math.isfinite(value)}
        return self.results.curves.get(run["run_key"], {}).get(metric, {})

    def held(self, run: Run) -> set[str]:
        """Which names of `bench.execution.TRACKS` have files, in any of the folders.

        Raises:
            EnvironmentProblem: a file is damaged.
        """
        key = run["run_key"]
        if key not in self._held:
            self._held[key] = set().union(*(tracked.held(out, key) for out in self.outs))
        return self._held[key]

    def keeping(self, records: Iterable[Record], track: str) -> dict[str, Run]:
        """Label -> run that keeps something, all of one seed: of those that most algorithms have, the lowest.

        Args:
            records: rows of the leaderboard in one cell; of those that are selected and did not diverge.
            track: one of `bench.execution.TRACKS`.

        Raises:
            EnvironmentProblem: a file is damaged.
        """
        found: dict[int, dict[str, Run]] = {}
        for record in records:
            if record["selected"] and not record["diverged"]:
                for seed, run in record["run_of_seed"].items():
                    if track in self.held(run):
                        found.setdefault(seed, {})[label_of(record)] = run
        return found[min(found, key=lambda seed: (-len(found[seed]), seed))] if found else {}

    def arrays(self, run: Run, names: Iterable[str]) -> Arrays:
        """Tracked arrays of a run, where `held` says that there are some.

        Args:
            run: whose.
            names: what is needed of them.

        Raises:
            EnvironmentProblem: a file is damaged, or none of ours.
        """
        found: Arrays = {}
        for out in self.outs:
            if tracked.path_of(out, run["run_key"]).exists():
                found = {**tracked.arrays(out, run["run_key"]), **found}
        missing = [name for name in names if name not in found]
        if missing:
            path = self._first(run, "npz")
            raise EnvironmentProblem(
                f"{path} lacks {', '.join(missing)}, which a file of tracked data has: delete it; --track with --force "
                "makes it again"
            )
        return found

    def model_folder(self, run: Run) -> Path:
        """The folder that keeps the final model of a run, where `held` says that one does."""
        return self._first(run, "safetensors").parent.parent

    def _first(self, run: Run, ending: str) -> Path:
        paths = [tracked.path_of(out, run["run_key"], ending) for out in self.outs]
        return next((path for path in paths if path.exists()), paths[0])


def read(
    outs: Sequence[Path],
    where: Mapping[str, Sequence[Any]],
    tuned: Sequence[str] = (),
    confirmed_at: Mapping[str, Any] | None = None,
) -> Runs:
    """Read result folders.

    Args:
        outs: the folders.
        where: field -> values asked for, as `bench.compare.filters.filters` gives them.
        tuned: as for `bench.stored.results.read`.
        confirmed_at: likewise.

    Raises:
        UsageError: there is no run in any of them, or none of those asked for.
        leaderboards.StoreError: a file is broken, foreign, or of a newer schema.
    """
    results = read_results(outs, tuned, confirmed_at)
    keys = set(chosen(results.source.runs(), where, ", ".join(map(str, outs)))["run_key"])
    records = [record for record in results.records if any(run["run_key"] in keys for run in record["runs"])]
    return Runs(tuple(outs), results, tuple(records))
