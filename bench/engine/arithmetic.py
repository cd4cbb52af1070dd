"""The arithmetic of this processor as a hash: processors of one name may round differently.

Training is chaotic: a difference in the last bit of one step is a difference of points of accuracy
some rounds later. Runs are repeated to the bit only where the hash is the same.
"""

from __future__ import annotations

import hashlib
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

DIGITS = 8  # of the hash
GOLDEN = 0.6180339887498949  # its multiples, modulo 1, fill (0, 1) evenly


@cache
def arithmetic(threads: int) -> dict[str, str]:
    """Return torch's instruction set here, and a hash of one training step of a small CNN.

    `threads` may change the order of sums, and so the hash.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return {"instructions": torch.backends.cpu.get_cpu_capability(), "arithmetic": _hash()}
    finally:
        torch.set_num_threads(before)


def _hash() -> str:
    """Hash the loss and gradients of a step of 16 samples."""
    images = _numbers(16, 3, 32, 32)
    labels = torch.arange(16) % 10
    weights = [_numbers(6, 3, 5, 5), _numbers(16, 6, 5, 5), _numbers(10, 400)]
    for weight in weights:
        weight.requires_grad_()
    first, second, dense = weights
    hidden = F.max_pool2d(F.relu(F.conv2d(images, first)), 2)
    hidden = F.max_pool2d(F.relu(F.conv2d(hidden, second)), 2)
    loss = F.cross_entropy(F.linear(hidden.flatten(1), dense), labels)
    gradients = torch.autograd.grad(loss, weights)
    digest = hashlib.sha256()
    for tensor in (loss.detach(), *gradients):
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:DIGITS]


def _numbers(*shape: int) -> Tensor:
    """Make a float32 tensor of numbers between -0.1 and 0.1, the same on every machine."""
    count = torch.Size(shape).numel()
    places = torch.arange(1, count + 1, dtype=torch.float64) * GOLDEN % 1
    return ((places - 0.5) / 5).to(torch.float32).view(shape)
