"""Images of another size: padded with black, or resized as Pillow does it, to the bit.

Pillow's bilinear filter (also torchvision's, on images) works in integers, rows after columns, each pass rounded to
uint8. As products with a matrix it takes many images at a time, four times as fast as Pillow image by image; all sums
stay below 2^53, so float64 is exact.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bench.data.table import SIDE
from bench.errors import UsageError

Images = NDArray[np.uint8]

PRECISION = 22  # bits of a weight behind the point: 32 less 8 of a pixel less 2 of room
CHUNK = 2**20  # pixels in float64 at a time


def sized(images: Images, image_size: str) -> Images:
    """Images (N, C, H, W) as `Setting.image_size` asks for them, read-only; the array itself if they are so already."""
    if image_size == "own" or images.ndim != 4 or images.shape[2:] == (SIDE, SIDE):
        return images
    pixels = padded(images, SIDE) if image_size == "pad32" else resized(images, SIDE)
    pixels.setflags(write=False)
    return pixels


def padded(images: Images, side: int) -> Images:
    """Images (N, C, H, W) in the middle of black ones (N, C, side, side); an odd row or column goes below, right.

    Raises UsageError if they are larger than that.
    """
    rows, columns = images.shape[2:]
    if max(rows, columns) > side:
        raise UsageError(f"images of {rows}x{columns} cannot be padded to {side}x{side}: use own or resize32")
    top, left = (side - rows) // 2, (side - columns) // 2
    return np.pad(images, ((0, 0), (0, 0), (top, side - rows - top), (left, side - columns - left)))


def resized(images: Images, side: int) -> Images:
    """Images (N, C, H, W) as (N, C, side, side), as `PIL.Image.resize` with the bilinear filter gives them."""
    count, channels, rows, columns = images.shape
    pixels = np.empty((count, channels, side, side), np.uint8)
    step = max(1, CHUNK // (channels * max(rows, side) * max(columns, side)))
    for begin in range(0, count, step):
        part = slice(begin, begin + step)
        across = _passed(images[part], _weights(columns, side))
        pixels[part] = _passed(across.swapaxes(2, 3), _weights(rows, side)).swapaxes(2, 3)
    return pixels


def _passed(images: Images, weights: NDArray[np.float64]) -> Images:
    """One pass along the last axis, rounded half up."""
    sums = images.astype(np.float64) @ weights
    sums += 2.0 ** (PRECISION - 1)
    sums *= 2.0**-PRECISION
    # The cast cuts off the fraction; no sum is negative, and only rounded weights could pass 255.
    return np.minimum(sums, 255, out=sums).astype(np.uint8)


@lru_cache
def _weights(old: int, new: int) -> NDArray[np.float64]:
    """(old, new) share of each old pixel in each new one, whole numbers that sum up to about 2^PRECISION."""
    scale = old / new
    reach = max(scale, 1.0)
    weights = np.zeros((old, new))
    for column in range(new):
        middle = (column + 0.5) * scale
        first, last = max(0, int(middle - reach + 0.5)), min(old, int(middle + reach + 0.5))
        shares = np.maximum(0, 1 - np.abs((np.arange(first, last) - middle + 0.5) / reach))
        weights[first:last, column] = np.floor(shares / shares.sum() * 2**PRECISION + 0.5)
    return weights
