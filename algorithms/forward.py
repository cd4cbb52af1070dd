"""A frozen model's logits on a whole data set."""

from __future__ import annotations

import torch
from torch import Tensor

from algorithms.base import Net, Params

# On a CPU a larger pass of ResNet-8 does not fit the caches and takes twice the time; on a GPU this
# needs less memory than a batch of training.
CHUNK = {"cpu": 100, "cuda": 250}


def chunk_size(device: torch.device) -> int:
    """Return the number of samples per forward pass over a whole data set, which bounds memory."""
    return CHUNK.get(device.type, CHUNK["cpu"])


@torch.no_grad()
def logits_of(net: Net, params: Params, x: Tensor) -> Tensor:
    """Compute (N, C) logits of samples (N, ...) in evaluation mode, without gradients.

    Samples pass chunk by chunk.
    """
    parts = torch.split(x, chunk_size(x.device))
    return torch.cat([net.eval(params, part).logits for part in parts])
