"""Execution of a stack's steps: one by one, or captured once and replayed.

A small model's step is a few hundred kernels of some microseconds each: on a GPU launching them takes longer than they
do. A captured step is one launch. Its addresses, Python numbers and kernels are fixed, so a captured stack's tensors
keep their addresses, and every value that changes from step to step or from round to round is a tensor. Steps are
captured as CUDA graphs, or as traces of their operations, which fix the same things on any device.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import lru_cache
from typing import Any
from weakref import WeakSet

import torch

from bench.engine.process import is_out_of_memory
from bench.engine.pytree import leaves, pairs, tree_map
from bench.errors import with_its_kind

Act = Callable[[], None]
WRITTEN = ("local", "state", "total", "clock")  # the buffers that a step writes
WARM_UPS = 3  # steps before a capture: libraries choose kernels and allocate in the first ones


class NotCapturable(RuntimeError):
    """A step that cannot be captured: it asks for a value, or its shapes change."""


class Eager:
    """Executes each step anew, on tensors where they are."""

    captures = False

    def place(self, name: str, tree: Any, axes: int = 1) -> Any:
        """`tree` itself."""
        return tree

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
        captures: whether numbers that change between rounds have to be tensors.
    """

    captures = True

    def __init__(self, capture: Callable[[Act], Act], warm_ups: int = WARM_UPS) -> None:
        self._capture, self._warm_ups = capture, warm_ups
        self._buffers: dict[str, Any] = {}
        # With what a step reads, not with the step: that would keep the round in which it was captured.
        self._replays: dict[Hashable, tuple[Act, object]] = {}

    def place(self, name: str, tree: Any, axes: int = 1) -> Any:
        """Copy `tree` to the first entries of the buffer of this name, and return the buffer.

        A buffer may be larger at the end of its first `axes` (steps, clients); a step cuts them off. If it has to be
        replaced by a larger one, all captures are made anew. A name is given once a round.
        """
        buffer = self._buffers.get(name)
        room = _room(buffer, tree, axes)
        if room is not buffer:
            self._buffers[name] = room
            self._replays.clear()
        for target, source in pairs(room, tree):
            target[tuple(slice(size) for size in source.shape)].copy_(source)
        return room

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
        if key not in self._replays:
            self._replays[key] = (self._prepared(step), reads)
        replay, _ = self._replays[key]
        for _ in range(times):
            replay()

    def _prepared(self, step: Act) -> Act:
        """Capture a step; the buffers are left as they were."""
        written = [tensor.detach() for name in WRITTEN for tensor in leaves(self._buffers.get(name, {}))]
        before = [tensor.clone() for tensor in written]
        try:
            for turn in range(self._warm_ups):
                warm_up(step, may_wait=turn == 0)
                torch._foreach_copy_(written, before)
            replay = self._capture(step)
            torch._foreach_copy_(written, before)
            return replay
        except (torch.OutOfMemoryError, NotCapturable):
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise torch.OutOfMemoryError(str(error)) from error
            raise NotCapturable(with_its_kind(error)) from error


StepExecutor = Eager | Captured


def _room(buffer: Any, tree: Any, axes: int) -> Any:
    """The buffer if `tree` fits into it, else zeros with room for `tree` and, if alike, for what the buffer held."""

    def structure(tree: Any) -> Any:
        return tree_map(lambda tensor: (tensor.dim(), tensor.shape[axes:], tensor.dtype), tree)

    if buffer is None or structure(buffer) != structure(tree):
        return tree_map(torch.zeros_like, tree)
    if all(old >= new for room, value in pairs(buffer, tree) for old, new in zip(room.shape, value.shape, strict=True)):
        return buffer
    fresh = tree_map(torch.zeros_like, tree)
    shapes = {id(new): list(map(max, new.shape, old.shape)) for new, old in pairs(fresh, buffer)}
    return tree_map(lambda tensor: tensor.new_zeros(shapes[id(tensor)]), fresh)


def cuda_graphs() -> Callable[[Act], Act]:
    """Make a function that captures steps as CUDA graphs, which share one memory pool: they never run at once."""
    graphs, pool = WeakSet[Any](), None

    def capture(step: Act) -> Act:
        nonlocal pool
        alive = list(graphs)  # torch gives a pool up with its last graph, and then refuses its handle
        if not alive:
            pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        _free_unused()
        collects = gc.isenabled()
        gc.disable()  # freeing device memory during a capture aborts it
        with torch.cuda.stream(_side_stream(torch.cuda.current_device())):
            try:
                graph.capture_begin(pool=pool)
                step()
            except BaseException:
                graphs.clear()  # torch does not take the pool of a failed capture again
                with suppress(RuntimeError):  # the step's own error says more
                    graph.capture_end()
                raise
            else:
                graph.capture_end()
            finally:
                if collects:
                    gc.enable()
        graphs.add(graph)
        _free_unused()
        return graph.replay

    return capture


def _free_unused() -> None:
    """Free unused device memory.

    cuBLAS workspaces included: one that a warm-up took would be fixed in every graph, and some versions of torch free
    it with the first graph that goes.
    """
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear:
        clear()
    torch.cuda.empty_cache()


def warm_up(step: Act, may_wait: bool) -> None:
    """Execute a step once; on a GPU on the stream that captures use.

    A first step `may_wait` for an answer or a copy, because it fills caches.

    Raises:
        RuntimeError: it waited, which a captured step cannot.
    """
    if not torch.cuda.is_available():
        step()
        return
    stream, before = _side_stream(torch.cuda.current_device()), torch.cuda.get_sync_debug_mode()
    stream.wait_stream(torch.cuda.current_stream())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says that it may overlook some; the capture itself sees those
            torch.cuda.set_sync_debug_mode(before if may_wait else "error")
        with torch.cuda.stream(stream):
            step()
    finally:
        torch.cuda.set_sync_debug_mode(before)
        torch.cuda.current_stream().wait_stream(stream)


@lru_cache
def _side_stream(device: int) -> Any:
    """One stream for all captures: the allocator keeps what a stream has freed for that stream."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def traced(step: Act) -> Act:
    """Trace the operations and tensors of one step: what a CUDA graph fixes is fixed, on any device.

    Slower than the step itself; without a GPU it shows whether a step fixes a value that changes.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    unused = torch.zeros(())
    with torch.autograd.set_multithreading_enabled(False):  # the backward pass, too, in the thread that is traced
        module = make_fx(lambda _: step())(unused)
    replay: Act = torch.no_grad()(lambda: module(unused))
    return replay
