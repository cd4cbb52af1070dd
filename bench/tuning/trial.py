"""A trial: one run, or several that advance side by side as packs. Knows nothing of Ray."""

from __future__ import annotations

import errno
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from bench.engine.pack import Pack
from bench.engine.process import give_back_memory, prepare_process, release_gpu
from bench.errors import EnvironmentProblem, UnusableState
from bench.execution import Execution
from bench.planning.unit import Unit
from bench.tuning.halving import by_configuration, losers, lost, next_rung, objective
from bench.tuning.run import Run, describe

LOST = -1.0  # the objective of what failed or cannot go on: below every accuracy, and no NaN, which ASHA lets pass


class Trial:
    """What one Tune trial does: its runs, round by round, side by side.

    Args:
        units: one run, the seeds of one configuration, or whatever one program can train.
        execution: how.

    Attributes:
        problem: why the machine is not ready; empty if it is.
    """

    def __init__(self, units: Sequence[Unit], execution: Execution) -> None:
        prepare_process(execution.threads)
        self.execution = execution
        self.runs = [Run(unit, execution) for unit in units]
        self.problem = ""
        if not execution.stopping:
            # In one order everywhere: of two sweeps that share a folder neither shall wait for what the other holds.
            for run in sorted(self.runs, key=lambda run: run.unit.key):
                self._guard(run, run.open)
        self._packs = _packs_of(self._active())
        self._judged = 0  # the round up to which rungs have been judged here; after a resume all are judged anew
        self._give_claims()

    def step(self) -> dict[str, Any]:
        """Some rounds of every run, then a report."""
        began = time.monotonic()
        rounds = self.execution.rounds_per_report
        while True:
            self._compare()
            for pack in self._packs:
                self._advance(pack, self._until_rung(pack, rounds or 1))
            if rounds or not self._active() or time.monotonic() - began >= self.execution.report_seconds:
                return self.report()

    def _advance(self, pack: Pack, rounds: int) -> None:
        """Some rounds of the runs of a pack, then what each of them asks for. One that failed or ended leaves."""
        pack.advance(rounds, stop=lambda: self.execution.stopping)
        for run in self._active():
            if run.simulation in pack.failures:
                self._guard(run, partial(_raise, pack.failures[run.simulation]))
            elif run.simulation in pack.members:
                self._guard(run, run.settle)
        self._leave()

    def _until_rung(self, pack: Pack, rounds: int) -> int:
        """So many rounds, but no run passes a rung before it is compared there."""
        lowest = min((member.round for member in pack.active), default=0)
        return int(min(rounds, next_rung(self.execution.rungs, lowest) - lowest))

    def _compare(self) -> None:
        """At a rung, let the worse configurations go, and with them all of their seeds."""
        lowest = min((run.round for run in self._active()), default=0)
        due = [rung for rung in self.execution.rungs if self._judged < rung <= lowest]
        if due:
            for run in losers(self.runs, due):
                self._guard(run, run.stop)
            self._judged = lowest
            self._leave()

    def _leave(self) -> None:
        """Let those members of packs go whose runs are over, and their claims."""
        ongoing = [run.simulation for run in self._active()]
        for pack in self._packs:
            for member in [member for member in pack.members if member not in ongoing]:
                pack.drop(member)
        self._give_claims()

    def _give_claims(self) -> None:
        """Of the runs that are over. The same run may be asked for again while this trial is still at others."""
        for run in self.runs:
            if run.status != "running":
                run.give_claim()

    def report(self) -> dict[str, Any]:
        """Where the trial stands: `done`, `status`, and what came of its runs.

        `accuracy` and `best_accuracy` are means over them, `round` the largest of theirs, `rounds_done` and
        `rounds_before` (done when the trial began here) sums, and `objective` is the best configuration's.
        `environment` as status says that the user has to mend something; then `ends_sweep` says whether other trials
        would meet it, too. `unusable` counts the runs whose states are.
        """
        statuses = [run.status for run in self.runs]
        interrupted = self.execution.stopping and any(status == "running" for status in statuses)
        if self.problem:
            status = "environment"
        elif interrupted or "interrupted" in statuses:
            status = "interrupted"
        elif "environment" in statuses:
            status = "environment" if not self._active() else "running"
        elif "failed" in statuses:
            status = "failed" if not self._active() else "running"
        else:
            status = "running" if self._active() else "finished"
        return {
            "round": max(run.round for run in self.runs),
            "rounds_done": sum(run.round for run in self.runs),
            "rounds_before": sum(run.began for run in self.runs),
            "accuracy": _mean([run.latest() for run in self.runs]),
            "best_accuracy": _mean([run.measure("accuracy") for run in self.runs]),
            "objective": self._objective(),
            "status": status,
            "error": self.problem or "; ".join(run.error for run in self.runs if run.error),
            "traceback": "\n".join(dict.fromkeys(run.traceback for run in self.runs if run.traceback)),
            "diverged": "; ".join(run.complaint for run in self.runs if run.complaint),
            "stopped": sum(run.status == "stopped" for run in self.runs),
            "ends_sweep": bool(self.problem),
            "unusable": statuses.count("environment"),
            "done": status != "running",
        }

    def _objective(self) -> float:
        """The best configuration's; `LOST` where each has a seed that is lost, NaN before there is a value."""
        configurations = by_configuration(self.runs).values()
        best = max(objective(seeds) for seeds in configurations)
        if math.isfinite(best):
            return best
        hopeless = all(any(map(lost, seeds)) for seeds in configurations)
        return LOST if hopeless else math.nan

    def save(self) -> None:
        """Write every run's state now."""
        for run in self._active():
            self._guard(run, run.save)

    def end(self) -> None:
        """No more rounds: runs still going were stopped by the scheduler, and are stored so.

        Where the sweep itself is stopping, or the machine is not ready, they are saved instead; not those that an error
        ended in the middle of a round.
        """
        broken = {member for pack in self._packs for member in pack.failures}
        saves = self.execution.stopping or bool(self.problem)
        for run in self.runs:
            if not saves:
                self._guard(run, run.stop)
            elif run.unsaved and run.simulation not in broken:
                self._guard(run, run.save)
        self._give_claims()

    def close(self) -> None:
        """End the trial, and give back what it holds."""
        self.end()
        for run in self.runs:
            run.release()
        self._packs.clear()
        release_gpu()
        give_back_memory()

    def _active(self) -> list[Run]:
        """The runs to go on with; one that was never opened, because the sweep was stopping, is not."""
        return [run for run in self.runs if run.status == "running" and run.simulation and not self.problem]

    def _guard(self, run: Run, action: Callable[[], None]) -> None:
        """Do it; a failure or an unusable state ends this run only, a machine that is not ready ends the trial."""
        try:
            action()
        except UnusableState as error:  # no row: the state may be mended, and what is stored stays
            run.status, run.error = "environment", str(error)
        except Exception as error:
            problem = on_this_machine(error, self.execution.out)
            if problem:
                self.problem = problem
            else:
                self._fail(run, error)

    def _fail(self, run: Run, error: Exception) -> None:
        try:
            run.fail(error)
        except OSError as problem:
            self.problem = on_this_machine(problem, self.execution.out)
        except Exception as problem:  # no row can be written of it: the sweep still says so, and goes on
            run.status, run.error = "failed", f"{describe(error)}; its row cannot be stored: {problem}"


def _packs_of(runs: Sequence[Run]) -> list[Pack]:
    """The runs side by side. One that goes on under another backend, as its saved state says, is a pack of its own."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        assert run.simulation is not None
        found.setdefault(run.simulation.backend, []).append(run)
    for backend, members in found.items():
        for run in members:
            run.pack = len(members) if backend == "stacked" else 1
    return [Pack([run.simulation for run in members if run.simulation]) for members in found.values()]


def _raise(error: Exception) -> None:
    raise error


def on_this_machine(error: BaseException | None, out: str) -> str:
    """What of the machine is not ready, by an error, and the next step; empty if the error says no such thing.

    Args:
        error: what was raised.
        out: results folder, for an error that names no file.
    """
    if isinstance(error, EnvironmentProblem):
        return str(error)
    if not isinstance(error, OSError):
        return ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left for {error.filename or out}: free some, then give the same command again"
    return f"{error.strerror or error} ({error.filename or out}): mend it, then give the same command again"


def _mean(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan
