"""Samples that are plain vectors, on the training device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class Vectors:
    """Implements `bench.engine.federation.Samples` for vectors of D numbers, used as they are.

    Args:
        x: (N, D) float32.
        labels: (N,) int64, on the training device.
        dtype: of inputs.
    """

    def __init__(self, x: np.ndarray, labels: Tensor, dtype: torch.dtype) -> None:
        self.labels = labels
        self._x = torch.from_numpy(np.array(x)).to(labels.device, dtype)

    def at(self, index: Tensor | slice) -> Tensor:
        """(B, D)."""
        return self._x[index]

    def batch(self, index: Tensor, draws: Tensor | None = None, width: int | None = None) -> Tensor:
        """(B, D)."""
        return self._x.index_select(0, index)

    def widths(self, rows: Tensor) -> None:
        """Vectors have one size."""

    def by_cost(self, index: Tensor | None) -> Tensor | None:
        """As given: all cost the same."""
        return index
