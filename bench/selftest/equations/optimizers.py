"""The optimisers that papers name, in plain arithmetic, and a step of the network with one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from algorithms.base import Params
from bench.selftest.equations.lab import LabNet, moved_statistics
from bench.selftest.equations.lab_run import Objective, loss_and_grad_of


class Optimizer(Protocol):
    """An optimiser, which keeps its state from step to step."""

    def step(self, values: Sequence[Tensor], grads: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the values after one step."""


@dataclass
class Sgd:
    """SGD with momentum m: b <- m b + g, w <- w - lr b, b = 0 at first."""

    lr: float
    momentum: float = 0.0
    buffers: Sequence[Tensor] = ()

    def step(self, values: Sequence[Tensor], grads: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the values after one step."""
        buffers = self.buffers or [torch.zeros_like(value) for value in values]
        self.buffers = [self.momentum * b + g for b, g in zip(buffers, grads, strict=True)]
        return [w - self.lr * b for w, b in zip(values, self.buffers, strict=True)]


@dataclass
class Adam:
    """Adam (Kingma and Ba 2015, Algorithm 1) with betas of 0.9 and 0.999 and eps 1e-8.

    Weight decay is an L2 term.
    """

    lr: float
    weight_decay: float = 0.0
    steps: int = 0
    moments: Sequence[tuple[Tensor, Tensor]] = ()

    def step(self, values: Sequence[Tensor], grads: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the values after one step."""
        self.steps += 1
        after = []
        zeros = [(torch.zeros_like(value), torch.zeros_like(value)) for value in values]
        moments = self.moments or zeros
        self.moments = []
        for value, grad, (m, v) in zip(values, grads, moments, strict=True):
            g = grad + self.weight_decay * value
            m = 0.9 * m + 0.1 * g
            v = 0.999 * v + 0.001 * g**2
            m_hat = m / (1 - 0.9**self.steps)
            v_hat = v / (1 - 0.999**self.steps)
            after.append(value - self.lr * m_hat / (v_hat.sqrt() + 1e-8))
            self.moments.append((m, v))
        return after


def stepped(
    net: LabNet, optimizer: Optimizer, params: Params, objective: Objective, x: Tensor
) -> Params:
    """Return the model after one step on an objective; inputs x move BatchNorm's statistics."""
    names = net.trainable
    grad = loss_and_grad_of(objective, params, names).grad
    before = [params[name] for name in names]
    after = optimizer.step(before, list(grad.values()))
    moved = moved_statistics(params, x) if net.batchnorm else {}
    return {**params, **moved, **dict(zip(names, after, strict=True))}
