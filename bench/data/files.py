"""What the sources that read published files have in common: the prepared copy, what is missing, fetching."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.data import cache
from bench.data.dataset import Dataset, MissingData

if TYPE_CHECKING:
    from bench.data.dataset import Labels
    from bench.data.originals import Original
    from bench.data.remote import Remote


@dataclass(frozen=True)
class FileSource(ABC):
    """A `Source` that reads published files, and keeps a prepared copy of what it has read.

    Args:
        name: name in `DATASETS`.
        title: name in print.
        files: all files that are read.
        remotes: what is downloaded for them, and from where.
    """

    name: str
    title: str
    files: tuple[Original, ...]
    remotes: tuple[Remote, ...]

    @abstractmethod
    def parse(self, folder: Path) -> Dataset:
        """The data set, from the files in `folder`, all of which are there; raises as `read` does."""

    def parse_labels(self, folder: Path) -> Labels:
        """(N,) labels of the training part, as `parse`; faster where the images can be left alone."""
        return self.read(folder).train_y

    def present(self, folder: Path) -> list[Path]:
        """The files that `parse` will read, or those of them that there are."""
        return [found for file in self.files if (found := file.find(folder))]

    def missing(self, folder: Path) -> list[str]:
        """The files that are not in `folder`, as paths below it."""
        return [file.path for file in self.files if not file.find(folder)]

    def read(self, folder: Path) -> Dataset:
        """The data set, from its prepared copy where there is one, else from the original files.

        Raises:
            MissingData: a file is not in `folder`.
            EnvironmentProblem: a file is not the published one.
        """
        place, stamp = self._place(), self._stamp(folder)
        copy = cache.read(place, self.name, stamp)
        if copy is not None:
            return copy
        dataset = self.parse(folder)
        cache.write(place, dataset, stamp)
        return dataset

    def labels(self, folder: Path) -> Labels:
        """(N,) labels of the training part; raises as `read` does."""
        kept = cache.read_labels(self._place(), self._stamp(folder))
        if kept is not None:
            return kept
        targets = self.parse_labels(folder)
        targets.setflags(write=False)
        return targets

    def fetch(self, folder: Path, offline: bool) -> None:
        """Bring the missing files into `folder`, as `bench.data.download.fetch` says."""
        from bench.data.download import fetch

        fetch(self, folder, offline)

    def _place(self) -> Path:
        return cache.place(self.name, [file.md5 or file.path for file in self.files])

    def _stamp(self, folder: Path) -> cache.Stamp:
        missing = self.missing(folder)
        if missing:
            raise MissingData(f"{self.title} is not in {folder}: {', '.join(missing)} missing")
        return cache.stamp(self.present(folder))
