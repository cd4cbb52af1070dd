"""A frozen model's answers on a whole data set."""

from __future__ import annotations

import torch
from torch import Tensor

from algorithms.base import Net, Params

CHUNK = 500  # samples of one forward pass, which bounds memory


@torch.no_grad()
def logits_of(net: Net, params: Params, x: Tensor) -> Tensor:
    """(N, C) logits of samples (N, ...), in evaluation mode, a chunk at a time."""
    return torch.cat([net.eval(params, part).logits for part in torch.split(x, CHUNK)])
