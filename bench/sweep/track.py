"""What a sweep says of `--track`: before it runs, what it will cost and what stored runs lack; after, what it took.

Imports neither torch nor ray.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from algorithms import entry
from bench import tracked
from bench.errors import UnusableState
from bench.identity import identity_json
from bench.planning.plan import Plan
from bench.planning.unit import Unit
from bench.terminal.words import counted
from leaderboards import Store

TESTED = {"local", "classes"}  # by passes of clients' own models over the test set
EVERY_ROUND = TESTED | {"drift", "message", "bound"}


class Tracking:
    """The tracking of one sweep, made before anything runs.

    Args:
        plan: the sweep.
        units: what of it is to be run.
        out: results folder.
        track: what is asked for.
        force: stored runs are run again.
    """

    def __init__(self, plan: Plan, units: Sequence[Unit], out: Path, track: Sequence[str], force: bool) -> None:
        self._plan, self._units, self._out = plan, units, out
        self._track, self._force = track, force
        self._before = set() if force else {key for key in self._searched() if tracked.path_of(out, key).exists()}

    def before(self) -> Iterator[str]:
        """Sentences for the user, before the sweep runs."""
        yield from self._printed()
        yield from self._dropped() if self._force else self._lacking()
        yield from self._under_way()
        yield from self._cost()

    def after(self) -> Iterator[str]:
        """Sentences for the user, after it."""
        if not self._track and not any(self._begun.values()):
            return
        keys = {unit.key for unit in self._units} | (self._searched() - self._before)
        costs = [cost for key in sorted(keys) if (cost := tracked.cost(self._out, key))]
        if costs:
            runs = counted(len(costs), "run")
            took = f"measuring took {sum(seconds for seconds, _ in costs):.2f} s beside the runs' own seconds"
            yield f"tracked data of {runs} in {self._out / tracked.FOLDER}; {took}"
        yield from dict.fromkeys(note for _, notes in costs for note in notes)

    def _printed(self) -> Iterator[str]:
        count = sum(cell.column == "local_accuracy_mean" for cell in self._plan.cells)
        if count and "local" not in self._track:
            numbers = "1 printed number is" if count == 1 else f"{count} printed numbers are"
            yield f"{numbers} of clients' own models, which only --track local measures"

    def _lacking(self) -> Iterator[str]:
        """Of stored runs, which are not run again, what they lack."""
        if not self._track:
            return
        to_do = {unit.key for unit in self._units}
        stored = [set(unit.rows.values()) for unit in self._plan.units if unit.key not in to_do]
        stored += [{key} for key in self._searched()]
        lacking = Counter(", ".join(names) for keys in stored if (names := self._missing(keys)))
        for what, count in lacking.items():
            yield f"{_are(count, 'stored run')} without {what}, which was not tracked then: --force runs them again"

    def _missing(self, keys: set[str]) -> list[str]:
        measured = self._measured
        has = [tracked.held(self._out, key) - {"local"} | ({"local"} if key in measured else set()) for key in keys]
        return [name for name in self._track if not all(name in names for names in has)]

    def _dropped(self) -> Iterator[str]:
        keys = {key for unit in self._units for key in unit.rows.values()} & self._measured
        if keys and "local" not in self._track:
            rows = _are(len(keys), "stored row")
            yield f"{rows} with local_accuracy_mean, which --force drops unless --track local is given too"

    def _under_way(self) -> Iterator[str]:
        """Of runs that go on from a saved round, what was tracked otherwise until then."""
        begun = self._begun.values()
        late = Counter(", ".join(names) for known in begun if (names := self._late(known)))
        for what, count in late.items():
            runs = _are(count, "run")
            yield f"{runs} under way without {what}, which begins with the next round: --force starts anew"
        more = Counter(", ".join(sorted(known - set(self._track))) for known in begun)
        for what, count in more.items():
            if what:
                yield f"{_are(count, 'run')} under way with {what} tracked, and will go on so"

    def _late(self, known: set[str]) -> list[str]:
        return [name for name in self._track if name in EVERY_ROUND - known]

    def _cost(self) -> Iterator[str]:
        said = []
        if TESTED & set(self._track):
            own = sum(_measurements(unit, "local" in self._track) for unit in self._units)
            said.append(
                f"{own} evaluations of a client's own model on the test set, beside those of the evaluated models"
            )
        if "drift" in self._track:
            passes = sum(_measurements(unit, True) for unit in self._units)
            said.append(f"{passes} gradients of a client's loss on its training samples, each as long as a local epoch")
        if said and self._units:
            yield f"--track {','.join(self._track)}: {'; '.join(said)}"

    def _searched(self) -> set[str]:
        """The finished runs of the plan's searches."""
        found: set[str] = set()
        for search in self._plan.searches:
            runs = self._store_rows()
            fitting = (runs.algorithm == search.algorithm) & (runs.setting_json == identity_json(search.setting))
            found |= set(runs.run_key[fitting & (runs.status == "finished")])
        return found

    def _store_rows(self) -> Any:
        return Store(self._out).runs()

    @cached_property
    def _measured(self) -> set[str]:
        """The keys of rows that have an accuracy of local models."""
        runs = self._store_rows()
        return set(runs.run_key[runs.local_accuracy_mean.notna() & (runs.status == "finished")])

    @cached_property
    def _begun(self) -> dict[str, set[str]]:
        """Run key -> what is tracked, of the runs that go on from a saved state, which none does under --force."""
        if self._force:
            return {}
        folders = {unit.key: self._out / "state" / unit.key for unit in self._units}
        folders = {key: folder for key, folder in folders.items() if folder.is_dir()}
        if not folders:
            return {}
        from bench.engine.state import StateFolder

        found: dict[str, set[str]] = {}
        for key, folder in folders.items():
            with suppress(UnusableState):  # which the run itself will say
                if manifest := StateFolder(folder).manifest():
                    found[key] = set(manifest.get("track", ()))
        return found


def _are(count: int, what: str) -> str:
    return f"1 {what} is" if count == 1 else f"{count} {what}s are"


def _measurements(unit: Unit, every_round: bool) -> int:
    """How many clients are measured in a run: those of every evaluated round, or of the last."""
    setting = unit.setting
    rounds = -(-setting.rounds // setting.evaluate_every) if every_round else 1
    clients = 1 if "pooled" in entry(unit.algorithm).needs else setting.cohort_size
    return rounds * clients
