"""A pack: several runs that advance side by side, their clients trained in one program."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager

import torch

from bench.engine.client_round import ClientResult, RoundWork
from bench.engine.simulation import Simulation
from bench.errors import Interrupted, Slower, in_a_line, without_variables

Ended = tuple[Simulation, RoundWork, list[ClientResult]]


class Pack:
    """Runs of one model, batch size and optimiser, on one data set, under one algorithm.

    They may differ in the seed, in how clients are made and drawn, in rounds and epochs, in the
    learning rate, and in the algorithm's packable numbers. Each has the results that it would have
    alone: bit for bit under `Loop`, within float tolerance in a stack. A member that fails or ends
    leaves; the others go on.

    Members may be at different rounds; the ones behind catch up first.

    Attributes:
        failures: errors by member, which are not saved: a retry begins at the member's last save.
        apart: the error because of which members train one by one, of a hook that cannot be mapped
            over them; or None.
    """

    def __init__(self, members: Sequence[Simulation]) -> None:
        self.members = list(members)
        self.failures: dict[Simulation, Exception] = {}
        self.apart: Exception | None = None
        self.trainer = self.members[0].trainer

    @property
    def active(self) -> list[Simulation]:
        """The members that are neither done nor failed."""
        return [
            member for member in self.members if not member.done and member not in self.failures
        ]

    def advance(self, rounds: int = 1, stop: Callable[[], bool] = lambda: False) -> None:
        """Run up to `rounds` rounds, each of the members that are furthest behind; `stop` may end this after each."""
        for _ in range(rounds):
            if not self.active:
                return
            self._round()
            if stop():
                return

    def _round(self) -> None:
        """Run one round of the active members that have finished the fewest."""
        fewest = min(member.round for member in self.active)
        due = [member for member in self.active if member.round == fewest]
        jobs: dict[Simulation, RoundWork] = {}
        for member in due:
            with self._guard(member), member.clock():
                jobs[member] = member.begin()
        for member, job, trained in self._trained(jobs):
            with self._guard(member), member.clock():
                member.end(job, trained)
            if isinstance(self.failures.get(member), Interrupted):
                return  # the others are still at the end of the round before
            del (
                job,
                trained,
            )  # before the next are trained: all models of a pack may not fit into memory together

    def _trained(self, jobs: dict[Simulation, RoundWork]) -> Iterator[Ended]:
        """Train all jobs: yield each member's results as soon as they are complete, and remove its job from `jobs`.

        If training them together fails, the remaining ones are trained one by one, so that only the
        faulty one fails.
        """
        error = None
        if len(jobs) > 1 and not self.apart:
            error = yield from self._together(jobs)
        failed = False
        for member in list(jobs):
            trained: list[ClientResult] = []
            with self._guard(member), member.clock():
                trained = self.trainer.train(jobs[member])
            job = jobs.pop(member)
            failed |= member in self.failures
            if member not in self.failures:
                yield member, job, trained
            del job, trained  # a failure keeps this frame alive
        if error and not failed:
            self.apart = error
            warnings.warn(
                f"runs of this pack train one by one, because together they fail: {in_a_line(error)}",
                Slower,
                stacklevel=2,
            )

    def _together(
        self, jobs: dict[Simulation, RoundWork]
    ) -> Generator[Ended, None, Exception | None]:
        """Train the members as one program: yield their results, return the error that ended it, if any."""
        members = {id(job): member for member, job in jobs.items()}
        samples = {
            member: sum(sum(work.schedule.sizes) for work in job.clients)
            for member, job in jobs.items()
        }
        running = self.trainer.train_all(list(jobs.values()))
        while jobs:
            began = time.perf_counter()
            try:
                job, trained = next(running)
                member = members[id(job)]
                if member.device.type == "cuda":
                    torch.cuda.synchronize(
                        member.device
                    )  # else the first to be evaluated is charged for all
            except Exception as error:
                return without_variables(
                    error
                )  # retries come after this clause: their errors have no other context
            spent = time.perf_counter() - began
            for sharer, count in samples.items():  # time is shared out by training samples
                sharer.progress.seconds += spent * count / sum(samples.values())
            yield member, jobs.pop(member), trained
            del trained
        return None

    @contextmanager
    def _guard(self, member: Simulation) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.failures[member] = without_variables(
                error
            )  # they may hold a whole stack's tensors
