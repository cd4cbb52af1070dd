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
from bench.data.originals import unlike
from bench.data.table import DATASETS

if TYPE_CHECKING:
    from bench.data.dataset import Groups, Images, Labels
    from bench.data.table import DatasetInfo

SHAPE = (1, 28, 28)
REPOSITORY = "flwrlabs/femnist"
COLUMNS = ("image", "writer_id", "character")
TENTH = 10  # the parquet files have no test part: it is a tenth of them

Part = tuple["Images", "Labels", list[str]]  # and the writer of each sample


@dataclass(frozen=True)
class Femnist(PreparedSource):
    """The `Source` of FEMNIST.

    LEAF's own split is kept. Of the parquet files a tenth of each writer's samples, drawn by RandomState(0), are the
    test part, such that it is a tenth of the whole. How many samples LEAF's files have is up to those who drew them.

    Args:
        info: its entry in `DATASETS`.
    """

    info: DatasetInfo

    def parse(self, folder: Path) -> Dataset:
        """The data set, of LEAF's files where there are any."""
        leaf = _leaf(folder)
        return self._of_leaf(folder, *leaf) if leaf else self._of_tables(folder)

    def present(self, folder: Path) -> list[Path]:
        """LEAF's files, else the parquet files."""
        leaf = _leaf(folder)
        return [*leaf[0], *leaf[1]] if leaf else parquet.find(folder / "femnist", REPOSITORY, "train")

    def missing(self, folder: Path) -> list[str]:
        """What is not in `folder`, as a path below it."""
        if self.present(folder):
            return []
        lacking = [file.relative_to(folder).as_posix() for file in parquet.lacking(folder / "femnist", "train")]
        return lacking or ["femnist/data/train-*.parquet (or LEAF's femnist/data/train/*.json)"]

    def fetch(self, folder: Path, offline: bool) -> None:
        """Download the parquet files, as `bench.data.parquet.fetch` says."""
        parquet.fetch(REPOSITORY, folder / "femnist", self.title, offline, self.missing(folder))

    def place(self) -> Path:
        """As `PreparedSource.place` says."""
        return cache.place(self.name, [REPOSITORY, str(TENTH)])

    def _of_leaf(self, folder: Path, train: list[Path], test: list[Path]) -> Dataset:
        parts = [_joined([self._file(folder, file) for file in files]) for files in (train, test)]
        writers = sorted({writer for part in parts for writer in part[2]})
        groups = [_numbered(part[2], writers) for part in parts]
        (train_x, train_y, _), (test_x, test_y, _) = parts
        return Dataset.of(self.name, (train_x, train_y), (test_x, test_y), *groups)

    def _file(self, folder: Path, file: Path) -> Part:
        """The samples of one of LEAF's files, writer by writer; its pixels are grey levels / 255."""
        try:
            content: dict[str, Any] = json.loads(file.read_bytes())["user_data"]
            samples = [(row, writer) for writer, data in content.items() for row in data["x"]]
            targets = np.array([label for data in content.values() for label in data["y"]], np.int64)
            levels = np.array([row for row, _ in samples], np.float64).reshape(-1, *SHAPE)
            pixels = np.rint(levels * 255).astype(np.uint8)
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            wanted = "LEAF's JSON with user_data: writer: x of 784 levels each, y"
            raise unlike(file, self.name, folder, wanted, f"{file.stat().st_size:,} bytes: {problem!r}") from problem
        if len(levels) and not 0 <= levels.min() <= levels.max() <= 1:
            raise unlike(file, self.name, folder, "levels from 0 to 1", f"{levels.min():g} to {levels.max():g}")
        self.check(file, folder, len(pixels), targets)
        return pixels, targets, [writer for _, writer in samples]

    def _of_tables(self, folder: Path) -> Dataset:
        files = self.present(folder)
        columns = parquet.read(files, COLUMNS, self.name, folder)
        targets = np.array(columns["character"], np.int64)
        self.check(files[0].parent, folder, sum(self.counts), targets)
        pixels = parquet.images(columns["image"], SHAPE, files[0], self.name, folder)
        groups = _numbered(columns["writer_id"], sorted(set(columns["writer_id"])))
        test = _tenth(groups)
        train_part, test_part = ((pixels[mask], targets[mask]) for mask in (~test, test))
        return Dataset.of(self.name, train_part, test_part, groups[~test], groups[test])


@dataclass(frozen=True)
class Characters(Femnist):
    """The `Source` of some of FEMNIST's characters.

    Test parts and writers' numbers are FEMNIST's: no sample is tested on here and trained on there. How many samples
    there are is not checked, because only FEMNIST's total is published.

    Args:
        info: its entry in `DATASETS`.
        classes: (62,) the class of each of FEMNIST's classes, -1 if it is left out.
    """

    classes: tuple[int, ...]

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
LETTERS = Characters(DATASETS["femnist_letters"], (*[-1] * 10, *range(26), *range(26)))
DIGITS = Characters(DATASETS["femnist_digits"], (*range(10), *[-1] * 52))


def _leaf(folder: Path) -> tuple[list[Path], list[Path]] | None:
    """LEAF's files of the training and of the test part, or None where one has none."""
    for place in (folder / "femnist" / "data", folder / "femnist"):
        train, test = (sorted((place / part).glob("*.json")) for part in ("train", "test"))
        if train and test:
            return train, test
    return None


def _joined(parts: list[Part]) -> Part:
    pixels, targets = (np.concatenate([part[array] for part in parts]) for array in (0, 1))
    return pixels, targets, [writer for part in parts for writer in part[2]]


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
