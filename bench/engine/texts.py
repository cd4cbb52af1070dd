"""Texts on the training device: token ids in memory once, each batch as long as the longest of its texts.

Axes: N texts, B of a batch, L tokens.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from bench.data.text import PAD

MULTIPLE = 8  # lengths are rounded up to it: fewer shapes, and aligned ones


class Texts:
    """Implements `bench.engine.federation.Samples` for texts.

    Args:
        ids: (N, L) token ids, padded with `PAD` behind each text.
        labels: (N,) int64, on the training device.
    """

    def __init__(self, ids: np.ndarray, labels: Tensor) -> None:
        self.labels = labels
        self._ids = torch.from_numpy(np.array(ids, np.int32)).to(labels.device)
        positions = torch.arange(1, ids.shape[1] + 1, device=labels.device)
        self._lengths = ((self._ids != PAD) * positions).amax(1)
        self._known_lengths = self._lengths.cpu()

    def at(self, index: Tensor | slice) -> Tensor:
        """(B, L) int64, L for the longest text of these."""
        return self._ids[index, : self._rounded(int(self._lengths[index].max()))].long()

    def batch(self, index: Tensor, draws: Tensor | None = None, width: int | None = None) -> Tensor:
        """(B, L) int64, L being `width` where it is given, which spares the device an answer."""
        return self.at(index) if width is None else self._ids[:, :width].index_select(0, index).long()

    def widths(self, rows: Tensor) -> list[int]:
        """L of each step, whose samples are a row of (steps, B)."""
        return [self._rounded(longest) for longest in self._known_lengths[rows.cpu()].amax(1).tolist()]

    def by_cost(self, index: Tensor | None) -> Tensor:
        """The shortest first, so that chunks have texts of like lengths."""
        if index is None:
            return self._lengths.argsort(stable=True)
        return index[self._lengths[index].argsort(stable=True)]

    def _rounded(self, length: int) -> int:
        # A text without a token is still a row of one width or another.
        return min(max(1, -(-length // MULTIPLE)) * MULTIPLE, self._ids.shape[1])
