"""A pack: several runs that advance side by side, their clients trained in one program."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager

from bench.engine.client_round import ClientResult, RoundWork
from bench.engine.simulation import Simulation
from bench.errors import Slower, in_a_line, without_variables

Ended = tuple[Simulation, RoundWork, list[ClientResult]]


class Pack:
    """Runs of one model, batch size and optimiser, on one data set, under one algorithm.

    They may differ in the seed, in how clients are made and drawn, in rounds and epochs, in the learning rate, and in
    the algorithm's packable numbers. Each gives what it would give alone: bit for bit under `Loop`, within float
    tolerance in a stack. A member that fails or ends leaves; the others go on.

    Members may stand at different rounds: those behind catch up first.

    Attributes:
        failures: errors by member, which are not saved: a retry begins at the member's last save.
        apart: why the members train one by one after all: a hook that cannot be mapped over them; None if they do not.
    """

    def __init__(self, members: Sequence[Simulation]) -> None:
        self.members = list(members)
        self.failures: dict[Simulation, Exception] = {}
        self.apart: Exception | None = None
        self.trainer = self.members[0].trainer

    @property
    def active(self) -> list[Simulation]:
        """The members that go on."""
        return [member for member in self.members if not member.done and member not in self.failures]

    def advance(self, rounds: int = 1, stop: Callable[[], bool] = lambda: False) -> None:
        """Up to `rounds` more rounds of those that are behind; `stop` is asked after each."""
        for _ in range(rounds):
            if not self.active:
                return
            self._round()
            if stop():
                return

    def _round(self) -> None:
        """One round of all active members that have made the fewest."""
        first = min(member.round for member in self.active)
        due = [member for member in self.active if member.round == first]
        jobs: dict[Simulation, RoundWork] = {}
        for member in due:
            with self._guard(member), member.clock():
                jobs[member] = member.begin()
        for member, job, trained in self._trained(jobs):
            with self._guard(member), member.clock():
                member.end(job, trained)
            del job, trained  # before the next are trained: a pack's models together may be more than fit

    def _trained(self, jobs: dict[Simulation, RoundWork]) -> Iterator[Ended]:
        """Yield the results of each member's clients, as soon as there are any; `jobs` loses it.

        Where all together fail, those that are left are tried alone, so that one fails only.
        """
        together = None
        if len(jobs) > 1 and not self.apart:
            together = yield from self._together(jobs)
        failed = False
        for member in list(jobs):
            trained: list[ClientResult] = []
            with self._guard(member), member.clock():
                trained = self.trainer.train(jobs[member])
            job = jobs.pop(member)
            failed |= member in self.failures
            if member not in self.failures:
                yield member, job, trained
            del job, trained  # a failure keeps this frame
        if together and not failed:
            self.apart = together
            warnings.warn(
                f"runs of this pack train one by one, because together they fail: {in_a_line(together)}",
                Slower,
                stacklevel=2,
            )

    def _together(self, jobs: dict[Simulation, RoundWork]) -> Generator[Ended, None, Exception | None]:
        """Train the members of one program: yield their results, return the error that ended it."""
        members = {id(job): member for member, job in jobs.items()}
        samples = {member: sum(sum(work.schedule.sizes) for work in job.clients) for member, job in jobs.items()}
        running = self.trainer.train_all(list(jobs.values()))
        while jobs:
            began = time.perf_counter()
            try:
                job, trained = next(running)
            except Exception as error:
                return without_variables(error)  # past this clause, so that what fails alone fails for itself
            spent = time.perf_counter() - began
            for member, count in samples.items():  # each member's share of the time is that of its training samples
                member.progress.seconds += spent * count / sum(samples.values())
            member = members[id(job)]
            yield member, jobs.pop(member), trained
            del trained
        return None

    @contextmanager
    def _guard(self, member: Simulation) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.failures[member] = without_variables(error)  # a whole stack's tensors, perhaps
