"""A part of a data set on the training device, turned into inputs batch by batch.

The samples are images, texts or vectors. Random crops, flips and rotations are one gather of whole
pixels: no image is padded, copied or turned beforehand.

Axes: N samples, B of a batch, C channels, H rows, W columns, L tokens, D numbers of a vector.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bench.data import Dataset, DatasetInfo
from bench.data.dataset import PAD

KEPT_PARTS = 4  # training and test parts of two data sets
# Inputs up to this size are made once: small batches are bound by calls, not by memory.
READY_BYTES = 16 * 2**20
CHUNK = 1024  # samples that are compared at once
MULTIPLE = 8  # lengths of texts are rounded up to a multiple of it: fewer shapes, and aligned ones
# Augmentation.
PADDING = 4
OFFSETS = 2 * PADDING + 1  # places where a window can start, along each axis
DEGREES = 15
PER_DEGREE = 64  # from one angle to the next, a corner of 32x32 pixels moves by 0.006 of a pixel
ANGLES = 2 * DEGREES * PER_DEGREE + 1


class Samples(Protocol):
    """Inputs of one part of a data set, by their positions in it, and its `labels` (N,) int64."""

    labels: Tensor

    def at(self, index: Tensor | slice) -> Tensor:
        """Return inputs (B, ...), not augmented."""

    def batch(self, index: Tensor, draws: Tensor | None = None, width: int | None = None) -> Tensor:
        """Return inputs (B, ...) of a training step.

        The draws are of `draw_crops`, the width is one of `widths`.
        """

    def widths(self, rows: Tensor) -> list[int] | None:
        """Return the input length of each step, whose samples are a row of (steps, B).

        None if inputs have one size.
        """
        return None

    def by_cost(self, index: Tensor | None) -> Tensor | None:
        """Return these samples (None for all) in the order that is best cut into chunks."""
        return index


def make_samples(
    dataset: Dataset,
    part: str,
    info: DatasetInfo,
    normalization: str,
    augmentation: str,
    device: torch.device,
    dtype: torch.dtype,
) -> Samples:
    """Make the `train` or `test` part of a data set."""
    labels = torch.from_numpy(np.array(getattr(dataset, f"{part}_y"), np.int64)).to(device)
    x = getattr(dataset, f"{part}_x")
    if info.kind == "images":
        return ImageSamples(x, labels, info, normalization, augmentation, dtype)
    return TextSamples(x, labels) if info.kind == "texts" else VectorSamples(x, labels, dtype)


# All runs of a process share one copy of a part.
shared_samples = lru_cache(maxsize=KEPT_PARTS)(make_samples)


def are_equal(one: Samples, other: Samples) -> bool:
    """Tell whether two parts have the same inputs and labels. Those of one data set are one."""
    if one is other:
        return True
    if not torch.equal(one.labels, other.labels):
        return False
    chunks = torch.split(torch.arange(len(one.labels), device=one.labels.device), CHUNK)
    return all(torch.equal(one.at(chunk), other.at(chunk)) for chunk in chunks)


class Normaliser:
    """Map from pixels (B, H, W, C) to inputs (B, C, H, W): (pixel / scale - mean) / std.

    Inputs are in channels-last memory. Mean and std are laid out over a whole image: broadcasting
    over the short channel axis would not vectorise.
    """

    def __init__(
        self, info: DatasetInfo, rule: str, device: torch.device, dtype: torch.dtype
    ) -> None:
        channels, height, width = info.input_shape
        mean, std = (torch.tensor(value, dtype=torch.float64) for value in info.normalization(rule))
        self._factor = (1 / (info.scale * std)).repeat(height * width).to(device, dtype)
        self._offset = (-mean / std).repeat(height * width).to(device, dtype)
        self._shape = (-1, height, width, channels)

    def __call__(self, pixels: Tensor) -> Tensor:
        """Return the inputs (B, C, H, W) of pixels (B, H, W, C)."""
        return self.shaped(self.rows(pixels.reshape(len(pixels), -1)))

    def rows(self, pixels: Tensor) -> Tensor:
        """Return the inputs (B, H * W * C) of pixels (B, H * W * C)."""
        return torch.addcmul(self._offset, pixels, self._factor)

    def shaped(self, rows: Tensor) -> Tensor:
        """View rows (B, H * W * C) as (B, C, H, W)."""
        return rows.view(self._shape).permute(0, 3, 1, 2)


class Crops:
    """Random windows of images padded by 4 pixels.

    They are mirrored or not, and optionally turned by up to 15 degrees.

    Args:
        pixels: (N * H * W + 1, C) uint8, pixel after pixel; the last one is black.
        height: H.
        width: W.
        augmentation: `flip_crop` pads with zeros, `flip_crop_reflect` by reflection;
            `flip_crop_rotate` pads with zeros and turns the window about its centre by a multiple
            of 1/64 degrees: each pixel is the nearest one, or black if that is outside. `none` has
            no windows.
    """

    def __init__(self, pixels: Tensor, height: int, width: int, augmentation: str) -> None:
        self._pixels = pixels
        self._shape = (height, width)
        self._black = len(pixels) - 1
        # int32 halves the traffic if the largest sum fits: an image's first pixel, and a row and a
        # column outside.
        self._index_dtype = torch.int32 if 3 * self._black < 2**31 else torch.int64
        reflect = augmentation == "flip_crop_reflect"
        rotate = augmentation == "flip_crop_rotate"
        rows = _windows(height, width, self._black, reflect)
        if rotate:
            # A turned window needs a row outside, which `_rotations` points to.
            rows = F.pad(rows, (0, 1), value=self._black)
        columns = _windows(width, 1, self._black, reflect)
        self._rows = rows.to(pixels.device, self._index_dtype)
        self._columns = torch.cat([columns, columns.flip(1)]).to(pixels.device, self._index_dtype)
        self._rotations = _rotations(height, width).to(pixels.device) if rotate else None

    def __call__(self, index: Tensor, draws: Tensor) -> Tensor:
        """Return the window (B, H, W, C) uint8 of each sample of `index` (B,).

        `draws`: (B, 3 or 4) of `draw_crops`.
        """
        row, column, mirror, *angle = draws.int().unbind(1)
        height, width = self._shape
        first_pixels = index.to(self._index_dtype) * (height * width)
        rows = self._rows.index_select(0, row) + first_pixels[:, None]
        columns = self._columns.index_select(0, column + OFFSETS * mirror)
        # Positions outside an image point at the black pixel or beyond.
        places = (rows[:, :, None] + columns[:, None, :]).clamp_max_(self._black)
        if self._rotations is not None:
            # int32, which `gather` does not take
            turned = self._rotations.index_select(0, *angle)
            images = torch.arange(len(places), dtype=turned.dtype, device=places.device)
            first = images[:, None] * places[0].numel()
            places = places.view(-1).index_select(0, (turned + first).view(-1))
        return self._pixels.index_select(0, places.view(-1)).view(len(index), height, width, -1)


def _windows(size: int, stride: int, outside: int, reflect: bool) -> Tensor:
    """Return (OFFSETS, size) int64: by offset of a window, the places of its rows in the image.

    The same holds for columns.
    """
    row = torch.arange(-PADDING, size - PADDING) + torch.arange(OFFSETS)[:, None]
    if reflect:  # the edge itself is not repeated
        row = torch.where(row.abs() >= size, 2 * (size - 1) - row.abs(), row.abs())
    return torch.where((row >= 0) & (row < size), row * stride, outside)


@lru_cache(4)
def _rotations(height: int, width: int) -> Tensor:
    """Return (ANGLES, H * W) int32: which pixel of a window each pixel of the turned one shows.

    H * W is outside. Computed on the CPU, in float64: no pixel is so near a tie that another
    processor could round it the other way.
    """
    angle = torch.deg2rad(torch.arange(ANGLES, dtype=torch.float64) / PER_DEGREE - DEGREES)
    cos = angle.cos()[:, None, None]
    sin = angle.sin()[:, None, None]
    middle_y = (height - 1) / 2
    middle_x = (width - 1) / 2
    y = torch.arange(height)[:, None] - middle_y
    x = torch.arange(width) - middle_x
    row = (cos * y + sin * x + middle_y).round_().int()
    column = (cos * x - sin * y + middle_x).round_().int()
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    return torch.where(inside, row * width + column, height * width).flatten(1)


def draw_crops(
    generator: torch.Generator, steps: int, batch_size: int, augmentation: str
) -> Tensor:
    """Draw (steps, batch_size, 3) int16: row and column offsets in [0, 8], mirror in {0, 1}.

    `flip_crop_rotate` has a fourth column, the angle in [0, 1920], which counts 1/64 degrees from
    -15. It is drawn last, so that the crops and flips of a seed are the same without rotation.
    """
    rotates = augmentation == "flip_crop_rotate"
    draws = torch.empty(steps, batch_size, 4 if rotates else 3, dtype=torch.int16)
    draws[..., :2].random_(0, OFFSETS, generator=generator)
    draws[..., 2].random_(0, 2, generator=generator)
    if rotates:
        draws[..., 3].random_(0, ANGLES, generator=generator)
    return draws


class ImageSamples(Samples):
    """Images x (N, C, H, W) uint8, with labels (N,) int64.

    They are stored once, and normalised and augmented batch by batch.
    """

    def __init__(
        self,
        x: np.ndarray,
        labels: Tensor,
        info: DatasetInfo,
        normalization: str,
        augmentation: str,
        dtype: torch.dtype,
    ) -> None:
        self.labels = labels
        self._dtype = dtype
        self._normalise = Normaliser(info, normalization, labels.device, dtype)
        count, channels, height, width = x.shape
        # Pixel after pixel, then a black one.
        flat = np.zeros((count * height * width + 1, channels), np.uint8)
        flat[:-1].reshape(count, height, width, channels)[:] = x.transpose(0, 2, 3, 1)
        pixels = torch.from_numpy(flat).to(labels.device)
        self.pixels = pixels[:-1].view(count, height, width, channels)
        self._crops = Crops(pixels, height, width, augmentation)

    def at(self, index: Tensor | slice) -> Tensor:
        """Return inputs (B, C, H, W)."""
        return self._normalise(self.pixels[index])

    def batch(self, index: Tensor, draws: Tensor | None = None, width: int | None = None) -> Tensor:
        """Return inputs (B, C, H, W), augmented if there are draws."""
        if draws is not None:
            return self._normalise(self._crops(index, draws))
        if self._ready is not None:
            return self._normalise.shaped(self._ready.index_select(0, index))
        # Not `pixels[index]`: that copies byte by byte.
        return self._normalise(self.pixels.index_select(0, index))

    @cached_property
    def _ready(self) -> Tensor | None:
        """All inputs (N, H * W * C), or None if they are too large to be made at once."""
        rows = self.pixels.flatten(1)
        if rows.numel() * self._dtype.itemsize > READY_BYTES:
            return None
        return self._normalise.rows(rows)


class TextSamples:
    """Texts: token ids (N, L), padded with `PAD`, stored once.

    Each batch is as long as its longest text.
    """

    def __init__(self, ids: np.ndarray, labels: Tensor) -> None:
        self.labels = labels
        self._ids = torch.from_numpy(np.array(ids, np.int32)).to(labels.device)
        positions = torch.arange(1, ids.shape[1] + 1, device=labels.device)
        self._lengths = ((self._ids != PAD) * positions).amax(1)
        self._lengths_on_cpu = self._lengths.cpu()

    def at(self, index: Tensor | slice) -> Tensor:
        """Return token ids (B, L) int64, with L for the longest of these texts."""
        return self._ids[index, : self._rounded(int(self._lengths[index].max()))].long()

    def batch(self, index: Tensor, draws: Tensor | None = None, width: int | None = None) -> Tensor:
        """Return token ids (B, L) int64; `width` gives L without waiting for the device."""
        if width is None:
            return self.at(index)
        return self._ids[:, :width].index_select(0, index).long()

    def widths(self, rows: Tensor) -> list[int]:
        """Return L of each step, whose samples are a row of (steps, B)."""
        longest = self._lengths_on_cpu[rows.cpu()].amax(1)
        return list(map(self._rounded, longest.tolist()))

    def by_cost(self, index: Tensor | None) -> Tensor:
        """Sort texts by length, the shortest first, so that a chunk's have similar lengths."""
        if index is None:
            return self._lengths.argsort(stable=True)
        return index[self._lengths[index].argsort(stable=True)]

    def _rounded(self, length: int) -> int:
        # Texts without a token still need a width above 0.
        return min(max(1, -(-length // MULTIPLE)) * MULTIPLE, self._ids.shape[1])


class VectorSamples(Samples):
    """Vectors x (N, D) float32, used as they are; labels (N,) int64 on the training device."""

    def __init__(self, x: np.ndarray, labels: Tensor, dtype: torch.dtype) -> None:
        self.labels = labels
        self._x = torch.from_numpy(np.array(x)).to(labels.device, dtype)

    def at(self, index: Tensor | slice) -> Tensor:
        """Return inputs (B, D)."""
        return self._x[index]

    def batch(self, index: Tensor, draws: Tensor | None = None, width: int | None = None) -> Tensor:
        """Return inputs (B, D)."""
        return self._x.index_select(0, index)
