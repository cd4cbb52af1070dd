"""A run's data on the training device: pixels as uint8, in memory once, turned into inputs batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from algorithms.base import Data
from algorithms.forward import chunk_size
from bench.data import Dataset, DatasetInfo
from bench.data.splits import Split
from bench.engine.crops import Crops
from search_spaces.setting import Setting

KEPT_PARTS = 4  # training and test parts of two data sets
READY_BYTES = 16 * 2**20  # inputs up to this size are made once: small batches are bound by calls, not by memory


class Images:
    """Images and labels on a device: N images of height H, width W and C channels.

    Args:
        x: (N, C, H, W) uint8.
        y: (N,) integers.
        device: where they shall lie.

    Attributes:
        flat: (N * H * W + 1, C) uint8, pixel after pixel, and a black one behind the last.
        pixels: (N, H, W, C), a view of it.
        labels: (N,) int64.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, device: torch.device) -> None:
        count, channels, height, width = x.shape
        flat = np.zeros((count * height * width + 1, channels), np.uint8)
        flat[:-1].reshape(count, height, width, channels)[:] = x.transpose(0, 2, 3, 1)
        self.flat = torch.from_numpy(flat).to(device)
        self.pixels = self.flat[:-1].view(count, height, width, channels)
        self.labels = torch.from_numpy(np.array(y, np.int64)).to(device)

    @staticmethod
    def of(dataset: Dataset, part: str, device: torch.device) -> Images:
        """The `train` or `test` part of a data set; one copy serves all runs of a process."""
        key = (dataset.hash, part, str(device))
        if key not in _LOADED:
            while len(_LOADED) >= KEPT_PARTS:
                _LOADED.pop(next(iter(_LOADED)))
            _LOADED[key] = Images(getattr(dataset, f"{part}_x"), getattr(dataset, f"{part}_y"), device)
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
        return self.shaped(self.rows(pixels.reshape(len(pixels), -1)))

    def rows(self, pixels: Tensor) -> Tensor:
        """(B, H * W * C) inputs of pixels (B, H * W * C)."""
        return torch.addcmul(self._offset, pixels, self._factor)

    def shaped(self, rows: Tensor) -> Tensor:
        """(B, C, H, W) of rows (B, H * W * C)."""
        return rows.view(self._shape).permute(0, 3, 1, 2)


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
        _, height, width, _ = self.train.pixels.shape
        self._crops = Crops(self.train.flat, height, width, setting.augmentation)
        rows = self.train.pixels.flatten(1)
        self._ready = self.normalise.rows(rows) if rows.numel() * dtype.itemsize <= READY_BYTES else None
        self.device, self.dtype = device, dtype
        self.clients = tuple(torch.from_numpy(index).to(device) for index in split.clients)
        self.test_parts = _test_parts(dataset, setting, device)
        self.sizes = tuple(len(index) for index in split.clients)
        self.local_tests = tuple(torch.from_numpy(index).to(device) for index in split.local_tests)
        self.validation = torch.from_numpy(split.validation).to(device)
        self.auxiliary = torch.from_numpy(split.auxiliary).to(device)

    def data(self, index: Tensor) -> Data:
        """Training samples by index; the inputs are made when first asked for."""
        weight = torch.ones(len(index), device=self.device, dtype=self.dtype)
        return Data(lambda: self.normalise(self.train.pixels[index]), self.train.labels[index], weight)

    def inputs(self, index: Tensor, draws: Tensor | None = None) -> Tensor:
        """Training samples (B, C, H, W) by index (B,), augmented where draws (B, 3) are given."""
        if draws is not None:
            return self.normalise(self._crops(index, draws))
        if self._ready is not None:
            return self.normalise.shaped(self._ready.index_select(0, index))
        # Not `pixels[index]`: that copies byte by byte.
        return self.normalise(self.train.pixels.index_select(0, index))

    def source(self, client: int, positions: Tensor, draws: Tensor | None) -> Source:
        """A client's inputs of one round; `positions` (steps, B) are those of its samples that each step takes."""
        index = self.clients[client]
        return Source(self, index, index[positions], draws)

    def chunks(self, images: Images, index: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """(inputs, labels) of all images, or of those at `index`, a chunk at a time."""
        total = len(images.labels) if index is None else len(index)
        size = chunk_size(self.device)
        for begin in range(0, total, size):
            at = slice(begin, begin + size) if index is None else index[begin : begin + size]
            yield self.normalise(images.pixels[at]), images.labels[at]


def _test_parts(dataset: Dataset, setting: Setting, device: torch.device) -> tuple[Tensor | None, ...]:
    """The test samples of each source where a client holds one source, else all in one part (None)."""
    groups = dataset.test_groups
    if setting.partition != "by_source" or groups is None:
        return (None,)
    return tuple(torch.from_numpy(np.flatnonzero(groups == source)).to(device) for source in np.unique(groups))


@dataclass(frozen=True)
class Source:
    """One client's inputs in one round, made batch by batch: a round's clients keep no images of their own.

    Args:
        federation: whose pixels they are.
        index: (n,) the client's samples, as all indices here into the training set.
        rows: (steps, B) those that each step takes.
        draws: (steps, B, 3) int64 of `draw_crops` for each place in the schedule, or None without augmentation.
    """

    federation: Federation
    index: Tensor
    rows: Tensor
    draws: Tensor | None = None

    def take(self, step: int, size: int) -> Tensor:
        """Inputs (size, C, H, W) of the first places of a step."""
        draws = None if self.draws is None else self.draws[step, :size]
        return self.federation.inputs(self.rows[step, :size], draws)

    def chunks(self) -> Iterator[Tensor]:
        """All inputs, not augmented, a chunk at a time."""
        yield from map(self.federation.inputs, torch.split(self.index, chunk_size(self.index.device)))
