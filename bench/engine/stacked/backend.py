"""`Stacked`: the clients of a round, and of several runs' rounds, as one program; as several if memory is short."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch

from algorithms.forward import is_out_of_memory
from bench.engine.memory import CudaMeter, Meter, clients_that_fit, give_back
from bench.engine.stacked.batched_hparams import Differences, constants
from bench.engine.stacked.cuda_graphs import Act, cuda_graphs
from bench.engine.stacked.stack import Entry, Stack
from bench.engine.stacked.step_executors import Captured, Eager, NotCapturable, StepExecutor
from bench.engine.tasks import Job, Trained
from bench.engine.trees import shapes
from bench.errors import Slower

KEPT_EXECUTORS = 4


class Stacked:
    """Trains clients side by side; results equal `Loop`'s within float tolerance.

    Args:
        capture: makes the executor of runs whose steps can be captured; None executes steps one by one.
        meter: of the device's memory. With one, the clients of one run go first, and say how many more fit.
        limit: most clients of a program; None for all, or as many as the meter says.
        server: makes the executors of servers' steps; `capture` by default.

    Attributes:
        limit: halved whenever the device's memory did not suffice.
    """

    name = "stacked"

    def __init__(
        self,
        capture: Callable[[], StepExecutor] | None = None,
        meter: Meter | None = None,
        limit: int | None = None,
        server: Callable[[], StepExecutor] | None = None,
    ) -> None:
        self.limit, self.server = limit, server or capture
        self._capture, self._meter = capture, meter
        self._executors: list[tuple[Any, StepExecutor]] = []  # with the structure that they train, the last used last

    @staticmethod
    def on(device: torch.device) -> Stacked:
        """For a device: on a GPU steps are captured, and memory is measured."""
        if device.type != "cuda":
            return Stacked()
        return Stacked(
            lambda: Captured(cuda_graphs()), CudaMeter(device), server=lambda: Captured(_graphs_of_servers())
        )

    def train(self, job: Job) -> list[Trained]:
        """Train every client of a run to its end, in the order of its tasks; raises as `train_all` does."""
        ((_, trained),) = self.train_all([job])
        return trained

    def train_all(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, list[Trained]]]:
        """Train the clients of all runs; yields each run, in the order of its tasks, once its last client is done.

        Raises:
            RuntimeError: a hook failed; the message names the round.
            torch.OutOfMemoryError: a single client does not fit.
        """
        groups: list[tuple[Any, list[Job]]] = []
        for job in jobs:
            structure = _structure(job)
            same = next((members for other, members in groups if other == structure), None)
            if same is None:
                groups.append((structure, [job]))
            else:
                same.append(job)
        for structure, members in groups:
            yield from self._together(members, structure)

    def _together(self, jobs: list[Job], structure: Any) -> Iterator[tuple[Job, list[Trained]]]:
        """Train runs of one structure as one program, or as few as memory allows."""
        apart, collected = Differences.among(jobs), _Collected(jobs)
        # Run by run: what a run has trained takes memory until its server has seen all of it.
        waiting = [(job, task) for job in jobs for task in sorted(job.tasks, key=lambda task: -task.steps)]
        while waiting:
            first = len(jobs[0].tasks) if apart.several and self._meter and self.limit is None else self.limit
            part = sorted(waiting[:first], key=lambda entry: -entry[1].steps)
            done = self._guarded(part, apart, structure)
            if done is None:  # outside the handler, whose traceback would keep what the attempt took
                self._halve(len(part))
                continue
            waiting = waiting[len(part) :]
            collected.add(done)
            del done
            yield from collected.complete()

    def _guarded(self, part: list[Entry], apart: Differences, structure: Any) -> list[tuple[Job, Trained]] | None:
        try:
            return self._measured(part, apart, structure)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            where = f"round {part[0][0].round}, clients {[task.client for _, task in part]}"
            raise RuntimeError(f"{where}: {error}") from error

    def _measured(self, part: list[Entry], apart: Differences, structure: Any) -> list[tuple[Job, Trained]] | None:
        """Train; None if memory did not suffice. The first program of several runs says how many clients fit."""
        measures = self._meter is not None and self.limit is None and apart.several
        if self._meter and measures:
            self._meter.begin()
        try:
            done = self._run(part, apart, structure)
        except Exception as error:
            if len(part) == 1 or not is_out_of_memory(error):
                raise
            return None
        if self._meter and measures:
            self.limit = clients_that_fit(len(part), self._meter)
        return done

    def _run(self, part: list[Entry], apart: Differences, structure: Any) -> list[tuple[Job, Trained]]:
        job = part[0][0]
        # Steps executed one by one fix nothing, so there is nothing to keep. Texts have another length in each step,
        # and a captured step has one shape.
        if self._capture is None or job.tasks[0].source.widths is not None:
            return Stack(part, apart, Eager()).run()
        executor = self._executor(key := (apart.several, structure[1:]))  # a step does not fix the round's number
        try:
            return Stack(part, apart, executor).run()
        except NotCapturable as problem:
            reason = str(problem)
        # Outside the handler, whose traceback would keep what the attempt took.
        name = type(job.problem.algorithm).__name__
        warnings.warn(f"{name}: steps are not captured, which makes them slower: {reason}", Slower, stacklevel=2)
        self._executors[-1] = (key, Eager())
        return self._run(part, apart, structure)

    def _executor(self, key: Any) -> StepExecutor:
        """The executor of steps of this structure. Few are kept: what a run sends may change from round to round."""
        assert self._capture is not None, "else steps are executed one by one"
        executor = next((executor for other, executor in self._executors if other == key), None) or self._capture()
        others = [entry for entry in self._executors if entry[1] is not executor]
        self._executors = [*others, (key, executor)][-KEPT_EXECUTORS:]
        return executor

    def _halve(self, clients: int) -> None:
        """Go on with half of the clients at once, after giving back what the larger program held."""
        self.limit = (clients + 1) // 2
        self._executors.clear()
        give_back()
        warnings.warn(
            f"out of memory with {clients} clients in one program: going on with {self.limit} at a time",
            Slower,
            stacklevel=2,
        )


@lru_cache
def _graphs_of_servers() -> Callable[[Act], Act]:
    """One for all runs of a process: servers of a pack take their steps one after another, in the same memory."""
    return cuda_graphs()


class _Collected:
    """Trained clients of some runs, until all clients of a run are there."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._missing = list(jobs)
        self._trained: dict[int, dict[int, Trained]] = {id(job): {} for job in jobs}

    def add(self, done: Sequence[tuple[Job, Trained]]) -> None:
        """Add some clients."""
        for job, trained in done:
            self._trained[id(job)][trained.client] = trained

    def complete(self) -> Iterator[tuple[Job, list[Trained]]]:
        """Give each complete run once, and keep it no longer."""
        for job in [job for job in self._missing if len(self._trained[id(job)]) == len(job.tasks)]:
            self._missing.remove(job)
            trained = self._trained.pop(id(job))
            yield job, [trained.pop(task.client) for task in job.tasks]


def _structure(job: Job) -> tuple[Any, ...]:
    """The round, and what one program fixes: constants of algorithm and setting, shapes of all that a stack holds."""
    task = job.tasks[0]
    trees = [job.message, task.local, task.memory, dict(task.teachers)]
    return (
        job.round,
        constants(job.problem.algorithm),
        job.problem.setting.of_program(),
        shapes(trees),
        sorted(task.tables),
    )
