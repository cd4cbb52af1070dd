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
from bench.data.table import DATASETS

if TYPE_CHECKING:
    from bench.data.dataset import Images, Labels

SIDE = 16
REPOSITORY = "flwrlabs/usps"


@dataclass(frozen=True)
class Usps(FileSource):
    """The `Source` of USPS: training part, then test part."""

    def missing(self, folder: Path) -> list[str]:
        """As `FileSource.missing` says; nothing where the parquet files are."""
        return [] if _tables(folder) else super().missing(folder)

    def present(self, folder: Path) -> list[Path]:
        """As `FileSource.present` says."""
        whole = not super().missing(folder)
        return super().present(folder) if whole else [file for part in _tables(folder) for file in part]

    def parse(self, folder: Path) -> Dataset:
        """As `FileSource.parse` says."""
        if super().missing(folder):
            files = [part[0] for part in _tables(folder)]
            train, test = (parquet.labelled(part, (1, SIDE, SIDE), self.name, folder) for part in _tables(folder))
        else:
            files = [file.find(folder) or folder for file in self.files]
            train, test = (self._of_text(folder, file) for file in self.files)
        for file, (_, labels), count in zip(files, (train, test), self.counts, strict=True):
            self.check(file, folder, count, labels)
        return Dataset.of(self.name, train, test)

    def _of_text(self, folder: Path, file: Original) -> tuple[Images, Labels]:
        """(N, 1, 16, 16) pixels and (N,) labels of lines `label index:value ...`: labels from 1, values in [-1, 1]."""
        where = file.find(folder) or folder
        try:
            rows = [line.split() for line in bz2.decompress(file.read(folder, self.name)).decode().splitlines()]
            labels = np.array([int(row[0]) - 1 for row in rows], np.int64)
            values = np.array([[pair.rpartition(":")[2] for pair in row[1:]] for row in rows], np.float32)
            return ((values + 1) / 2 * 255).astype(np.uint8).reshape(len(rows), 1, SIDE, SIDE), labels
        except (OSError, ValueError, IndexError) as problem:
            raise unlike(where, self.name, folder, "lines of a label and 256 values", str(problem)) from problem


def _tables(folder: Path) -> list[list[Path]]:
    """The parquet files of the two parts, or nothing where one part has none."""
    return parquet.parts(folder / "usps", REPOSITORY, (("train",), ("test",)))


_ADDRESS = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass"
_FILES = (
    Original("usps.bz2", "ec16c51db3855ca6c91edd34d0e9b197", 6_579_383, also=("USPS/usps.bz2",)),
    Original("usps.t.bz2", "8ea070ee2aca1ac39742fdd1ef5ed118", 1_831_726, also=("USPS/usps.t.bz2",)),
)
USPS = Usps(
    info=DATASETS["usps"],
    files=_FILES,
    remotes=tuple(Remote(file, (f"{_ADDRESS}/{file.path}",)) for file in _FILES),
)
