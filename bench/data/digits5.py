"""Digits-5, five sources of the same ten digits, each a client's; and two of them, SynthDigits and MNIST-M.

Sources: X. Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch Normalization (2021), and its code:
the published parts of a source are put together, a fifth of it, stratified, is tested on, and the first 743 of the
rest, a tenth of what USPS has there, are trained on. Images become 28x28 with three channels. Y. Ganin and V.
Lempitsky, Unsupervised Domain Adaptation by Backpropagation (2015): SynthDigits, and MNIST's digits blended with
patches of photographs, here in the forms that FedBN's code reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from bench.data import cache
from bench.data.dataset import Dataset
from bench.data.download import Original
from bench.data.files import FileSource, PreparedSource
from bench.data.sizing import resized
from bench.data.table import DATASETS

if TYPE_CHECKING:
    from bench.data.dataset import Groups, Images, Labels
    from bench.data.table import DatasetInfo

SIDE = 28
TRAINED = 743
TEST_SHARE = 0.2

# The digit sources as FedBN's authors distribute them, on Google Drive, without a checksum.
FEDBN_DIGITS = Original(
    "fedbn-digits.zip",
    urls=(
        "https://drive.usercontent.google.com/download?id=1P8g7uHyVxQJPcBKE8TAzfdKbimpRbj0I&export=download&confirm=t",
    ),
)


@dataclass(frozen=True)
class SynthDigits(FileSource):
    """The `Source` of SynthDigits: MATLAB files of the training and the test part, each with images `X`, labels `y`."""

    def parse(self, folder: Path) -> Dataset:
        """Read both parts."""
        train, test = (self._part(file.find(folder) or folder, folder) for file in self.files)
        return Dataset.of(self.name, train, test)

    def _part(self, file: Path, folder: Path) -> tuple[Images, Labels]:
        """(N, 3, 32, 32) pixels and (N,) labels."""
        from scipy.io import loadmat

        with self.reading(file, folder):
            content = loadmat(file, variable_names=("X", "y"))
            return np.ascontiguousarray(content["X"].transpose(3, 2, 0, 1)), content["y"].astype(np.int64).ravel()


@dataclass(frozen=True)
class MnistM(FileSource):
    """The `Source` of MNIST-M: `train` and `valid` of its one file are the training part, `test` is the test part."""

    def parse(self, folder: Path) -> Dataset:
        """Read both parts."""
        from bench.data.pickles import load_arrays

        content = load_arrays((self.files[0].find(folder) or folder).read_bytes())
        arrays = {key.decode() if isinstance(key, bytes) else str(key): value for key, value in content.items()}

        def part(*names: str) -> tuple[Images, Labels]:
            pixels = np.concatenate([arrays[name] for name in names]).transpose(0, 3, 1, 2)
            labels = np.concatenate([np.ravel(arrays[f"{name}_label"]) for name in names]).astype(np.int64)
            return np.ascontiguousarray(pixels), labels

        return Dataset.of(self.name, part("train", "valid"), part("test"))


@dataclass(frozen=True)
class Sources(PreparedSource):
    """The `Source` of a data set made of others; its groups are their positions among `names`."""

    info: DatasetInfo
    names: tuple[str, ...]
    trained: int = TRAINED  # samples of each
    form: str = "digits of several sources"

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

    def place(self) -> Path:
        """Return the folder of the prepared copy."""
        return cache.place(self.name, [*self.names, str(self.trained)])

    def _sources(self) -> list[FileSource]:
        places = (DATASETS[name].loader.split(":") for name in self.names)
        return [cast(FileSource, getattr(import_module(module), attribute)) for module, attribute in places]


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


SYNTHDIGITS = SynthDigits(
    info=DATASETS["synthdigits"],
    form="a MATLAB file of images X and labels y",
    files=tuple(
        Original(f"SynthDigits/synth_{part}_32x32.mat", also=(f"synth_{part}_32x32.mat",)) for part in ("train", "test")
    ),
    downloads=(FEDBN_DIGITS,),
)
MNIST_M = MnistM(
    info=DATASETS["mnist_m"],
    form="a pickle of arrays train, valid, test and their labels",
    files=(Original("MNIST_M/mnistm_data.pkl", also=("mnistm_data.pkl",)),),
    downloads=(FEDBN_DIGITS,),
)
DIGITS5 = Sources(DATASETS["digits5"], ("mnist", "svhn", "usps", "synthdigits", "mnist_m"))
MNIST_USPS = Sources(DATASETS["mnist_usps"], ("mnist", "usps"))
