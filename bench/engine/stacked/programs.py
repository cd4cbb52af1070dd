"""How the steps of a stack are executed: each as it comes, or captured once and replayed.

A small model's step is a few hundred kernels of some microseconds each: on a GPU launching them takes longer than they
do. A captured step is one launch. What is captured is fixed (addresses, Python numbers, the kernels themselves), so a
captured stack has its tensors in a `FixedRoom`, and what changes from step to step or from round to round is a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

import torch

from algorithms.forward import is_out_of_memory
from bench.engine.stacked.probe import Step
from bench.engine.stacked.rooms import Anywhere, FixedRoom, Room
from bench.errors import with_its_kind

Prepare = Callable[[Step, FixedRoom], Callable[[], None]]


class NotCapturable(RuntimeError):
    """A step that does what a captured program cannot: it asks for a value, or its shapes change."""


class Program(Protocol):
    """Runs the steps of a stack.

    Attributes:
        room: where the stack's tensors lie.
        fixed: whether numbers that change between rounds have to be tensors.
    """

    @property
    def room(self) -> Room:
        """See above."""

    @property
    def fixed(self) -> bool:
        """See above."""

    def run(self, key: Hashable, step: Step, times: int) -> None:
        """Make a step so many times.

        Args:
            key: of all that decides what the step does, apart from the contents of tensors in the room.
            step: what to make.
            times: steps.

        Raises:
            NotCapturable: nothing is left as it was; begin again with an `Eager` one.
        """


class Eager:
    """Each step as it comes.

    Args:
        way: of computing convolutions, of `bench.engine.stacked.convolutions.WAYS`.
    """

    fixed = False

    def __init__(self, way: str) -> None:
        self.room = Anywhere()
        self._way = way

    def run(self, key: Hashable, step: Step, times: int) -> None:
        """As `Program.run` says."""
        for _ in range(times):
            step.act(self._way)


class Captured:
    """A step is captured once and replayed, in later rounds from the beginning.

    Args:
        prepare: makes a program of a step, and leaves the room's tensors as they are.
    """

    fixed = True

    def __init__(self, prepare: Prepare) -> None:
        self.room = FixedRoom()
        self._prepare = prepare
        # With what it reads, not with the step: that would keep the round in which it was captured.
        self._programs: dict[Hashable, tuple[Callable[[], None], object]] = {}
        self._generation = 0

    def run(self, key: Hashable, step: Step, times: int) -> None:
        """As `Program.run` says."""
        if self._generation != self.room.generation:
            self._programs.clear()
            self._generation = self.room.generation
        if key not in self._programs:
            self._programs[key] = (self._prepared(step), step.reads)
        replay, _ = self._programs[key]
        for _ in range(times):
            replay()

    def _prepared(self, step: Step) -> Callable[[], None]:
        try:
            return self._prepare(step, self.room)
        except (torch.OutOfMemoryError, NotCapturable):
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise torch.OutOfMemoryError(str(error)) from error
            raise NotCapturable(with_its_kind(error)) from error
