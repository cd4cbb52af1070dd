"""Adam as a function, for models that an algorithm trains beside the clients' own.

Kingma and Ba, ICLR 2015, Algorithm 1. https://arxiv.org/abs/1412.6980. Its state is a tree of tensors that can ride in
messages, locals and memories, and a step can be vmapped over clients; `torch.optim.Adam` gives the same numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Params = dict[str, Tensor]
AdamState = dict[str, Any]  # "mean" and "square" of the gradients by name, and "steps" taken, a scalar tensor
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


def adam_init(params: Params) -> AdamState:
    """The state before the first step."""
    first = next(iter(params.values()))
    zeros = [{name: torch.zeros_like(value) for name, value in params.items()} for _ in range(2)]
    return {"mean": zeros[0], "square": zeros[1], "steps": first.new_zeros(())}


def adam_step(
    params: Params, slopes: Params, state: AdamState, lr: float | Tensor, weight_decay: float | Tensor = 0.0
) -> tuple[Params, AdamState]:
    """The parameters and the state after one step.

    Args:
        params: what is trained.
        slopes: the gradient, by the same names.
        state: before the step.
        lr: learning rate.
        weight_decay: L2 coefficient, added to the gradient.
    """
    steps = state["steps"] + 1
    mean, square, moved = {}, {}, {}
    for name, value in params.items():
        slope = slopes[name] + weight_decay * value
        mean[name] = BETA1 * state["mean"][name] + (1 - BETA1) * slope
        square[name] = BETA2 * state["square"][name] + (1 - BETA2) * slope.square()
        root = (square[name] / (1 - BETA2**steps)).sqrt() + EPS
        moved[name] = value - lr * mean[name] / (1 - BETA1**steps) / root
    return moved, {"mean": mean, "square": square, "steps": steps}
