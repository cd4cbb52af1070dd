"""What the sources that read published files have in common: the prepared copy, what is missing, fetching."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.data import cache
from bench.data.dataset import Dataset, MissingData
from bench.data.originals import unlike

if TYPE_CHECKING:
    from bench.data.dataset import Labels
    from bench.data.originals import Original
    from bench.data.remote import Remote
    from bench.data.table import DatasetInfo


class PreparedSource(ABC):
    """A `Source` that keeps a prepared copy of what it has read.

    Attributes:
        info: its entry in `DATASETS`, which what is read is held against.
    """

    info: DatasetInfo

    @property
    def name(self) -> str:
        """Name in `DATASETS`."""
        return self.info.name

    @property
    def title(self) -> str:
        """Name in print."""
        return self.info.title

    @property
    def counts(self) -> tuple[int, ...]:
        """Samples of the parts in turn."""
        return self.info.train_size, self.info.test_size

    @abstractmethod
    def parse(self, folder: Path) -> Dataset:
        """The data set, from the files in `folder`, all of which are there; raises as `read` does."""

    def parse_labels(self, folder: Path) -> Labels:
        """(N,) labels of the training part, as `parse`; faster where the images can be left alone."""
        return self.read(folder).train_y

    @abstractmethod
    def present(self, folder: Path) -> list[Path]:
        """The files that `parse` will read, or those of them that there are."""

    @abstractmethod
    def missing(self, folder: Path) -> list[str]:
        """The files that are not in `folder`, as paths below it."""

    @abstractmethod
    def place(self) -> Path:
        """Where the prepared copy is kept."""

    def read(self, folder: Path) -> Dataset:
        """The data set, from its prepared copy where there is one, else from the original files.

        Raises:
            MissingData: a file is not in `folder`.
            EnvironmentProblem: a file is not the published one.
        """
        place, stamp = self.place(), self._stamp(folder)
        copy = cache.read(place, self.name, stamp)
        if copy is not None:
            return copy
        dataset = self.parse(folder)
        cache.write(place, dataset, stamp)
        return dataset

    def labels(self, folder: Path) -> Labels:
        """(N,) labels of the training part; raises as `read` does."""
        kept = cache.read_labels(self.place(), self._stamp(folder))
        if kept is not None:
            return kept
        targets = self.parse_labels(folder)
        targets.setflags(write=False)
        return targets

    def check(self, where: Path, folder: Path, count: int, labels: Labels, first: int = 0) -> None:
        """Hold labels against the table.

        Args:
            where: the file that they are from, or the folder of its files, for the message.
            folder: the folder of data sets, for the message.
            count: how many there must be.
            labels: (N,) from 0.
            first: what the file calls class 0, for the message.

        Raises:
            EnvironmentProblem: there are more or fewer, or one is of no class.
        """
        last = self.info.num_classes - 1
        if len(labels) != count or ((labels < 0) | (labels > last)).any():
            found = f"labels {labels.min() + first} to {labels.max() + first}" if len(labels) else "no labels"
            wanted = f"{count:,} samples with labels {first} to {last + first}"
            raise unlike(where, self.name, folder, wanted, f"{len(labels):,} with {found}")

    def _stamp(self, folder: Path) -> cache.Stamp:
        missing = self.missing(folder)
        if missing:
            raise MissingData(f"{self.title} is not in {folder}: {', '.join(missing)} missing")
        return cache.stamp(self.present(folder))


@dataclass(frozen=True)
class FileSource(PreparedSource):
    """A `PreparedSource` of published files.

    Args:
        info: its entry in `DATASETS`.
        files: all files that are read.
        remotes: what is downloaded for them, and from where.
    """

    info: DatasetInfo
    files: tuple[Original, ...]
    remotes: tuple[Remote, ...]

    def present(self, folder: Path) -> list[Path]:
        """As `PreparedSource.present` says."""
        return [found for file in self.files if (found := file.find(folder))]

    def missing(self, folder: Path) -> list[str]:
        """As `PreparedSource.missing` says."""
        return [file.path for file in self.files if not file.find(folder)]

    def fetch(self, folder: Path, offline: bool) -> None:
        """Bring the missing files into `folder`, as `bench.data.download.fetch` says."""
        from bench.data.download import fetch

        fetch(self, folder, offline)

    def place(self) -> Path:
        """As `PreparedSource.place` says: a folder of its own for other files."""
        return cache.place(self.name, [file.md5 or file.path for file in self.files])
