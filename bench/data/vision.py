"""CIFAR-10 and CIFAR-100, read from the original files.

Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009). The files lie where torchvision
puts them, so a folder that torchvision has filled can be used as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.data.dataset import Dataset
from bench.data.files import FileSource
from bench.data.originals import Original
from bench.data.remote import Remote
from bench.data.table import DATASETS

if TYPE_CHECKING:
    from bench.data.dataset import Images, Labels


@dataclass(frozen=True)
class Cifar(FileSource):
    """The `Source` of CIFAR-10 or CIFAR-100.

    Args:
        label_key: key of the labels in a file.
    """

    label_key: bytes

    @property
    def train(self) -> tuple[Original, ...]:
        """Files of the training part, in order; the one behind them is the test part."""
        return self.files[:-1]

    def parse(self, folder: Path) -> Dataset:
        """As `FileSource.parse` says."""
        contents = [self._contents(folder, file) for file in self.train]
        pixels, targets = (np.concatenate(arrays) for arrays in zip(*contents, strict=True))
        return Dataset.of(self.name, (pixels, targets), self._contents(folder, self.files[-1]))

    def parse_labels(self, folder: Path) -> Labels:
        """(50000,) labels of the training part."""
        return np.concatenate([self._contents(folder, file)[1] for file in self.train])

    def _contents(self, folder: Path, file: Original) -> tuple[Images, Labels]:
        """(N, 3, 32, 32) pixels and (N,) labels of one file."""
        from bench.data.pickles import load_arrays

        content = load_arrays(file.read(folder, self.name))
        return content[b"data"].reshape(-1, 3, 32, 32), np.asarray(content[self.label_key], dtype=np.int64)


def _remote(path: str, md5: str, size: int) -> Remote:
    return Remote(Original(path, md5, size), (f"https://www.cs.toronto.edu/~kriz/{path}",))


CIFAR10 = Cifar(
    info=DATASETS["cifar10"],
    label_key=b"labels",
    files=(
        Original("cifar-10-batches-py/data_batch_1", "c99cafc152244af753f735de768cd75f", 31_035_704),
        Original("cifar-10-batches-py/data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec", 31_035_320),
        Original("cifar-10-batches-py/data_batch_3", "54ebc095f3ab1f0389bbae665268c751", 31_035_999),
        Original("cifar-10-batches-py/data_batch_4", "634d18415352ddfa80567beed471001a", 31_035_696),
        Original("cifar-10-batches-py/data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb", 31_035_623),
        Original("cifar-10-batches-py/test_batch", "40351d587109b95175f43aff81a1287e", 31_035_526),
    ),
    remotes=(_remote("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071),),
)

CIFAR100 = Cifar(
    info=DATASETS["cifar100"],
    label_key=b"fine_labels",
    files=(
        Original("cifar-100-python/train", "16019d7e3df5f24257cddd939b257f8d"),
        Original("cifar-100-python/test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),
    ),
    remotes=(_remote("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),),
)
