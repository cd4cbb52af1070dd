"""Executes a plan: units grouped into trials, trials given to Ray Tune or run here, interruption handled."""

from __future__ import annotations

import signal
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

from bench.errors import EXIT_ENVIRONMENT, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from bench.execution import Execution
from bench.plan import Plan, Unit
from bench.tuning.progress import Display
from leaderboards import Store


@dataclass(frozen=True)
class Resources:
    """How many trials run at once, and what each gets.

    Args:
        executor: `ray` or `inline`.
        concurrent: trials at once; None fills the machine.
        cpus: of each trial.
        gpus: share of a GPU of each trial.
        address: of an existing Ray cluster, or None to start one here.
        time_budget: seconds after which the sweep stops as if interrupted, or None.
    """

    executor: str = "ray"
    concurrent: int | None = None
    cpus: int = 1
    gpus: float = 0.0
    address: str | None = None
    time_budget: float | None = None


@dataclass
class Outcome:
    """How a sweep ended: counts of trials by status, and what went wrong."""

    statuses: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    interrupted: bool = False

    def note(self, report: dict[str, Any]) -> None:
        """Count a trial's last report."""
        status = report.get("status", "finished")
        self.statuses.append("stopped" if status == "running" else status)
        if report.get("error"):
            self.problems.append(str(report["error"]))

    @property
    def exit_status(self) -> int:
        """The command's exit status; what the user must mend first comes first."""
        if "environment" in self.statuses:
            return EXIT_ENVIRONMENT
        if self.interrupted or "interrupted" in self.statuses:
            return EXIT_INTERRUPTED
        return EXIT_FAILED if "failed" in self.statuses else EXIT_OK


def missing_units(plan: Plan, store: Store, force: bool, asha: bool) -> list[Unit]:
    """The units whose rows are not stored yet; a scheduler's own stopped runs count as stored."""
    if force:
        return list(plan.units)
    statuses = store.status()
    enough = ("finished", "stopped") if asha else ("finished",)
    return [unit for unit in plan.units if not all(statuses.get(key) in enough for key in unit.rows.values())]


def group(units: Sequence[Unit], by_configuration: bool) -> list[list[Unit]]:
    """Units as trials: each alone, or all seeds of a configuration together (ASHA compares means over seeds)."""
    if not by_configuration:
        return [[unit] for unit in units]

    def same(unit: Unit) -> str:
        return replace(unit, seed=0).key

    return [list(members) for _, members in groupby(sorted(units, key=lambda u: (same(u), u.seed)), key=same)]


class StopFlag:
    """The file that tells trials, which are processes of their own, to end their round and save."""

    def __init__(self, out: Path) -> None:
        folder = out / "state"
        folder.mkdir(parents=True, exist_ok=True)
        # A name of its own: several sweeps may write into one folder.
        self.path = folder / f".stop-{uuid.uuid4().hex[:8]}"
        self.raised = False

    def set(self) -> None:
        """Raise the flag."""
        self.raised = True
        self.path.touch()

    def remove(self) -> None:
        """Take it down."""
        self.path.unlink(missing_ok=True)


@contextmanager
def interruptible(flag: StopFlag, display: Display) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM raise the flag, and a second one kill.

    Args:
        flag: what trials look at.
        display: told what happens.
    """

    def handle(number: int, _: FrameType | None) -> None:
        if flag.raised:
            flag.remove()
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        flag.set()
        display.say("stopping: rounds in hand are finished and saved; once more to kill")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_plan(
    plan: Plan, units: Sequence[Unit], execution: Execution, resources: Resources, display: Display
) -> Outcome:
    """Run what is missing of a plan.

    Args:
        plan: the sweep; its searches are run where it has any.
        units: the missing runs.
        execution: how each trial runs.
        resources: how many at once.
        display: shows progress.

    Raises:
        EnvironmentProblem: no cluster, or no trial could be placed.
    """
    flag = StopFlag(Path(execution.out))
    execution = replace(execution, stop_file=str(flag.path))
    asha = plan.request.scheduler == "asha"
    if asha:  # a rung is a number of rounds
        execution = replace(execution, rounds_per_report=max(1, plan.settings[0].rounds // 20))
    outcome = Outcome()
    timer = _budget(resources.time_budget, flag, display)
    try:
        with interruptible(flag, display):
            if resources.executor == "inline":
                from bench.tuning.inline import run_inline as run
            else:
                from bench.tuning.cluster import run_ray as run
            run(plan, group(units, asha), execution, resources, display, outcome)
    finally:
        if timer:
            timer.cancel()
        outcome.interrupted = flag.raised
        flag.remove()
    return outcome


def _budget(seconds: float | None, flag: StopFlag, display: Display) -> threading.Timer | None:
    if seconds is None:
        return None

    def end() -> None:
        display.say(f"time budget of {seconds:g} s spent: stopping")
        flag.set()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    return timer


def trial_name(units: Sequence[Unit], varied: Sequence[str]) -> str:
    """Short and readable: the algorithm and what the sweep varies."""
    unit = units[0]
    parts = [f"{name}={_value(unit, name)}" for name in varied if _value(unit, name) is not None]
    seeds = f"seed {unit.seed}" if len(units) == 1 else f"{len(units)} seeds"
    return f"{unit.algorithm} {' '.join([*parts, seeds])}"


def varied_names(units: Sequence[Unit]) -> list[str]:
    """Setting fields and hyper-parameters that differ between units."""
    names = dict.fromkeys(name for unit in units for name in [*unit.setting.as_dict(), *unit.hyperparameters])
    differing = []
    for name in names:
        by_algorithm: dict[str, set[Any]] = {}
        for unit in units:
            key = "" if name in unit.setting.as_dict() else unit.algorithm
            by_algorithm.setdefault(key, set()).add(_value(unit, name))
        if any(len(values) > 1 for values in by_algorithm.values()):
            differing.append(name)
    return differing


def _value(unit: Unit, name: str) -> Any:
    fields = unit.setting.as_dict()
    return fields[name] if name in fields else unit.hyperparameters.get(name)
