"""Random crops, flips and rotations as one gather of whole pixels: no image is padded, copied or turned beforehand.

Axes: B samples, H rows, W columns, C channels.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

PADDING = 4
OFFSETS = 2 * PADDING + 1  # places where a window can start, along each axis
DEGREES = 15
PER_DEGREE = 64  # between two angles, a corner of 32x32 pixels moves by 0.006 of a pixel
ANGLES = 2 * DEGREES * PER_DEGREE + 1
KEPT_SIZES = 4


class Crops:
    """Windows of images that are padded by 4, mirrored or not, then turned by up to 15 degrees or not.

    Args:
        pixels: (N * H * W + 1, C) uint8, pixel after pixel; the last one is black.
        height: H.
        width: W.
        augmentation: `flip_crop` pads with zeros, `flip_crop_reflect` by reflection; `flip_crop_rotate` pads with zeros
            and turns the window about its centre by a multiple of 1/64 degrees: each pixel is the nearest one, what was
            outside is black. `none` has no windows.
    """

    def __init__(self, pixels: Tensor, height: int, width: int, augmentation: str) -> None:
        self._pixels = pixels
        self._shape = (height, width)
        self._black = len(pixels) - 1
        # Half the traffic of int64, where the largest sum fits: an image's first pixel, and a row and a column outside.
        self._kind = torch.int32 if 3 * self._black < 2**31 else torch.int64
        reflect, rotate = augmentation == "flip_crop_reflect", augmentation == "flip_crop_rotate"
        # A turned window needs a row outside, which `_rotations` points to.
        rows = F.pad(_windows(height, width, self._black, reflect), (0, int(rotate)), value=self._black)
        columns = _windows(width, 1, self._black, reflect)
        self._rows = rows.to(pixels.device, self._kind)
        self._columns = torch.cat([columns, columns.flip(1)]).to(pixels.device, self._kind)
        self._rotations = _rotations(height, width).to(pixels.device) if rotate else None

    def __call__(self, index: Tensor, draws: Tensor) -> Tensor:
        """The window (B, H, W, C) uint8 of each sample of `index` (B,), by draws (B, 4) int64 of `draw_crops`."""
        row, column, mirror = draws[:, :3].unbind(1)
        height, width = self._shape
        rows = self._rows[row] + (index * (height * width)).to(self._kind)[:, None]
        columns = self._columns[column + OFFSETS * mirror]
        # What lies outside an image points at the black pixel or beyond.
        at = (rows[:, :, None] + columns[:, None, :]).clamp_max_(self._black)
        if self._rotations is not None:
            turned = self._rotations.index_select(0, draws[:, 3])  # int32, which `gather` does not take
            first = torch.arange(len(at), dtype=turned.dtype, device=at.device)[:, None] * at[0].numel()
            at = at.view(-1).index_select(0, (turned + first).view(-1))
        return self._pixels.index_select(0, at.view(-1)).view(len(index), height, width, -1)


def _windows(size: int, stride: int, outside: int, reflect: bool) -> Tensor:
    """(OFFSETS, size) int64: where each row (or column) of a window lies in its image, for each place of the window."""
    at = torch.arange(-PADDING, size - PADDING) + torch.arange(OFFSETS)[:, None]
    if reflect:  # the edge itself is not repeated
        at = torch.where(at.abs() >= size, 2 * (size - 1) - at.abs(), at.abs())
    return torch.where((at >= 0) & (at < size), at * stride, outside)


@lru_cache(KEPT_SIZES)
def _rotations(height: int, width: int) -> Tensor:
    """(ANGLES, H * W) int32: the pixel of a window that each pixel of the turned one shows; H * W is outside.

    Made on the CPU, in float64: no pixel is so near a tie that another processor could round it the other way.
    """
    angle = torch.deg2rad(torch.arange(ANGLES, dtype=torch.float64) / PER_DEGREE - DEGREES)
    cos, sin = angle.cos()[:, None, None], angle.sin()[:, None, None]
    middle_y, middle_x = (height - 1) / 2, (width - 1) / 2
    y, x = torch.arange(height)[:, None] - middle_y, torch.arange(width) - middle_x
    row = (cos * y + sin * x + middle_y).round_().int()
    column = (cos * x - sin * y + middle_x).round_().int()
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    return torch.where(inside, row * width + column, height * width).flatten(1)


def draw_crops(generator: torch.Generator, steps: int, batch_size: int) -> Tensor:
    """(steps, batch_size, 4) int64: row and column offsets in [0, 8], mirror in {0, 1}, angle in [0, 1920].

    The angle counts 1/64 degrees from -15; it is drawn last, and whatever the augmentation: crops and flips of a seed
    are the same with and without rotation.
    """
    offsets = torch.randint(0, OFFSETS, (steps, batch_size, 2), generator=generator)
    mirror = torch.randint(0, 2, (steps, batch_size, 1), generator=generator)
    angle = torch.randint(0, ANGLES, (steps, batch_size, 1), generator=generator)
    return torch.cat([offsets, mirror, angle], dim=2)
