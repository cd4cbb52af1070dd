"""A run's data on the training device: pixels as uint8, in memory once, turned into inputs batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from algorithms.base import Data
from bench.data import Dataset, DatasetInfo
from bench.data.splits import Split
from search_spaces.setting import Setting

CROP_PADDING = 4
KEPT_PARTS = 4  # training and test parts of two data sets
CHUNK = 500  # samples a forward pass outside training takes at once


@dataclass(frozen=True)
class Images:
    """Images (N, H, W, C) uint8 and labels (N,) int64 on a device: N images of height H, width W and C channels."""

    pixels: Tensor
    labels: Tensor

    @staticmethod
    def of(dataset: Dataset, part: str, device: torch.device) -> Images:
        """The `train` or `test` part of a data set; one copy serves all runs of a process."""
        key = (dataset.hash, part, str(device))
        if key not in _LOADED:
            x, y = (getattr(dataset, f"{part}_{axis}") for axis in "xy")
            while len(_LOADED) >= KEPT_PARTS:
                _LOADED.pop(next(iter(_LOADED)))
            pixels = torch.from_numpy(np.array(x.transpose(0, 2, 3, 1), order="C")).to(device)
            _LOADED[key] = Images(pixels, torch.from_numpy(np.array(y, np.int64)).to(device))
        return _LOADED[key]


_LOADED: dict[tuple[str, str, str], Images] = {}


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
        flat = pixels.reshape(len(pixels), -1).to(self._dtype)
        return torch.addcmul(self._offset, flat, self._factor).view(self._shape).permute(0, 3, 1, 2)


class Federation:
    """All samples of one run, and who holds them.

    Args:
        dataset: pixels and labels.
        info: the data set's constants.
        split: clients' samples, validation and auxiliary samples, as indices into the training set.
        setting: its augmentation and normalisation are read.
        device: of training.
        dtype: of inputs.
    """

    def __init__(
        self,
        dataset: Dataset,
        info: DatasetInfo,
        split: Split,
        setting: Setting,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.train = Images.of(dataset, "train", device)
        self.test = Images.of(dataset, "test", device)
        self.normalise = Normaliser(info, setting.normalization, device, dtype)
        self.augmentation = setting.augmentation
        self.device, self.dtype = device, dtype
        self.clients = tuple(torch.from_numpy(index).to(device) for index in split.clients)
        self.local_tests = tuple(torch.from_numpy(index).to(device) for index in split.local_tests)
        self.validation = torch.from_numpy(split.validation).to(device)
        self.auxiliary = torch.from_numpy(split.auxiliary).to(device)

    def data(self, index: Tensor) -> Data:
        """Training samples by index; the inputs are made when first asked for."""
        weight = torch.ones(len(index), device=self.device, dtype=self.dtype)
        return Data(lambda: self.normalise(self.train.pixels[index]), self.train.labels[index], weight)

    def source(self, client: int, draws: Tensor | None) -> Source:
        """A client's samples for one round, ready to be batched."""
        pixels = self.train.pixels[self.clients[client]]
        if self.augmentation == "none":
            return Source(self.normalise, self.normalise(pixels))
        return Source(self.normalise, crops(pixels, self.augmentation), draws)

    def chunks(self, images: Images, index: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """(inputs, labels) of all images, or of those at `index`, a chunk at a time."""
        total = len(images.labels) if index is None else len(index)
        for begin in range(0, total, CHUNK):
            at = slice(begin, begin + CHUNK) if index is None else index[begin : begin + CHUNK]
            yield self.normalise(images.pixels[at]), images.labels[at]


@dataclass(frozen=True)
class Source:
    """One client's inputs in one round.

    Args:
        normalise: pixels to inputs.
        samples: the inputs (n, C, H, W) themselves; or, with `draws`, every crop as `crops` lays them out.
        draws: (steps, B, 3) int64 of row offset, column offset and mirror for each place in the schedule.
    """

    normalise: Normaliser
    samples: Tensor
    draws: Tensor | None = None

    def take(self, step: int, positions: Tensor) -> Tensor:
        """Inputs (b, C, H, W) of the first b places of a step, whose samples are `positions` (b,)."""
        if self.draws is None:
            return self.samples[positions].contiguous(memory_format=torch.channels_last)
        row, column, mirror = self.draws[step, : len(positions)].unbind(1)
        # In the mirrored copy the same window starts as far from the other edge.
        column = torch.where(mirror.bool(), 2 * CROP_PADDING - column, column)
        return self.normalise(self.samples[mirror, positions, row, column])


def crops(pixels: Tensor, augmentation: str) -> Tensor:
    """Every crop of every image, mirrored and not, as one strided view: (2, n, rows, columns, H, W, C), uint8.

    Args:
        pixels: (n, H, W, C) uint8.
        augmentation: `flip_crop` pads by 4 with zeros, `flip_crop_reflect` by reflection.
    """
    _, height, width, _ = pixels.shape
    if augmentation == "flip_crop_reflect":
        padded = pixels[:, _reflected(height, pixels.device)][:, :, _reflected(width, pixels.device)]
    else:
        around = (0, 0, CROP_PADDING, CROP_PADDING, CROP_PADDING, CROP_PADDING)
        padded = torch.nn.functional.pad(pixels, around)
    both = torch.stack([padded, padded.flip(2)])
    return both.unfold(2, height, 1).unfold(3, width, 1).permute(0, 1, 2, 3, 5, 6, 4)


def _reflected(size: int, device: torch.device) -> Tensor:
    """Indices of an axis padded by reflection, the edge itself not repeated."""
    index = torch.arange(-CROP_PADDING, size + CROP_PADDING, device=device).abs()
    return torch.where(index >= size, 2 * (size - 1) - index, index)


def draw_crops(generator: torch.Generator, steps: int, batch_size: int) -> Tensor:
    """(steps, batch_size, 3) int64: row and column offsets in [0, 8], mirror in {0, 1}."""
    offsets = torch.randint(0, 2 * CROP_PADDING + 1, (steps, batch_size, 2), generator=generator)
    mirror = torch.randint(0, 2, (steps, batch_size, 1), generator=generator)
    return torch.cat([offsets, mirror], dim=2)
