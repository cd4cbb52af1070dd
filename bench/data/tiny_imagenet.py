"""Tiny-ImageNet: 200 classes of ImageNet in 64x64 pixels, its validation part being the test part.

Source: Stanford CS231n (2015). The published archive is read as it is; so is its unpacked folder, and Hugging Face's
`zh-plus/tiny-imagenet` in the folder `tiny_imagenet`. Classes are numbered in the order of their names in WordNet.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from bench.data import parquet
from bench.data.dataset import Dataset
from bench.data.files import FileSource
from bench.data.originals import Original, unlike
from bench.data.remote import Remote
from bench.data.table import DATASETS

if TYPE_CHECKING:
    from bench.data.dataset import Images, Labels

SHAPE = (3, 64, 64)
FOLDER = "tiny-imagenet-200"
REPOSITORY = "zh-plus/tiny-imagenet"


class _Tree:
    """The files of the archive, packed or not, by their paths in it."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self._archive = zipfile.ZipFile(where) if where.is_file() else None

    def names(self, folder: str) -> list[str]:
        """The JPEG files of a folder, in the order of their names."""
        if self._archive is None:
            return sorted(f"{folder}/{path.name}" for path in (self.where / folder).glob("*.JPEG"))
        return self._by_folder().get(f"{FOLDER}/{folder}", [])

    def bytes(self, path: str) -> bytes:
        """A file's content; KeyError or OSError if there is none."""
        if self._archive is None:
            return (self.where / path).read_bytes()
        return self._archive.read(f"{FOLDER}/{path}")

    def _by_folder(self) -> dict[str, list[str]]:
        if not hasattr(self, "_folders"):
            assert self._archive is not None
            self._folders: dict[str, list[str]] = {}
            for path in sorted(name for name in self._archive.namelist() if name.endswith(".JPEG")):
                parent = str(PurePosixPath(path).parent)
                self._folders.setdefault(parent, []).append(path.removeprefix(f"{FOLDER}/"))
        return self._folders


@dataclass(frozen=True)
class TinyImageNet(FileSource):
    """The `Source` of Tiny-ImageNet."""

    def missing(self, folder: Path) -> list[str]:
        """Nothing where one of the three forms is; else the archive, and what an unpacked folder lacks."""
        if self.present(folder):
            return []
        lacking = [f"{FOLDER}/{path}" for path in _lacking(folder / FOLDER)] if (folder / FOLDER).is_dir() else []
        return [*super().missing(folder), *([f"or {' and '.join(lacking)}"] if lacking else [])]

    def present(self, folder: Path) -> list[Path]:
        """What will be read, and shows changes; of the unpacked folder the folders of images, not each image."""
        unpacked = folder / FOLDER
        if not _lacking(unpacked):
            images = sorted(unpacked.glob("train/*/images"))
            return [unpacked / "wnids.txt", unpacked / "val/val_annotations.txt", unpacked / "val/images", *images]
        return super().present(folder) or [file for part in _tables(folder) for file in part]

    def parse(self, folder: Path) -> Dataset:
        """As `FileSource.parse` says."""
        if not _lacking(folder / FOLDER):
            return self._of_tree(_Tree(folder / FOLDER), folder)
        archive = self.files[0].find(folder)
        if archive is None:
            return self._of_tables(folder)
        self.files[0].read(folder, self.name)
        return self._of_tree(_Tree(archive), folder)

    def _of_tree(self, tree: _Tree, folder: Path) -> Dataset:
        try:
            wnids = sorted(tree.bytes("wnids.txt").decode().split())
            rows = [line.split() for line in tree.bytes("val/val_annotations.txt").decode().splitlines()]
            held_out = {f"val/images/{row[0]}": wnids.index(row[1]) for row in rows}
        except (OSError, KeyError, ValueError, IndexError) as problem:
            wanted = "wnids.txt, and val/val_annotations.txt with a class of it for each image"
            raise unlike(tree.where, self.name, folder, wanted, repr(problem)) from problem
        paths = [(path, label) for label, wnid in enumerate(wnids) for path in tree.names(f"train/{wnid}/images")]
        train = self._decoded(tree, folder, paths, self.counts[0])
        return Dataset.of(self.name, train, self._decoded(tree, folder, sorted(held_out.items()), self.counts[1]))

    def check(self, where: Path, folder: Path, count: int, labels: Labels, first: int = 0) -> None:
        """As `PreparedSource.check` says; every class has images."""
        super().check(where, folder, count, labels, first)
        found = len(np.unique(labels))
        if found != self.info.num_classes:
            wanted = f"{count:,} images of {self.info.num_classes} classes"
            raise unlike(where, self.name, folder, wanted, f"{len(labels):,} of {found}")

    def _decoded(self, tree: _Tree, folder: Path, paths: list[tuple[str, int]], count: int) -> tuple[Images, Labels]:
        """(N, 3, 64, 64) pixels and (N,) labels."""
        labels = np.array([label for _, label in paths], np.int64)
        self.check(tree.where, folder, count, labels)
        pixels = np.empty((count, *SHAPE), np.uint8)
        for position, (path, _) in enumerate(paths):
            try:
                pixels[position] = parquet.decoded(tree.bytes(path), SHAPE)
            except (OSError, KeyError, ValueError, zipfile.BadZipFile) as problem:
                wanted = f"an image of 64x64 as {path}"
                raise unlike(tree.where, self.name, folder, wanted, str(problem)) from problem
        return pixels, labels

    def _of_tables(self, folder: Path) -> Dataset:
        tables = _tables(folder)
        train, test = (parquet.labelled(files, SHAPE, self.name, folder) for files in tables)
        for files, (_, labels), count in zip(tables, (train, test), self.counts, strict=True):
            self.check(files[0], folder, count, labels)
        return Dataset.of(self.name, train, test)


def _tables(folder: Path) -> list[list[Path]]:
    """The parquet files of the two parts, or nothing where one part has none."""
    return parquet.parts(folder / "tiny_imagenet", REPOSITORY, (("train",), ("valid",)))


def _lacking(unpacked: Path) -> list[str]:
    """What an unpacked folder lacks of what is read; many tools sort the images of `val` into folders of classes."""
    wanted = ("wnids.txt", "val/val_annotations.txt", "val/images/*.JPEG")
    return [pattern for pattern in wanted if next(unpacked.glob(pattern), None) is None]


_ARCHIVE = Original(f"{FOLDER}.zip", "90528d7ca1a48142e341f4ef8d21d0de", 248_100_043)
TINY_IMAGENET = TinyImageNet(
    info=DATASETS["tiny_imagenet"],
    files=(_ARCHIVE,),
    remotes=(Remote(_ARCHIVE, (f"http://cs231n.stanford.edu/{FOLDER}.zip",)),),
)
