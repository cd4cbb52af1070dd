"""The trials of a plan: its missing runs, grouped, and their gentle end on a signal."""

from __future__ import annotations

import math
import signal
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from bench import state_files
from bench.errors import Slower, Waiting
from bench.execution import Execution, are_enough
from bench.planning.packing import packs_of
from bench.planning.plan import Plan
from bench.planning.run_spec import RunSpec
from leaderboards import Store
from search_spaces import Setting

if TYPE_CHECKING:
    import pandas as pd

# `timeout` sends SIGTERM to its command, and then to the whole group, which includes that command.
ECHO_SECONDS = 1.0

Trials = Sequence[Sequence[RunSpec]]


class Interruption:
    """A gentle end of a sweep, by a stop file that trials look for after each round.

    Trials may be separate processes. As a context it makes the file at the first SIGINT or SIGTERM;
    another kills, but SIGTERM only after `ECHO_SECONDS`. After a SIGTERM the context lasts as long,
    because the handler before it would end the process by the echo.
    """

    def __init__(self, out: Path, say: Callable[[str], None]) -> None:
        folder = out / state_files.FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        # The name is unique, because several sweeps may write into one folder.
        self.path = folder / f".stop-{uuid.uuid4().hex[:8]}"
        self.raised = False
        self._first: int | None = None  # signal
        self._echo_until: float  # from the first signal on
        self._say = say
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._first == signal.SIGTERM:
            time.sleep(max(0.0, self._echo_until - time.monotonic()))
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self.path.unlink(missing_ok=True)

    def stop(self, why: str) -> None:
        """Make the stop file, so that the sweep ends as interrupted."""
        self.raised = True
        self.path.touch()
        killing = "Ctrl-C twice kills" if self._first is None else "once more to kill"
        rounds = "current rounds are finished and saved, or given up if their evaluation takes long"
        self._say(f"stopping ({why}): {rounds}; {killing}")

    def _handle(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self._first is not None:
            if number == signal.SIGTERM and now < self._echo_until:
                return
            self.path.unlink(missing_ok=True)
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self._echo_until = now + ECHO_SECONDS  # before `_first`: a signal may come between
        self._first = number
        self.stop(signal.Signals(number).name)


def missing_run_specs(plan: Plan, store: Store) -> list[RunSpec]:
    """List the run specs whose rows are not stored yet.

    Runs that the plan's scheduler stopped count as stored.
    """
    if plan.options.force:
        return list(plan.run_specs)
    statuses = store.status()
    stopped = plan.options.scheduler != "none"
    missing = []
    for run_spec in plan.run_specs:
        of_rows = map(statuses.get, run_spec.rows.values())
        if not are_enough(of_rows, stopped):
            missing.append(run_spec)
    return missing


def count_stored(plan: Plan, store: Store) -> int:
    """Count the plan's stored runs, and the stored rows that may come from its searches."""
    count = len(plan.run_specs) - len(missing_run_specs(plan, store))
    if plan.searches:
        count += len(searched_rows(plan, store))
    return count


def searched_rows(plan: Plan, store: Store) -> pd.DataFrame:
    """Return the stored rows that may come from the plan's searches.

    Their columns are run_key, status, algorithm and setting_json.
    """
    runs = store.runs(columns=("run_key", "status", "algorithm", "setting_json"))
    rows = [*zip(runs.algorithm, runs.setting_json, strict=True)]
    searched = plan.of_searches(rows)
    # `loc` keeps the columns of no rows.
    return runs.loc[[row in searched for row in rows]]


def trials_of(plan: Plan, run_specs: Sequence[RunSpec], pack: int) -> list[list[RunSpec]]:
    """Group run specs into trials of at most `pack` runs.

    Under a scheduler a trial is a configuration with all its seeds, because schedulers compare
    means over seeds.
    """
    if plan.options.scheduler != "none":
        return by_configuration(run_specs)
    if pack > 1:
        return packs_of(run_specs, pack)
    return [[run_spec] for run_spec in run_specs]


def by_configuration(run_specs: Sequence[RunSpec]) -> list[list[RunSpec]]:
    """Group run specs by configuration: a group has its seeds and replicates, ascending.

    Configurations of one contest follow each other.
    """
    configurations: dict[str, list[RunSpec]] = {}
    for run_spec in sorted(run_specs, key=lambda run_spec: run_spec.seed):
        configurations.setdefault(run_spec.configuration.key, []).append(run_spec)
    contests: dict[Hashable, list[list[RunSpec]]] = {}
    for _, seeds in sorted(configurations.items()):
        contests.setdefault(contest(seeds), []).append(seeds)
    return list(chain.from_iterable(contests.values()))


def contest(run_specs: Sequence[RunSpec]) -> Hashable:
    """Return the key of a trial's contest.

    A scheduler compares only runs of the same algorithm and setting.
    """
    return run_specs[0].algorithm, run_specs[0].configuration.setting


def scheduled(plan: Plan, setting: Setting, execution: Execution) -> Execution:
    """Return the execution of a setting's trials under the plan's scheduler.

    Compared trials report at equal, evaluated rounds instead of by the clock.
    """
    if plan.options.scheduler == "none":
        return execution
    rounds = evaluated_round(setting, parts=20)
    return replace(execution, keep_stopped=True, rounds_per_report=rounds)


def evaluated_round(setting: Setting, parts: int) -> int:
    """Return the first evaluated round after one of so many parts of the rounds, at least 1."""
    part = max(1, setting.rounds // parts)
    every = setting.evaluate_every
    return math.ceil(part / every) * every


def divert_warnings(say: Callable[[str], None]) -> None:
    """Pass the suite's own warnings to `say` from now on, a line each.

    Other warnings are shown as before.
    """
    before = warnings.showwarning

    def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, Slower | Waiting):
            say(" ".join(str(message).split()))
        else:
            before(message, category, *place, **more)

    warnings.showwarning = show
