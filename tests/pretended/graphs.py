"""CUDA graphs of the pretended device: operations that are recorded, and made again on the same tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

UNSAID = {
    "aten::native_batch_norm",
    "aten::cudnn_batch_norm",
}  # write running statistics, which they do not declare


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class Graph:
    """Stands for `torch.cuda.CUDAGraph`.

    A capture changes nothing: what its operations wrote is put back at its end, and what they made
    is not a number until the first replay.

    Attributes:
        recording: the graph that is being captured; None between captures.
    """

    recording: ClassVar[Graph | None] = None
    _sharing: ClassVar[
        dict[object, int]
    ] = {}  # graphs of each pool; one that had its last is of no use

    def __init__(self) -> None:
        self._pool: object = None
        self._operations: list[tuple[Any, Any, Any, list[Tensor]]] = []
        self._before: dict[
            int, tuple[Tensor, Tensor]
        ] = {}  # of storages that are written to: the bytes, and a copy
        self._made: set[int] = set()
        self._broken = False

    def capture_begin(self, pool: object = None) -> None:
        """Record from now on."""
        if torch.cuda.current_stream() == torch.cuda.default_stream():
            raise RuntimeError("a capture must not begin on the default stream")
        if Graph._sharing.get(pool, 1) < 1:
            raise RuntimeError(
                "use_count > 0 INTERNAL ASSERT FAILED: the pool's last graph is gone"
            )
        self._pool, Graph._sharing[pool] = pool, Graph._sharing.get(pool, 0) + 1
        Graph.recording = self

    def __del__(self) -> None:
        if self._pool is not None:
            Graph._sharing[self._pool] -= 1
        if Graph.recording not in (None, self):
            Graph.recording._broken = True  # type: ignore[union-attr]

    def record(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Make an operation of CPU tensors, and remember it."""
        given = _tensors((args, kwargs))
        writes = func._schema.is_mutable or func._schema.name in UNSAID
        if writes:
            for tensor in given:
                if _address(tensor) not in self._before.keys() | self._made:
                    raw = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
                    self._before[_address(tensor)] = (raw, raw.clone())
        out = func(*args, **kwargs)
        fresh = [made for made in _tensors(out) if _address(made) not in map(_address, given)]
        self._made.update(map(_address, fresh))
        if writes or fresh:  # a view needs no second making
            self._operations.append((func, args, kwargs, fresh and _tensors(out)))
        return out

    def capture_end(self) -> None:
        """Record no more.

        Raises:
            RuntimeError: another graph went meanwhile, which CUDA does not permit.
        """
        Graph.recording = None
        if self._broken:
            raise RuntimeError("operation not permitted when stream is capturing")
        with torch._C._DisableTorchDispatch():
            for raw, copy in self._before.values():
                raw.copy_(copy)
            for made in (made for *_, outs in self._operations for made in outs):
                if made.is_floating_point() and _address(made) in self._made:
                    made.fill_(float("nan"))

    def replay(self) -> None:
        """Make all operations once more."""
        with torch._C._DisableTorchDispatch():
            for func, args, kwargs, outs in self._operations:
                found = _tensors(func(*args, **kwargs))
                for kept, new in zip(outs, found, strict=False):
                    kept.copy_(new)
