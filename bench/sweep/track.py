"""Notes of a sweep on `--track`: before it runs, what stored runs lack; afterwards, where the data are.

Imports neither torch nor ray.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import artifacts
from bench.planning.model import Plan
from bench.planning.run_spec import RunSpec
from bench.terminal.words import counted
from leaderboards import Store


class Tracking:
    """The tracking of one sweep, created before anything runs; `units` are the runs to do."""

    def __init__(self, plan: Plan, units: Sequence[RunSpec], out: Path, track: Sequence[str], force: bool) -> None:
        self._plan, self._units, self._out = plan, units, out
        self._track, self._force = track, force
        self._before = set() if force else {key for key in self._searched() if artifacts.path_of(out, key).exists()}

    def before(self) -> Iterator[str]:
        """Sentences for the user, before the sweep runs."""
        count = sum(cell.column == "local_accuracy_mean" for cell in self._plan.cells)
        if count and "local" not in self._track:
            numbers = "1 printed number is" if count == 1 else f"{count} printed numbers are"
            yield f"{numbers} of clients' own models, which only --track local measures"
        if not self._track or self._force:
            return
        runs = Store(self._out).runs()
        measured = set(runs.run_key[runs.local_accuracy_mean.notna() & (runs.status == "finished")])
        to_do = {unit.key for unit in self._units}
        stored = [set(unit.rows.values()) for unit in self._plan.units if unit.key not in to_do]
        stored += [{key} for key in self._searched()]
        held = {key: artifacts.held(self._out, key) - {"local"} for key in set().union(*stored)}
        held |= {key: held[key] | {"local"} for key in held if key in measured}
        lacking = Counter(
            ", ".join(name for name in self._track if not all(name in held[key] for key in keys)) for keys in stored
        )
        for names, number in lacking.items():
            if names:
                are = "is" if number == 1 else "are"
                told = f"{counted(number, 'stored run')} {are} without {names}"
                yield f"{told}, which was not tracked then: --force runs them again"

    def after(self) -> Iterator[str]:
        """Sentences for the user, after it."""
        if not self._track:
            return
        keys = {unit.key for unit in self._units} | (self._searched() - self._before)
        count = sum(artifacts.path_of(self._out, key).exists() for key in keys)
        if count:
            yield f"tracked data of {counted(count, 'run')} in {self._out / artifacts.FOLDER}"

    def _searched(self) -> set[str]:
        """The finished runs of the plan's searches."""
        if not self._plan.searches:
            return set()
        runs = Store(self._out).runs(columns=("run_key", "status", "algorithm", "setting_json"))
        runs = runs[runs.status == "finished"]
        own = self._plan.of_searches(zip(runs.algorithm, runs.setting_json, strict=True))
        return {
            key for key, *row in zip(runs.run_key, runs.algorithm, runs.setting_json, strict=True) if tuple(row) in own
        }
