"""Notes of a sweep on `--track`: before it runs, what stored runs lack; afterwards, the time it took.

Imports neither torch nor ray.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from bench import artifacts
from bench.errors import UnusableState
from bench.identity import identity_json
from bench.planning.model import Plan
from bench.planning.run_spec import RunSpec
from bench.terminal.words import counted
from leaderboards import Store

EVERY_ROUND = {"local", "classes", "drift", "message", "bound"}


class Tracking:
    """The tracking of one sweep, created before anything runs.

    Args:
        plan: the sweep.
        units: the runs to do.
        out: results folder.
        track: what is asked for.
        force: stored runs are run again.
    """

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
        yield from self._dropped() if self._force else self._lacking()
        yield from self._under_way()

    def after(self) -> Iterator[str]:
        """Sentences for the user, after it."""
        if not self._track and not any(self._begun.values()):
            return
        keys = {unit.key for unit in self._units} | (self._searched() - self._before)
        costs = [cost for key in sorted(keys) if (cost := artifacts.cost(self._out, key))]
        if costs:
            took = f"measuring took {sum(seconds for seconds, _ in costs):.2f} s beside the runs' own seconds"
            yield f"tracked data of {counted(len(costs), 'run')} in {self._out / artifacts.FOLDER}; {took}"
        yield from dict.fromkeys(note for _, notes in costs for note in notes)

    def _lacking(self) -> Iterator[str]:
        """Say which names stored runs lack, because these are not run again."""
        if not self._track:
            return
        to_do = {unit.key for unit in self._units}
        stored = [set(unit.rows.values()) for unit in self._plan.units if unit.key not in to_do]
        stored += [{key} for key in self._searched()]
        lacking = Counter(", ".join(self._missing(keys)) for keys in stored)
        for names, count in lacking.items():
            if names:
                runs = _are(count, "stored run")
                yield f"{runs} without {names}, which was not tracked then: --force runs them again"

    def _missing(self, keys: set[str]) -> list[str]:
        """The names to track that a run with rows of these keys lacks."""
        local = {key: {"local"} if key in self._measured else set() for key in keys}
        held = [artifacts.held(self._out, key) - {"local"} | local[key] for key in keys]
        return [name for name in self._track if not all(name in names for names in held)]

    def _dropped(self) -> Iterator[str]:
        keys = {key for unit in self._units for key in unit.rows.values()} & self._measured
        if keys and "local" not in self._track:
            rows = _are(len(keys), "stored row")
            yield f"{rows} with local_accuracy_mean, which --force drops unless --track local is given too"

    def _under_way(self) -> Iterator[str]:
        """Say which names runs lack that go on from a saved round."""
        begun = self._begun.values()
        lacking = Counter(", ".join(name for name in self._track if name in EVERY_ROUND - names) for names in begun)
        for names, count in lacking.items():
            if names:
                runs = _are(count, "run")
                yield f"{runs} under way without {names}, which begins with the next round: --force starts anew"

    def _searched(self) -> set[str]:
        """The finished runs of the plan's searches."""
        keys: set[str] = set()
        for search in self._plan.searches:
            runs = Store(self._out).runs()
            fitting = (runs.algorithm == search.algorithm) & (runs.setting_json == identity_json(search.setting))
            keys |= set(runs.run_key[fitting & (runs.status == "finished")])
        return keys

    @cached_property
    def _measured(self) -> set[str]:
        """The keys of rows that have an accuracy of local models."""
        runs = Store(self._out).runs()
        return set(runs.run_key[runs.local_accuracy_mean.notna() & (runs.status == "finished")])

    @cached_property
    def _begun(self) -> dict[str, set[str]]:
        """Run key -> what is tracked, of the runs that go on from a saved state; none under --force."""
        folders = {unit.key: self._out / "state" / unit.key for unit in self._units if not self._force}
        folders = {key: folder for key, folder in folders.items() if folder.is_dir()}
        if not folders:
            return {}
        from bench.engine.state import StateFolder

        begun: dict[str, set[str]] = {}
        for key, folder in folders.items():
            with suppress(UnusableState):  # the run itself will say so
                if manifest := StateFolder(folder).manifest():
                    begun[key] = set(manifest.get("track", ()))
        return begun


def _are(count: int, noun: str) -> str:
    return f"{counted(count, noun)} {'is' if count == 1 else 'are'}"
