"""A Tune callback that passes a sweep's events on, and reports for workers that died."""

from __future__ import annotations

import pickle
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from ray import tune
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune.experiment import Trial

from bench.errors import Slower, with_its_kind
from bench.execution import Execution
from bench.executors.progress import Events, Watched, watched
from bench.executors.ray_trainable import SweepTrainable
from bench.planning.run_spec import RunSpec


class Watcher(tune.Callback):
    """A callback that passes on events, last reports and warnings of one trainable's trials."""

    def __init__(
        self,
        trainable: type[SweepTrainable],
        execution: Execution,
        events: Events,
    ) -> None:
        self._trainable = trainable
        self._execution = execution
        self._events = events
        self._trials: dict[str, Watched] = {}
        self._begun: set[str] = set()
        self._closed = False
        self._warned = 0  # bytes of the workers' warnings that were passed on

    def __getstate__(self) -> dict[str, Any]:
        # Tune pickles its callbacks into a checkpoint that is never restored; a live display cannot
        # be pickled.
        return {}

    def on_step_end(self, iteration: int, trials: list[Trial], **_: Any) -> None:
        """Repeat the new warnings of the workers in this process."""
        with suppress(OSError), Path(self._execution.notice_file or "").open("rb") as file:
            file.seek(self._warned)
            lines, newline, _rest = file.read().rpartition(b"\n")
            self._warned += len(lines + newline)
            for line in lines.decode(errors="replace").splitlines():
                warnings.warn(line, Slower, stacklevel=2)

    def on_trial_start(self, iteration: int, trials: list[Trial], trial: Trial, **_: Any) -> None:
        """Pass on that a trial begins, but not again when it moves to another worker."""
        if trial.trial_id not in self._begun:
            self._begun.add(trial.trial_id)
            self._events.started(self._watched(trial))

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **_: Any
    ) -> None:
        """Pass on a report; a machine that is not ready ends the whole sweep."""
        self._events.reported(self._watched(trial), result)
        if result["ends_sweep"]:
            self._stop_all()

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **_: Any
    ) -> None:
        """Pass on the end of a trial.

        If it still runs, the scheduler ended it; some of its runs may have failed.
        """
        report = dict(trial.last_result)
        if report.get("status") == "running":
            status = "failed" if report.get("error") else "stopped"
            report["status"] = "environment" if report.get("unusable") else status
        self._events.ended(self._watched(trial), report)

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **_: Any) -> None:
        """Warn that a trial continues on another worker.

        A machine that is not ready ends the whole sweep.
        """
        if self._closed:
            return
        error = _error_of(trial)
        if problem := self._problem(error):
            self._stop_all()
            self._events.note({"status": "environment", "error": problem})
        elif not self._execution.stopping:
            next_step = "goes on from its last save"
            if self._execution.force:
                next_step = "begins anew, as --force asks"
            event = f"{self._watched(trial).name}: {_reason(error)}; it {next_step}"
            text = f"{event} (failure {trial.num_failures} of this trial)"
            warnings.warn(text, Slower, stacklevel=2)

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **_: Any) -> None:
        """Pass on the end of a trial without a last report.

        It was interrupted, failed, or was on a machine that is not ready.
        """
        if self._closed:
            return
        name = self._watched(trial).name
        error = _error_of(trial)
        report = {"status": "interrupted"}
        if problem := self._problem(error):
            self._stop_all()
            report = {"status": "environment", "error": problem}
        elif not self._execution.stopping:
            reason = f"{_reason(error)}, {trial.num_failures} times"
            not_stored = self._record_failures(trial, reason)
            report = {"status": "failed", "error": f"{name}: {reason}{not_stored}"}
        self._events.ended(self._watched(trial), report)

    def close(self) -> None:
        """Ignore errors from now on: Ray is given up, which ends the trials."""
        self._closed = True

    def _problem(self, error: BaseException | None) -> str:
        from bench.trial.trial import on_this_machine

        out = self._execution.out
        if error is None:  # Tune could not keep it: is the disk full?
            try:
                with tempfile.TemporaryFile(dir=out) as file:
                    file.write(b"\0" * 2**16)
                    file.flush()
            except OSError as problem:
                return on_this_machine(problem, out)
        return on_this_machine(getattr(error, "cause", error), out)

    def _stop_all(self) -> None:
        if self._execution.stop_file:
            Path(self._execution.stop_file).touch()

    def _record_failures(self, trial: Trial, reason: str) -> str:
        """Write the failed rows; return why they cannot be stored, or an empty text."""
        from bench.trial.run import record_failure

        prevented = ""
        run_specs, execution = self._resolved(trial)
        for run_spec in run_specs:
            try:
                record_failure(run_spec, execution, reason, len(run_specs))
            except Exception as problem:
                prevented = f"; its row cannot be stored: {problem}"
        return prevented

    def _watched(self, trial: Trial) -> Watched:
        if trial.trial_id not in self._trials:
            self._trials[trial.trial_id] = watched(self._resolved(trial)[0], self._trainable.varied)
        return self._trials[trial.trial_id]

    def _resolved(self, trial: Trial) -> tuple[list[RunSpec], Execution]:
        return self._trainable.resolve(None, trial.config)  # type: ignore[arg-type]


def _error_of(trial: Trial) -> BaseException | None:
    """Load the trial's error, or None if there is none.

    Tune keeps it on this machine until the experiment ends.
    """
    with suppress(Exception):
        error: BaseException = pickle.loads(Path(trial.pickled_error_file).read_bytes())
        return error
    return None


def _reason(error: BaseException | None) -> str:
    """Describe in a line why a worker ended, because Ray's own message fills a page."""
    if isinstance(error, OutOfMemoryError):
        return (
            "Ray ended its worker, because memory ran out (fewer trials at once: --max-concurrent)"
        )
    if isinstance(error, RayActorError) and error.actor_init_failed:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        last_line = lines[-1] if lines else "?"
        return f"its worker could not start: {last_line}"
    if error is None or isinstance(error, RayActorError):
        return "its worker process died (killed, perhaps for want of memory, or crashed)"
    cause = getattr(error, "cause", error)
    return f"its worker failed with {with_its_kind(cause)}"
