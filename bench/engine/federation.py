"""A run's samples on the training device, and the clients that hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from algorithms.base import Client, Data
from algorithms.forward import chunk_size
from bench.data import Dataset, DatasetInfo
from bench.data.dealing import Positions
from bench.data.splits import PublicSet, Split
from bench.engine.samples import Samples, make_samples, shared_samples
from search_spaces.setting import Setting


class Federation:
    """All samples of one run, inputs in `dtype`, and the clients that hold the training samples."""

    def __init__(
        self,
        dataset: Dataset,
        info: DatasetInfo,
        split: Split,
        setting: Setting,
        device: torch.device,
        dtype: torch.dtype,
        before_chunk: Callable[[], None] = lambda: None,
    ) -> None:
        self.before_chunk = before_chunk
        options = (info, setting.normalization, setting.augmentation, device, dtype)
        self.train = shared_samples(dataset, "train", *options)
        self.test = shared_samples(dataset, "test", *options)
        self.device = device
        self.dtype = dtype
        self._num_classes = info.num_classes
        self._give(split.clients)
        self.validation = self._placed(split.validation)
        # The test samples of each source if clients hold one source each, else all in one part
        # (None); and the validation samples that go with each part.
        self.test_parts: tuple[Tensor | None, ...] = (None,)
        self.validation_parts: tuple[Tensor, ...] = (self.validation,)
        if setting.partition == "by_source" and (groups := dataset.test_groups) is not None:
            sources = np.unique(groups)
            of_sources = [np.flatnonzero(groups == each) for each in sources]
            self.test_parts = tuple(map(self._placed, of_sources))
            self.validation_parts *= len(sources)
            if dataset.train_groups is not None:
                held_out = dataset.train_groups[split.validation]
                parts = [split.validation[held_out == each] for each in sources]
                self.validation_parts = tuple(map(self._placed, parts))
        self.local_tests = tuple(map(self._placed, split.local_tests))
        self.local_validations = tuple(map(self._placed, split.local_validations))
        self.auxiliary = self._placed(split.auxiliary)

    def _placed(self, positions: Positions) -> Tensor:
        """Move positions to the device."""
        return torch.from_numpy(positions).to(self.device)

    def _give(self, clients: Sequence[Positions]) -> None:
        """Give the clients these training samples each."""
        held = [torch.from_numpy(index) for index in clients]
        self.clients = tuple(index.to(self.device) for index in held)
        # Rounds copy them for each step: half as wide, because no data set has 2**31 samples.
        self._narrow_clients = tuple(index.int() for index in held)
        self.sizes = tuple(len(index) for index in clients)

    def among(self, clients: Sequence[Positions]) -> Federation:
        """Return a federation of the same samples whose clients hold these for training."""
        other = copy(self)
        other.__dict__.pop("_label_counts", None)  # computed of this one's clients
        other._give(clients)
        return other

    def data(self, index: Tensor) -> Data:
        """Return training samples by index; their inputs are made when first read."""
        return Data(lambda: self.train.at(index), self.train.labels[index])

    def public(self, public: PublicSet | None, normalization: str) -> Data:
        """Return the public samples: those of a set, or else the server's auxiliary ones."""
        if public is None:
            return self.data(self.auxiliary)
        options = (public.info, normalization, "none", self.device, self.dtype)
        part = make_samples(public.dataset, "train", *options)
        return Data(lambda: part.at(slice(None)), part.labels)

    def client(self, number: int) -> Client:
        """Return a client, with its number of samples and of samples of each class."""
        counts = self._label_counts[number]
        return Client(number, counts.sum(), counts)

    @cached_property
    def _label_counts(self) -> Tensor:
        """Numbers of samples of each client and class (K, C).

        They are counted on first use, because few algorithms need them.
        """
        counts = []
        for index in self.clients:
            labels = self.train.labels[index]
            counts.append(torch.bincount(labels, minlength=self._num_classes))
        return torch.stack(counts).to(self.dtype)

    def inputs(self, client: int, positions: Tensor, draws: Tensor | None) -> ClientInputs:
        """Return a client's inputs of one round.

        `positions` (steps, B) are each step's samples among the client's. `positions` and `draws`
        are on the CPU.
        """
        rows = self._narrow_clients[client].index_select(0, positions.flatten())
        return ClientInputs(self.train, self.clients[client], rows.view_as(positions), draws)

    def chunks(
        self, part: Samples, index: Tensor | None = None, size: int | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (inputs, labels) of a part's samples, or of those at `index`, in any order.

        They come in chunks of `size`, by default that of a pass without gradients. `before_chunk`,
        which may raise, is called before each chunk.
        """
        index = part.by_cost(index)
        total = len(part.labels) if index is None else len(index)
        size = size or chunk_size(self.device)
        for begin in range(0, total, size):
            self.before_chunk()
            at = slice(begin, begin + size) if index is None else index[begin : begin + size]
            yield part.at(at), part.labels[at]


@dataclass(frozen=True)
class ClientInputs:
    """One client's inputs in one round.

    They are made batch by batch, so that clients hold no copies of images.

    Args:
        samples: the training part of the data set.
        index: (n,) the client's samples, on the training device.
        rows: (steps, B) int32, the samples of each step.
        draws: (steps, B, 3 or 4) int16 of `draw_crops` for each place in the schedule, or None
            without augmentation.
    """

    samples: Samples
    index: Tensor
    rows: Tensor
    draws: Tensor | None = None

    @cached_property
    def widths(self) -> list[int] | None:
        """The input length of each step, as `Samples.widths` returns it."""
        return self.samples.widths(self.rows)

    def on(self, device: torch.device) -> ClientInputs:
        """Move all that a step reads to a device."""
        draws = None if self.draws is None else self.draws.to(device)
        return replace(self, rows=self.rows.to(device), draws=draws)

    def labels(self, step: int, size: int) -> Tensor:
        """Return the labels (size,) of a step's first samples."""
        return self.samples.labels.index_select(0, self.rows[step, :size])

    def take(self, step: int, size: int) -> Tensor:
        """Return the inputs (size, ...) of a step's first samples."""
        draws = None if self.draws is None else self.draws[step, :size]
        width = None if self.widths is None else self.widths[step]
        return self.samples.batch(self.rows[step, :size], draws, width)

    def chunks(self) -> Iterator[Tensor]:
        """Yield all inputs, not augmented, in chunks, in the order of the client's samples."""
        yield from map(self.samples.batch, torch.split(self.index, chunk_size(self.index.device)))
