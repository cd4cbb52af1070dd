"""Loaders of published files: errors of readers, checks of the data read, the prepared copy.

A prepared copy is a folder of memory-mapped .npy files, made anew whenever in doubt. It never
causes an error: if the folder cannot be written, or its content has changed, the originals are
read. A copy is valid as long as the originals keep their size and modification time, and its own
bytes their CRC-32.
"""

from __future__ import annotations

import json
import logging
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bench.data import parquet
from bench.data.dataset import Dataset, MissingData
from bench.data.download import Original, cache_dir, fetching, lacking, mending, unpack
from bench.errors import EnvironmentProblem, with_its_kind
from leaderboards.rows.files import atomic_file

if TYPE_CHECKING:
    from bench.data.dataset import Inputs, Labels
    from bench.data.registry import DatasetInfo

# Increment it when the files below change their meaning, so that older copies are not taken for new
# copies.
LAYOUT = 1
# Not every data set has groups.
ARRAYS = ("train_x", "train_y", "test_x", "test_y", "train_groups", "test_groups")
META = "meta.json"

_log = logging.getLogger(__name__)


class PreparedLoader(ABC):
    """A `Loader` that keeps a prepared copy of the data that it has read.

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
        """Read the data set from the files in `folder`, all of them present.

        It may raise any error if a file is damaged.
        """

    @abstractmethod
    def present(self, folder: Path) -> list[Path]:
        """List the files that `parse` will read, as far as they are present."""

    @abstractmethod
    def missing(self, folder: Path) -> list[str]:
        """List the files that are not in `folder`, as paths below it."""

    @abstractmethod
    def identity(self) -> list[str]:
        """List what a prepared copy depends on besides the files' size and time.

        Their checksums are an example.
        """

    def place(self) -> Path:
        """Return the folder of the prepared copy; it need not exist."""
        return place_of_copy(self.name, self.identity())

    def lacking(self, folder: Path) -> MissingData:
        """Return the error for missing files; it names places with some of the tables."""
        error = lacking(self.title, self.missing(folder), folder, self.accepted())
        return MissingData("; ".join([str(error), *self.incomplete(folder)]))

    def incomplete(self, folder: Path) -> list[str]:
        """Say which places have some tables of the hub and lack others."""
        return []

    def accepted(self) -> list[str]:
        """Describe what may lie in the place of the missing files, for messages."""
        return []

    def originals(self, folder: Path) -> list[Original]:
        """List the files that are compared with their checksums before they are read."""
        return []

    def read(self, folder: Path) -> Dataset:
        """Read the data set from its prepared copy, or from the original files if there is none.

        Raises MissingData, or EnvironmentProblem for a file that is damaged or not the published
        one.
        """
        if self.missing(folder):
            raise self.lacking(folder)
        files = self.present(folder)
        stamp = stamp_of(files)
        copy = read_copy(self.place(), self.name, stamp)
        if copy is not None:
            return copy
        named = files[0] if len(files) == 1 else files[0].parent
        with self.reading(named, folder):
            for original in self.originals(folder):
                original.verify(folder, self.name)
            dataset = self.parse(folder)
            self._check(dataset)
        write_copy(self.place(), dataset, stamp)
        return dataset

    @contextmanager
    def reading(self, file: Path, folder: Path) -> Iterator[None]:
        """Turn any error of a reader into an `EnvironmentProblem`.

        It names the file and the next step.
        """
        try:
            yield
        except EnvironmentProblem:
            raise
        except Exception as problem:
            size = f"{file.stat().st_size:,} bytes: " if file.is_file() else ""
            raise EnvironmentProblem(
                f"{file}: expected {self.form}, found {size}{with_its_kind(problem)}; "
                f"{mending(self.name, folder)}"
            ) from problem

    def _check(self, dataset: Dataset) -> None:
        """Compare sizes, shapes and labels with the registry; raises ValueError."""
        info = self.info
        self._check_part("training", dataset.train_x, dataset.train_y, info.train_size)
        self._check_part("test", dataset.test_x, dataset.test_y, info.test_size)

    def _check_part(self, part: str, x: Inputs, labels: Labels, count: int) -> None:
        info = self.info
        expected = count if self.counted else max(len(labels), 1)
        if not len(x) == len(labels) == expected:
            raise ValueError(
                f"{len(x):,} samples and {len(labels):,} labels of {expected:,} in the {part} part"
            )
        are_images = info.kind == "images"
        right_images = x.shape[1:] == info.input_shape and x.dtype == np.uint8
        if x.ndim < 2 or (are_images and not right_images):
            raise ValueError(
                f"{part} samples of shape {x.shape[1:]} ({x.dtype}), not {info.input_shape}"
            )
        lowest = labels.min()
        highest = labels.max()
        if lowest < 0 or highest >= info.num_classes:
            last = info.num_classes - 1
            raise ValueError(f"{part} labels {lowest} to {highest} that must be in [0, {last}]")
        classes = len(np.unique(labels))
        if are_images and self.counted and classes < info.num_classes:
            raise ValueError(f"{classes} of {info.num_classes} classes in the {part} part")


@dataclass(frozen=True)
class FileLoader(PreparedLoader):
    """A `PreparedLoader` of published files, or of substitutes in their place.

    By default the tables of the Hugging Face hub are substitutes.

    Args:
        archive: an archive of `files`, from which `fetch` unpacks them; a zip archive, unless they
            are read from it.
        configuration: the folder of the tables in the repository, if it is neither `data` nor
            `default`.
        table_parts: the beginning of the names of each part's tables.
    """

    info: DatasetInfo
    form: str
    files: tuple[Original, ...]
    archive: Original | None = None
    repository: str = ""  # on the hub, as owner/name; empty if its tables are not read
    table_parts: tuple[str, ...] = ("train", "test")
    configuration: str = ""

    def tables(self, folder: Path) -> list[list[Path]]:
        """Find the hub's tables of each part.

        The result is empty if some are missing, or if the published files are present.
        """
        if not self.repository or self._complete(folder):
            return []
        tables = [
            parquet.find(folder / self.name, self.repository, part, self.configuration)
            for part in self.table_parts
        ]
        return tables if all(tables) else []

    def _complete(self, folder: Path) -> bool:
        """Tell whether all files are present that substitutes may replace."""
        return all(file.find(folder) for file in self.files if not file.repository)

    def substitutes(self, folder: Path) -> list[Path]:
        """List the files that are read in place of the published files.

        The result is empty if there are none, or if the published files are present.
        """
        return list(chain.from_iterable(self.tables(folder)))

    def incomplete(self, folder: Path) -> list[str]:
        """Say which places have some tables of the hub and lack others."""
        if not self.repository:
            return []
        texts = []
        for part in self.table_parts:
            place = (folder / self.name, self.repository, part, self.configuration)
            texts.append(parquet.incomplete(*place))
        return [text for text in texts if text]

    def accepted(self) -> list[str]:
        """Describe what may lie in the place of the published files, for messages."""
        others = [self.archive.path] if self.archive else []
        if self.repository:
            place = f"{self.name}/{self.configuration or 'data'}/{self.table_parts[0]}-*.parquet"
            others.append(f"the tables {place} of {self.repository} on the Hugging Face hub")
        return others

    def originals(self, folder: Path) -> list[Original]:
        """List the published files that are read: those that no substitutes replace."""
        replaced = bool(self.substitutes(folder))
        return [file for file in self.files if file.repository or not replaced]

    def present(self, folder: Path) -> list[Path]:
        """List the files that are present, published ones and substitutes."""
        places = [file.find(folder) for file in self.originals(folder)]
        return [*filter(None, places), *self.substitutes(folder)]

    def missing(self, folder: Path) -> list[str]:
        """List the published files that are missing and that no substitutes replace."""
        return [file.path for file in self.originals(folder) if not file.find(folder)]

    def identity(self) -> list[str]:
        """List the files' checksums."""
        return [file.md5 or file.path for file in self.files]

    def fetch(self, folder: Path, offline: bool) -> None:
        """Bring the missing files into `folder`.

        If several processes ask for them, one brings them and the others wait. An archive in
        `folder` is used, even if `offline`; without it, the archive is downloaded. Existing files
        stay as they are.

        Raises:
            MissingData: files are still missing.
            EnvironmentProblem: a download fails, or an archive is damaged.
        """
        archive = self.archive and self.archive.find(folder)
        if archive or not offline:
            with fetching(self.name, self.title, folder):
                if not offline:
                    self.download(folder)
                missing = self.missing(folder)
                if archive and missing:
                    unpack(archive, missing, folder, self.name)
        if self.missing(folder):
            raise self.lacking(folder)

    def download(self, folder: Path) -> None:
        """Download the missing files.

        Files without an address are in an archive, which is deleted when they are unpacked.
        """
        missing = self.missing(folder)
        for file in self.files:
            if file.path in missing and (file.url or file.repository):
                file.download(folder)
        missing = self.missing(folder)
        if missing and self.archive and not self.archive.find(folder):
            archive = self.archive.download(folder)
            try:
                unpack(archive, missing, folder, self.name)
            finally:
                archive.unlink()


