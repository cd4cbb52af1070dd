"""A frozen model's answers on a whole data set."""

from __future__ import annotations

import torch
from torch import Tensor

from algorithms.base import Net, Params

CHUNK = {"cpu": 100, "cuda": 1000}  # a larger pass of ResNet-8 leaves a CPU's caches and takes twice the time


def chunk_size(device: torch.device) -> int:
    """Samples of one forward pass over a whole data set, which bounds memory."""
    return CHUNK.get(device.type, CHUNK["cpu"])


@torch.no_grad()
def logits_of(net: Net, params: Params, x: Tensor) -> Tensor:
    """(N, C) logits of samples (N, ...), in evaluation mode, a chunk at a time."""
    return torch.cat([net.eval(params, part).logits for part in torch.split(x, chunk_size(x.device))])
