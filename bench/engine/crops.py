"""Random crops and flips as one gather of whole pixels: nothing is padded or copied beforehand.

Axes: B samples, H rows, W columns, C channels.
"""

from __future__ import annotations

import torch
from torch import Tensor

PADDING = 4
OFFSETS = 2 * PADDING + 1  # places where a window can start, along each axis


class Crops:
    """Windows of images that are padded by 4, mirrored or not.

    Args:
        pixels: (N * H * W + 1, C) uint8, pixel after pixel; the last one is black.
        height: H.
        width: W.
        augmentation: `flip_crop` pads with zeros, `flip_crop_reflect` by reflection; `none` has no windows.
    """

    def __init__(self, pixels: Tensor, height: int, width: int, augmentation: str) -> None:
        self._pixels = pixels
        self._area = height * width
        self._black = len(pixels) - 1
        # Half the traffic of int64, where the largest sum of a row and a column fits.
        self._kind = torch.int32 if 2 * self._black < 2**31 else torch.int64
        reflect = augmentation == "flip_crop_reflect"
        self._rows = _windows(height, width, self._black, reflect).to(pixels.device, self._kind)
        columns = _windows(width, 1, self._black, reflect)
        self._columns = torch.cat([columns, columns.flip(1)]).to(pixels.device, self._kind)

    def __call__(self, index: Tensor, draws: Tensor) -> Tensor:
        """The window of each sample.

        Args:
            index: (B,) samples.
            draws: (B, 3) int64 of `draw_crops`.

        Returns:
            (B, H, W, C) uint8.
        """
        row, column, mirror = draws.unbind(1)
        rows = self._rows[row] + (index * self._area).to(self._kind)[:, None]
        columns = self._columns[column + OFFSETS * mirror]
        # What lies outside an image points at the black pixel or beyond.
        at = (rows[:, :, None] + columns[:, None, :]).clamp_max_(self._black)
        return self._pixels.index_select(0, at.view(-1)).view(*at.shape, -1)


def _windows(size: int, stride: int, outside: int, reflect: bool) -> Tensor:
    """(OFFSETS, size) int64: where each row (or column) of a window lies in its image, for each place of the window."""
    at = torch.arange(-PADDING, size - PADDING) + torch.arange(OFFSETS)[:, None]
    if reflect:  # the edge itself is not repeated
        at = torch.where(at.abs() >= size, 2 * (size - 1) - at.abs(), at.abs())
    return torch.where((at >= 0) & (at < size), at * stride, outside)


def draw_crops(generator: torch.Generator, steps: int, batch_size: int) -> Tensor:
    """(steps, batch_size, 3) int64: row and column offsets in [0, 8], mirror in {0, 1}."""
    offsets = torch.randint(0, OFFSETS, (steps, batch_size, 2), generator=generator)
    mirror = torch.randint(0, 2, (steps, batch_size, 1), generator=generator)
    return torch.cat([offsets, mirror], dim=2)
