"""Observation of a generator from outside: through its outputs, their graph, and drawn numbers.

Nothing here knows the layers or names of an algorithm's generator. Its outputs pass through the
network (`head`, `normalise`), and from there autograd's graph leads back to the generator's trained
tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bench.selftest.equations.formulas import joined
from bench.selftest.equations.lab_run import holds

DRAWING = {"rand", "randn", "uniform", "uniform_", "normal", "normal_"}


def unwrapped(value: Tensor) -> Tensor:
    """Copy the numbers of a tensor that a transformation of `torch.func` may have wrapped."""
    while torch._C._functorch.is_functorch_wrapped_tensor(value):
        value = torch._C._functorch.get_unwrapped(value)
    return value.detach().clone()


def leaves_of(output: Tensor) -> list[Tensor]:
    """Return the leaf tensors of the graph of `output`, in the graph's order."""
    tensors: list[Tensor] = []
    seen = set()
    waiting = [output.grad_fn]
    while waiting:
        node: Any = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            tensors.append(node.variable)
        waiting += [function for function, _ in node.next_functions]
    return tensors


@dataclass(frozen=True)
class Observation:
    """One output of a generator in training, and its trained tensors, P numbers in all."""

    output: Tensor
    leaves: list[Tensor]
    # (N, P): d^T (d output / d leaves) for each of N directions d in the output's space.
    vjps: Tensor

    @property
    def vector(self) -> Tensor:
        """The trained tensors as one vector (P,)."""
        return joined(self.leaves)


def observe(output: Tensor, directions: Iterable[Tensor]) -> Observation | None:
    """Observe a generator through `output` and its graph; return None if it is not in training.

    `directions` are those of the vector-Jacobian products, each of the output's size.
    """
    if output.grad_fn is None:
        return None
    leaves = leaves_of(output)
    vjps = []
    for direction in directions:
        vjp = torch.autograd.grad(output, leaves, direction.view_as(output), retain_graph=True)
        vjps.append(joined(map(unwrapped, vjp)))
    return Observation(unwrapped(output), list(map(unwrapped, leaves)), torch.stack(vjps))


def shapes_gap(values: Sequence[Tensor], shapes: Sequence[tuple[int, ...]]) -> float:
    """Return 0 if the tensors have these shapes, in any order, or inf."""
    return holds(sorted(tuple(value.shape) for value in values) == sorted(shapes))


class Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context that records the floating-point tensors drawn at random inside it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.drawn: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, and record its result if it is a draw."""
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket.__name__ in DRAWING:
            self.drawn.append(result.detach().clone())
        return result

    def batches(self, rows: int, width: int) -> list[Tensor]:
        """Return the drawn blocks of (rows, width), in float64.

        They may be drawn one by one or several at once.
        """
        blocks: list[Tensor] = []
        for drawn in self.drawn:
            if drawn.shape[-2:] == (rows, width):
                blocks += drawn.double().reshape(-1, rows, width)
        return blocks
