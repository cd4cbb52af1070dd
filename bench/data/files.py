"""Sources of published files: the boundary around every reader, the checks of what was read, the prepared copy.

A prepared copy is a folder of .npy files, memory-mapped, and made anew whenever in doubt. It is never an error: if the
folder cannot be written, or holds something else than was written, the originals are read. It counts as long as the
originals keep their size and time of change, and its own bytes their CRC-32.
"""

from __future__ import annotations

import json
import logging
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bench.data import parquet
from bench.data.dataset import Dataset
from bench.data.download import Original, cache_dir, fetching, lacking, mending, unpack
from bench.errors import EnvironmentProblem, with_its_kind
from leaderboards.rows.files import atomic_file

if TYPE_CHECKING:
    from bench.data.table import DatasetInfo

# Raise it when the files below change their meaning, so that older copies are not taken for new ones.
LAYOUT = 1
ARRAYS = ("train_x", "train_y", "test_x", "test_y", "train_groups", "test_groups")  # not every data set has groups
META = "meta.json"

Stamp = list[list[str | int]]  # path, size and time of change of each file; equal ones mean that nobody touched them

_log = logging.getLogger(__name__)


class PreparedSource(ABC):
    """A `Source` that keeps a prepared copy of what it has read.

    Attributes:
        info: its entry in `DATASETS`, with which every part is compared.
        form: what a file of the data set holds, for messages.
        counted: whether the numbers of samples in `info` are published ones.
    """

    info: DatasetInfo
    form: str
    counted: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """Name in `DATASETS`."""
        return self.info.name

    @property
    def title(self) -> str:
        """Name in print."""
        return self.info.title

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
    def identity(self) -> list[str]:
        """What a prepared copy depends on besides the files' size and time, such as their checksums."""

    def place(self) -> Path:
        """The folder of the prepared copy; it need not exist."""
        key = sha256("\n".join([str(LAYOUT), *self.identity()]).encode()).hexdigest()[:12]
        return cache_dir() / f"{self.name}-{key}"

    def originals(self, folder: Path) -> list[Original]:
        """The files that are compared with their checksums before they are read."""
        return []

    def read(self, folder: Path) -> Dataset:
        """The data set, from its prepared copy if there is one, else from the original files.

        Raises MissingData, or EnvironmentProblem for a file that is damaged or not the published one.
        """
        if missing := self.missing(folder):
            raise lacking(self.title, missing, folder)
        files = self.present(folder)
        status = [(str(file), file.stat()) for file in files]
        stamp: Stamp = [[path, stat.st_size, stat.st_mtime_ns] for path, stat in status]
        copy = read_copy(self.place(), self.name, stamp)
        if copy is not None:
            return copy
        with self.reading(files[0] if len(files) == 1 else files[0].parent, folder):
            for original in self.originals(folder):
                original.verify(folder, self.name)
            dataset = self.parse(folder)
            self._check(dataset)
        write_copy(self.place(), dataset, stamp)
        return dataset

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

    def _check(self, dataset: Dataset) -> None:
        """Compare sizes, shapes and labels with the table; raises ValueError."""
        for part, x, labels, count in (
            ("training", dataset.train_x, dataset.train_y, self.info.train_size),
            ("test", dataset.test_x, dataset.test_y, self.info.test_size),
        ):
            wanted = count if self.counted else max(len(labels), 1)
            if not len(x) == len(labels) == wanted:
                raise ValueError(f"{len(x):,} samples and {len(labels):,} labels of {wanted:,} in the {part} part")
            images = self.info.kind == "images"
            if x.ndim < 2 or (images and (x.shape[1:] != self.info.input_shape or x.dtype != np.uint8)):
                raise ValueError(f"{part} samples of shape {x.shape[1:]} ({x.dtype}), not {self.info.input_shape}")
            if labels.min() < 0 or labels.max() >= self.info.num_classes:
                last = self.info.num_classes - 1
                raise ValueError(f"{part} labels {labels.min()} to {labels.max()} that must be in [0, {last}]")
            if images and self.counted and len(np.unique(labels)) < self.info.num_classes:
                raise ValueError(f"{len(np.unique(labels))} of {self.info.num_classes} classes in the {part} part")


