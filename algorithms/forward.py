"""A frozen model's outputs on a whole data set."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from algorithms.base import Net, Outputs, Params

# On a CPU a larger pass of ResNet-8 does not fit the caches and takes twice the time; on a GPU this
# needs less memory than a batch of training.
CHUNK = {"cpu": 100, "cuda": 250}


def chunk_size(device: torch.device) -> int:
    """Return the number of samples per forward pass over a whole data set, which bounds memory."""
    return CHUNK.get(device.type, CHUNK["cpu"])


def joined(parts: Sequence[Outputs]) -> Outputs:
    """Join outputs of samples to those of all samples."""
    logits = torch.cat([part.logits for part in parts])
    features = torch.cat([part.features for part in parts])
    return Outputs(logits, features)


@torch.no_grad()
def outputs_of(net: Net, params: Params, x: Tensor) -> Outputs:
    """Compute the outputs of samples (N, ...) in evaluation mode, without gradients, by chunks."""
    parts = [net.eval(params, part) for part in torch.split(x, chunk_size(x.device))]
    return joined(parts)


def logits_of(net: Net, params: Params, x: Tensor) -> Tensor:
    """Return the logits (N, C) of `outputs_of`."""
    return outputs_of(net, params, x).logits
