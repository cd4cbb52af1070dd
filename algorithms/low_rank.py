"""Truncated singular value decompositions of a model's matrices, for cheaper messages.

A tensor of two axes or more counts as a matrix (P, Q) with its first axis as rows.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from algorithms.base import Params


def truncated(model: Params, energy: float | Tensor) -> tuple[Params, Tensor]:
    """Cut each matrix to the fewest singular values that hold a share of its energy.

    Args:
        model: tensors by name; of less than two axes they stay as they are.
        energy: T, the least share of the sum of squared singular values that is kept, in (0, 1].

    Returns:
        The matrices that are left, in their shapes, and how many floats tell them, a scalar: of K
        singular values K (P + Q + 1), or P Q where that is less.
    """
    left = {}
    floats = torch.zeros((), dtype=torch.int64)
    for name, value in model.items():
        left[name] = value
        size = torch.tensor(value.numel())
        if value.dim() >= 2:
            matrix, rank = _truncated(value.flatten(1), energy)
            left[name] = matrix.view_as(value)
            size = (rank.cpu() * (sum(matrix.shape) + 1)).clamp(max=value.numel())
        floats = floats + size
    return left, floats


def _truncated(matrix: Tensor, energy: float | Tensor) -> tuple[Tensor, Tensor]:
    """Return what is left of a matrix, and its rank.

    A matrix that is not finite stays as it is: the engine finds that a run has diverged.
    """
    largest = matrix.abs().amax()
    is_finite = largest.isfinite()
    # Squares of entries up to 1 neither overflow nor vanish all.
    scale = torch.where(is_finite & (largest > 0), largest, torch.ones_like(largest))
    scaled = torch.where(is_finite, matrix / scale, torch.zeros_like(matrix))
    u, s, vh = torch.linalg.svd(scaled, full_matrices=False)
    sums = s.square().cumsum(0)
    before = F.pad(sums, (1, 0))[:-1]
    # The total is added in the same order, so that T = 1 keeps nothing that is rounding alone.
    kept = before < energy * sums[-1]
    left = scale * ((u * (s * kept)) @ vh)
    rank = torch.where(is_finite, kept.sum(), len(s))
    return torch.where(is_finite, left, matrix), rank
