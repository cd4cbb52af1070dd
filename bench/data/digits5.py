"""Digits-5: five sources of the same ten digits, of which each is a client's.

Source: X. Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch Normalization (2021), and its code:
the published parts of a source are put together, a fifth of it, stratified, is tested on, and the first 743 of the
rest, a tenth of what USPS has there, are trained on. Images become 28x28 with three channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from bench.data import cache
from bench.data.dataset import Dataset
from bench.data.files import PreparedSource
from bench.data.sizing import resized
from bench.data.table import DATASETS

if TYPE_CHECKING:
    from bench.data.dataset import Groups, Images, Labels
    from bench.data.files import FileSource
    from bench.data.table import DatasetInfo

SIDE = 28
TRAINED = 743
TEST_SHARE = 0.2


@dataclass(frozen=True)
class Sources(PreparedSource):
    """The `Source` of a data set made of others; its groups are their positions among `names`.

    Args:
        info: its entry in `DATASETS`.
        names: of the sources, in `DATASETS`.
        trained: training samples of each.
    """

    info: DatasetInfo
    names: tuple[str, ...]
    trained: int = TRAINED

    def present(self, folder: Path) -> list[Path]:
        """The files of all sources that there are."""
        return [file for source in self._sources() for file in source.present(folder)]

    def missing(self, folder: Path) -> list[str]:
        """The files of all sources that are not in `folder`, as paths below it."""
        return [path for source in self._sources() for path in source.missing(folder)]

    def fetch(self, folder: Path, offline: bool) -> None:
        """Bring the missing files of each source into `folder`; raises as `bench.data.download.fetch` does."""
        for source in self._sources():
            if source.missing(folder):
                source.fetch(folder, offline)

    def parse(self, folder: Path) -> Dataset:
        """The sources' parts, one after another."""
        parts = [_parts(source.read(folder), self.trained) for source in self._sources()]
        (train_x, train_y), (test_x, test_y) = (
            tuple(np.concatenate([part[which][array] for part in parts]) for array in (0, 1)) for which in (0, 1)
        )
        train_groups, test_groups = (_groups([len(part[which][1]) for part in parts]) for which in (0, 1))
        return Dataset.of(self.name, (train_x, train_y), (test_x, test_y), train_groups, test_groups)

    def _sources(self) -> tuple[FileSource, ...]:
        places = (DATASETS[name].loader.split(":") for name in self.names)
        return tuple(cast("FileSource", getattr(import_module(module), attribute)) for module, attribute in places)

    def place(self) -> Path:
        """As `PreparedSource.place` says."""
        return cache.place(self.name, [*self.names, str(self.trained)])


def _parts(source: Dataset, trained: int) -> tuple[tuple[Images, Labels], tuple[Images, Labels]]:
    """Training and test part of one source."""
    from sklearn.model_selection import StratifiedShuffleSplit

    pixels = np.concatenate([source.train_x, source.test_x])
    labels = np.concatenate([source.train_y, source.test_y])
    splitter = StratifiedShuffleSplit(n_splits=1, test_size=TEST_SHARE, random_state=0)
    train, test = next(iter(splitter.split(labels, labels)))
    first = train[:trained]
    return (_alike(pixels[first]), labels[first]), (_alike(pixels[test]), labels[test])


def _alike(images: Images) -> Images:
    """(N, 3, 28, 28)."""
    sized = images if images.shape[2:] == (SIDE, SIDE) else resized(images, SIDE)
    return np.broadcast_to(sized, (len(sized), 3, SIDE, SIDE))


def _groups(sizes: list[int]) -> Groups:
    return np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)


DIGITS5 = Sources(DATASETS["digits5"], ("mnist", "svhn", "usps", "synthdigits", "mnist_m"))
MNIST_USPS = Sources(DATASETS["mnist_usps"], ("mnist", "usps"))
