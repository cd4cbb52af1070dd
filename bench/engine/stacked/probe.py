"""Which way of making a step is fastest: measured once on the stack itself, which is left as it was."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from algorithms.forward import is_out_of_memory
from bench.engine.stacked.captures import Act, compiled, make_beside
from bench.engine.stacked.choices import Choices
from bench.engine.stacked.rooms import FixedRoom
from bench.errors import Slower, with_its_kind, without_variables

RESULTS = ("local", "state", "total")  # the places in a room that a step writes
CHANGING = (*RESULTS, "clock")  # and its own clock
COMPILED = ", compiled"  # ends the name of a way of computing convolutions
WORTH_COMPILING = 600.0  # seconds of a run's steps: the compiler takes up to a minute, and as much for each piece
TURNS, STEPS = 3, 5  # timed; the fastest turn counts
MOST_APART = 0.5  # of what a step changes: ways differ in rounding, bfloat16's too; a wrong one in more than that

T = TypeVar("T")
Make = Callable[[Act], Act]


@dataclass(frozen=True)
class Step:
    """One step of a stack.

    Args:
        act: makes it, its convolutions computed in the way that is named; it moves the stack's own clock on.
        ways: of `bench.engine.stacked.convolutions.WAYS`; one where there is nothing to choose.
        work: what decides how long it takes, in words: algorithm, model, shapes; empty for a step that is not timed.
        expected: steps like it in a whole run, about.
        pieces: by way, how many times it has all operations, for each client again; the compiler's time grows with it.
        reads: what it reads beside the tensors of its room: kept as long as a program of it.
    """

    act: Callable[[str], None]
    ways: Sequence[str] = ("",)
    work: str = ""
    expected: int = 0
    pieces: Mapping[str, int] = field(default_factory=dict)
    reads: object = None


@dataclass(frozen=True)
class Preparer:
    """Makes of a step the program that is fastest.

    Args:
        capture: makes a program of a step.
        compiler: makes of a step one of fewer kernels; None for none.
        choices: what was measured before, and is not measured again.
        device: in words, for `choices`.
        warm_up: steps made before a capture: libraries choose their kernels and allocate in the first ones. All but
            the first are watched for waiting.
        measured: called when programs that were measured are gone, and with them the memory that they took.
    """

    capture: Make
    compiler: Make | None = compiled
    choices: Choices = field(default_factory=Choices)
    device: str = ""
    warm_up: int = 3
    measured: Act = lambda: None

    def __call__(self, step: Step, room: FixedRoom) -> Act:
        """The program; what lies in the room is left as it was.

        Raises:
            Exception: memory does not suffice, or no way works: then the first's.
        """
        trial = _Trial(self, step, room)
        chosen = self._chosen(trial)
        uncompiled = chosen.removesuffix(COMPILED)
        for name in dict.fromkeys((chosen, uncompiled, *step.ways)):
            if made := trial.attempt(partial(trial.program, name), name, vital=name == uncompiled):
                trial.say_what_failed()
                return made
        error = next(iter(trial.failed.values()))
        try:
            raise error
        finally:
            del error, trial  # each would keep the other, and with them copies of the stack

    def _chosen(self, trial: _Trial) -> str:
        if not trial.step.work or (len(trial.step.ways) == 1 and self.compiler is None):
            return trial.step.ways[0]
        work = f"{self.device}: {trial.step.work}"
        known = self.choices.get(work)
        if known and known.removesuffix(COMPILED) in trial.step.ways:
            return known
        seconds = {
            way: trial.attempt(partial(trial.seconds, way), way, vital=way == trial.step.ways[0]) or math.inf
            for way in trial.step.ways
        }
        fastest = min(seconds, key=lambda name: seconds[name])
        if math.isinf(seconds[fastest]):
            return fastest
        ahead = seconds[fastest] * trial.step.expected
        if self.compiler and ahead >= WORTH_COMPILING * trial.step.pieces.get(fastest, 1):
            name = fastest + COMPILED
            seconds[name] = trial.attempt(partial(trial.seconds, name), name) or math.inf
        trial.forget()
        self.measured()
        return self.choices.put(work, seconds)


class _Trial:
    """A step's programs by name: a way of computing convolutions, and whether they are compiled."""

    def __init__(self, preparer: Preparer, step: Step, room: FixedRoom) -> None:
        self.preparer, self.step, self._room = preparer, step, room
        self.failed: dict[str, Exception] = {}
        self._begun = room.copies(*CHANGING)
        self._first: dict[str, list[Tensor]] = {}  # what the first program that was measured has made of it

    def program(self, name: str) -> Act:
        """The program of that name, nothing being changed by making it."""
        way = name.removesuffix(COMPILED)
        act: Act = partial(self.step.act, way)
        if way != name:
            if self.preparer.compiler is None:
                raise ValueError("there is no compiler")
            self._undone(partial(make_beside, act, waits=True))  # or what a first step makes would be compiled with it
            act = self._undone(partial(self.preparer.compiler, act))
            self._undone(act)  # compiles, for which a warm-up has no patience
        for turn in range(self.preparer.warm_up):
            self._undone(partial(make_beside, act, waits=turn == 0))
        return self._undone(partial(self.preparer.capture, act))

    def attempt(self, act: Callable[[], T], name: str, vital: bool = False) -> T | None:
        """What `act` gives; None if the program of that name fails, or has failed before.

        Args:
            act: what to attempt.
            name: of the program.
            vital: raise if memory does not suffice. Another way may fit, but is slow: the stack is to become smaller.
        """
        if name in self.failed:
            return None
        try:
            return act()
        except Exception as error:
            if vital and is_out_of_memory(error):
                raise
            self.failed[name] = without_variables(error)  # they hold the stack's tensors
            return None

    def say_what_failed(self) -> None:
        """Where another program is found."""
        for name, error in self.failed.items():
            warnings.warn(f"{self.step.work}: left out, {name}: {with_its_kind(error)}", Slower, stacklevel=3)

    def forget(self) -> None:
        """Give back what only comparisons need."""
        self._first.clear()

    def seconds(self, name: str) -> float:
        """Seconds of a step.

        Raises:
            ValueError: it does not do what the first program did.
        """
        program = self.program(name)
        self._undone(partial(self._compare, program))
        return self._undone(lambda: min(self._turn(program) for _ in range(TURNS)))

    def _compare(self, program: Act) -> None:
        program()
        if not self._first:
            with suppress(torch.OutOfMemoryError):  # then nothing is compared
                self._first = self._room.copies(*RESULTS)
            return
        for name, first in self._first.items():
            apart, moved = _distances(self._room.tensors(name), first, self._begun[name])
            if not apart <= MOST_APART * moved:
                raise ValueError(f"{name}: a step's result differs by {apart:.1e} of {moved:.1e} from the first's")

    def _turn(self, program: Act) -> float:
        _wait()
        began = time.perf_counter()
        for _ in range(STEPS):
            program()
            self._room.put_back({"clock": self._begun["clock"]})
        _wait()
        return (time.perf_counter() - began) / STEPS

    def _undone(self, act: Callable[[], T]) -> T:
        try:
            return act()
        finally:
            self._room.put_back(self._begun)


def _distances(now: Sequence[Tensor], first: Sequence[Tensor], begun: Sequence[Tensor]) -> tuple[float, float]:
    """How far a result is from the first, and that from the beginning: roots of sums of squares.

    Where the first two are no numbers, as in a run that diverges, nothing is compared; where the result alone is none,
    it is infinitely far away.
    """
    apart = moved = 0.0
    for own, other, before in zip(now, first, begun, strict=True):
        known = other.isfinite() & before.isfinite()
        apart += float(torch.where(known, own.double() - other.double(), 0.0).square().sum())
        moved += float(torch.where(known, other.double() - before.double(), 0.0).square().sum())
    return math.inf if math.isnan(apart) else math.sqrt(apart), math.sqrt(moved)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
