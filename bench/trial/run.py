"""Execution of one run, from its saved state or the beginning to its rows. Independent of Ray."""

from __future__ import annotations

import math
import time
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout

from algorithms import ALGORITHMS, build
from bench import data, state_files
from bench.data.splits import public_set, split
from bench.engine.arithmetic import arithmetic
from bench.engine.simulation import Simulation, choose_backend
from bench.engine.state import StateFolder
from bench.engine.tracking import fingerprint, load_model
from bench.errors import Waiting, describe
from bench.execution import Execution, are_enough
from bench.machine import largest_resident
from bench.models import weights
from bench.planning.run_spec import RunSpec
from bench.provenance import process_columns
from bench.trial.results import failed_rows, rows_of, write_tracked
from leaderboards import Store
from leaderboards.numbers import NUMBERS, GrowingCurve, Point, add_points
from leaderboards.rows.files import StoreError, part_of
from leaderboards.selection import selected_on, selecting_number

WAIT_SECONDS = 0.5
SILENT_SECONDS = 5.0  # of waiting for another's claim, before a warning


class Run:
    """Execution of one run spec, from its saved state or the beginning to its rows.

    If another process executed it (not `here`), its rows do not have the GPU's name and the peak
    memory.

    Attributes:
        status: `running`, `finished`, `failed`, `stopped`, `interrupted`, or `environment` for an
            unusable state.
        error: why the run failed; `traceback` is that of the error, as Python prints it.
        diverged: whether the run finished as diverged, as its row says; False before its end.
        pack: number of runs that share its program.
        complaint: which value stopped being finite.
    """

    def __init__(self, run_spec: RunSpec, execution: Execution, here: bool = True) -> None:
        self.run_spec = run_spec
        self.execution = execution
        self._here = here
        self.status = "running"
        self.error = ""
        self.traceback = ""
        self.complaint = ""
        self.diverged = False
        self.simulation: Simulation | None = None
        self.pack = 1
        self._saved_round = 0
        self.store = Store(Path(execution.out), execution.data_hashes)
        self.folder = StateFolder(
            Path(execution.out) / state_files.FOLDER / run_spec.key, run_spec.named_by
        )
        # Any thread may end the run.
        self._lock = FileLock(f"{self.folder.path}.lock", thread_local=False)
        self._started = datetime.now(UTC)
        self._saved = time.monotonic()
        self._split_hash = ""
        self._dataset_hash = ""
        self._chance: float  # from `open` on, as the number of test samples
        self._test_samples: int
        self._recalled: Sequence[Point] = ()
        self._arranged: GrowingCurve = {}
        self._arranged_points = 0  # of the curve, that are in `_arranged`
        self._started_from: dict[str, str] = {}

    def claim(self) -> bool:
        """Claim the run, unless another sweep or trial has claimed it; return whether it is free.

        A folder that cannot be written counts as free: `open` says what is wrong with it.
        """
        try:
            self._make_folder()
            self._lock.acquire(blocking=False)
        except Timeout:
            return False
        except (OSError, StoreError):
            pass
        return True

    def open(self) -> None:
        """Claim the run, after waiting for another sweep's claim, and load its data and state."""
        self._make_folder()
        if not self._wait_for_claim():
            self.status = "interrupted"
        elif not self.execution.force and self.has_rows():
            self.status = "finished"
            self._recall()
        else:
            if self.execution.force:
                self.folder.remove()
            self._build()
        self._saved_round = self.round

    def _recall(self) -> None:
        """Read the curve of the stored run, and whether it diverged: samplers need it."""
        curve = self.store.curves([self.run_spec.key]).sort_values("round", kind="stable")
        rounds = curve["round"].astype(int)
        self._recalled = list(zip(rounds, curve["metric"], curve["value"], strict=True))
        rows = self.store.runs(columns=["status", "diverged"], keys=[self.run_spec.key])
        self.diverged = bool(rows.loc[rows["status"] == "finished", "diverged"].any())

    def save_or_finish(self) -> None:
        """Store the rows if the run is done, or else save the state if that is due."""
        if self.simulation is not None and self.simulation.done:
            self._store("finished")
            self.folder.remove()
        elif self.execution.stopping:
            self.save()
            self.status = "interrupted"
        elif time.monotonic() - self._saved > self.execution.save_seconds:
            self.save()

    def save(self) -> None:
        """Write the state now, unless the folder has it.

        Its files are never written again under the same names.
        """
        if self.status != "running" or self.simulation is None:
            return
        if self.unsaved or not self.round:
            self.simulation.save()
            self._saved = time.monotonic()
            self._saved_round = self.round

    def stop(self) -> None:
        """End a run that the scheduler stopped.

        It is stored as stopped, and its state is kept for a later command.
        """
        if self.status != "running" or self.simulation is None:
            return
        if self.simulation.progress.curves:
            self.save()
            self._store("stopped")

    def fail(self, error: BaseException) -> None:
        """Store the run as failed, with the reason."""
        self.status = "failed"
        self.error = describe(error)
        self.traceback = "".join(traceback.format_exception(error))
        for row in failed_rows(self.run_spec, self.error, self._facts("failed")):
            self.store.write(row, [])

    def give_claim(self) -> None:
        """Release the claim on a run that is over.

        Its process may wait for another trial for a long time.
        """
        if not self._lock.is_locked:
            return
        if self.status == "finished":
            # Safe while another sweep waits: the next claim, on this file or a new one, finds the
            # rows.
            with suppress(OSError):  # another user's file in a shared folder
                Path(self._lock.lock_file).unlink()
        self._lock.release(force=True)

    def release(self) -> None:
        """Release the claim and the run's memory."""
        self.give_claim()
        self.simulation = None

    @property
    def curve(self) -> Sequence[Point]:
        """The points (round, metric, value) of the run's own row so far; all of a stored run."""
        if self.simulation is None:
            return self._recalled
        suffixes = {name: suffix for suffix, name in self.run_spec.row_names.items()}
        own = suffixes.get(self.run_spec.algorithm, "")
        return self.simulation.progress.curves.get(own, [])

    @property
    def round(self) -> int:
        """Number of finished rounds; for a stored run, the last evaluated round."""
        if self.simulation:
            return self.simulation.round
        return max((at for at, _, _ in self._recalled), default=0)

    @property
    def unsaved(self) -> bool:
        """Return whether the run has finished rounds that its saved state lacks."""
        return self.round > self._saved_round

    def has_rows(self) -> bool:
        """Return whether all its rows are stored as finished.

        With `keep_stopped`, rows that a scheduler stopped count as well.
        """
        keys = list(self.run_spec.rows.values())
        statuses = self.store.status(keys)
        return are_enough(map(statuses.get, keys), self.execution.keep_stopped)

    def number(self, name: str) -> float:
        """Read a number of `NUMBERS` off the curve so far; NaN if it has none."""
        points = self.curve
        # Only new points are arranged: reports read long curves again and again.
        add_points(self._arranged, points[self._arranged_points :])
        self._arranged_points = len(points)
        value = NUMBERS[name].value(self._arranged)
        return math.nan if value is None else value

    @property
    def selecting_number(self) -> str:
        """The number of `NUMBERS` by which configurations are selected."""
        samples = selected_on(self.run_spec.setting.as_dict(), self.execution.select_on)
        return selecting_number(self.execution.chosen_by, samples)

    def _make_folder(self) -> None:
        part_of(Path(self.execution.out), state_files.FOLDER).mkdir(parents=True, exist_ok=True)

    def _wait_for_claim(self) -> bool:
        patient_until = time.monotonic() + SILENT_SECONDS
        while True:
            try:
                self._lock.acquire(timeout=WAIT_SECONDS)
                return True
            except Timeout:
                if self.execution.stopping:
                    return False
            if time.monotonic() > patient_until:
                patient_until = math.inf
                warnings.warn(
                    f"{self.run_spec.label} is already running in another sweep or trial "
                    f"on {self.execution.out}: waiting until it is done there",
                    Waiting,
                    stacklevel=2,
                )

    def _build(self) -> None:
        run_spec = self.run_spec
        execution = self.execution
        folder = execution.data_dir
        dataset = data.load(run_spec.setting.dataset, folder, execution.offline)
        for model in run_spec.setting.models:
            weights.provide(model, folder, execution.offline)
        shares = split(run_spec.setting, dataset.train_y, run_spec.seed, dataset.train_groups)
        load = partial(data.load, folder=folder, offline=execution.offline)
        public = public_set(run_spec.setting, run_spec.seed, load)
        self._split_hash = shares.hash
        if public is not None:
            self._split_hash = sha256(f"{shares.hash}/{public.hash}".encode()).hexdigest()
        self._dataset_hash = dataset.hash
        self._test_samples = len(dataset.test_y)
        self._chance = float(np.bincount(dataset.test_y).max()) / self._test_samples
        # Another file of weights, or another w_0, counts as another environment: its results are
        # stored beside others.
        for model in run_spec.setting.models:
            self._started_from |= weights.versions(model)
        initial = None
        if run_spec.setting.start_from:
            initial = load_model(execution.out, run_spec.setting.start_from)
            self._started_from["start_from"] = fingerprint(initial)
        self.simulation = Simulation(
            build(run_spec.algorithm, **run_spec.hyperparameters),
            run_spec.setting,
            run_spec.seed,
            dataset,
            data.info(run_spec.setting.dataset),
            shares,
            device=execution.device,
            backend=execution.backend,
            folder=self.folder,
            track=execution.track,
            initial=initial,
            stopping=lambda: execution.stopping,
            public=public,
        )
        self.simulation.load()

    def _store(self, status: str) -> None:
        simulation = self.simulation
        facts = self._facts(status)
        assert simulation is not None, "open() comes before the rows"
        progress = simulation.progress
        self.complaint = progress.complaint
        tracked: dict[str, list[str]] = {}
        if status == "finished":
            # Before the rows, so that a finished row always has its tracked data.
            out = self.execution.out
            tracked = write_tracked(simulation, out, self.run_spec.rows, self.run_spec.row_names)
        # A row of other data gives way to this one, whatever environment it is of.
        keys = list(self.run_spec.rows.values())
        of_other_data = Store(self.store.out).finished(keys) - self.store.finished(keys)
        rows = rows_of(
            self.run_spec,
            progress,
            facts,
            personal=simulation.personal,
            chance=self._chance,
            test_samples=self._test_samples,
        )
        for row, curve in rows:
            replaces = self.execution.force or row["run_key"] in of_other_data
            self.store.write(row, curve, replaces, tracked.get(row["run_key"], ()))
            if status == "finished" and row["run_key"] == self.run_spec.key:
                self.diverged = row["diverged"]
        self.status = status

    def _facts(self, status: str) -> dict[str, Any]:
        """Return cost, state and provenance of this run."""
        execution = self.execution
        simulation = self.simulation
        seconds = None
        speed = None
        started = self._started
        if simulation:
            progress = simulation.progress
            seconds = progress.seconds
            speed = progress.samples / seconds if seconds else None
            started = datetime.fromtimestamp(progress.started, UTC)
        process = process_columns(execution.device, self._here)
        versions = dict(process["versions"])
        if execution.device == "cpu":  # of this processor's arithmetic
            versions |= arithmetic(execution.threads)
        versions |= self._started_from
        return {
            **execution.provenance,
            **process,
            "versions": versions,
            "dataset_hash": self._dataset_hash or None,
            "partition_hash": self._split_hash or None,
            "seconds": seconds,
            "samples_per_second": speed,
            "peak_memory_bytes": self._peak_memory() if self._here else None,
            "threads": execution.threads,
            "certified": self.run_spec.algorithm in {*ALGORITHMS, *execution.certified},
            "backend": self.backend,
            "pack": self.pack,
            "started": started,
            "finished": datetime.now(UTC),
            "status": status,
        }

    @property
    def backend(self) -> str:
        """The backend that trains the run, or would train it if the run is not loaded."""
        if self.simulation:
            return self.simulation.backend
        return choose_backend(self.execution.backend, torch.device(self.execution.device))

    def _peak_memory(self) -> int:
        """Return the most bytes of GPU memory since `release_gpu`, or the largest resident size."""
        if self.execution.device == "cuda":
            return torch.cuda.max_memory_reserved()
        import resource

        return largest_resident(resource.getrusage(resource.RUSAGE_SELF))


def record_failure(run_spec: RunSpec, execution: Execution, reason: str, together: int) -> None:
    """Write the failed rows of a run whose process is gone, unless its rows are stored already.

    The rows give way to those of a later success. `together`: runs of its trial.

    Raises:
        OSError: the rows cannot be written.
    """
    run = Run(run_spec, execution, here=False)
    run.pack = together if run.backend == "stacked" else 1
    if not run.has_rows():
        run.fail(RuntimeError(reason))
