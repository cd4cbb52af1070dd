"""Sources of published files: the prepared copy, the boundary around every reader, the checks of what was read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.data import cache, parquet
from bench.data.dataset import Dataset, MissingData
from bench.data.download import Original, fetch, mending
from bench.errors import EnvironmentProblem, with_its_kind

if TYPE_CHECKING:
    from bench.data.dataset import Labels
    from bench.data.table import DatasetInfo


class PreparedSource(ABC):
    """A `Source` that keeps a prepared copy of what it has read.

    Attributes:
        info: its entry in `DATASETS`, with which every part is compared.
        form: what a file of the data set holds, for messages.
    """

    info: DatasetInfo
    form: str

    @property
    def name(self) -> str:
        """Name in `DATASETS`."""
        return self.info.name

    @property
    def title(self) -> str:
        """Name in print."""
        return self.info.title

    def counts(self, folder: Path) -> tuple[int, int] | None:
        """Samples of the training and the test part; None if nobody has published them."""
        return self.info.train_size, self.info.test_size

    @abstractmethod
    def parse(self, folder: Path) -> Dataset:
        """The data set, from the files in `folder`, all of which are there; may raise anything if one is damaged."""

    @abstractmethod
    def present(self, folder: Path) -> list[Path]:
        """The files that `parse` will read, or those of them that there are."""

    @abstractmethod
    def missing(self, folder: Path) -> list[str]:
        """The files that are not in `folder`, as paths below it."""

    @abstractmethod
    def place(self) -> Path:
        """Return the folder of the prepared copy."""

    def originals(self, folder: Path) -> list[Original]:
        """The files that are compared with their checksums before they are read."""
        return []

    def read(self, folder: Path) -> Dataset:
        """The data set, from its prepared copy if there is one, else from the original files.

        Raises MissingData, or EnvironmentProblem for a file that is damaged or not the published one.
        """
        place, stamp = self.place(), self._stamp(folder)
        copy = cache.read(place, self.name, stamp)
        if copy is not None:
            return copy
        files = self.present(folder)
        where = files[0] if len(files) == 1 else files[0].parent
        for original in self.originals(folder):
            original.verify(folder, self.name)
        with self.reading(where, folder):
            dataset = self.parse(folder)
            self._check(dataset, self.counts(folder))
        cache.write(place, dataset, stamp)
        return dataset

    def labels(self, folder: Path) -> Labels:
        """(N,) labels of the training part; raises as `read` does."""
        kept = cache.read_labels(self.place(), self._stamp(folder))
        return self.read(folder).train_y if kept is None else kept

    @contextmanager
    def reading(self, file: Path, folder: Path) -> Iterator[None]:
        """Turn whatever a reader raises into an `EnvironmentProblem` that names the file and the next step."""
        try:
            yield
        except EnvironmentProblem:
            raise
        except Exception as problem:
            size = f"{file.stat().st_size:,} bytes: " if file.is_file() else ""
            raise EnvironmentProblem(
                f"{file}: expected {self.form}, found {size}{with_its_kind(problem)}; {mending(self.name, folder)}"
            ) from problem

    def _check(self, dataset: Dataset, counts: tuple[int, int] | None) -> None:
        """Compare sizes, shapes and labels with the table; raises ValueError."""
        parts = ((dataset.train_x, dataset.train_y), (dataset.test_x, dataset.test_y))
        for number, (part, (x, labels)) in enumerate(zip(("training", "test"), parts, strict=True)):
            wanted = counts[number] if counts else max(len(labels), 1)
            if not len(x) == len(labels) == wanted:
                raise ValueError(f"{len(x):,} samples and {len(labels):,} labels of {wanted:,} in the {part} part")
            images = self.info.kind == "images"
            if x.ndim < 2 or (images and (x.shape[1:] != self.info.input_shape or x.dtype != np.uint8)):
                raise ValueError(f"{part} samples of shape {x.shape[1:]} ({x.dtype}), not {self.info.input_shape}")
            if labels.min() < 0 or labels.max() >= self.info.num_classes:
                last = self.info.num_classes - 1
                raise ValueError(f"{part} labels {labels.min()} to {labels.max()} that must be in [0, {last}]")
            if images and counts and len(np.unique(labels)) < self.info.num_classes:
                raise ValueError(f"{len(np.unique(labels))} of {self.info.num_classes} classes in the {part} part")

    def _stamp(self, folder: Path) -> cache.Stamp:
        missing = self.missing(folder)
        if missing:
            raise MissingData(f"{self.title} is not in {folder}: {', '.join(missing)} missing")
        return cache.stamp(self.present(folder))


@dataclass(frozen=True)
class FileSource(PreparedSource):
    """A `PreparedSource` of published files, or of tables of the Hugging Face hub in their place.

    Args:
        table_parts: names of each part's tables, the first that there is counting.
    """

    info: DatasetInfo
    form: str
    files: tuple[Original, ...]
    downloads: tuple[Original, ...] = ()  # the files to download for `files`, archives of several last
    repository: str = ""  # on the hub, as owner/name; empty if its tables are not read
    table_parts: tuple[tuple[str, ...], ...] = (("train",), ("test",))
    table_kinds: tuple[str, ...] = (".parquet",)  # how tables' names end

    @property
    def remotes(self) -> tuple[Original, ...]:
        """The files to download."""
        return self.downloads

    def tables(self, folder: Path) -> list[list[Path]]:
        """The hub's tables of each part; [] if there are not all of them, or the published files are here."""
        if not self.repository or all(file.find(folder) for file in self.files if not file.repository):
            return []
        return parquet.parts(folder / self.name, self.repository, self.table_parts, self.table_kinds)

    def present(self, folder: Path) -> list[Path]:
        """The files that there are; tables stand for the data set's own."""
        tables = self.tables(folder)
        files = [file for file in self.files if file.repository or not tables]
        places = [place for file in files if (place := file.find(folder))]
        return [*places, *(table for part in tables for table in part)]

    def missing(self, folder: Path) -> list[str]:
        """The files that are not here, unless tables stand for them."""
        lacking = [file for file in self.files if not file.find(folder)]
        tables = lacking and self.tables(folder)
        return [file.path for file in lacking if file.repository or not tables]

    def originals(self, folder: Path) -> list[Original]:
        """The files that are compared with their checksums."""
        present = self.present(folder)
        return [file for file in self.files if file.find(folder) in present]

    def fetch(self, folder: Path, offline: bool) -> None:
        """Bring the missing files into `folder`, as `bench.data.download.fetch` says."""
        fetch(self, folder, offline)

    def place(self) -> Path:
        """A folder of its own for other files."""
        return cache.place(self.name, [file.md5 or file.path for file in self.files])
