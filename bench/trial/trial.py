"""A trial: one run, or several that advance side by side. Independent of Ray."""

from __future__ import annotations

import errno
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bench.engine.counters import MeasuredPoint
from bench.engine.process import prepare_process, release_gpu
from bench.engine.together import advance_together
from bench.errors import EnvironmentProblem, Interrupted, UnusableState, advice_on, describe
from bench.execution import Execution
from bench.planning.run_spec import RunSpec
from bench.trial.run import Run
from leaderboards.selection import selection_value

# Objective of a failed or unusable run: no more than that of a diverged one; not NaN, because ASHA
# lets that pass.
LOST = -1.0


class Trial:
    """The runs that an executor starts as one: one run, or several that advance side by side.

    Args:
        run_specs: what to run.
        execution: how, and where.
        claimed: the runs, if `claim` has made them already.

    Attributes:
        problem: why the machine is not ready; empty if it is.
    """

    def __init__(
        self, run_specs: Sequence[RunSpec], execution: Execution, claimed: Sequence[Run] = ()
    ) -> None:
        prepare_process(execution.threads)
        self.execution = execution
        self.runs = list(claimed) or [Run(run_spec, execution) for run_spec in run_specs]
        self.problem = ""
        self._reported: dict[str, int] = {}  # by run key, number of points that reports had
        if not execution.stopping:
            for run in _in_order(self.runs):
                self._guard(run, run.open)
        for pack in self._packs():
            for run in pack:
                run.pack = len(pack) if run.backend == "stacked" else 1
        self._give_claims()

    def step(self) -> dict[str, Any]:
        """Advance every run by some rounds and report."""
        began = time.monotonic()
        self._advance()
        while not self._is_report_due(began):
            self._advance()
        report = self.report()
        if self.execution.report_curves:
            report["curves"] = self._new_points()
        return report

    def _advance(self) -> None:
        """Run a round of the runs that are behind, then save or finish all."""
        for pack in self._packs():
            simulations = [run.simulation for run in pack if run.simulation]
            failures = advance_together(simulations)
            for run, simulation in zip(pack, simulations, strict=True):
                error = failures.get(simulation)
                if error is None:
                    self._guard(run, run.save_or_finish)
                    continue
                self._handle(run, error)
                if run.status == "running":
                    # The machine is not ready, and the middle of a round cannot be saved.
                    run.status = "interrupted"
        self._give_claims()

    def _packs(self) -> list[list[Run]]:
        """Group the runs to go on with by backend, because those of one can share a program.

        A run goes on with the backend of its saved state, which may be another one.
        """
        packs: dict[str, list[Run]] = {}
        for run in self._active():
            packs.setdefault(run.backend, []).append(run)
        return list(packs.values())

    def _is_report_due(self, began: float) -> bool:
        """Return whether a step that `began` then has advanced far enough for its report."""
        rounds = [run.round for run in self._active()]
        if not rounds:
            return True
        interval = self.execution.rounds_per_report
        if interval:
            return min(rounds) % interval == 0
        return time.monotonic() - began >= 1

    def _new_points(self) -> dict[str, list[MeasuredPoint]]:
        """Return the points that each row's curve gained since the last step, by run key."""
        points: dict[str, list[MeasuredPoint]] = {}
        for run in self.runs:
            for suffix, key in run.run_spec.rows.items():
                curve = run.simulation.progress.curves.get(suffix, []) if run.simulation else []
                points[key] = curve[self._reported.get(key, 0) :]
                self._reported[key] = len(curve)
        return points

    def _give_claims(self) -> None:
        """Release the claims of runs that are over.

        Others may ask for them before this trial ends.
        """
        for run in self.runs:
            if run.status != "running":
                run.give_claim()

    def report(self) -> dict[str, Any]:
        """Report the state of the trial: `done`, `status`, and the results of its runs.

        `accuracy`, `best_accuracy` and `objective` are means over the runs; samplers and schedulers
        compare the objective, of trials whose runs are one configuration's seeds. `round` is the
        smallest of the runs that go on, because ASHA ends a trial at its last round, and at the end
        the largest; `rounds_done` is the sum of all. The status `environment` means that the user
        has to fix something; `ends_sweep` tells whether it would stop other trials, too. `unusable`
        counts the runs with an unusable state. With `report_curves`, `statuses` has the status of
        each row's run by run key.
        """
        statuses = [run.status for run in self.runs]
        status = self._status(statuses)
        ongoing = [run.round for run in self._active()]
        tracebacks = dict.fromkeys(run.traceback for run in self.runs if run.traceback)
        report: dict[str, Any] = {
            "round": min(ongoing, default=max(run.round for run in self.runs)),
            "rounds_done": sum(run.round for run in self.runs),
            "accuracy": self._mean("final_accuracy"),
            "best_accuracy": self._mean("best_accuracy"),
            "objective": self._objective(),
            "status": status,
            "error": self.problem or "; ".join(run.error for run in self.runs if run.error),
            "traceback": "\n".join(tracebacks),
            "diverged": "; ".join(run.complaint for run in self.runs if run.complaint),
            "ends_sweep": bool(self.problem),
            "unusable": statuses.count("environment"),
            "done": status != "running",
        }
        if self.execution.report_curves:
            rows: dict[str, str] = {}
            for run in self.runs:
                rows |= dict.fromkeys(run.run_spec.rows.values(), run.status)
            report["statuses"] = rows
        return report

    def _status(self, statuses: Sequence[str]) -> str:
        """Return the status of the trial from those of its runs."""
        interrupted = self.execution.stopping and "running" in statuses
        if self.problem:
            return "environment"
        if interrupted or "interrupted" in statuses:
            return "interrupted"
        if self._active():
            return "running"
        return next((worst for worst in ("environment", "failed") if worst in statuses), "finished")

    def _mean(self, name: str) -> float:
        """Compute the mean of a number over the runs that have one; NaN if none has."""
        values = _without_nan(run.number(name) for run in self.runs)
        return math.fsum(values) / len(values) if values else math.nan

    def _objective(self) -> float:
        """Compute the mean over the runs of the number that selects configurations.

        It is `LOST` if a run failed or has an unusable state, because a mean over the others would
        not be comparable, and NaN before there is a value. A run that diverged lowers it
        (`selection_value`).
        """
        if any(run.status in ("failed", "environment") for run in self.runs):
            return LOST
        values = _without_nan(run.number(run.selecting_number) for run in self.runs)
        if not values:
            return math.nan
        return selection_value(values, any(run.diverged for run in self.runs))

    def save(self) -> None:
        """Write every run's state now."""
        for run in self._active():
            self._guard(run, run.save)

    def end(self) -> None:
        """Store the runs that are still going as stopped by the scheduler.

        If the sweep itself is stopping, or the machine is not ready, they are saved instead.
        """
        saves = self.execution.stopping or bool(self.problem)
        for run in self.runs:
            if not saves:
                self._guard(run, run.stop)
            elif run.unsaved:
                self._guard(run, run.save)
        self._give_claims()

    def close(self) -> None:
        """End the trial and free its memory."""
        self.end()
        for run in self.runs:
            run.release()
        release_gpu()

    def _active(self) -> list[Run]:
        """Return the runs to go on with.

        Runs that were never opened, because the sweep was stopping, are not among them.
        """
        if self.problem:
            return []
        return [run for run in self.runs if run.status == "running" and run.simulation]

    def _guard(self, run: Run, action: Callable[[], None]) -> None:
        """Execute an action of a run, and handle its error."""
        try:
            action()
        except Exception as error:
            self._handle(run, error)

    def _handle(self, run: Run, error: Exception) -> None:
        """End only this run, unless the machine is not ready, which ends the trial."""
        if isinstance(error, Interrupted):  # its last save stays
            run.status = "interrupted"
            return
        if isinstance(error, UnusableState):
            # No row: the state may be mended, and stored rows stay.
            run.status = "environment"
            run.error = str(error)
            return
        problem = on_this_machine(error, self.execution.out)
        if problem:
            self.problem = problem
            return
        try:
            run.fail(error)
        except OSError as full:
            self.problem = on_this_machine(full, self.execution.out)
        except Exception as unstorable:  # its row cannot be written: the sweep says so and goes on
            run.status = "failed"
            run.error = f"{describe(error)}; its row cannot be stored: {unstorable}"


def _without_nan(values: Iterable[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def claim(run_specs: Sequence[RunSpec], execution: Execution) -> list[Run]:
    """Claim the runs of a trial without waiting; empty if another sweep or trial has one."""
    runs = [Run(run_spec, execution) for run_spec in run_specs]
    if all(run.claim() for run in _in_order(runs)):
        return runs
    for run in runs:
        run.give_claim()
    return []


def _in_order(runs: Sequence[Run]) -> list[Run]:
    """Sort runs as every sweep does, so that two that share a folder do not wait for each other."""
    return sorted(runs, key=lambda run: run.run_spec.key)


def on_this_machine(error: BaseException | None, out: str) -> str:
    """Describe the resource of the machine that an error found missing, and the next step.

    The text is empty for other errors. If the error names no file, the text names the results
    folder `out`.
    """
    if isinstance(error, EnvironmentProblem):
        return str(error)
    if not isinstance(error, OSError):
        return ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"no space left for {error.filename or out}: free some, then run the same command again"
        )
    advice = advice_on(error) or ": fix this, then run the same command again"
    return f"{error.strerror or error} ({error.filename or out}){advice}"
