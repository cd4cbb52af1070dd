"""Stacks of models of one architecture, evaluated as one program.

The program has the same shape in every round, whichever models are asked for, so that no number
depends on that.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from algorithms.base import Params
from algorithms.forward import chunk_size
from bench.engine.network import Network
from bench.engine.pytree import each

T = TypeVar("T")

WIDTH = 16  # most models of a program
PASS = 4  # chunks of one model, as many samples of which a pass has, of all models together


def filled(items: list[T], count: int) -> list[T]:
    """Repeat the last item until there are so many."""
    return items + [items[-1]] * (count - len(items))


def samples_of_pass(device: torch.device, width: int) -> int:
    """Return how many samples each of `width` models sees in a pass, which bounds memory."""
    return max(1, PASS * chunk_size(device) // width)


@torch.no_grad()
def logits_together(net: Network, models: Params, x: Tensor, own_inputs: bool = False) -> Tensor:
    """Compute the logits (m, B, C) of m stacked models on inputs (B, ...), or each on its own.

    `own_inputs`: whether the inputs are (m, B, ...).
    """
    # A stack's layers, because vmap by itself gives bfloat16 other precisions than one model has.
    from bench.engine.stacked.layers import layers_of

    dims = {"params": dict.fromkeys(models, 0), "x": 0 if own_inputs else None}
    with layers_of(net):
        outputs = each(net.eval, {"params": models, "x": x}, dims)
    logits: Tensor = outputs.logits
    return logits
