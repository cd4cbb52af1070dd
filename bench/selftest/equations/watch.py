"""A generator followed from outside: through its outputs, their graph, and the numbers that were drawn.

An algorithm's generator is its own affair, so nothing here knows its layers or names. What it makes passes through the
network (`head`, `normalise`); from there autograd's graph leads back to the tensors that it is trained by.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

DRAWING = {"rand", "randn", "uniform", "uniform_", "normal", "normal_"}


def bare(value: Tensor) -> Tensor:
    """The numbers of a tensor that a transformation of `torch.func` may have wrapped."""
    while torch._C._functorch.is_functorch_wrapped_tensor(value):
        value = torch._C._functorch.get_unwrapped(value)
    return value.detach().clone()


def leaves_of(output: Tensor) -> list[Tensor]:
    """The tensors that the graph of `output` begins with, in the graph's order."""
    found: list[Tensor] = []
    seen, waiting = set(), [output.grad_fn]
    while waiting:
        node: Any = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        waiting += [function for function, _ in node.next_functions]
    return found


@dataclass(frozen=True)
class Sight:
    """One output of a generator in training, and the values `leaves` that it is trained by.

    `pulls` has, for each direction d in the output's space, d^T (d output / d leaf) of each leaf.
    """

    output: Tensor
    leaves: tuple[Tensor, ...]
    pulls: tuple[tuple[Tensor, ...], ...]


def sight(output: Tensor, directions: Callable[[Tensor], Sequence[Tensor]]) -> Sight | None:
    """A look at a generator through `output` and its graph; None if it is not in training.

    `directions` makes those of the pulls from the bare output.
    """
    if output.grad_fn is None:
        return None
    values, leaves = bare(output), leaves_of(output)
    pulls = [torch.autograd.grad(output, leaves, d.view_as(output), retain_graph=True) for d in directions(values)]
    return Sight(values, tuple(map(bare, leaves)), tuple(tuple(map(bare, pull)) for pull in pulls))


def shapes_gap(values: Sequence[Tensor], shapes: Sequence[tuple[int, ...]]) -> float:
    """0 if the tensors have these shapes, in whatever order; else inf."""
    return 0.0 if sorted(tuple(value.shape) for value in values) == sorted(shapes) else math.inf


class Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the floating-point tensors that are drawn at random inside the context."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.drawn: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, and note what it drew."""
        made = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in DRAWING:
            self.drawn.append(made.detach().clone())
        return made

    def batches(self, rows: int, width: int) -> list[Tensor]:
        """The drawn blocks of (rows, width), in float64, whether drawn one by one or several at once."""
        fitting = [drawn for drawn in self.drawn if drawn.shape[-2:] == (rows, width)]
        return [block.double() for drawn in fitting for block in drawn.reshape(-1, rows, width)]


class Adam:
    """`torch.optim.Adam` on values that are handed over step by step; `lr` may be set between steps."""

    def __init__(self, lr: float, weight_decay: float = 0.0) -> None:
        self.lr, self._weight_decay = lr, weight_decay
        self._leaves: list[Tensor] = []
        self._optimizer: torch.optim.Adam | None = None

    def step(self, values: Sequence[Tensor], grads: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The values after one step."""
        if self._optimizer is None:
            self._leaves = [value.clone() for value in values]
            self._optimizer = torch.optim.Adam(self._leaves, betas=(0.9, 0.999), weight_decay=self._weight_decay)
        self._optimizer.param_groups[0]["lr"] = self.lr
        for leaf, value, grad in zip(self._leaves, values, grads, strict=True):
            leaf.copy_(value)
            leaf.grad = grad.clone()
        self._optimizer.step()
        return tuple(leaf.clone() for leaf in self._leaves)

    def glimpse(self, values: Sequence[Tensor], grads: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """What `step` would return; the state stays as it is."""
        return copy.deepcopy(self).step(values, grads)
