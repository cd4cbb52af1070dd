"""Execution of a stack's steps: one by one, or captured once and replayed.

A small model's step is a few hundred kernels of some microseconds each: on a GPU launching them
takes longer than running them. A captured step is one launch. Its addresses, Python numbers and
kernels are fixed, so a captured stack's tensors keep their addresses, and every value that changes
from step to step or from round to round is a tensor. Steps are captured as CUDA graphs, or as
traces of their operations, which fix the same things on any device.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from bench.engine.process import is_out_of_memory
from bench.engine.pytree import leaves, pairs, tree_map
from bench.errors import with_its_kind

Act = Callable[[], None]
WRITTEN = ("local", "state", "totals", "clock")  # the buffers that a step writes
WARM_UPS = 3  # steps before a capture: libraries choose kernels and allocate in the first ones


class NotCapturable(RuntimeError):
    """A step that cannot be captured, because it waits for a value or its shapes change."""


class Eager:
    """Executor that runs each step anew, on tensors where they are."""

    captures = False

    def place(self, name: str, tree: Any, axes: int = 1, room: Sequence[int] = ()) -> Any:
        """Return `tree` itself."""
        return tree

    def run(self, key: Hashable, step: Act, times: int, reads: object) -> None:
        """Execute a step some times; arguments are those of `Captured.run`."""
        for _ in range(times):
            step()


class Captured:
    """Executor that captures a step once and replays it, in later rounds from their first step on.

    Args:
        capture: makes a replay of a step.
        warm_ups: steps before a capture; all but the first may not wait for the device.

    Attributes:
        captures: whether numbers that change between rounds have to be tensors.
    """

    captures = True

    def __init__(self, capture: Callable[[Act], Act], warm_ups: int = WARM_UPS) -> None:
        self._capture = capture
        self._warm_ups = warm_ups
        self._buffers: dict[str, Any] = {}
        # Kept with the owner of what a step reads; the step itself would keep its whole round
        # alive.
        self._replays: dict[Hashable, tuple[Act, object]] = {}

    def place(self, name: str, tree: Any, axes: int = 1, room: Sequence[int] = ()) -> Any:
        """Copy `tree` to the first entries of the buffer of this name, and return the buffer.

        A buffer may be larger at the end of its first `axes` (steps, clients), which a step cuts
        off. If a larger one has to replace it, all captures are made anew; so `room` has the sizes
        of the first axes that a later round may need. Each name is placed once a round.
        """
        previous = self._buffers.get(name)
        buffer = _buffer_for(tree, previous, axes, room)
        if buffer is not previous:
            self._buffers[name] = buffer
            self._replays.clear()
        for target, source in pairs(buffer, tree):
            target[tuple(slice(size) for size in source.shape)].copy_(source)
        return buffer

    def run(self, key: Hashable, step: Act, times: int, reads: object) -> None:
        """Execute a step some times; the step advances the stack's own clock.

        Args:
            key: everything that decides what the step does, apart from the contents of buffers.
            step: one step of all clients.
            times: at least 0.
            reads: owner of what the step reads besides the buffers; kept as long as a capture of
                the step.

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
        buffers = [self._buffers.get(name, {}) for name in WRITTEN]
        written = [tensor.detach() for tensor in leaves(buffers)]
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


def _buffer_for(tree: Any, buffer: Any, axes: int, room: Sequence[int]) -> Any:
    """Return `buffer` if `tree` fits into it, else zeros.

    They are as large as both if these are alike, else as `tree`, with `room`.
    """

    def structure(tree: Any) -> Any:
        return tree_map(lambda tensor: (tensor.dim(), tensor.shape[axes:], tensor.dtype), tree)

    if buffer is None or structure(buffer) != structure(tree):
        return tree_map(lambda tensor: tensor.new_zeros(_larger(tensor.shape, room)), tree)
    if all(_holds(slot, value) for slot, value in pairs(buffer, tree)):
        return buffer
    fresh = tree_map(torch.zeros_like, tree)
    shapes = {id(new): _larger(new.shape, old.shape) for new, old in pairs(fresh, buffer)}
    return tree_map(lambda tensor: tensor.new_zeros(shapes[id(tensor)]), fresh)