# --- prepared copies


def place_of_copy(name: str, identity: Iterable[str]) -> Path:
    """Return the folder of a prepared copy; it need not exist.

    `identity`: what the copy depends on besides the files' size and time.
    """
    text = "\n".join([str(LAYOUT), *identity])
    key = sha256(text.encode()).hexdigest()[:12]
    return cache_dir() / f"{name}-{key}"


def stamp_of(files: Iterable[Path]) -> str:
    """Return the SHA-256 of files' paths, sizes and times; equal stamps mean unchanged files."""
    digest = sha256()
    for file in files:
        status = file.stat()
        stamp = f"{file}\0{status.st_size}\0{status.st_mtime_ns}\n"
        digest.update(stamp.encode(errors="surrogateescape"))  # names may be any bytes
    return digest.hexdigest()


def read_copy(place: Path, name: str, originals: str) -> Dataset | None:
    """Read the copy of a data set in the folder `place`.

    None if there is no copy of originals with this stamp, or if it is damaged.
    """
    try:
        meta: dict[str, Any] = json.loads((place / META).read_text())
        if meta["originals"] != originals:
            raise ValueError("the original files have changed")
        arrays = {}
        for array, crc in meta["crc32"].items():
            file = place / f"{array}.npy"
            if _crc(file) != crc:
                raise ValueError(f"{array}.npy has changed")
            mapped = np.load(file, mmap_mode="r", allow_pickle=False)
            arrays[array] = np.asarray(mapped)
        return Dataset(name=name, **arrays, hash=str(meta["hash"]))
    # The copy is missing, foreign, cut off or changed.
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        _log.debug("no prepared copy in %s: %s", place, problem)
        return None


def write_copy(place: Path, dataset: Dataset, originals: str) -> None:
    """Write a copy of a data set.

    Several processes may do so at once. A folder that cannot be written is left alone. `originals`
    is the stamp of the original files, taken before they were read.
    """
    try:
        place.mkdir(parents=True, exist_ok=True)
        names = [name for name in ARRAYS if getattr(dataset, name) is not None]
        for name in names:
            with atomic_file(place / f"{name}.npy") as file:
                np.save(file, getattr(dataset, name), allow_pickle=False)
        sums = {name: _crc(place / f"{name}.npy") for name in names}
        text = json.dumps({"hash": dataset.hash, "originals": originals, "crc32": sums})
        # Last, because it vouches for the arrays.
        with atomic_file(place / META) as file:
            file.write(text.encode())
    except OSError as problem:
        _log.info(
            "no prepared copy of %s is kept, so each process reads the originals: %s",
            dataset.name,
            problem,
        )


def _crc(path: Path) -> int:
    # Catches accidents (a full disk, a killed writer) at several GB/s; it does not stop tampering.
    return zlib.crc32(np.memmap(path, dtype=np.uint8, mode="r").data)
