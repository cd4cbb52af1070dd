"""A frozen model's answers on a whole data set."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from algorithms.base import Net, Outputs, Params

CHUNK = {"cpu": 100, "cuda": 1000}  # a larger pass of ResNet-8 leaves a CPU's caches and takes twice the time


def chunk_size(device: torch.device) -> int:
    """Samples of one forward pass over a whole data set, which bounds memory."""
    return CHUNK.get(device.type, CHUNK["cpu"])


@torch.no_grad()
def answers(net: Net, params: Params, x: Tensor) -> Outputs:
    """Outputs on a chunk of samples (N, ...), in evaluation mode; where they do not fit into memory, in halves.

    Raises:
        torch.OutOfMemoryError: not even one sample fits.
    """
    try:
        return net.eval(params, x)
    except torch.OutOfMemoryError:
        if len(x) < 2:
            raise
    # Outside the handler, whose traceback would keep what the attempt took.
    warnings.warn(f"out of memory with {len(x)} samples in one forward pass: taking them in halves", stacklevel=2)
    halves = [answers(net, params, half) for half in torch.chunk(x, 2)]
    return Outputs(*(torch.cat(parts) for parts in zip(*halves, strict=True)))


def logits_of(net: Net, params: Params, x: Tensor) -> Tensor:
    """(N, C) logits of samples (N, ...), in evaluation mode, without gradients, a chunk at a time."""
    return torch.cat([answers(net, params, part).logits for part in torch.split(x, chunk_size(x.device))])
