"""A part of a data set on the training device: images, texts or vectors, turned into inputs batch by batch.

Axes: N samples, B of a batch, C channels, H rows, W columns, L tokens, D numbers of a vector.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from bench.data import Dataset, DatasetInfo
from bench.data.dataset import PAD
from bench.engine.crops import Crops

KEPT_PARTS = 4  # training and test parts of two data sets
READY_BYTES = 16 * 2**20  # inputs up to this size are made once: small batches are bound by calls, not by memory
MULTIPLE = 8  # lengths of texts are rounded up to it: fewer shapes, and aligned ones


class Samples(Protocol):
    """One part of a data set as inputs, by position in it.

    Attributes:
        labels: (N,) int64.
    """

    labels: Tensor

    def at(self, index: Tensor | slice) -> Tensor:
        """Inputs (B, ...) as they are."""

    def batch(self, index: Tensor, draws: Tensor | None = None, width: int | None = None) -> Tensor:
        """Inputs (B, ...) of a training step; draws (B, 4) are of `draw_crops`, the width is one of `widths`."""

    def widths(self, rows: Tensor) -> list[int] | None:
        """The length of each step's inputs, its samples being a row of (steps, B); None if all have one size."""
        return None

    def by_cost(self, index: Tensor | None) -> Tensor | None:
        """These samples (None for all) in the order in which they are best cut into chunks."""
        return index


@lru_cache(maxsize=KEPT_PARTS)
def samples(
    dataset: Dataset,
    part: str,
    info: DatasetInfo,
    normalization: str,
    augmentation: str,
    device: torch.device,
    dtype: torch.dtype,
) -> Samples:
    """The `train` or `test` part of a data set, of whichever kind its samples are. One copy serves a process's runs."""
    labels = torch.from_numpy(np.array(getattr(dataset, f"{part}_y"), np.int64)).to(device)
    x = getattr(dataset, f"{part}_x")
    if info.kind == "images":
        return Images(x, labels, info, normalization, augmentation, dtype)
    return Texts(x, labels) if info.kind == "texts" else Vectors(x, labels, dtype)


class Normaliser:
    """Pixels (B, H, W, C) to inputs (B, C, H, W) in channels-last memory: (pixel / scale - mean) / std.

    Mean and std are laid out over a whole image: broadcasting over the short channel axis would not vectorise.
    """

    def __init__(self, info: DatasetInfo, rule: str, device: torch.device, dtype: torch.dtype) -> None:
        channels, height, width = info.input_shape
        mean, std = (torch.tensor(value, dtype=torch.float64) for value in info.normalization(rule))
        self._factor = (1 / (info.scale * std)).repeat(height * width).to(device, dtype)
        self._offset = (-mean / std).repeat(height * width).to(device, dtype)
        self._shape = (-1, height, width, channels)

    def __call__(self, pixels: Tensor) -> Tensor:
        """(B, C, H, W)."""
        return self.shaped(self.rows(pixels.reshape(len(pixels), -1)))

    def rows(self, pixels: Tensor) -> Tensor:
        """(B, H * W * C) inputs of pixels (B, H * W * C)."""
        return torch.addcmul(self._offset, pixels, self._factor)

    def shaped(self, rows: Tensor) -> Tensor:
        """(B, C, H, W) of rows (B, H * W * C)."""
        return rows.view(self._shape).permute(0, 3, 1, 2)


class Images(Samples):
    """Images x (N, C, H, W) uint8, in memory once, normalised and augmented batch by batch; labels (N,) int64."""

    def __init__(
        self,
        x: np.ndarray,
        labels: Tensor,
        info: DatasetInfo,
        normalization: str,
        augmentation: str,
        dtype: torch.dtype,
    ) -> None:
        self.labels, self._dtype = labels, dtype
        self._normalise = Normaliser(info, normalization, labels.device, dtype)
        count, channels, height, width = x.shape
        flat = np.zeros((count * height * width + 1, channels), np.uint8)  # pixel after pixel, then a black one
        flat[:-1].reshape(count, height, width, channels)[:] = x.transpose(0, 2, 3, 1)
        pixels = torch.from_numpy(flat).to(labels.device)
        self.pixels = pixels[:-1].view(count, height, width, channels)
        self._crops = Crops(pixels, height, width, augmentation)

    def at(self, index: Tensor | slice) -> Tensor:
        """(B, C, H, W)."""
        return self._normalise(self.pixels[index])

    def batch(self, index: Tensor, draws: Tensor | None = None, width: int | None = None) -> Tensor:
        """(B, C, H, W), augmented if there are draws."""
        if draws is not None:
            return self._normalise(self._crops(index, draws))
        if self._ready is not None:
            return self._normalise.shaped(self._ready.index_select(0, index))
        # Not `pixels[index]`: that copies byte by byte.
        return self._normalise(self.pixels.index_select(0, index))

    @cached_property
    def _ready(self) -> Tensor | None:
        """(N, H * W * C) all inputs, if they are few."""
        rows = self.pixels.flatten(1)
        return self._normalise.rows(rows) if rows.numel() * self._dtype.itemsize <= READY_BYTES else None


class Texts:
    """Texts: token ids (N, L), padded with `PAD`, in memory once; each batch is as long as its longest text."""

    def __init__(self, ids: np.ndarray, labels: Tensor) -> None:
        self.labels = labels
        self._ids = torch.from_numpy(np.array(ids, np.int32)).to(labels.device)
        positions = torch.arange(1, ids.shape[1] + 1, device=labels.device)
        self._lengths = ((self._ids != PAD) * positions).amax(1)
        self._lengths_on_cpu = self._lengths.cpu()

    def at(self, index: Tensor | slice) -> Tensor:
        """(B, L) int64, L for the longest text of these."""
        return self._ids[index, : self._rounded(int(self._lengths[index].max()))].long()

    def batch(self, index: Tensor, draws: Tensor | None = None, width: int | None = None) -> Tensor:
        """(B, L) int64; with a `width` for L the device is not asked for an answer."""
        return self.at(index) if width is None else self._ids[:, :width].index_select(0, index).long()

    def widths(self, rows: Tensor) -> list[int]:
        """L of each step, whose samples are a row of (steps, B)."""
        return [self._rounded(longest) for longest in self._lengths_on_cpu[rows.cpu()].amax(1).tolist()]

    def by_cost(self, index: Tensor | None) -> Tensor:
        """The shortest first, so that chunks have texts of like lengths."""
        if index is None:
            return self._lengths.argsort(stable=True)
        return index[self._lengths[index].argsort(stable=True)]

    def _rounded(self, length: int) -> int:
        # A text without a token is still a row of one width or another.
        return min(max(1, -(-length // MULTIPLE)) * MULTIPLE, self._ids.shape[1])


class Vectors(Samples):
    """Vectors x (N, D) float32, used as they are; labels (N,) int64 on the training device."""

    def __init__(self, x: np.ndarray, labels: Tensor, dtype: torch.dtype) -> None:
        self.labels = labels
        self._x = torch.from_numpy(np.array(x)).to(labels.device, dtype)

    def at(self, index: Tensor | slice) -> Tensor:
        """(B, D)."""
        return self._x[index]

    def batch(self, index: Tensor, draws: Tensor | None = None, width: int | None = None) -> Tensor:
        """(B, D)."""
        return self._x.index_select(0, index)
