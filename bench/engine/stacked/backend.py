"""The backend `Stacked`, which trains the clients of one or several runs as one program."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch

from bench.engine.client_round import ClientResult, RoundWork
from bench.engine.process import give_back_gpu_memory, is_out_of_memory
from bench.engine.pytree import shapes
from bench.engine.samples import are_equal
from bench.engine.stacked.batched_hparams import Differences, constants
from bench.engine.stacked.stack import Stack, StackEntry
from bench.engine.stacked.step_executors import (
    Captured,
    Eager,
    NotCapturable,
    StepExecutor,
    cuda_graphs,
)
from bench.errors import Slower, in_a_line, of_hook, result_or_error

Done = list[tuple[RoundWork, ClientResult]]
KEPT_EXECUTORS = 4
# Shared by all runs of a process: servers of a pack take their steps one after another, in the same
# memory.
graphs_of_servers = lru_cache(cuda_graphs)


class Stacked:
    """Backend that trains clients side by side.

    Its results equal those of `Loop` within float tolerance.

    Args:
        capture: makes the executor of runs whose steps can be captured; None executes steps one by
            one.
        server: makes the executors of servers' steps; `capture` by default.

    Attributes:
        apart: the error that forced runs to train one by one, of a hook that cannot be mapped over
            runs; or None.
        limit: most clients of a program, halved whenever memory runs out; None for all.
    """

    def __init__(
        self,
        capture: Callable[[], StepExecutor] | None = None,
        server: Callable[[], StepExecutor] | None = None,
    ) -> None:
        self._capture = capture
        self.server = server or capture
        self.apart: Exception | None = None
        self.limit: int | None = None
        # By structure of the runs, the last used at the end.
        self._executors: list[tuple[Any, StepExecutor]] = []
        self._kept = KEPT_EXECUTORS

    @staticmethod
    def on(device: torch.device) -> Stacked:
        """Make the backend for a device; on a GPU it captures steps."""
        if device.type != "cuda":
            return Stacked()
        graphs = cuda_graphs()  # one pool of memory for all executors, which never run at once
        return Stacked(lambda: Captured(graphs), server=lambda: Captured(graphs_of_servers()))

    def train(self, job: RoundWork) -> list[ClientResult]:
        """Train every client of a run to its end, and return their results in order.

        Raises:
            RuntimeError: a hook failed; the message names the round.
            torch.OutOfMemoryError: a single client does not fit.
        """
        ((_, results),) = self._by_structure([job])
        return results

    def train_all(
        self, jobs: Sequence[RoundWork]
    ) -> Iterator[tuple[RoundWork, list[ClientResult] | Exception]]:
        """Train the clients of all runs; yield each run with their results once it is complete.

        If training them together fails, the runs that are not complete are trained one by one, so
        that only a faulty one fails, and is yielded with its error. If none is faulty, runs are
        trained one by one from then on.
        """
        waiting = dict.fromkeys(jobs)
        del jobs  # a run's work is released as soon as the run is complete
        error = None
        if len(waiting) > 1 and self.apart is None:
            error = yield from self._together(waiting)
        is_any_faulty = False
        while waiting:
            job = next(iter(waiting))
            del waiting[job]
            trained = result_or_error(self.train, job)
            is_any_faulty = is_any_faulty or isinstance(trained, Exception)
            yield job, trained
            del job, trained
        if error is not None and not is_any_faulty:
            self.apart = error
            warnings.warn(
                "runs of this pack train one by one, because together they fail: "
                f"{in_a_line(error)}",
                Slower,
                stacklevel=2,
            )

    def _together(
        self, waiting: dict[RoundWork, None]
    ) -> Generator[tuple[RoundWork, list[ClientResult]], None, Exception | None]:
        """Train runs together; yield each one once it is complete, and remove it from `waiting`.

        Returns the error that ended this, or None.
        """
        first, *others = [job.context.federation.train for job in waiting]
        if not all(are_equal(first, other) for other in others):
            # A stack takes all batches from the samples of one run.
            return ValueError("their training samples or labels differ")
        complete = self._by_structure([*waiting])
        while waiting:
            run = result_or_error(next, complete)
            if isinstance(run, Exception):
                return run
            del waiting[run[0]]
            yield run
            del run
        return None

    def _by_structure(
        self, jobs: Sequence[RoundWork]
    ) -> Iterator[tuple[RoundWork, list[ClientResult]]]:
        """Train runs of one structure together; yield each run once it is complete.

        Clients of unlike models are stacks of their own. Results are in the order of the run's
        clients. Raises as `train` does.
        """
        groups: list[tuple[Any, list[RoundWork]]] = []
        # The run of each part, whose clients have one model.
        owners: dict[RoundWork, RoundWork] = {}
        for job in jobs:
            for part in job.parts():
                owners[part] = job
                structure = _structure(part)
                for other, members in groups:
                    if other == structure:
                        members.append(part)
                        break
                else:
                    groups.append((structure, [part]))
        self._kept = max(self._kept, len(groups))
        unfinished: dict[RoundWork, dict[int, ClientResult]] = {job: {} for job in jobs}
        for structure, members in groups:
            for done in self._as_one_program(members, structure):
                while done:  # emptied, because its results take memory
                    part, result = done.pop()
                    unfinished[owners[part]][result.client] = result
                del result
                for job in list(unfinished):
                    if len(unfinished[job]) < len(job.clients):
                        continue
                    of_client = unfinished.pop(job)
                    yield job, [of_client.pop(work.client) for work in job.clients]

    def _as_one_program(self, jobs: list[RoundWork], structure: Any) -> Iterator[Done]:
        """Train runs of one structure as one program, or as few programs as memory allows.

        Yields the results of each.
        """
        differences = Differences.among(jobs)
        # Run by run, because a run's results take memory until its server has received all of them.
        waiting: list[StackEntry] = []
        for job in jobs:
            longest_first = sorted(job.clients, key=lambda work: -work.steps)
            waiting += [(job, work) for work in longest_first]
        while waiting:
            part = sorted(waiting[: self.limit], key=lambda entry: -entry[1].steps)
            done = self._attempt(part, differences, structure)
            if done is None:  # outside the handler, whose traceback would keep the attempt's memory
                self._halve(len(part))
                continue
            waiting = waiting[len(part) :]
            yield done

    def _attempt(
        self, part: list[StackEntry], differences: Differences, structure: Any
    ) -> Done | None:
        """Train some clients; returns None if memory ran out."""
        try:
            with part[0][0].context.products():
                return self._run(part, differences, structure)
        except Exception as error:
            if is_out_of_memory(error) and len(part) > 1:
                return None
            if isinstance(error, torch.OutOfMemoryError):
                raise
            where = f"round {part[0][0].round}, clients {[work.client for _, work in part]}"
            reason = of_hook(error, part[0][0].message, part[0][1].memory)
            raise RuntimeError(f"{where}: {reason}") from error

    def _run(self, part: list[StackEntry], differences: Differences, structure: Any) -> Done:
        job = part[0][0]
        # The length of texts differs from step to step, and a captured step has one shape.
        if self._capture is None or job.clients[0].inputs.widths is not None:
            return Stack(part, differences, Eager()).run()
        key = (differences.several, structure[1:])  # captures hold for any round number
        executor = self._executor(key)
        try:
            return Stack(part, differences, executor).run()
        except NotCapturable as error:
            reason = str(error)
        # Outside the handler, whose traceback would keep the attempt's memory.
        name = type(job.context.algorithm).__name__
        warnings.warn(
            f"{name}: steps are not captured, which makes them slower: {reason}",
            Slower,
            stacklevel=2,
        )
        self._executors[-1] = (key, Eager())
        del executor  # and its buffers
        give_back_gpu_memory()
        return self._run(part, differences, structure)

    def _executor(self, key: Any) -> StepExecutor:
        """Return the executor for this structure.

        Few are kept, because a run's message may change every round.
        """
        assert self._capture is not None, "else steps are executed one by one"
        executor = None
        others = []
        for entry in self._executors:
            if entry[0] == key:
                executor = entry[1]
            else:
                others.append(entry)
        executor = executor or self._capture()
        self._executors = [*others, (key, executor)][-self._kept :]
        return executor

    def _halve(self, clients: int) -> None:
        """Limit programs to half of the clients, and release the memory of the larger program."""
        self.limit = (clients + 1) // 2
        self._executors.clear()
        give_back_gpu_memory()
        warnings.warn(
            f"out of memory with {clients} clients in one program: going on with {self.limit} at a "
            "time",
            Slower,
            stacklevel=2,
        )


def _structure(job: RoundWork) -> tuple[Any, ...]:
    """Return all that runs of one program share.

    These are the round, the model with its constants, which may be drawn, the constants of
    algorithm and setting, and the shapes of their trees.
    """
    work = job.clients[0]
    trees = [job.message, work.local, work.memory, dict(work.teachers)]
    return (
        job.round,
        constants(job.context.algorithm),
        job.context.model,
        job.context.net.checksum,
        job.context.setting.of_program(),
        shapes(trees),
        sorted(work.tables),
    )