@dataclass(frozen=True)
class FileSource(PreparedSource):
    """A `PreparedSource` of published files, or of tables of the Hugging Face hub in their place.

    Args:
        archive: a zip archive of those `files` that cannot be downloaded by themselves.
        table_parts: how the names of each part's tables begin.
    """

    info: DatasetInfo
    form: str
    files: tuple[Original, ...]
    archive: Original | None = None
    repository: str = ""  # on the hub, as owner/name; empty if its tables are not read
    table_parts: tuple[str, ...] = ("train", "test")

    def tables(self, folder: Path) -> list[list[Path]]:
        """The hub's tables of each part; [] if there are not all of them, or the published files are here."""
        if not self.repository or all(file.find(folder) for file in self.files if not file.repository):
            return []
        tables = [parquet.find(folder / self.name, self.repository, part) for part in self.table_parts]
        return tables if all(tables) else []

    def present(self, folder: Path) -> list[Path]:
        """The files that there are; tables stand for the data set's own."""
        tables = self.tables(folder)
        files = [file for file in self.files if file.repository or not tables]
        places = [place for file in files if (place := file.find(folder))]
        return [*places, *(table for part in tables for table in part)]

    def missing(self, folder: Path) -> list[str]:
        """The files that are not here, unless tables stand for them."""
        absent = [file for file in self.files if not file.find(folder)]
        tables = absent and self.tables(folder)
        return [file.path for file in absent if file.repository or not tables]

    def originals(self, folder: Path) -> list[Original]:
        """The files that are compared with their checksums."""
        present = self.present(folder)
        return [file for file in self.files if file.find(folder) in present]

    def identity(self) -> list[str]:
        """The files' checksums."""
        return [file.md5 or file.path for file in self.files]

    def fetch(self, folder: Path, offline: bool) -> None:
        """Bring the missing files into `folder`; of several processes one does it and the others wait.

        An archive that lies in `folder` is used, even if `offline`, else it is downloaded. Files that are there stay.
        Raises MissingData if files are missing then, EnvironmentProblem if a download fails or an archive is damaged.
        """
        archive = self.archive and self.archive.find(folder)
        if archive or not offline:
            with fetching(self.name, self.title, folder):
                if not offline:
                    self.download(folder)
                if archive and (missing := self.missing(folder)):
                    unpack(archive, missing, folder, self.name)
        if missing := self.missing(folder):
            raise lacking(self.title, missing, folder, self.archive)

    def download(self, folder: Path) -> None:
        """Download the missing files, those without an address in their archive, which does not stay."""
        missing = self.missing(folder)
        for file in self.files:
            if file.path in missing and (file.url or file.repository):
                file.download(folder)
        if self.archive and not self.archive.find(folder) and (missing := self.missing(folder)):
            archive = self.archive.download(folder)
            try:
                unpack(archive, missing, folder, self.name)
            finally:
                archive.unlink()


# --- prepared copies


def read_copy(place: Path, name: str, originals: Stamp) -> Dataset | None:
    """The copy of a data set in the folder `place`, or None if there is none of these originals, or a damaged one."""
    try:
        meta: dict[str, Any] = json.loads((place / META).read_text())
        if meta["originals"] != originals:
            raise ValueError("the original files have changed")
        arrays = {}
        for array, crc in meta["crc32"].items():
            if _crc(place / f"{array}.npy") != crc:
                raise ValueError(f"{array}.npy has changed")
            arrays[array] = np.asarray(np.load(place / f"{array}.npy", mmap_mode="r", allow_pickle=False))
        return Dataset(name=name, **arrays, hash=str(meta["hash"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:  # missing, foreign, cut off, changed
        _log.debug("no prepared copy in %s: %s", place, problem)
        return None


def write_copy(place: Path, dataset: Dataset, originals: Stamp) -> None:
    """Keep a copy; several processes may do so at once, and a folder that cannot be written is left alone.

    `originals` is the stamp of the original files, taken before they were read.
    """
    try:
        place.mkdir(parents=True, exist_ok=True)
        kept = [array for array in ARRAYS if getattr(dataset, array) is not None]
        for array in kept:
            with atomic_file(place / f"{array}.npy") as file:
                np.save(file, getattr(dataset, array), allow_pickle=False)
        sums = {array: _crc(place / f"{array}.npy") for array in kept}
        text = json.dumps({"hash": dataset.hash, "originals": originals, "crc32": sums})
        # Last, because it vouches for the others.
        with atomic_file(place / META) as file:
            file.write(text.encode())
    except OSError as problem:
        _log.info("no prepared copy of %s is kept, so each process reads the originals: %s", dataset.name, problem)


def _crc(path: Path) -> int:
    # Catches accidents (a full disk, a killed writer) at several GB/s; nobody is kept out by it.
    return zlib.crc32(np.memmap(path, dtype=np.uint8, mode="r").data)
