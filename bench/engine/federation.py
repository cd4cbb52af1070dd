"""A run's samples on the training device, and who holds them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from algorithms.base import Client, Data
from algorithms.forward import chunk_size
from bench.data import Dataset, DatasetInfo
from bench.data.splits import Split
from bench.engine.samples import Samples, samples
from search_spaces.setting import Setting


class Federation:
    """All samples of one run, inputs in `dtype`, and who holds them: the split's indices into the training set."""

    def __init__(
        self,
        dataset: Dataset,
        info: DatasetInfo,
        split: Split,
        setting: Setting,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        how = (info, setting.normalization, setting.augmentation, device, dtype)
        self.train, self.test = samples(dataset, "train", *how), samples(dataset, "test", *how)
        self.device, self.dtype, self._num_classes = device, dtype, info.num_classes
        self._held = tuple(torch.from_numpy(index) for index in split.clients)
        self.clients = tuple(index.to(device) for index in self._held)
        # The test samples of each source where a client holds one source, else all in one part (None).
        self.test_parts: tuple[Tensor | None, ...] = (None,)
        if setting.partition == "by_source" and (groups := dataset.test_groups) is not None:
            parts = [np.flatnonzero(groups == source) for source in np.unique(groups)]
            self.test_parts = tuple(torch.from_numpy(part).to(device) for part in parts)
        self.sizes = tuple(len(index) for index in split.clients)
        self.local_tests = tuple(torch.from_numpy(index).to(device) for index in split.local_tests)
        self.validation = torch.from_numpy(split.validation).to(device)
        self.auxiliary = torch.from_numpy(split.auxiliary).to(device)

    def data(self, index: Tensor) -> Data:
        """Training samples by index, made when first asked for."""
        return Data(
            lambda: self.train.at(index),
            lambda: self.train.labels[index],
            lambda: torch.ones(len(index), device=self.device, dtype=self.dtype),
        )

    def client(self, number: int) -> Client:
        """A client, with its number of samples and of samples of each class."""
        counts = self._label_counts[number]
        return Client(number, counts.sum(), counts)

    @cached_property
    def _label_counts(self) -> Tensor:
        """(K, C), counted when an algorithm first asks: few do."""
        counts = [torch.bincount(self.train.labels[index], minlength=self._num_classes) for index in self.clients]
        return torch.stack(counts).to(self.dtype)

    def source(self, client: int, positions: Tensor, draws: Tensor | None) -> Source:
        """A client's inputs of one round; `positions` (steps, B) are those of its samples that each step takes.

        They and `draws` are on the CPU.
        """
        return Source(self.train, self.clients[client], self._held[client][positions], draws)

    def chunks(
        self, part: Samples, index: Tensor | None = None, size: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """(inputs, labels) of all samples of a part, or of those at `index`, in chunks of `size`, in any order.

        Without a size, as many as a pass without gradients takes.
        """
        index = part.by_cost(index)
        total = len(part.labels) if index is None else len(index)
        size = size or chunk_size(self.device)
        for begin in range(0, total, size):
            at = slice(begin, begin + size) if index is None else index[begin : begin + size]
            yield part.at(at), part.labels[at]


@dataclass(frozen=True)
class Source:
    """One client's inputs in one round, made batch by batch: a round's clients keep no images of their own.

    Args:
        samples: of training.
        index: (n,) the client's samples, on the training device.
        rows: (steps, B) those that each step takes.
        draws: (steps, B, 4) int64 of `draw_crops` for each place in the schedule, or None without augmentation.
    """

    samples: Samples
    index: Tensor
    rows: Tensor
    draws: Tensor | None = None

    @cached_property
    def widths(self) -> list[int] | None:
        """As `Samples.widths` says of the steps."""
        return self.samples.widths(self.rows)

    def on(self, device: torch.device) -> Source:
        """With all that a step reads on this device."""
        return replace(self, rows=self.rows.to(device), draws=None if self.draws is None else self.draws.to(device))

    def labels(self, step: int, size: int) -> Tensor:
        """(size,) labels of the first places of a step."""
        return self.samples.labels[self.rows[step, :size]]

    def take(self, step: int, size: int) -> Tensor:
        """Inputs (size, ...) of the first places of a step."""
        draws = None if self.draws is None else self.draws[step, :size]
        width = None if self.widths is None else self.widths[step]
        return self.samples.batch(self.rows[step, :size], draws, width)

    def chunks(self) -> Iterator[Tensor]:
        """All inputs, not augmented, a chunk at a time, in the order of the client's samples."""
        yield from map(self.samples.batch, torch.split(self.index, chunk_size(self.index.device)))
