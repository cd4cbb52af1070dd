"""Truncated singular value decompositions of a model's matrices, for cheaper messages.

A tensor of two axes or more counts as a matrix (P, Q) with its first axis as rows.
"""

from __future__ import annotations

import torch
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
            matrix = value.flatten(1)
            u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
            squares = s.square()
            before = squares.cumsum(0) - squares
            kept = before < energy * squares.sum()
            left[name] = ((u * (s * kept)) @ vh).view_as(value)
            size = (kept.sum().cpu() * (sum(matrix.shape) + 1)).clamp(max=value.numel())
        floats = floats + size
    return left, floats
