"""Steps captured as CUDA graphs, and as traces of their operations, which fix the same things on any device."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any
from weakref import WeakSet

import torch

Act = Callable[[], None]


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
        with torch.cuda.stream(_side_stream(torch.cuda.current_device())), _without_garbage_collection():
            try:
                graph.capture_begin(pool=pool)
                step()
            except BaseException:
                graphs.clear()  # torch does not take the pool of a failed capture again
                with suppress(RuntimeError):  # the step's own error says more
                    graph.capture_end()
                raise
            graph.capture_end()
        graphs.add(graph)
        _free_unused()
        return graph.replay

    return capture


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Keep the garbage collector off: freeing device memory during a capture aborts it."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


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
