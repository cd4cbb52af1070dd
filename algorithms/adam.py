"""Adam as a function, for models that an algorithm trains beside the clients' own.

Kingma and Ba, ICLR 2015, Algorithm 1. https://arxiv.org/abs/1412.6980. Its state is a tree of
tensors that can be part of messages, locals and memories, and a step can be vmapped over clients;
`torch.optim.Adam` gives equal numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from algorithms.params import flat, zeros_like

Params = dict[str, Tensor]
# "mean" and "square" of the gradients by name, and "steps" taken, a scalar tensor.
AdamState = dict[str, Any]
BETA1 = 0.9
BETA2 = 0.999
EPS = 1e-8


def adam_init(params: Params) -> AdamState:
    """Return the state before the first step."""
    first = next(iter(params.values()))
    return {
        "mean": zeros_like(params, params),
        "square": zeros_like(params, params),
        "steps": first.new_zeros(()),
    }


def adam_step(
    params: Params,
    grads: Params,
    state: AdamState,
    lr: float | Tensor,
    weight_decay: float | Tensor = 0.0,
) -> tuple[Params, AdamState]:
    """Take one step with L2 decay in the gradient.

    There must be at least one parameter, and all of one type.
    """
    # One vector holds all parameters: an operation per tensor of a small model costs more than its
    # arithmetic.
    value = flat(params, params)
    grad = flat(grads, params)
    mean = flat(state["mean"], params)
    square = flat(state["square"], params)
    steps = state["steps"] + 1
    # In double precision: 1 - 0.999 ** 1 in float32 is off by 1e-5.
    bias_correction1 = (1 - BETA1 ** steps.double()).to(steps.dtype)
    bias_correction2 = (1 - BETA2 ** steps.double()).to(steps.dtype)
    grad = grad + weight_decay * value
    mean = BETA1 * mean + (1 - BETA1) * grad
    square = BETA2 * square + (1 - BETA2) * grad.square()
    value = value - lr * mean / bias_correction1 / ((square / bias_correction2).sqrt() + EPS)
    return _split(value, params), {
        "mean": _split(mean, params),
        "square": _split(square, params),
        "steps": steps,
    }


def _split(flat: Tensor, params: Params) -> Params:
    """Split a vector into tensors of the shapes of `params`."""
    parts = torch.split(flat, [value.numel() for value in params.values()])
    return {
        name: part.view(value.shape)
        for (name, value), part in zip(params.items(), parts, strict=True)
    }
