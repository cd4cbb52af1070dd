"""USPS, in LIBSVM's text format, or as the parquet files of Hugging Face's `flwrlabs/usps`.

Source: J. J. Hull, A Database for Handwritten Text Recognition Research (1994). The files lie where torchvision or the
code of FedBN (Li et al. 2021) puts them; pixels are made whole numbers as both do.
"""

from __future__ import annotations

import bz2
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.data import parquet
from bench.data.dataset import Dataset
from bench.data.files import FileSource
from bench.data.originals import Original, unlike
from bench.data.remote import Remote

if TYPE_CHECKING:
    from bench.data.dataset import Images, Labels

SIDE = 16
REPOSITORY = "flwrlabs/usps"


@dataclass(frozen=True)
class Usps(FileSource):
    """The `Source` of USPS: training part, then test part.

    Args:
        counts: samples of the two parts.
    """

    counts: tuple[int, int]

    def missing(self, folder: Path) -> list[str]:
        """As `FileSource.missing` says; nothing where the parquet files are."""
        return [] if self._tables(folder) else super().missing(folder)

    def present(self, folder: Path) -> list[Path]:
        """As `FileSource.present` says."""
        whole = not super().missing(folder)
        return super().present(folder) if whole else [file for part in self._tables(folder) for file in part]

    def parse(self, folder: Path) -> Dataset:
        """As `FileSource.parse` says."""
        if super().missing(folder):
            train, test = (
                self._of_table(folder, *pair) for pair in zip(self._tables(folder), self.counts, strict=True)
            )
        else:
            train, test = (self._of_text(folder, *pair) for pair in zip(self.files, self.counts, strict=True))
        return Dataset.of(self.name, train, test)

    def _tables(self, folder: Path) -> list[list[Path]]:
        """The parquet files of the two parts, or nothing where one part has none."""
        parts = [parquet.find(folder / "usps", REPOSITORY, part) for part in ("train", "test")]
        return parts if all(parts) else []

    def _of_text(self, folder: Path, file: Original, count: int) -> tuple[Images, Labels]:
        """(N, 1, 16, 16) pixels and (N,) labels of lines `label index:value ...`: labels from 1, values in [-1, 1]."""
        where = file.find(folder) or folder
        try:
            rows = [line.split() for line in bz2.decompress(file.read(folder, self.name)).decode().splitlines()]
            labels = np.array([int(row[0]) - 1 for row in rows], np.int64)
            values = np.array([[pair.rpartition(":")[2] for pair in row[1:]] for row in rows], np.float32)
        except (OSError, ValueError, IndexError) as problem:
            raise unlike(where, self.name, folder, "lines of a label and 256 values", str(problem)) from problem
        pixels = ((values + 1) / 2 * 255).astype(np.uint8).reshape(-1, 1, SIDE, SIDE)
        return self._checked(where, folder, pixels, labels, count)

    def _of_table(self, folder: Path, files: list[Path], count: int) -> tuple[Images, Labels]:
        columns = parquet.read(files, ("image", "label"), self.name, folder)
        pixels = parquet.images(columns["image"], (1, SIDE, SIDE), files[0], self.name, folder)
        return self._checked(files[0], folder, pixels, np.array(columns["label"], np.int64), count)

    def _checked(self, where: Path, folder: Path, pixels: Images, labels: Labels, count: int) -> tuple[Images, Labels]:
        if len(pixels) != count or labels.min() < 0 or labels.max() > 9:
            found = f"{len(pixels):,} with labels {labels.min()} to {labels.max()}"
            raise unlike(where, self.name, folder, f"{count:,} images of ten digits", found)
        return pixels, labels


_ADDRESS = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass"
_FILES = (
    Original("usps.bz2", "ec16c51db3855ca6c91edd34d0e9b197", 6_579_383, also=("USPS/usps.bz2",)),
    Original("usps.t.bz2", "8ea070ee2aca1ac39742fdd1ef5ed118", 1_831_726, also=("USPS/usps.t.bz2",)),
)
USPS = Usps(
    name="usps",
    title="USPS",
    files=_FILES,
    remotes=tuple(Remote(file, (f"{_ADDRESS}/{file.path}",)) for file in _FILES),
    counts=(7_291, 2_007),
)
