"""`Stacked`: the clients of a round, and of several runs' rounds, as one program; as several where memory is short."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from algorithms.forward import is_out_of_memory
from bench.engine.memory import give_back
from bench.engine.stacked.captures import cuda_graphs
from bench.engine.stacked.choices import Choices
from bench.engine.stacked.convolutions import usual
from bench.engine.stacked.memory import CudaMeter, Meter, clients_that_fit
from bench.engine.stacked.numbers import Differences, constants
from bench.engine.stacked.probe import Make, Preparer
from bench.engine.stacked.programs import Captured, Eager, NotCapturable, Program
from bench.engine.stacked.stack import Entry, Stack
from bench.engine.tasks import Job, Trained
from bench.engine.trees import shapes
from bench.errors import Slower

KEPT_PROGRAMS = 4


class Stacked:
    """Trains clients side by side; results equal `Loop`'s within float tolerance.

    Args:
        capture: makes the programs of runs on which a step can be captured; None makes each step as it comes.
        meter: of the device's memory. With one, the clients of one run go first, and say how many more fit.
        limit: most clients of a program; None for all, or as many as the meter says.
        server: makes the programs of servers' steps; if not given, as `capture` does.

    Attributes:
        limit: halved whenever the device's memory did not suffice.
    """

    name = "stacked"

    def __init__(
        self,
        capture: Callable[[], Program] | None = None,
        meter: Meter | None = None,
        limit: int | None = None,
        server: Callable[[], Program] | None = None,
    ) -> None:
        self.limit, self.server = limit, server or capture
        self._capture, self._meter = capture, meter
        self._programs: list[_Made] = []

    @staticmethod
    def on(device: torch.device, choices: Choices) -> Stacked:
        """For a device: on a GPU steps are captured, the fastest of `choices`, and memory is measured."""
        if device.type != "cuda":
            return Stacked()
        meter, name = CudaMeter(device), f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"

        def program() -> Program:
            return Captured(Preparer(cuda_graphs(), choices=choices, device=name, measured=meter.settle))

        return Stacked(program, meter, server=_server_program)

    def train(self, job: Job) -> list[Trained]:
        """Every client of a run to its end, in the order of its tasks; it raises as `train_all` does."""
        ((_, trained),) = self.train_all([job])
        return trained

    def train_all(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, list[Trained]]]:
        """Each run with what came of its clients, in the order of its tasks, as soon as the last of them is done.

        Raises:
            RuntimeError: a hook failed; the message names the round.
            torch.OutOfMemoryError: a single client does not fit.
        """
        for members in _alike(jobs):
            yield from self._together(members)

    def _together(self, jobs: list[Job]) -> Iterator[tuple[Job, list[Trained]]]:
        """Runs that fit together: as one program, or as few as memory allows."""
        apart, collected = Differences.among(jobs), _Collected(jobs)
        # Run by run: what a run has trained takes memory until its server has seen all of it.
        waiting = [(job, task) for job in jobs for task in sorted(job.tasks, key=lambda task: -task.steps)]
        while waiting:
            first = len(jobs[0].tasks) if apart.several and self._meter and self.limit is None else self.limit
            part = sorted(waiting[:first], key=lambda entry: -entry[1].steps)
            made = self._guarded(part, apart)
            if made is None:  # outside the handler, whose traceback would keep what the attempt took
                self._halve(len(part))
                continue
            waiting = waiting[len(part) :]
            collected.add(made)
            del made
            yield from collected.complete()

    def _guarded(self, part: list[Entry], apart: Differences) -> list[tuple[Job, Trained]] | None:
        try:
            return self._measured(part, apart)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            where = f"round {part[0][0].round}, clients {[task.client for _, task in part]}"
            raise RuntimeError(f"{where}: {error}") from error

    def _measured(self, part: list[Entry], apart: Differences) -> list[tuple[Job, Trained]] | None:
        """Train them; None if memory did not suffice. The first program of several runs says how many clients fit."""
        measures = self._meter is not None and self.limit is None and apart.several
        if self._meter and measures:
            self._meter.begin()
        try:
            done = self._run(part, apart)
        except Exception as error:
            if len(part) == 1 or not is_out_of_memory(error):
                raise
            return None
        if self._meter and measures:
            self.limit = clients_that_fit(len(part), self._meter)
        return done

    def _run(self, part: list[Entry], apart: Differences) -> list[tuple[Job, Trained]]:
        made = self._made_for(part[0][0], apart.several)
        try:
            return Stack(part, apart, made.program).run()
        except NotCapturable as problem:
            reason = str(problem)
        # Outside the handler, whose traceback would keep what the attempt took.
        name = type(part[0][0].problem.algorithm).__name__
        warnings.warn(f"{name}: steps are not captured, which makes them slower: {reason}", Slower, stacklevel=2)
        made.program = _eager(part[0][0])
        return Stack(part, apart, made.program).run()

    def _made_for(self, job: Job, several: bool) -> _Made:
        """The program of runs like this one. What it captured has fixed all that `_structure` says, and no more."""
        # Steps as they come fix nothing, so there is nothing to keep. Texts have another length in each step, and a
        # captured step has one shape.
        if self._capture is None or job.tasks[0].source.widths is not None:
            return _Made((), _eager(job))
        structure = (several, *_structure(job)[1:])
        known = [made for made in self._programs if made.structure == structure]
        made = known[0] if known else _Made(structure, self._capture())
        # Few are kept, the last used last: what a run sends may change from round to round.
        self._programs = [*[other for other in self._programs if other is not made], made][-KEPT_PROGRAMS:]
        return made

    def _halve(self, clients: int) -> None:
        """Go on with half of them at once, what the larger program held being given back."""
        self.limit = (clients + 1) // 2
        self._programs.clear()
        give_back()
        warnings.warn(
            f"out of memory with {clients} clients in one program: going on with {self.limit} at a time",
            Slower,
            stacklevel=2,
        )


def _server_program() -> Program:
    return Captured(Preparer(_server_graphs(), compiler=None))


@lru_cache
def _server_graphs() -> Make:
    """One for all runs of a process: servers of a pack take their steps one after another, in the same memory."""
    return cuda_graphs()


def _eager(job: Job) -> Eager:
    return Eager(usual(job.problem.federation.device))


class _Collected:
    """What came of the clients of some runs, until a run has all of its own together."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._missing = list(jobs)
        self._found: dict[int, dict[int, Trained]] = {id(job): {} for job in jobs}

    def add(self, made: Sequence[tuple[Job, Trained]]) -> None:
        """Of some clients."""
        for job, trained in made:
            self._found[id(job)][trained.client] = trained

    def complete(self) -> Iterator[tuple[Job, list[Trained]]]:
        """The runs that have all, each given once, and kept no longer."""
        for job in [job for job in self._missing if len(self._found[id(job)]) == len(job.tasks)]:
            self._missing.remove(job)
            found = self._found.pop(id(job))
            yield job, [found.pop(task.client) for task in job.tasks]


@dataclass
class _Made:
    """A program and what it is for."""

    structure: Any
    program: Program


def _alike(jobs: Sequence[Job]) -> list[list[Job]]:
    """The jobs that one program can train: of one round, what they send and keep of one structure."""
    if len(jobs) == 1:
        return [list(jobs)]
    groups: list[tuple[Any, list[Job]]] = []
    for job in jobs:
        structure = _structure(job)
        same = next((members for known, members in groups if known == structure), None)
        if same is None:
            groups.append((structure, [job]))
        else:
            same.append(job)
    return [members for _, members in groups]


def _structure(job: Job) -> tuple[Any, ...]:
    """The round, and what has to be equal: constants of algorithm and setting, shapes of all that a stack holds."""
    task = job.tasks[0]
    trees = [job.message, task.local, task.memory, dict(task.teachers)]
    return (
        job.round,
        constants(job.problem.algorithm),
        job.problem.setting.of_program(),
        shapes(trees),
        sorted(task.tables),
    )
