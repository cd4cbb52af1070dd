"""The optimisers that papers name, in plain arithmetic, and a step of the network with one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Protocol

from torch import Tensor

from algorithms.base import Params
from bench.selftest.equations.formulas import vector, with_vector
from bench.selftest.equations.lab import Objective, loss_and_grad_of, moved_statistics


class Optimizer(Protocol):
    """An optimiser of a vector, which keeps its state from step to step."""

    def step(self, w: Tensor, g: Tensor) -> Tensor:
        """Return w after one step on its gradient g."""


@dataclass
class Sgd:
    """SGD with momentum m: b <- m b + g, w <- w - lr b, b = 0 at first."""

    lr: float
    momentum: float = 0.0
    b: Tensor | float = 0.0

    def step(self, w: Tensor, g: Tensor) -> Tensor:
        """Return w after one step on its gradient g."""
        self.b = self.momentum * self.b + g
        return w - self.lr * self.b


@dataclass
class Adam:
    """Adam (Kingma and Ba 2015, Algorithm 1) with betas of 0.9 and 0.999 and eps 1e-8.

    Weight decay is an L2 term.
    """

    lr: float
    weight_decay: float = 0.0
    steps: int = 0
    m: Tensor | float = 0.0
    v: Tensor | float = 0.0

    def step(self, w: Tensor, g: Tensor) -> Tensor:
        """Return w after one step on its gradient g."""
        self.steps += 1
        g = g + self.weight_decay * w
        self.m = 0.9 * self.m + 0.1 * g
        self.v = 0.999 * self.v + 0.001 * g**2
        m_hat = self.m / (1 - 0.9**self.steps)
        v_hat = self.v / (1 - 0.999**self.steps)
        return w - self.lr * m_hat / (v_hat.sqrt() + 1e-8)


def descended(optimizer: Optimizer, w: Params, objective: Objective) -> Params:
    """Return a model, or other tensors, after one step on an objective."""
    grad = loss_and_grad_of(objective, w).grad
    return with_vector(w, optimizer.step(vector(w), vector(grad)))


def stepped(optimizer: Optimizer, w: Params, objective: Objective, x: Tensor) -> Params:
    """Return the model after such a step, whose inputs x move BatchNorm's statistics."""
    return descended(optimizer, w, objective) | moved_statistics(w, x)


def step_orders(count: int, size: int, epochs: int) -> Iterator[list[list[int]]]:
    """Yield all possible steps on `count` samples: whole sets, or one epoch of smaller batches."""
    if size >= count:
        yield [list(range(count))] * epochs
        return
    for order in permutations(range(count)):
        yield [list(order[first : first + size]) for first in range(0, count, size)]
