"""FEMNIST: digits and letters of both cases with their writers, of Hugging Face's parquet files.

`LETTERS` and `DIGITS` are parts of it: 26 letters, whose upper and lower case are one class, and
ten digits.

Source: S. Caldas et al., LEAF: A Benchmark for Federated Settings (2018); on the hub it is
`flwrlabs/femnist`. Strokes are dark on white, as LEAF has them. Writers are numbered in the order
of their names.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.data import parquet
from bench.data.dataset import Dataset, whole_numbers
from bench.data.download import fetching
from bench.data.file_loaders import PreparedLoader
from bench.data.registry import DATASETS

if TYPE_CHECKING:
    from bench.data.dataset import Groups
    from bench.data.registry import DatasetInfo

SHAPE = (1, 28, 28)
REPOSITORY = "flwrlabs/femnist"
COLUMNS = ("image", "writer_id", "character")
TENTH = 10  # one sample in ten is for the test part, which the parquet files lack


@dataclass(frozen=True)
class Femnist(PreparedLoader):
    """The `Loader` of FEMNIST, in the folder `femnist` of data sets.

    The test part is a tenth of each writer's samples, drawn by RandomState(0) and rounded so that
    the total is a tenth.
    """

    info: DatasetInfo
    form: str = "a table of images with writers"

    def parse(self, folder: Path) -> Dataset:
        """Read the tables and draw the test part."""
        columns = parquet.read(self.present(folder), COLUMNS)
        targets = whole_numbers(columns["character"], "character")
        pixels = parquet.images(columns["image"], SHAPE)
        _, groups = np.unique(columns["writer_id"], return_inverse=True)
        test = _tenth(groups)
        train = ~test
        train_part = (pixels[train], targets[train])
        test_part = (pixels[test], targets[test])
        return Dataset.of(self.name, train_part, test_part, groups[train], groups[test])

    def present(self, folder: Path) -> list[Path]:
        """Find the parquet files."""
        return parquet.find(folder / "femnist", REPOSITORY, "train")

    def incomplete(self, folder: Path) -> list[str]:
        """Say which place has some of the parquet files and lacks others."""
        text = parquet.incomplete(folder / "femnist", REPOSITORY, "train")
        return [text] if text else []

    def missing(self, folder: Path) -> list[str]:
        """Name the parquet files, unless all are present."""
        if self.present(folder):
            return []
        return [f"femnist/data/train-*.parquet of {REPOSITORY} on the Hugging Face hub"]

    def fetch(self, folder: Path, offline: bool) -> None:
        """Download the parquet files; raises as `FileLoader.fetch` does."""
        if offline:
            raise self.lacking(folder)
        from huggingface_hub import snapshot_download

        place = folder / "femnist"
        with fetching("femnist", self.title, folder):
            snapshot_download(
                REPOSITORY, repo_type="dataset", allow_patterns="data/*.parquet", local_dir=place
            )

    def identity(self) -> list[str]:
        """Return the repository and the test part's share."""
        return [REPOSITORY, str(TENTH)]


@dataclass(frozen=True)
class Characters(Femnist):
    """The `Loader` of some of FEMNIST's characters.

    Test parts and writers' numbers are FEMNIST's, so that no sample is in the test part here and
    trained on there.
    """

    counted = False  # only FEMNIST's total is published
    # (62,) the class of each of FEMNIST's classes, -1 if it is left out.
    classes: tuple[int, ...] = ()

    def parse(self, folder: Path) -> Dataset:
        """Select FEMNIST's samples of these characters."""
        femnist = FEMNIST.read(folder)
        classes = np.array(self.classes, np.int64)
        train_y = classes[femnist.train_y]
        test_y = classes[femnist.test_y]
        train = train_y >= 0
        test = test_y >= 0
        return Dataset.of(
            self.name,
            (femnist.train_x[train], train_y[train]),
            (femnist.test_x[test], test_y[test]),
            np.asarray(femnist.train_groups)[train],
            np.asarray(femnist.test_groups)[test],
        )


# FEMNIST's classes are 0 to 9, A to Z, a to z.
FEMNIST = Femnist(DATASETS["femnist"])
LETTERS = Characters(DATASETS["femnist_letters"], classes=(*[-1] * 10, *range(26), *range(26)))
DIGITS = Characters(DATASETS["femnist_digits"], classes=(*range(10), *[-1] * 52))


def _tenth(groups: Groups) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Draw the mask (N,) of the test samples: a tenth of each writer's samples.

    The numbers are rounded so that the total is right.
    """
    order = np.random.RandomState(0).permutation(len(groups))
    order = order[np.argsort(groups[order], kind="stable")]
    mask = np.zeros(len(groups), np.bool_)
    mask[order[TENTH - 1 :: TENTH]] = True
    return mask
