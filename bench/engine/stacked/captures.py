"""Programs of one step: CUDA graphs, traces of operations, and what a compiler makes of those."""

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


def as_it_comes(step: Act) -> Act:
    """The step itself."""
    return step


def cuda_graphs() -> Callable[[Act], Act]:
    """Captures steps as CUDA graphs, which share one pool of memory: they never run at the same time."""
    pool = _Pool()

    def capture(step: Act) -> Act:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        _give_back()  # what the steps before left: while a capture is under way nothing of it is given back
        side = torch.cuda.stream(_side_stream(torch.cuda.current_device()))
        with side, _uncollected(), pool.taken_by(graph) as number:
            try:
                graph.capture_begin(pool=number)
                step()
            except BaseException:
                with suppress(RuntimeError):  # what went wrong in the step says more: memory, perhaps
                    _end(graph, number)
                raise
            _end(graph, number)
        _give_back()
        return graph.replay

    return capture


@contextmanager
def _uncollected() -> Iterator[None]:
    """Within it nothing is freed by the garbage collector: what that destroyed of a device would end a capture."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class _Pool:
    """The number of the pool that graphs share.

    A number serves as long as there is a graph: torch gives a pool up with its last one, and then refuses its number.
    Nor does it take the number of a capture that failed, of which some of its allocators may believe it is going on.
    """

    def __init__(self) -> None:
        self._graphs = WeakSet[Any]()
        self._number: Any = None

    @contextmanager
    def taken_by(self, graph: Any) -> Iterator[Any]:
        """The number for a capture, which is the graph's if all goes well."""
        alive = list(self._graphs)  # none of them goes while a capture is under way
        if not alive:
            self._number = torch.cuda.graph_pool_handle()
        try:
            yield self._number
        except BaseException:
            self._graphs = WeakSet()
            raise
        self._graphs.add(graph)


def _give_back() -> None:
    """Give back memory that nothing uses.

    That of cuBLAS, too: what it takes in a capture lies in the graphs' own pool. A workspace of the warm-up would be
    fixed in every graph, and some versions of torch free it with the first of them that goes.
    """
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear:
        clear()
    torch.cuda.empty_cache()


def _end(graph: Any, pool: Any) -> None:
    """End a capture. One that has become invalid may throw before it gives the allocator back, which is done here."""
    try:
        graph.capture_end()
    except RuntimeError:
        end, release = (getattr(torch._C, name, None) for name in ("_cuda_endAllocateToPool", "_cuda_releasePool"))
        with suppress(RuntimeError):  # it has ended the allocation itself: then the graph releases the pool, too
            if end and release:
                end(torch.cuda.current_device(), pool)
                release(torch.cuda.current_device(), pool)
        raise


def traced(step: Act) -> Act:
    """A trace of the operations and tensors of one step: what a CUDA graph fixes is fixed, on any device.

    Slower than the step itself; it shows where there is no GPU that nothing is fixed which changes.
    """
    return _called(_trace(step))


def compiled(step: Act) -> Act:
    """The same operations as fewer kernels, as torch's compiler fuses them."""
    module = _trace(step)
    for node in module.graph.nodes:
        # What lies in one piece here need not do so where the compiler lays tensors out as it likes.
        if node.target is torch.ops.aten.view.default:
            node.target = torch.ops.aten.reshape.default
    module.recompile()
    return _called(torch.compile(module, fullgraph=True, dynamic=False))


def _trace(step: Act) -> Any:
    """A module whose argument is not used. The backward pass is operations of its own; tracing makes the step."""
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.autograd.set_multithreading_enabled(False):  # the backward pass, too, in the thread that is watched
        return make_fx(lambda _: step())(torch.zeros(()))  # a trace needs something that it is of


def _called(module: Any) -> Act:
    nothing = torch.zeros(())
    called: Act = torch.no_grad()(lambda: module(nothing))
    return called


def make_beside(step: Act, waits: bool = False) -> None:
    """One step as it comes; on a GPU beside the current stream, as a capture will be.

    Args:
        step: what to make.
        waits: whether it may wait for an answer or a copy, as a first step does that makes what the others keep.

    Raises:
        RuntimeError: it waited.
    """
    if not torch.cuda.is_available():
        step()
        return
    stream, before = _side_stream(torch.cuda.current_device()), torch.cuda.get_sync_debug_mode()
    stream.wait_stream(torch.cuda.current_stream())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it may overlook some: the capture itself sees those
            torch.cuda.set_sync_debug_mode(before if waits else "error")
        with torch.cuda.stream(stream):
            step()
    finally:
        torch.cuda.set_sync_debug_mode(before)
        torch.cuda.current_stream().wait_stream(stream)


@lru_cache
def _side_stream(device: int) -> Any:
    """One for all: the allocator keeps what a stream has freed for that stream."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
