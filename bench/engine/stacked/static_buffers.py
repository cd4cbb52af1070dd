"""Tensors that keep their addresses: a captured step reads and writes the same memory in every round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bench.engine.pytree import leaves, pairs, tree_map


class NoBuffers:
    """Leaves every tensor where it is, for steps that are executed one by one."""

    def place(self, name: str, tree: Any, axes: int = 1) -> Any:
        """`tree` itself."""
        return tree

    def clients(self, placed: int) -> int:
        """As many as were placed."""
        return placed


class StaticBuffers:
    """Copies each round's tensors to the places of the round before.

    Attributes:
        generation: raised when a buffer was replaced by a larger one, or there are more clients than before: what was
            captured earlier is of no use then.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._buffers: dict[str, Any] = {}
        self._most_clients, self._counted_in = 0, -1  # the second is a generation

    def place(self, name: str, tree: Any, axes: int = 1) -> Any:
        """Copy `tree` to the first entries of the buffer of this name, and return the buffer.

        A buffer may be larger at the end of its first `axes` (steps, clients); a step cuts them off. A name is given
        once a round.
        """
        buffer = self._buffers.get(name)
        if buffer is None or not _fits(buffer, tree, axes):
            buffer = self._buffers[name] = _enlarged(buffer, tree, axes)
            self.generation += 1
        for target, source in pairs(buffer, tree):
            target[tuple(slice(size) for size in source.shape)].copy_(source)
        return buffer

    def clients(self, placed: int) -> int:
        """Count the clients that every buffer has room for, once all of a round with `placed` clients are filled."""
        if self.generation != self._counted_in or placed > self._most_clients:
            self.generation += 1
            self._most_clients, self._counted_in = placed, self.generation
        return self._most_clients

    def tensors(self, name: str) -> list[Tensor]:
        """The tensors of a buffer, in order; none if there is no such buffer."""
        return list(leaves(self._buffers.get(name, {})))

    def copies(self, *names: str) -> dict[str, list[Tensor]]:
        """Copies of the tensors of these buffers."""
        return {name: [tensor.detach().clone() for tensor in self.tensors(name)] for name in names}

    def put_back(self, copies: Mapping[str, Sequence[Tensor]]) -> None:
        """Restore what `copies` gave; no buffer may have been replaced since."""
        for name, kept in copies.items():
            for tensor, copy in zip(self.tensors(name), kept, strict=True):
                tensor.detach().copy_(copy)


def _fits(buffer: Any, tree: Any, axes: int) -> bool:
    return _structure(buffer, axes) == _structure(tree, axes) and all(
        old >= new for room, value in pairs(buffer, tree) for old, new in zip(room.shape, value.shape, strict=True)
    )


def _structure(tree: Any, axes: int) -> Any:
    """Names, types and shapes, without the sizes of the first axes."""
    return tree_map(lambda tensor: (tensor.dim(), tensor.shape[axes:], tensor.dtype), tree)


def _enlarged(buffer: Any, tree: Any, axes: int) -> Any:
    """Zeros with room for `tree`, and for what the earlier buffer of the same structure had room for."""
    fresh = tree_map(torch.zeros_like, tree)
    if buffer is None or _structure(buffer, axes) != _structure(tree, axes):
        return fresh
    shapes = {id(new): list(map(max, new.shape, old.shape)) for new, old in pairs(fresh, buffer)}
    return tree_map(lambda tensor: tensor.new_zeros(shapes[id(tensor)]), fresh)
