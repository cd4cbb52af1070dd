"""Where a stack's tensors lie. A captured program reads and writes fixed addresses; an ordinary one does not care."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from bench.engine.trees import leaves, pairs, tree_map

SPARE = 4  # a place that has to grow grows by a quarter more: whatever moves is captured, or compiled, again


class Room(Protocol):
    """Gives trees of tensors a place."""

    def place(self, name: str, tree: Any, axes: int = 1) -> Any:
        """`tree` where a program may use it: of the same structure, its tensors perhaps larger at the end of some axes.

        Args:
            name: of the place, each given once a round.
            tree: of tensors; what is not a tensor is passed on.
            axes: so many first axes may be larger: those of steps and clients, whose ends a step cuts off.
        """

    def clients(self, placed: int) -> int:
        """How many clients there is room for, once all of a round's tensors have their places.

        Args:
            placed: clients of this round.
        """


class Anywhere:
    """Tensors stay where they are."""

    def place(self, name: str, tree: Any, axes: int = 1) -> Any:
        """`tree` itself."""
        return tree

    def clients(self, placed: int) -> int:
        """These."""
        return placed


class FixedRoom:
    """Tensors keep their addresses from round to round; each round's values are copied in.

    Attributes:
        generation: raised when something did not fit and has moved, or there are more clients than before: programs
            captured before are of no use then.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._places: dict[str, Any] = {}
        self._most, self._since = 0, -1  # clients, and the generation in which that many were placed

    def place(self, name: str, tree: Any, axes: int = 1) -> Any:
        """The place of this name, its first entries along each axis holding `tree`'s values."""
        kept = self._places.get(name)
        if kept is None or not _fits(kept, tree, axes):
            kept = self._places[name] = _enlarged(kept, tree, axes)
            self.generation += 1
        for target, source in pairs(kept, tree):
            target[tuple(slice(size) for size in source.shape)].copy_(source)
        return kept

    def clients(self, placed: int) -> int:
        """The most that any round has placed since something moved: every place holds so many."""
        if self.generation != self._since or placed > self._most:
            self.generation += 1
            self._most, self._since = placed, self.generation
        return self._most

    def copies(self, *names: str) -> dict[str, list[Tensor]]:
        """Copies of the `tensors` of each of these places."""
        return {name: [tensor.detach().clone() for tensor in self.tensors(name)] for name in names}

    def put_back(self, copies: Mapping[str, Sequence[Tensor]]) -> None:
        """Make them again what they were when `copies` made them; nothing may have moved since."""
        for name, kept in copies.items():
            for tensor, copy in zip(self.tensors(name), kept, strict=True):
                tensor.detach().copy_(copy)

    def tensors(self, name: str) -> list[Tensor]:
        """All tensors that lie in this place, in order; none if nothing was given it."""
        return list(leaves(self._places.get(name, {})))


def _fits(kept: Any, tree: Any, axes: int) -> bool:
    if _structure(kept, axes) != _structure(tree, axes):
        return False
    return all(
        old >= new for room, value in pairs(kept, tree) for old, new in zip(room.shape, value.shape, strict=True)
    )


def _structure(tree: Any, axes: int) -> Any:
    """Names, kinds and shapes, the first axes without their sizes."""
    return tree_map(lambda tensor: (tensor.dim(), tensor.shape[axes:], tensor.dtype), tree)


def _enlarged(kept: Any, tree: Any, axes: int) -> Any:
    """A place for `tree`, and for whatever had the same structure before it."""
    made = tree_map(torch.zeros_like, tree)
    if kept is None or _structure(kept, axes) != _structure(tree, axes):
        return made
    sizes = {
        id(new): [old if old >= size else size + size // SPARE for size, old in zip(new.shape, room.shape, strict=True)]
        for new, room in pairs(made, kept)
    }
    return tree_map(lambda tensor: tensor.new_zeros(sizes[id(tensor)]), made)