def _holds(slot: Tensor, value: Tensor) -> bool:
    """Return whether a tensor fits into another one, along each axis."""
    return all(old >= new for old, new in zip(slot.shape, value.shape, strict=True))


def _larger(shape: Sequence[int], room: Sequence[int]) -> list[int]:
    """Return `shape`, of which the first axes are at least those of `room`."""
    least = [*room, *shape[len(room) :]]
    return list(map(max, shape, least))


def cuda_graphs() -> Callable[[Act], Act]:
    """Make a function that captures steps as CUDA graphs.

    They share a memory pool, because they never run at once.
    """
    graphs = WeakSet[Any]()
    pool = None

    def capture(step: Act) -> Act:
        nonlocal pool
        alive = list(graphs)  # torch frees a pool with its last graph, and then refuses its handle
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
                graph.capture_end()
            except BaseException:
                graphs.clear()  # torch does not accept the pool of a failed capture again
                _abandon(graph, pool)
                raise
            finally:
                if collects:
                    gc.enable()
        graphs.add(graph)
        _free_unused()
        return graph.replay

    return capture


def _abandon(graph: Any, pool: Any) -> None:
    """End a capture that failed, and let its memory in `pool` be freed with its graph.

    Before 2.14, torch gives up the pool of a completed capture only. Before 2.12 it goes on
    directing allocations to it as well, and then frees no memory at all any more.
    """
    with suppress(RuntimeError):  # the step's own error says more
        graph.capture_end()
    if torch.__version__ >= "2.14.0.dev" or _is_complete(graph):
        return
    device = torch.cuda.current_device()
    with suppress(RuntimeError):  # from 2.12 on it has been ended
        torch._C._cuda_endAllocateToPool(device, pool)
    with suppress(RuntimeError):
        torch._C._cuda_releasePool(device, pool)


def _is_complete(graph: Any) -> bool:
    """Return whether a capture was completed.

    An error may have come later, when it was to become an executable.
    """
    try:
        graph.pool()
    except RuntimeError:
        return False
    return True


def _free_unused() -> None:
    """Free unused device memory.

    This includes cuBLAS workspaces: one that a warm-up allocated would be fixed in every graph, and
    some versions of torch free it with the first graph that is deleted.
    """
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear:
        clear()
    torch.cuda.empty_cache()


def warm_up(step: Act, may_wait: bool) -> None:
    """Execute a step once; on a GPU, on the stream that captures use.

    A first step `may_wait` for a value or a copy, because it fills caches.

    Raises:
        RuntimeError: the step waited, which a captured step cannot do.
    """
    if not torch.cuda.is_available():
        step()
        return
    stream = _side_stream(torch.cuda.current_device())
    before = torch.cuda.get_sync_debug_mode()
    stream.wait_stream(torch.cuda.current_stream())
    try:
        with warnings.catch_warnings():
            # Torch may miss some waits, and says so; the capture itself sees them.
            warnings.simplefilter("ignore")
            torch.cuda.set_sync_debug_mode(before if may_wait else "error")
        with torch.cuda.stream(stream):
            step()
    finally:
        torch.cuda.set_sync_debug_mode(before)
        torch.cuda.current_stream().wait_stream(stream)


@lru_cache
def _side_stream(device: int) -> Any:
    """Return one stream for all captures.

    The allocator reuses the memory that a stream freed for that stream only.
    """
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def traced(step: Act) -> Act:
    """Trace the operations and tensors of one step.

    A trace fixes the same things as a CUDA graph, on any device. Its replay is slower than the step
    itself; without a GPU it shows whether a step fixes a value that changes.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    unused = torch.zeros(())
    # The backward pass, too, in the thread that is traced.
    with torch.autograd.set_multithreading_enabled(False):
        module = make_fx(lambda _: step())(unused)
    replay: Act = torch.no_grad()(lambda: module(unused))
    return replay
