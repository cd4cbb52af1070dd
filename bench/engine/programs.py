"""How the steps of a stack are executed: each as it comes, or captured once and replayed.

A small model's step is a few hundred kernels of some microseconds each: on a GPU launching them takes longer than they
do. A captured step is one launch. What is captured is fixed (addresses, Python numbers, the kernels themselves), so a
captured stack has its tensors in a `FixedRoom`, and what changes from step to step or from round to round is a tensor.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, Protocol

import torch

from bench.engine.rooms import Anywhere, FixedRoom, Room

Step = Callable[[], None]
Capture = Callable[[Step], tuple[Step, int]]


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
            step: one step; it moves the stack's own clock on.
            times: steps.

        Raises:
            NotCapturable: nothing is left as it was; begin again with an `Eager` one.
        """


class Eager:
    """Each step as it comes."""

    fixed = False

    def __init__(self) -> None:
        self.room = Anywhere()

    def run(self, key: Hashable, step: Step, times: int) -> None:
        """As `Program.run` says."""
        for _ in range(times):
            step()


class Captured:
    """Some steps as they come, which warm up; then one is captured and replayed, in later rounds from the beginning.

    Args:
        capture: makes a program of a step, and says how many steps it made by that.
        warm_up: steps made before a capture: libraries choose their kernels and allocate in the first ones.
    """

    fixed = True

    def __init__(self, capture: Capture, warm_up: int = 3) -> None:
        self.room = FixedRoom()
        self._capture, self._warm_up = capture, warm_up
        self._programs: dict[Hashable, Step] = {}
        self._warmed: Counter[Hashable] = Counter()
        self._generation = 0

    def run(self, key: Hashable, step: Step, times: int) -> None:
        """As `Program.run` says."""
        if self._generation != self.room.generation:
            self._programs.clear()
            self._generation = self.room.generation
        if key not in self._programs:
            times -= self._prepare(key, step, times)
        for _ in range(times):
            self._programs[key]()

    def _prepare(self, key: Hashable, step: Step, times: int) -> int:
        """Warm up, over several rounds if they are short, and capture if anything is left to do; the steps made."""
        try:
            made = min(self._warm_up - self._warmed[key], times)
            _make_beside(step, made)
            self._warmed[key] += made
            if made < times:
                self._programs[key], more = self._capture(step)
                made += more
            return made
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            raise NotCapturable(f"{type(error).__name__}: {error}") from error


def cuda_graph() -> Capture:
    """Captures as CUDA graphs, which share one pool of memory: they never run at the same time."""
    pool = torch.cuda.graph_pool_handle()

    def capture(step: Step) -> tuple[Step, int]:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.stream(_side_stream(torch.cuda.current_device())):
            graph.capture_begin(pool=pool)
            try:
                step()
            finally:
                _end(graph, pool)
        return graph.replay, 0  # capturing runs nothing

    return capture


def _end(graph: Any, pool: Any) -> None:
    """End a capture. One that has become invalid throws before it gives the allocator back, which is done here."""
    try:
        graph.capture_end()
    except RuntimeError:
        device = torch.cuda.current_device()
        for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"):
            if give_back := getattr(torch._C, name, None):
                give_back(device, pool)
        raise


def traced(step: Step) -> tuple[Step, int]:
    """Captures as a trace of the operations and tensors of one step: what a CUDA graph fixes is fixed, on any device.

    Slower than the step itself; it shows where there is no GPU that nothing is fixed which changes.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    nothing = torch.zeros(())  # a trace needs something that it is of
    trace: Any = make_fx(lambda _: step())(nothing)
    # The trace has the backward pass as operations of its own; tracing makes the step.
    return torch.no_grad()(lambda: trace(nothing)), 1


def _make_beside(step: Step, times: int) -> None:
    """Steps as they come; on a GPU beside the current stream, as a capture will be, and none may wait for an answer."""
    if not torch.cuda.is_available():
        for _ in range(times):
            step()
        return
    stream, before = _side_stream(torch.cuda.current_device()), torch.cuda.get_sync_debug_mode()
    stream.wait_stream(torch.cuda.current_stream())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it may overlook some: the capture itself sees those
            torch.cuda.set_sync_debug_mode("error")
        with torch.cuda.stream(stream):
            for _ in range(times):
                step()
    finally:
        torch.cuda.set_sync_debug_mode(before)
        torch.cuda.current_stream().wait_stream(stream)


@lru_cache
def _side_stream(device: int) -> Any:
    """One for all: the allocator keeps what a stream has freed for that stream."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
