"""Images on the training device: pixels as uint8, in memory once, turned into inputs batch by batch.

Axes: N images, B of a batch, C channels, H rows, W columns.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from bench.data import DatasetInfo
from bench.engine.crops import Crops

READY_BYTES = 16 * 2**20  # inputs up to this size are made once: small batches are bound by calls, not by memory


class Pixels:
    """The pixels of a part of a data set, which all runs of a process share.

    Args:
        x: (N, C, H, W) uint8.
        device: where they shall lie.

    Attributes:
        flat: (N * H * W + 1, C) uint8, pixel after pixel, and a black one behind the last.
        images: (N, H, W, C), a view of it.
    """

    def __init__(self, x: np.ndarray, device: torch.device) -> None:
        count, channels, height, width = x.shape
        flat = np.zeros((count * height * width + 1, channels), np.uint8)
        flat[:-1].reshape(count, height, width, channels)[:] = x.transpose(0, 2, 3, 1)
        self.flat = torch.from_numpy(flat).to(device)
        self.images = self.flat[:-1].view(count, height, width, channels)


class Normaliser:
    """Pixels (B, H, W, C) to inputs (B, C, H, W) in channels-last memory: (pixel / scale - mean) / std.

    Mean and std are laid out over a whole image: broadcasting over the short channel axis would not vectorise.
    """

    def __init__(
        self,
        info: DatasetInfo,
        rule: str,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        channels, height, width = info.input_shape
        mean, std = (torch.tensor(value, dtype=torch.float64) for value in info.normalization(rule))
        self._factor = (1 / (info.scale * std)).repeat(height * width).to(device, dtype)
        self._offset = (-mean / std).repeat(height * width).to(device, dtype)
        self._shape = (-1, height, width, channels)
        self._dtype = dtype

    def __call__(self, pixels: Tensor) -> Tensor:
        """(B, C, H, W)."""
        return self.shaped(self.rows(pixels.reshape(len(pixels), -1)))

    def rows(self, pixels: Tensor) -> Tensor:
        """(B, H * W * C) inputs of pixels (B, H * W * C)."""
        return torch.addcmul(self._offset, pixels, self._factor)

    def shaped(self, rows: Tensor) -> Tensor:
        """(B, C, H, W) of rows (B, H * W * C)."""
        return rows.view(self._shape).permute(0, 3, 1, 2)


class Images:
    """Implements `bench.engine.federation.Samples` for images.

    Args:
        pixels: of one part of a data set.
        labels: (N,) int64, on the same device.
        info: the data set's constants.
        normalization: a value of `Setting.normalization`.
        augmentation: one of `Setting.augmentation`.
        dtype: of inputs.
    """

    def __init__(
        self,
        pixels: Pixels,
        labels: Tensor,
        info: DatasetInfo,
        normalization: str,
        augmentation: str,
        dtype: torch.dtype,
    ) -> None:
        self.pixels, self.labels = pixels.images, labels
        self._normalise = Normaliser(info, normalization, labels.device, dtype)
        _, height, width, _ = self.pixels.shape
        self._crops = Crops(pixels.flat, height, width, augmentation)
        self._dtype = dtype

    def at(self, index: Tensor | slice) -> Tensor:
        """(B, C, H, W)."""
        return self._normalise(self.pixels[index])

    def batch(self, index: Tensor, draws: Tensor | None = None, width: int | None = None) -> Tensor:
        """(B, C, H, W), augmented where draws are given."""
        if draws is not None:
            return self._normalise(self._crops(index, draws))
        if self._ready is not None:
            return self._normalise.shaped(self._ready.index_select(0, index))
        # Not `pixels[index]`: that copies byte by byte.
        return self._normalise(self.pixels.index_select(0, index))

    def widths(self, rows: Tensor) -> None:
        """Images have one size."""

    def by_cost(self, index: Tensor | None) -> Tensor | None:
        """As given: all cost the same."""
        return index

    @cached_property
    def _ready(self) -> Tensor | None:
        """(N, H * W * C) all inputs, where they are few."""
        rows = self.pixels.flatten(1)
        return self._normalise.rows(rows) if rows.numel() * self._dtype.itemsize <= READY_BYTES else None
