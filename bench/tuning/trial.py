"""A trial: one run, or all seeds of a configuration advanced side by side. Knows nothing of Ray."""

from __future__ import annotations

import errno
import math
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from algorithms import build
from bench import data, provenance
from bench.data.splits import split
from bench.engine.simulation import Simulation
from bench.engine.state import StateFolder
from bench.engine.tracking import write as write_tracked
from bench.errors import EnvironmentProblem
from bench.execution import Execution
from bench.models import weights
from bench.results import failed_rows, now, rows_of, series
from bench.unit import Unit
from leaderboards import Store

WAIT_SECONDS = 0.5


class Run:
    """One unit from its state, or from the beginning, to its rows.

    Args:
        unit: what to run.
        execution: how.

    Attributes:
        status: `running`, `finished`, `failed`, `stopped` or `interrupted`.
        error: why it failed.
        complaint: what stopped being finite.
    """

    def __init__(self, unit: Unit, execution: Execution) -> None:
        self.unit, self.execution = unit, execution
        self.status, self.error, self.complaint = "running", "", ""
        self.simulation: Simulation | None = None
        self.store = Store(Path(execution.out))
        self.folder = StateFolder(Path(execution.out) / "state" / unit.key)
        self._lock = FileLock(f"{self.folder.path}.lock")
        self._started = now()
        self._saved = time.monotonic()
        self._split_hash = ""
        self._recalled: dict[str, float] = {}

    def open(self) -> None:
        """Claim the run, and load its data and state. Another sweep's claim is waited for."""
        self.folder.path.parent.mkdir(parents=True, exist_ok=True)
        if not self._claim():
            self.status = "interrupted"
        elif self._is_stored():
            self.status = "finished"
            self._recall()
        else:
            if self.execution.force:
                self.folder.remove()
            self._build()

    def advance(self, rounds: int) -> None:
        """Up to `rounds` more; stores the rows when the last is done."""
        simulation = self._running()
        simulation.advance(rounds, stop=lambda: self.execution.stopping)
        if simulation.done:
            self._store("finished")
            self.folder.remove()
        elif self.execution.stopping:
            simulation.save()
            self.status = "interrupted"
        elif time.monotonic() - self._saved > self.execution.save_seconds:
            self.save()

    def save(self) -> None:
        """Write the state now."""
        if self.status == "running" and self.simulation is not None:
            self.simulation.save()
            self._saved = time.monotonic()

    def stop(self) -> None:
        """End a run that the scheduler gave up: its rows say so, its state stays for a later command to go on."""
        if self.status == "running" and self.simulation is not None and self.simulation.progress.curves:
            self.simulation.save()
            self._store("stopped")

    def fail(self, error: BaseException) -> None:
        """Keep why the run failed in its row."""
        self.status, self.error = "failed", describe(error)
        for row in failed_rows(self.unit, self.error, self._facts("failed")):
            self.store.write(row, [])

    def release(self) -> None:
        """Give the claim back, and what the run holds in memory."""
        if self.status == "finished":
            # Safe under a waiting sweep: whoever gets the claim next, on this file or a new one, finds the rows.
            Path(self._lock.lock_file).unlink(missing_ok=True)
        self._lock.release(force=True)
        self.simulation = None

    def measure(self, metric: str) -> float:
        """The best value so far of one curve of the run's own row; NaN before there is any."""
        if self.simulation is None:
            return self._recalled.get(metric, math.nan)
        curve = self.simulation.progress.curves.get(self.unit.own_suffix, [])
        return max(series(curve, metric).values(), default=math.nan)

    @property
    def round(self) -> int:
        """Finished rounds."""
        return self.simulation.round if self.simulation else 0

    def latest(self) -> float:
        """The test accuracy of the last evaluated round."""
        if self.simulation is None:
            return self._recalled.get("final_accuracy", math.nan)
        curve = self.simulation.progress.curves.get(self.unit.own_suffix, [])
        return next(reversed(series(curve, "accuracy").values()), math.nan)

    def _claim(self) -> bool:
        while True:
            try:
                self._lock.acquire(timeout=WAIT_SECONDS)
                return True
            except Timeout:
                if self.execution.stopping:
                    return False

    def _is_stored(self) -> bool:
        if self.execution.force:
            return False
        enough = ("finished", "stopped") if self.execution.keep_stopped else ("finished",)
        keys = list(self.unit.rows.values())
        statuses = self.store.status(keys)
        return all(statuses.get(key) in enough for key in keys)

    def _recall(self) -> None:
        """What a stored run reached: a sampler that proposes it again must learn its value."""
        runs = self.store.runs()
        row = runs[runs.run_key == self.unit.key].iloc[0]
        stored = {"val_accuracy": row.best_val_accuracy, "accuracy": row.best_accuracy}
        stored["final_accuracy"] = row.final_accuracy
        self._recalled = {name: float(value) for name, value in stored.items() if value == value}

    def _build(self) -> None:
        unit, execution = self.unit, self.execution
        directory = Path(execution.data_dir) if execution.data_dir else None
        dataset = data.load(unit.setting.dataset, directory, execution.offline)
        weights.provide(unit.setting.model, directory, execution.offline)
        shares = split(unit.setting, dataset.train_y, unit.seed, dataset.train_groups)
        self._split_hash = shares.hash
        self._dataset = dataset
        self.simulation = Simulation(
            build(unit.algorithm, **unit.hyperparameters),
            unit.setting,
            unit.seed,
            dataset,
            data.info(unit.setting.dataset),
            shares,
            device=execution.device,
            backend=execution.backend,
            folder=self.folder,
            track=execution.track,
        )
        self.simulation.load()

    def _running(self) -> Simulation:
        assert self.simulation is not None, "open() comes before advance()"
        return self.simulation

    def _store(self, status: str) -> None:
        info = data.info(self.unit.setting.dataset)
        facts = self._facts(status)
        samples = len(self._dataset.test_y)
        simulation = self._running()
        progress = simulation.progress
        self.complaint = progress.complaint
        if status == "finished":  # before the rows: what is stored as finished has its tracked data
            write_tracked(simulation, self.execution.out, self.unit.rows, self.unit.row_names)
        for row, curve in rows_of(self.unit, progress, facts, num_classes=info.num_classes, test_samples=samples):
            self.store.write(row, curve, replace=self.execution.force)
        self.status = status

    def _facts(self, status: str) -> dict[str, Any]:
        """Cost, state and provenance of this run."""
        execution, simulation = self.execution, self.simulation
        seconds = simulation.progress.seconds if simulation else None
        process = provenance.of_process(execution.device)
        # Another file of weights is another environment: their results lie side by side.
        started_from = weights.versions(self.unit.setting.model) if simulation else {}
        return {
            **execution.provenance,
            **process,
            "versions": {**process["versions"], **started_from},
            "dataset_hash": self._dataset.hash if simulation else None,
            "partition_hash": self._split_hash or None,
            "seconds": seconds,
            "samples_per_second": simulation.progress.samples / seconds if simulation and seconds else None,
            "peak_memory_bytes": peak_memory(execution.device),
            "threads": execution.threads,
            "backend": simulation.backend if simulation else execution.backend,
            "pack": 1,
            "started": self._started,
            "finished": now(),
            "status": status,
        }


