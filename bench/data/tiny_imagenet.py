"""Tiny-ImageNet: 200 classes of ImageNet in 64x64 pixels, its validation part being the test part.

Source: Stanford CS231n (2015). The published archive is read as it is; so is its unpacked folder, and Hugging Face's
`zh-plus/tiny-imagenet` in the folder `tiny_imagenet`. Classes are numbered in the order of their names in WordNet.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.data import parquet
from bench.data.dataset import Dataset
from bench.data.download import Original
from bench.data.files import FileSource
from bench.data.table import DATASETS

if TYPE_CHECKING:
    from bench.data.dataset import Images, Labels

SHAPE = (3, 64, 64)
FOLDER = "tiny-imagenet-200"


@dataclass(frozen=True)
class TinyImageNet(FileSource):
    """The `Source` of Tiny-ImageNet."""

    def missing(self, folder: Path) -> list[str]:
        """The archive, unless it is here in one of its three forms."""
        return [] if self.present(folder) else super().missing(folder)

    def present(self, folder: Path) -> list[Path]:
        """The files to read, whose time shows changes; of the unpacked folder the folders of images, not each image."""
        unpacked = folder / FOLDER
        if _is_whole(unpacked):
            images = sorted(unpacked.glob("train/*/images"))
            return [unpacked / "wnids.txt", unpacked / "val/val_annotations.txt", unpacked / "val/images", *images]
        return super().present(folder)

    def parse(self, folder: Path) -> Dataset:
        """Read the folder, the tables or the archive."""
        if not _is_whole(folder / FOLDER) and (tables := self.tables(folder)):
            train, test = (parquet.labelled(part, SHAPE) for part in tables)
            return Dataset.of(self.name, train, test)
        if _is_whole(folder / FOLDER):
            place, listed = folder / FOLDER, [str(file) for file in (folder / FOLDER).glob("train/*/images/*.JPEG")]
            return self._of_files(sorted(listed), lambda path: (place / path).read_bytes())
        with zipfile.ZipFile(self.files[0].find(folder) or folder) as archive:
            listed = [name for name in archive.namelist() if "/train/" in name and name.endswith(".JPEG")]
            return self._of_files(sorted(listed), lambda path: archive.read(f"{FOLDER}/{path}"))

    def _of_files(self, train_images: list[str], read: Callable[[str], bytes]) -> Dataset:
        """The data set, of sorted paths that end with train/WNID/images/NAME; `read` gives a file's content."""
        labels = {wnid: label for label, wnid in enumerate(sorted(read("wnids.txt").decode().split()))}
        rows = [line.split() for line in read("val/val_annotations.txt").decode().splitlines()]
        train = [("/".join(path.rsplit("/", 4)[1:]), labels[path.rsplit("/", 3)[1]]) for path in train_images]
        return Dataset.of(
            self.name,
            _decoded(train, read),
            _decoded([(f"val/images/{row[0]}", labels[row[1]]) for row in sorted(rows)], read),
        )


def _decoded(images: list[tuple[str, int]], read: Callable[[str], bytes]) -> tuple[Images, Labels]:
    """(N, 3, 64, 64) pixels and (N,) labels."""
    pixels = np.empty((len(images), *SHAPE), np.uint8)
    for position, (path, _) in enumerate(images):
        try:
            pixels[position] = parquet.decoded(read(path), SHAPE)
        except Exception as problem:
            raise ValueError(f"{path}: {problem}") from problem
    return pixels, np.array([label for _, label in images], np.int64)


def _is_whole(unpacked: Path) -> bool:
    """Whether an unpacked folder has what is read; many tools sort the images of `val` into folders of classes."""
    wanted = ("wnids.txt", "val/val_annotations.txt", "val/images/*.JPEG")
    return all(next(unpacked.glob(pattern), None) for pattern in wanted)


_ARCHIVE = Original(
    f"{FOLDER}.zip", "90528d7ca1a48142e341f4ef8d21d0de", urls=(f"http://cs231n.stanford.edu/{FOLDER}.zip",)
)
TINY_IMAGENET = TinyImageNet(
    info=DATASETS["tiny_imagenet"],
    form=f"{FOLDER}: wnids.txt, val/val_annotations.txt and images of 64x64, or a table of images",
    files=(_ARCHIVE,),
    downloads=(_ARCHIVE,),
    repository="zh-plus/tiny-imagenet",
    table_parts=(("train",), ("valid",)),
)
