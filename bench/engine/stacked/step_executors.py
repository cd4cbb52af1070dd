"""Execution of a stack's steps: one by one, or captured once and replayed.

A small model's step is a few hundred kernels of some microseconds each: on a GPU launching them takes longer than they
do. A captured step is one launch. Its addresses, Python numbers and kernels are fixed, so a captured stack has its
tensors in `StaticBuffers`, and every value that changes from step to step or from round to round is a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch

from algorithms.forward import is_out_of_memory
from bench.engine.stacked.cuda_graphs import Act, warm_up
from bench.engine.stacked.static_buffers import NoBuffers, StaticBuffers
from bench.errors import with_its_kind

WRITTEN = ("local", "state", "total", "clock")  # the buffers that a step writes
WARM_UPS = 3  # steps before a capture: libraries choose kernels and allocate in the first ones


class NotCapturable(RuntimeError):
    """A step that cannot be captured: it asks for a value, or its shapes change."""


class Eager:
    """Executes each step anew."""

    captures = False

    def __init__(self) -> None:
        self.buffers = NoBuffers()

    def run(self, key: Hashable, step: Act, times: int, reads: object) -> None:
        """As `Captured.run` says."""
        for _ in range(times):
            step()


class Captured:
    """Captures a step once and replays it, in later rounds from the beginning.

    Args:
        capture: makes a replay of a step.
        warm_ups: steps before a capture; all but the first are watched for waiting.

    Attributes:
        buffers: where the stack's tensors lie.
        captures: whether numbers that change between rounds have to be tensors.
    """

    captures = True

    def __init__(self, capture: Callable[[Act], Act], warm_ups: int = WARM_UPS) -> None:
        self.buffers = StaticBuffers()
        self._capture, self._warm_ups = capture, warm_ups
        # With what a step reads, not with the step: that would keep the round in which it was captured.
        self._replays: dict[Hashable, tuple[Act, object]] = {}
        self._generation = 0

    def run(self, key: Hashable, step: Act, times: int, reads: object) -> None:
        """Execute a step some times; it moves the stack's own clock on.

        Args:
            key: everything that decides what the step does, apart from the contents of buffers.
            step: of all clients.
            times: at least 0.
            reads: owner of what the step reads beside the buffers; kept as long as a capture of the step.

        Raises:
            NotCapturable: begin again with an `Eager` executor.
        """
        if self._generation != self.buffers.generation:
            self._replays.clear()
            self._generation = self.buffers.generation
        if key not in self._replays:
            self._replays[key] = (self._prepared(step), reads)
        replay, _ = self._replays[key]
        for _ in range(times):
            replay()

    def _prepared(self, step: Act) -> Act:
        """Capture a step; the buffers are left as they were."""
        before = self.buffers.copies(*WRITTEN)
        try:
            for turn in range(self._warm_ups):
                warm_up(step, may_wait=turn == 0)
                self.buffers.put_back(before)
            replay = self._capture(step)
            self.buffers.put_back(before)
            return replay
        except (torch.OutOfMemoryError, NotCapturable):
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise torch.OutOfMemoryError(str(error)) from error
            raise NotCapturable(with_its_kind(error)) from error


StepExecutor = Eager | Captured
