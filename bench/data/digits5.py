"""Digits-5: five sources of the same ten digits, one per client.

The loaders of two of the sources, SynthDigits and MNIST-M, are here, too.

Sources: X. Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch Normalization
(2021), and its code: the published parts of a source are merged; a stratified fifth is the test
part, and the first 743 of the other samples, a tenth of those of USPS, are the training part.
Images become 28x28 with three channels. Y. Ganin and V. Lempitsky, Unsupervised Domain Adaptation
by Backpropagation (2015): SynthDigits, and MNIST's digits blended with patches of photographs, here
in the forms that FedBN's code reads.

MNIST-M is a pickle without a published checksum, which `bench.data.pickled` reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from bench import data
from bench.data.dataset import Dataset, resized, whole_numbers
from bench.data.download import Original
from bench.data.file_loaders import FileLoader, PreparedLoader
from bench.data.pickled import ForbiddenPickle, load_arrays, with_text_keys
from bench.data.registry import DATASETS

if TYPE_CHECKING:
    from bench.data.dataset import Groups, Images, Labels
    from bench.data.registry import DatasetInfo

    Part = tuple[Images, Labels]


SIDE = 28
TRAINED = 743
TEST_SHARE = 0.2
MOST_BYTES = 2**30  # of MNIST-M's file, which has a sixth of that

# The digit sources as FedBN's authors distribute them, on Google Drive, without a checksum.
FEDBN_DIGITS = Original(
    "fedbn-digits.zip",
    url="https://drive.usercontent.google.com/download"
    "?id=1P8g7uHyVxQJPcBKE8TAzfdKbimpRbj0I&export=download&confirm=t",
)


@dataclass(frozen=True)
class SynthDigits(FileLoader):
    """The `Loader` of SynthDigits.

    There is a MATLAB file of either part, with images `X` and labels `y`.
    """

    def parse(self, folder: Path) -> Dataset:
        """Read both parts."""
        train, test = (self._part(file.where(folder), folder) for file in self.files)
        return Dataset.of(self.name, train, test)

    def _part(self, file: Path, folder: Path) -> tuple[Images, Labels]:
        """Read (N, 3, 32, 32) pixels and (N,) labels."""
        from scipy.io import loadmat

        with self.reading(file, folder):
            content = loadmat(file, variable_names=("X", "y"))
            labels = whole_numbers(content["y"], "label")
            return np.ascontiguousarray(content["X"].transpose(3, 2, 0, 1)), labels


@dataclass(frozen=True)
class MnistM(FileLoader):
    """The `Loader` of MNIST-M.

    `train` and `valid` of its one file are the training part, `test` is the test part.
    """

    def parse(self, folder: Path) -> Dataset:
        """Read both parts."""
        file = self.files[0].where(folder)
        if file.stat().st_size > MOST_BYTES:
            raise ForbiddenPickle(f"more than {MOST_BYTES:,} bytes")
        arrays = with_text_keys(load_arrays(file.read_bytes()))

        def part(*names: str) -> tuple[Images, Labels]:
            pixels = np.concatenate([arrays[name] for name in names])
            labels = np.concatenate([np.ravel(arrays[f"{name}_label"]) for name in names])
            return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)), labels.astype(np.int64)

        return Dataset.of(self.name, part("train", "valid"), part("test"))


@dataclass(frozen=True)
class ComposedLoader(PreparedLoader):
    """The `Loader` of a data set composed of others, its sources.

    A sample's group is the position of its source in `names`.
    """

    info: DatasetInfo
    names: tuple[str, ...]
    trained: int = TRAINED  # training samples of each source
    form: str = "digits of several sources"

    def present(self, folder: Path) -> list[Path]:
        """List the files of all sources that are present."""
        return list(chain.from_iterable(loader.present(folder) for loader in self._loaders()))

    def missing(self, folder: Path) -> list[str]:
        """List the files of all sources that are not in `folder`, as paths below it."""
        return list(chain.from_iterable(loader.missing(folder) for loader in self._loaders()))

    def fetch(self, folder: Path, offline: bool) -> None:
        """Bring the missing files of each source into `folder`; raises as `FileLoader.fetch`."""
        for loader in self._loaders():
            if loader.missing(folder):
                loader.fetch(folder, offline)

    def parse(self, folder: Path) -> Dataset:
        """Concatenate the parts of the sources."""
        train_parts = []
        test_parts = []
        for loader in self._loaders():
            train, test = _parts(loader.read(folder), self.trained)
            train_parts.append(train)
            test_parts.append(test)
        return Dataset.of(
            self.name,
            _joined(train_parts),
            _joined(test_parts),
            _groups(train_parts),
            _groups(test_parts),
        )

    def identity(self) -> list[str]:
        """Return the sources and their number of training samples."""
        return [*self.names, str(self.trained)]

    def _loaders(self) -> list[FileLoader]:
        return [cast(FileLoader, data.loader(name)) for name in self.names]


def _parts(source: Dataset, trained: int) -> tuple[Part, Part]:
    """Return the training and the test part of one source."""
    from sklearn.model_selection import StratifiedShuffleSplit

    pixels = np.concatenate([source.train_x, source.test_x])
    labels = np.concatenate([source.train_y, source.test_y])
    splitter = StratifiedShuffleSplit(n_splits=1, test_size=TEST_SHARE, random_state=0)
    train, test = next(iter(splitter.split(labels, labels)))
    first = train[:trained]
    train_part = (_as_28x28_rgb(pixels[first]), labels[first])
    test_part = (_as_28x28_rgb(pixels[test]), labels[test])
    return train_part, test_part


def _as_28x28_rgb(images: Images) -> Images:
    """Resize images to (N, 3, 28, 28)."""
    sized = images if images.shape[2:] == (SIDE, SIDE) else resized(images, SIDE)
    return np.broadcast_to(sized, (len(sized), 3, SIDE, SIDE))


def _joined(parts: Sequence[Part]) -> Part:
    """Concatenate the parts of several sources."""
    pixels = np.concatenate([images for images, _ in parts])
    return pixels, np.concatenate([labels for _, labels in parts])


def _groups(parts: Sequence[Part]) -> Groups:
    """Return the source of each sample of joined parts."""
    sizes = [len(labels) for _, labels in parts]
    return np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)


SYNTHDIGITS = SynthDigits(
    info=DATASETS["synthdigits"],
    form="a MATLAB file of images X and labels y",
    files=tuple(
        Original(f"SynthDigits/synth_{part}_32x32.mat", also=(f"synth_{part}_32x32.mat",))
        for part in ("train", "test")
    ),
    archive=FEDBN_DIGITS,
)
MNIST_M = MnistM(
    info=DATASETS["mnist_m"],
    form="a pickle of arrays train, valid, test and their labels",
    files=(Original("MNIST_M/mnistm_data.pkl", also=("mnistm_data.pkl",)),),
    archive=FEDBN_DIGITS,
)
DIGITS5 = ComposedLoader(DATASETS["digits5"], ("mnist", "svhn", "usps", "synthdigits", "mnist_m"))
MNIST_USPS = ComposedLoader(DATASETS["mnist_usps"], ("mnist", "usps"))
