"""The trials of a plan: what is missing, how runs are grouped and executed, and how all of it ended."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from bench.errors import EXIT_ENVIRONMENT, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from bench.execution import Execution, enough
from bench.executors.events import Events
from bench.executors.interruption import Interruption
from bench.planning.model import Plan
from bench.planning.packing import packs_of
from bench.planning.run_spec import RunSpec
from bench.trial.halving import rungs_of
from leaderboards import Store
from search_spaces import Setting


@dataclass(frozen=True)
class Resources:
    """The number of trials at once, and each one's resources.

    Args:
        executor: `ray` or `inline`.
        concurrent: trials at once; None fills the machine.
        cpus: of each trial.
        gpus: share of a GPU of each trial.
        address: of an existing Ray cluster, or None to start one here.
        time_budget: seconds after which the sweep stops as if interrupted, or None.
        pack: most runs of a trial, which one program trains.
        verbose: whether Ray's own messages are shown, on stderr.
    """

    executor: str = "ray"
    concurrent: int | None = None
    cpus: int = 1
    gpus: float = 0.0
    address: str | None = None
    time_budget: float | None = None
    pack: int = 1
    verbose: bool = False


@dataclass
class Outcome:
    """The end of a sweep: statuses of the trials, problems, and tracebacks."""

    statuses: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)
    interrupted: bool = False

    def note(self, report: dict[str, Any]) -> None:
        """Count a trial's last report."""
        status = report.get("status", "finished")
        self.statuses.append("stopped" if status == "running" else status)
        if report.get("error"):
            self.problems.append(str(report["error"]))
        if report.get("traceback"):
            self.tracebacks.append(str(report["traceback"]))

    @property
    def exit_status(self) -> int:
        """The command's exit status; a problem that the user must mend comes first."""
        if "environment" in self.statuses:
            return EXIT_ENVIRONMENT
        if self.interrupted or "interrupted" in self.statuses:
            return EXIT_INTERRUPTED
        return EXIT_FAILED if "failed" in self.statuses else EXIT_OK


@dataclass(frozen=True)
class Sweep:
    """The parts of a sweep as an executor runs it: every trial and search of a plan, and who is told of them."""

    plan: Plan
    trials: Sequence[Sequence[RunSpec]]
    execution: Execution
    resources: Resources
    events: Events
    outcome: Outcome
    interruption: Interruption


def missing_units(plan: Plan, store: Store) -> list[RunSpec]:
    """The units whose rows are not stored yet; a scheduler's own stopped runs count as stored."""
    if plan.request.force:
        return list(plan.units)
    statuses = store.status()
    needless = enough(stopped=plan.request.scheduler != "none")
    return [unit for unit in plan.units if not all(statuses.get(key) in needless for key in unit.rows.values())]


def group(units: Sequence[RunSpec], by_configuration: bool, pack: int = 1) -> list[list[RunSpec]]:
    """Group units into trials of at most `pack` runs; a configuration's seeds may be more.

    `by_configuration` keeps all seeds of a configuration together, one contest after another, and in a pack only
    configurations of one: ASHA compares these, by means over their seeds.
    """
    if not by_configuration:
        return packs_of([[unit] for unit in units], pack) if pack > 1 else [[unit] for unit in units]

    def same(unit: RunSpec) -> str:
        return replace(unit, seed=0).key

    trials = [list(members) for _, members in groupby(sorted(units, key=lambda u: (same(u), u.seed)), key=same)]
    contests: dict[Hashable, list[list[RunSpec]]] = {}
    for members in trials:
        contests.setdefault(contest(members), []).append(members)
    return [found for rivals in contests.values() for found in (packs_of(rivals, pack) if pack > 1 else rivals)]


def contest(units: Sequence[RunSpec]) -> Hashable:
    """The key of a trial's contest: ASHA compares only within an algorithm and a setting, because others differ."""
    return units[0].algorithm, units[0].setting


def trials_of(plan: Plan, units: Sequence[RunSpec], pack: int) -> list[list[RunSpec]]:
    """Group the missing units. Under ASHA packs are made whole again, because stopped runs count at their rungs."""
    asha = plan.request.scheduler == "asha"
    if not asha or pack == 1:
        return group(units, asha, pack)
    missing = {unit.key for unit in units}
    return [trial for trial in group(plan.units, asha, pack) if any(unit.key in missing for unit in trial)]


def scheduled(plan: Plan, setting: Setting, execution: Execution, pack: int = 1) -> Execution:
    """Return the execution of a setting's trials under the plan's scheduler.

    Under ASHA packs compare the configurations that they hold. Other trials are compared by Tune, whose rungs are
    rounds: they report after a number of rounds instead of by the clock.
    """
    if plan.request.scheduler == "none":
        return execution
    if pack > 1:
        return replace(execution, keep_stopped=True, rungs=rungs_of(setting.rounds, setting.evaluate_every))
    return replace(execution, keep_stopped=True, rounds_per_report=max(1, setting.rounds // 20))
