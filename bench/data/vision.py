"""MNIST, EMNIST's letters, USPS, SVHN and CIFAR, which torchvision downloads and reads; and Tiny-ImageNet.

The files lie where torchvision puts them, so a folder that torchvision has filled can be used as it is; USPS and SVHN
may also lie where the code of FedBN (Li et al. 2021) puts them. Only downloading and preparing import torchvision.

Tiny-ImageNet has 200 classes of ImageNet in 64x64 pixels, numbered in the order of their names in WordNet; its
validation part is the test part. The published archive is read as it is, or Hugging Face's `zh-plus/tiny-imagenet`.

Sources: Y. LeCun, C. Cortes, C. Burges, The MNIST Database of Handwritten Digits (1998); G. Cohen et al., EMNIST:
Extending MNIST to Handwritten Letters (2017), whose images stay transposed; J. J. Hull, A Database for Handwritten Text
Recognition Research (1994), also as `flwrlabs/usps` on the Hugging Face hub; Y. Netzer et al., Reading Digits in
Natural Images with Unsupervised Feature Learning (2011); A. Krizhevsky, Learning Multiple Layers of Features from Tiny
Images (2009); Stanford CS231n, Tiny-ImageNet (2015).
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.data import parquet
from bench.data.dataset import Dataset, whole_numbers
from bench.data.download import Original
from bench.data.files import FileSource
from bench.data.table import DATASETS

if TYPE_CHECKING:
    from bench.data.dataset import Images, Labels


@dataclass(frozen=True)
class Vision(FileSource):
    """The `Source` of a data set that is in `torchvision.datasets`.

    Args:
        parts: arguments of its class there for the training and the test part, to which the first and the last of
            `files` belong.
    """

    theirs: str = ""  # name of its class there
    parts: tuple[dict[str, Any], dict[str, Any]] = ({"train": True}, {"train": False})
    first_label: int = 0  # number of the first class in the files

    def parse(self, folder: Path) -> Dataset:
        """Read the tables if present, else the files by torchvision."""
        tables = self.tables(folder)
        if tables:
            train, test = (parquet.labelled(part, self.info.input_shape) for part in tables)
        else:
            train = self._part(folder, self.files[0], self.parts[0])
            test = self._part(folder, self.files[-1], self.parts[1])
        return Dataset.of(self.name, train, test)

    def download(self, folder: Path) -> None:
        """Have torchvision download all files to a temporary folder, and move the missing ones to `folder`."""
        from torchvision import datasets

        with TemporaryDirectory(dir=folder, prefix=f".{self.name}-") as scratch:
            for arguments in self.parts:
                getattr(datasets, self.theirs)(scratch, download=True, **arguments)
            for path in self.missing(folder):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (Path(scratch) / path).replace(folder / path)

    def _part(self, folder: Path, file: Original, arguments: dict[str, Any]) -> tuple[Images, Labels]:
        """Read (N, C, H, W) pixels and (N,) labels of the part that has this file."""
        from torchvision import datasets

        base = getattr(datasets, self.theirs)
        # The names of CIFAR's classes may be missing; files of an older torchvision have no checksum.
        hooks = {"_load_meta": lambda self: None, "_check_legacy_exist": lambda self: False}
        place = file.find(folder) or folder
        with self.reading(place, folder):
            part = type(self.theirs, (base,), hooks)(place.parents[file.path.count("/")], **arguments)
            pixels = np.asarray(part.data)
            given = part.labels if hasattr(part, "labels") else part.targets
            labels = whole_numbers(np.asarray(given), "label") - self.first_label
            if pixels.ndim == 3:
                pixels = pixels[:, None]
            elif self.theirs.startswith("CIFAR"):
                pixels = pixels.transpose(0, 3, 1, 2)
            return np.ascontiguousarray(pixels), labels


@dataclass(frozen=True)
class TinyImageNet(FileSource):
    """The `Source` of Tiny-ImageNet."""

    def parse(self, folder: Path) -> Dataset:
        """Read the tables if present, else the archive."""
        if tables := self.tables(folder):
            train, test = (parquet.labelled(part, self.info.input_shape) for part in tables)
            return Dataset.of(self.name, train, test)
        with zipfile.ZipFile(self.files[0].find(folder) or folder) as archive:
            base = self.files[0].path.removesuffix(".zip")
            labels = {
                wnid: label for label, wnid in enumerate(sorted(archive.read(f"{base}/wnids.txt").decode().split()))
            }
            rows = [line.split() for line in archive.read(f"{base}/val/val_annotations.txt").decode().splitlines()]
            train_images = sorted(path for path in archive.namelist() if "/train/" in path and path.endswith(".JPEG"))
            return Dataset.of(
                self.name,
                self._decode(archive, [(path, labels[path.split("/")[2]]) for path in train_images]),
                self._decode(archive, [(f"{base}/val/images/{row[0]}", labels[row[1]]) for row in sorted(rows)]),
            )

    def _decode(self, archive: zipfile.ZipFile, images: list[tuple[str, int]]) -> tuple[Images, Labels]:
        """Decode images, given by path and label, to (N, 3, 64, 64) pixels and (N,) labels."""
        pixels = np.empty((len(images), *self.info.input_shape), np.uint8)
        for position, (path, _) in enumerate(images):
            try:
                pixels[position] = parquet.decoded(archive.read(path), self.info.input_shape)
            except Exception as problem:
                raise ValueError(f"{path}: {problem}") from problem
        return pixels, np.array([label for _, label in images], np.int64)


MNIST = Vision(
    info=DATASETS["mnist"],
    form="images and labels in the idx format",
    files=(
        Original("MNIST/raw/train-images-idx3-ubyte", "6bbc9ace898e44ae57da46a324031adb"),
        Original("MNIST/raw/train-labels-idx1-ubyte", "a25bea736e30d166cdddb491f175f624"),
        Original("MNIST/raw/t10k-images-idx3-ubyte", "2646ac647ad5339dbf082846283269ea"),
        Original("MNIST/raw/t10k-labels-idx1-ubyte", "27ae3e4e09519cfbb04c329615203637"),
    ),
    theirs="MNIST",
)
EMNIST_LETTERS = Vision(
    info=DATASETS["emnist_letters"],
    form="images and labels in the idx format",
    files=tuple(
        Original(f"EMNIST/raw/emnist-letters-{part}-ubyte")  # only the checksum of the archive is published
        for part in ("train-images-idx3", "train-labels-idx1", "test-images-idx3", "test-labels-idx1")
    ),
    theirs="EMNIST",
    parts=({"split": "letters", "train": True}, {"split": "letters", "train": False}),
    first_label=1,
)
USPS = Vision(
    info=DATASETS["usps"],
    form="lines of a label and 256 values, or a table of images",
    files=(
        Original("usps.bz2", "ec16c51db3855ca6c91edd34d0e9b197", ("USPS/usps.bz2",)),
        Original("usps.t.bz2", "8ea070ee2aca1ac39742fdd1ef5ed118", ("USPS/usps.t.bz2",)),
    ),
    repository="flwrlabs/usps",
    theirs="USPS",
)
SVHN = Vision(
    info=DATASETS["svhn"],
    form="a MATLAB file of images X and labels y",
    files=(
        Original("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", ("SVHN/train_32x32.mat",)),
        Original("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", ("SVHN/test_32x32.mat",)),
    ),
    theirs="SVHN",
    parts=({"split": "train"}, {"split": "test"}),
)
CIFAR10 = Vision(
    info=DATASETS["cifar10"],
    form="a pickled dictionary of images and labels",
    files=(
        Original("cifar-10-batches-py/data_batch_1", "c99cafc152244af753f735de768cd75f"),
        Original("cifar-10-batches-py/data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
        Original("cifar-10-batches-py/data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
        Original("cifar-10-batches-py/data_batch_4", "634d18415352ddfa80567beed471001a"),
        Original("cifar-10-batches-py/data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
        Original("cifar-10-batches-py/test_batch", "40351d587109b95175f43aff81a1287e"),
    ),
    theirs="CIFAR10",
)
CIFAR100 = Vision(
    info=DATASETS["cifar100"],
    form="a pickled dictionary of images and labels",
    files=(
        Original("cifar-100-python/train", "16019d7e3df5f24257cddd939b257f8d"),
        Original("cifar-100-python/test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),
    ),
    theirs="CIFAR100",
)
TINY_IMAGENET = TinyImageNet(
    info=DATASETS["tiny_imagenet"],
    form="an archive of wnids.txt, val/val_annotations.txt and images of 64x64, or a table of images",
    files=(
        Original(
            "tiny-imagenet-200.zip",
            "90528d7ca1a48142e341f4ef8d21d0de",
            url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        ),
    ),
    repository="zh-plus/tiny-imagenet",
    table_parts=("train", "valid"),
)
