"""FEMNIST: digits and letters of both cases with their writers, as LEAF's JSON files or Hugging Face's parquet files.

`LETTERS` and `DIGITS` are parts of it: 26 letters, whose upper and lower case are one class, and ten digits.

Source: S. Caldas et al., LEAF: A Benchmark for Federated Settings (2018); on the hub it is `flwrlabs/femnist`. In the
folder of data sets, `femnist` is LEAF's `data/femnist` (with `data/train` and `data/test`), or holds the parquet files.
Strokes are dark on white, as LEAF has them. Writers are numbered in the order of their names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.data import cache, parquet
from bench.data.dataset import Dataset
from bench.data.files import PreparedSource
from bench.data.table import DATASETS

if TYPE_CHECKING:
    from bench.data.dataset import Groups, Images, Labels
    from bench.data.table import DatasetInfo

SHAPE = (1, 28, 28)
REPOSITORY = "flwrlabs/femnist"
COLUMNS = ("image", "writer_id", "character")
TENTH = 10  # the parquet files have no test part: it is a tenth of them


@dataclass(frozen=True)
class Femnist(PreparedSource):
    """The `Source` of FEMNIST.

    LEAF's own split is kept, and its files have as many samples as their maker drew. Of the parquet files a tenth of
    each writer's samples, drawn by RandomState(0), are the test part, such that it is a tenth of the whole.
    """

    info: DatasetInfo
    form: str = "LEAF's JSON (user_data: writer: x of 784 levels in [0, 1] each, y) or a table of images with writers"

    def counts(self, folder: Path) -> tuple[int, int] | None:
        """Not checked where only a total, or nothing, is published."""
        return None if _leaf(folder) else super().counts(folder)

    def parse(self, folder: Path) -> Dataset:
        """The data set, of LEAF's files if there are any."""
        leaf = _leaf(folder)
        if not leaf:
            return self._of_tables(folder)
        (train_x, train_y, train_writers), (test_x, test_y, test_writers) = (
            self._of_json(folder, files) for files in leaf
        )
        names = sorted({*train_writers, *test_writers})
        groups = (_numbered(writers, names) for writers in (train_writers, test_writers))
        return Dataset.of(self.name, (train_x, train_y), (test_x, test_y), *groups)

    def present(self, folder: Path) -> list[Path]:
        """LEAF's files, else the parquet files."""
        leaf = _leaf(folder)
        return [*leaf[0], *leaf[1]] if leaf else parquet.find(folder / "femnist", REPOSITORY, "train")

    def missing(self, folder: Path) -> list[str]:
        """The parquet files, unless these or LEAF's are here."""
        return [] if self.present(folder) else ["femnist/data/train-*.parquet (or LEAF's femnist/data/train/*.json)"]

    def fetch(self, folder: Path, offline: bool) -> None:
        """Download the parquet files, as `bench.data.parquet.fetch` says."""
        parquet.fetch(REPOSITORY, folder / "femnist", self.title, offline)

    def place(self) -> Path:
        """Return the folder of the prepared copy."""
        return cache.place(self.name, [REPOSITORY, str(TENTH)])

    def _of_json(self, folder: Path, files: list[Path]) -> tuple[Images, Labels, list[str]]:
        """Pixels, labels and writers of LEAF's files, writer by writer."""
        pixels, labels, writers = [], [], []
        for file in files:
            with self.reading(file, folder):
                content: dict[str, Any] = json.loads(file.read_bytes())["user_data"]
                for writer, samples in content.items():
                    levels = np.array(samples["x"], np.float64).reshape(len(samples["y"]), *SHAPE)
                    if levels.size and not (levels.min() >= 0 and levels.max() <= 1):
                        raise ValueError(f"levels {levels.min():g} to {levels.max():g} of writer {writer}")
                    pixels.append(np.rint(levels * 255).astype(np.uint8))
                    labels.append(np.array(samples["y"], np.int64))
                    writers += [writer] * len(levels)
        return np.concatenate(pixels), np.concatenate(labels), writers

    def _of_tables(self, folder: Path) -> Dataset:
        columns = parquet.read(self.present(folder), COLUMNS)
        targets, pixels = np.array(columns["character"], np.int64), parquet.images(columns["image"], SHAPE)
        groups = _numbered(columns["writer_id"], sorted(set(columns["writer_id"])))
        test = _tenth(groups)
        train_part, test_part = ((pixels[mask], targets[mask]) for mask in (~test, test))
        return Dataset.of(self.name, train_part, test_part, groups[~test], groups[test])


@dataclass(frozen=True)
class Characters(Femnist):
    """The `Source` of some of FEMNIST's characters.

    Test parts and writers' numbers are FEMNIST's: no sample is tested on here and trained on there. The number of
    samples is not checked, because only FEMNIST's total is published.
    """

    classes: tuple[int, ...] = ()  # (62,) the class of each of FEMNIST's classes, -1 if it is left out

    def counts(self, folder: Path) -> None:
        """Not checked where only a total, or nothing, is published."""

    def parse(self, folder: Path) -> Dataset:
        """FEMNIST's samples of these characters."""
        whole, classes = FEMNIST.read(folder), np.array(self.classes, np.int64)
        train_y, test_y = classes[whole.train_y], classes[whole.test_y]
        train, test = train_y >= 0, test_y >= 0
        groups = np.asarray(whole.train_groups)[train], np.asarray(whole.test_groups)[test]
        parts = (whole.train_x[train], train_y[train]), (whole.test_x[test], test_y[test])
        return Dataset.of(self.name, *parts, *groups)


# FEMNIST's classes are 0 to 9, A to Z, a to z.
FEMNIST = Femnist(DATASETS["femnist"])
LETTERS = Characters(DATASETS["femnist_letters"], classes=(*[-1] * 10, *range(26), *range(26)))
DIGITS = Characters(DATASETS["femnist_digits"], classes=(*range(10), *[-1] * 52))


def _leaf(folder: Path) -> tuple[list[Path], list[Path]] | None:
    """LEAF's files of the training and of the test part, or None if a part has none."""
    for place in (folder / "femnist" / "data", folder / "femnist"):
        train, test = (sorted((place / part).glob("*.json")) for part in ("train", "test"))
        if train and test:
            return train, test
    return None


def _numbered(writers: list[str], names: list[str]) -> Groups:
    numbers = {name: number for number, name in enumerate(names)}
    return np.array([numbers[writer] for writer in writers], np.int64)


def _tenth(groups: Groups) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """(N,) which samples are the test part: a tenth of each writer's, drawn, rounded so that the total is right."""
    order = np.random.RandomState(0).permutation(len(groups))
    order = order[np.argsort(groups[order], kind="stable")]
    mask = np.zeros(len(groups), np.bool_)
    mask[order[TENTH - 1 :: TENTH]] = True
    return mask
