"""What Tune tells of its trials, passed on to those who watch a sweep; a dead worker's report is made up here."""

from __future__ import annotations

import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

from ray import tune
from ray.exceptions import RayTaskError
from ray.tune.experiment import Trial as TuneTrial

from bench.execution import Execution
from bench.planning.unit import Unit
from bench.tuning.events import Events, Watched, watched
from bench.tuning.runner import Outcome
from bench.tuning.tune_trial import SweepTrial


class Watcher(tune.Callback):
    """Passes the events of one trainable's trials on.

    Args:
        trainable: whose trials they are.
        execution: how they run.
        events: told of them.
        outcome: gets their last reports.
    """

    def __init__(self, trainable: type[SweepTrial], execution: Execution, events: Events, outcome: Outcome) -> None:
        self._trainable, self._execution = trainable, execution
        self._events, self._outcome = events, outcome
        self._known: dict[str, Watched] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Tune pickles its callbacks into a checkpoint that is never restored; a live display cannot be pickled.
        return {}

    def on_trial_start(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **_: Any) -> None:
        """Tell the display, which shows trials that run."""
        self._events.started(self._watched(trial))

    def on_trial_result(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, result: dict[str, Any], **_: Any
    ) -> None:
        """Show it; a machine that is not ready ends the whole sweep."""
        self._events.reported(self._watched(trial), result)
        if result["ends_sweep"]:
            self._stop_all()

    def on_trial_complete(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **_: Any) -> None:
        """Count it. What is still running the scheduler ended, some of its runs may have been lost before."""
        report = dict(trial.last_result)
        if report.get("status") == "running":
            ended = "failed" if report.get("error") else "stopped"
            report["status"] = "environment" if report.get("unusable") else ended
        self._events.ended(self._watched(trial), report)
        self._outcome.note(report)

    def on_trial_error(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **_: Any) -> None:
        """What no report said: the machine is not ready, an interruption took the worker, or it failed, as rows say."""
        from bench.tuning.trial import on_this_machine

        told, error = self._watched(trial), _error_of(trial)
        problem = on_this_machine(getattr(error, "cause", error), self._execution.out)
        report = {"status": "interrupted"}
        if problem:
            self._stop_all()
            report = {"status": "environment", "error": problem}
        elif not self._execution.stopping:
            reason = _reason(error)
            report = {"status": "failed", "error": f"{told.name}: {reason}{self._record(trial, reason)}"}
        self._events.ended(told, report)
        self._outcome.note(report)

    def _stop_all(self) -> None:
        if self._execution.stop_file:
            Path(self._execution.stop_file).touch()

    def _record(self, trial: TuneTrial, reason: str) -> str:
        """Write the failed rows; what prevents it is returned, to be said: it ends nothing else."""
        from bench.tuning.run import record_failure

        prevented = ""
        units, execution = self._resolved(trial)
        for unit in units:
            try:
                record_failure(unit, execution, reason)
            except Exception as problem:
                prevented = f"; its row cannot be stored: {problem}"
        return prevented

    def _watched(self, trial: TuneTrial) -> Watched:
        if trial.trial_id not in self._known:
            self._known[trial.trial_id] = watched(self._resolved(trial)[0], self._trainable.varied)
        return self._known[trial.trial_id]

    def _resolved(self, trial: TuneTrial) -> tuple[list[Unit], Execution]:
        return self._trainable.resolve(None, trial.config)  # type: ignore[arg-type]


def _error_of(trial: TuneTrial) -> BaseException | None:
    """What Tune keeps of the trial's error, on this machine until the experiment ends; None if it keeps nothing."""
    with suppress(Exception):
        error: BaseException = pickle.loads(Path(trial.pickled_error_file).read_bytes())
        return error
    return None


def _reason(error: BaseException | None) -> str:
    """Why a trial ended without a report: its worker died, could not begin, or failed outside of the runs."""
    line = (str(error or "").strip() or "out of memory or killed").splitlines()[-1]
    if isinstance(error, RayTaskError):
        return f"the worker failed: {line}"
    return f"the worker {'could not begin' if getattr(error, 'actor_init_failed', False) else 'died'}: {line}"