def describe(error: BaseException) -> str:
    """An error's type, message and place: what a row keeps of it."""
    first = error.__cause__ or error
    frames = traceback.extract_tb(first.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(first).__name__}: {error}{place}"


def record_failure(unit: Unit, execution: Execution, reason: str) -> None:
    """Write the failed rows of a run whose process is gone."""
    run = Run(unit, execution)
    run.fail(RuntimeError(reason))


class Trial:
    """What one Tune trial does: its runs, round by round, in turn.

    Args:
        units: one run, or the seeds of one configuration.
        execution: how.
    """

    def __init__(self, units: Sequence[Unit], execution: Execution) -> None:
        torch.set_num_threads(execution.threads)
        self.execution = execution
        self.runs = [Run(unit, execution) for unit in units]
        self._environment = ""
        if not execution.stopping:
            for run in self.runs:
                self._guard(run, run.open)

    def step(self) -> dict[str, Any]:
        """Some rounds of every run, then a report."""
        began = time.monotonic()
        rounds = self.execution.rounds_per_report
        while True:
            for run in self._active():
                self._guard(run, partial(run.advance, rounds or 1))
            if rounds or not self._active() or time.monotonic() - began >= self.execution.report_seconds:
                return self.report()

    def report(self) -> dict[str, Any]:
        """Where the trial stands: `done`, `status`, and means over its runs."""
        statuses = [run.status for run in self.runs]
        interrupted = self.execution.stopping and any(status == "running" for status in statuses)
        if self._environment:
            status = "environment"
        elif interrupted or "interrupted" in statuses:
            status = "interrupted"
        elif "failed" in statuses:
            status = "failed" if not self._active() else "running"
        else:
            status = "running" if self._active() else "finished"
        return {
            "round": max(run.round for run in self.runs),
            "accuracy": _mean([run.latest() for run in self.runs]),
            "best_accuracy": _mean([run.measure("accuracy") for run in self.runs]),
            "objective": self._objective(statuses),
            "status": status,
            "error": self._environment or "; ".join(run.error for run in self.runs if run.error),
            "diverged": "; ".join(run.complaint for run in self.runs if run.complaint),
            "done": status != "running",
        }

    def _objective(self, statuses: list[str]) -> float:
        """The mean over all seeds; NaN once one failed: a mean over the others would compare with means over all."""
        return math.nan if "failed" in statuses else _mean([run.measure("val_accuracy") for run in self.runs])

    def save(self) -> None:
        """Write every run's state now."""
        for run in self._active():
            run.save()

    def close(self) -> None:
        """End the trial: runs still going were stopped by the scheduler, unless the sweep itself is stopping."""
        for run in self.runs:
            if not self.execution.stopping and not self._environment:
                self._guard(run, run.stop)
            run.release()

    def _active(self) -> list[Run]:
        """The runs to go on with; one that was never opened, because the sweep was stopping, is not."""
        return [run for run in self.runs if run.status == "running" and run.simulation and not self._environment]

    def _guard(self, run: Run, action: Callable[[], None]) -> None:
        """Do it; a failure ends this run only, a machine that is not ready ends the trial."""
        try:
            action()
        except EnvironmentProblem as problem:
            self._environment = str(problem)
        except OSError as problem:
            self._environment = _disk(problem, self.execution.out)
        except Exception as error:
            self._fail(run, error)

    def _fail(self, run: Run, error: Exception) -> None:
        try:
            run.fail(error)
        except OSError as problem:
            self._environment = _disk(problem, self.execution.out)
        except Exception as problem:  # no row can be written of it: the sweep still says so, and goes on
            run.status, run.error = "failed", f"{describe(error)}; its row cannot be stored: {problem}"


def _disk(problem: OSError, out: str) -> str:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left for {problem.filename or out}: free some, then give the same command again"
    return f"{problem.strerror or problem} ({problem.filename or out}): mend it, then give the same command again"


def _mean(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan


def peak_memory(device: str) -> int:
    """Bytes: the accelerator's largest allocation, or the process's largest resident size."""
    if device == "cuda":
        return int(torch.cuda.max_memory_allocated())
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
