"""Data sets of a user's own files: images by class (`folder:PATH`), labelled rows (`csv:PATH`).

The path says where the data are, and their content what they are. `define` reads them and gives
them the name `folder@HASH` or `csv@HASH`, by which settings, run keys and rows know them. So copies
of the same data at two paths, or on two machines, give the same runs, and changed data give others.
Only a path that the user types is read: a name in a stored row names no path.

A set without a test part gets one: a fifth of each class, the same for every seed.
"""

from __future__ import annotations

import csv
import io
import os
import unicodedata
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from bench.data import parquet
from bench.data.dataset import Dataset, FunctionLoader, drawn_test_part
from bench.data.file_loaders import place_of_copy, read_copy, stamp_of, write_copy
from bench.data.outside import KIND, content_version
from bench.data.registry import DatasetInfo, Normalization
from bench.errors import EnvironmentProblem, UsageError, with_its_kind
from bench.terminal.paths import resolved
from leaderboards.rows.files import StoreError, open_regular, read_regular
from search_spaces.bounds import nearest

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from bench.data.dataset import Images, Inputs, Labels

MOST_PIXELS = 2**20  # of an image: rows times columns
MOST_BYTES = 2**32  # of all images of a data set, decoded
LARGEST_IMAGE = 2**26  # bytes of an image's file
LARGEST_TABLE = 2**30  # bytes of a CSV file
MOST_COLUMNS = 50_000  # of a CSV file
MOST_CLASSES = 1_000  # of a column of labels; a measured quantity has more values
BLOCK = 2**24  # bytes that hold at least one line of a CSV file
SHOWN = 8  # names in a message
UPRIGHT = 1  # the EXIF orientation of an image whose first row is its top

Part = tuple["Inputs", "Labels"]


@dataclass(frozen=True)
class OwnFiles(ABC):
    """Files of a user's own that hold a data set.

    Attributes:
        path: of the folder or the file, absolute.
        prefix: what a user types before the path.
        samples: what a sample is, as in `DatasetInfo.kind`.
        scale: the largest value of a pixel.
    """

    path: Path
    prefix: ClassVar[str]
    samples: ClassVar[str]
    scale: ClassVar[int]

    @property
    def typed(self) -> str:
        """The name of these files on a command line."""
        return f"{self.prefix}:{self.path}"

    @abstractmethod
    def files(self) -> list[Path]:
        """List the files that hold the data, in the order of reading; raises UsageError."""

    @abstractmethod
    def parts(self) -> list[Part]:
        """Read the training and the test part, or all samples as one part; raises UsageError."""

    @abstractmethod
    def normalizations(self, shape: tuple[int, ...]) -> dict[str, Normalization]:
        """Return the rules for samples of this shape, as in `DatasetInfo.normalizations`."""

    def load(self) -> tuple[DatasetInfo, Dataset]:
        """Read and describe the data set; a second call costs little if the files have not changed.

        Raises:
            UsageError: a file is missing, cannot be read, or holds no such data.
        """
        with self.reading(self.path):
            stamp = stamp_of(self.files())
        return _loaded(self, stamp)

    def problem(self, what: str) -> UsageError:
        """Return an error about these files, to be raised."""
        return UsageError(f"{self.typed}: {what}")

    @contextmanager
    def reading(self, file: Path) -> Iterator[None]:
        """Turn any error of a reader into a UsageError that names the file."""
        try:
            yield
        except UsageError:
            raise
        except StoreError as error:
            raise self.problem(str(error)) from error
        except (NotADirectoryError, FileNotFoundError) as error:
            if file.is_file():
                raise self.problem(f"{file} is a file; for a table give csv:{file}") from error
            raise self.problem(f"there is no {error.filename or file}: check the path") from error
        except Exception as error:
            raise self.problem(f"{file} cannot be read: {with_its_kind(error)}") from error


@lru_cache(maxsize=4)
def _loaded(files: OwnFiles, stamp: str) -> tuple[DatasetInfo, Dataset]:
    """Read the prepared copy of files with this stamp, or the files, and keep a copy."""
    place = place_of_copy("own", [repr(files)])
    dataset = read_copy(place, files.typed, stamp)
    if dataset is None:
        dataset = _read(files)
        write_copy(place, dataset, stamp)
    labels = np.concatenate([dataset.train_y, dataset.test_y])
    shape = dataset.train_x.shape[1:]
    info = DatasetInfo(
        name=files.typed,
        title=f"{files.path.name} (own {files.samples})",
        num_classes=int(labels.max()) + 1,
        input_shape=shape,
        train_size=len(dataset.train_y),
        test_size=len(dataset.test_y),
        scale=files.scale,
        normalizations=files.normalizations(shape),
        loader="",  # the function `loader` knows the files
        flip=True,  # nobody else knows, and no setting mirrors images unless it is asked for
        download=0,
        kind=files.samples,
    )
    name = f"{files.prefix}@{content_version(info, dataset.hash)}"
    return replace(info, name=name), replace(dataset, name=name)


def _read(files: OwnFiles) -> Dataset:
    """Read a data set from its files.

    If there is no test part, a fifth of each class becomes the test part.
    """
    parts = files.parts()
    if len(parts) == 2:
        return Dataset.of(files.typed, parts[0], parts[1])
    x, labels = parts[0]
    test = drawn_test_part(labels)
    if not test.any():
        raise files.problem(
            "no class has three samples, of which one could be tested on: add samples"
        )
    return Dataset.of(files.typed, (x[~test], labels[~test]), (x[test], labels[test]))


@dataclass(frozen=True)
class ImageFolder(OwnFiles):
    """A folder of images by class, or with `train` and `test`, each such a folder.

    Classes are numbered in the order of their names, and the images of a class are in the order of
    theirs. Hidden files, and files beside the folders of classes, are not read. Transparency is
    left out.
    """

    prefix: ClassVar[str] = "folder"
    samples: ClassVar[str] = "images"
    scale: ClassVar[int] = 255

    def files(self) -> list[Path]:
        """List the images of both parts."""
        files: list[Path] = []
        for part in self._tree():
            files += chain.from_iterable(part.values())
        return files

    def parts(self) -> list[Part]:
        """Read (N, C, H, W) pixels and (N,) labels of each part."""
        shape = self._shape(self.files())
        parts: list[Part] = []
        for tree in self._tree():
            files = list(chain.from_iterable(tree.values()))
            counts = [len(images) for images in tree.values()]
            labels = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
            parts.append((self._pixels(files, shape), labels))
        return parts

    def normalizations(self, shape: tuple[int, ...]) -> dict[str, Normalization]:
        """Return `standard`, which gives pixels from -1 to 1, and `none`."""
        half = (0.5,) * shape[0]
        zeros = (0.0,) * shape[0]
        ones = (1.0,) * shape[0]
        return {"standard": (half, half), "none": (zeros, ones)}

    def _tree(self) -> list[dict[str, list[Path]]]:
        """List the images of each part by class, sorted.

        Without `train` and `test` there is one part.
        """
        folders, _ = self._listed(self.path)
        names = [folder.name for folder in folders]
        if not {"train", "test"} <= {*names}:
            return [self._classes(self.path)]
        others = [name for name in names if name not in ("train", "test")]
        if others:
            raise self.problem(
                f"beside train and test it has {_some(others)}, which belongs to neither: "
                "move it away"
            )
        train = self._classes(self.path / "train")
        test = self._classes(self.path / "test")
        different = sorted(train.keys() ^ test.keys())
        if different:
            raise self.problem(
                f"train and test must have the same classes, and only one has {_some(different)}"
            )
        return [train, test]

    def _classes(self, folder: Path) -> dict[str, list[Path]]:
        """List the images in the folders of a folder, by name of the class.

        Raises UsageError unless there are two classes or more, each with images.
        """
        folders, _ = self._listed(folder)
        if len(folders) < 2:
            raise self.problem(
                f"a folder for each of at least two classes must be in {folder}, "
                f"found {_some(folders)}"
            )
        classes: dict[str, list[Path]] = {}
        for place in folders:
            deeper, images = self._listed(place)
            if deeper:
                raise self.problem(
                    f"{place} must hold images, and has the folder {deeper[0].name}: "
                    f"put its images into {place}"
                )
            if not images:
                raise self.problem(f"{place} has no images: add some, or remove the folder")
            name = _composed(place.name)
            if name in classes:
                raise self.problem(f"{folder} has two folders of the name {name}: rename one")
            classes[name] = images
        return classes

    def _listed(self, folder: Path) -> tuple[list[Path], list[Path]]:
        """List the folders and the files in a folder, sorted, without hidden ones.

        Raises UsageError for links, pipes and the like.
        """
        folders: list[Path] = []
        files: list[Path] = []
        with self.reading(folder), os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: _composed(entry.name)):
                path = Path(entry.path)
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                elif entry.is_file(follow_symlinks=False):
                    files.append(path)
                else:
                    what = "a link" if entry.is_symlink() else "a pipe, a socket or a device"
                    raise self.problem(
                        f"{path} is {what}, and only folders and regular files are read: "
                        "move it away"
                    )
        return folders, files

    def _shape(self, files: Sequence[Path]) -> tuple[int, int, int]:
        """Return channels, rows and columns of the images: one channel if all are grey.

        Raises UsageError if they differ in size or are too large.
        """
        modes: set[str] = set()
        first: tuple[int, int] | None = None
        for file in files:
            mode, size = self._header(file)
            modes.add(mode)
            first = first or size
            if size != first:
                raise self.problem(
                    f"images must be of one size: {file} has {_size(size)} pixels, "
                    f"and {files[0]} {_size(first)}; resize them"
                )
        columns, rows = first or (0, 0)
        channels = 1 if modes <= {*parquet.GREY} else 3
        total = len(files) * channels * rows * columns
        if total > MOST_BYTES:
            raise self.problem(
                f"its {len(files):,} images decode to {total:,} bytes, and at most {MOST_BYTES:,} "
                "are allowed: make them smaller"
            )
        return channels, rows, columns

    def _header(self, file: Path) -> tuple[str, tuple[int, int]]:
        """Return the mode, and columns and rows, of an image, without decoding it.

        Raises UsageError for files that cannot be read as one upright image.
        """
        from PIL import Image, UnidentifiedImageError
        from PIL.ExifTags import Base

        with self.reading(file), open_regular(file) as opened:
            try:
                with (
                    warnings.catch_warnings(action="ignore"),  # of a size that is refused below
                    Image.open(opened, formats=parquet.FORMATS) as image,
                ):
                    mode = image.mode
                    size = image.size
                    frames = getattr(image, "n_frames", 1)
                    # PNG's own method decodes the image, whose size is not checked yet.
                    exif = Image.Image.getexif(image)
            except UnidentifiedImageError:
                formats = ", ".join(parquet.FORMATS)
                raise self.problem(
                    f"{file} is no image of {formats}: move it out of its class, or beside it"
                ) from None
            except Image.DecompressionBombError:
                raise self.problem(
                    f"{file} has more than {MOST_PIXELS:,} pixels: make it smaller"
                ) from None
        if mode not in parquet.GREY + parquet.COLOURED:
            raise self.problem(
                f"{file} has pixels of mode {mode}: convert it to 8 bits, grey or RGB"
            )
        if frames > 1:
            raise self.problem(f"{file} has {frames:,} frames: save each as an image of its own")
        orientation = exif.get(Base.Orientation, UPRIGHT)
        if orientation != UPRIGHT:
            raise self.problem(
                f"{file} is stored turned or mirrored (EXIF orientation {orientation}): save it "
                "upright, as PIL.ImageOps.exif_transpose does"
            )
        if size[0] * size[1] > MOST_PIXELS:
            raise self.problem(
                f"{file} has {_size(size)} pixels, and at most {MOST_PIXELS:,} are allowed: "
                "make it smaller"
            )
        return mode, size

    def _pixels(self, files: Sequence[Path], shape: tuple[int, int, int]) -> Images:
        """Decode images to (N, *shape)."""
        pixels = np.empty((len(files), *shape), np.uint8)
        for position, file in enumerate(files):
            with self.reading(file):
                pixels[position] = parquet.decoded(read_regular(file, LARGEST_IMAGE), shape)
        return pixels


@dataclass(frozen=True)
class CsvFile(OwnFiles):
    """A CSV file with a header: a column of labels, and numbers in all other columns.

    Labels may be any text. They are numbered by value if all are whole numbers, otherwise in the
    order of the alphabet.
    """

    label: str  # name of the column of labels
    prefix: ClassVar[str] = "csv"
    samples: ClassVar[str] = "vectors"
    scale: ClassVar[int] = 1

    def files(self) -> list[Path]:
        """List the file itself."""
        return [self.path]

    def parts(self) -> list[Part]:
        """Read (N, D) numbers and (N,) labels."""
        with self.reading(self.path):
            blob = read_regular(self.path, LARGEST_TABLE)
            names = self._names(blob)
            table = self._table(blob, names)
        if not len(table):
            raise self.problem(f"{self.path} has a header and no rows")
        labels = self._labels(table[self.label].to_pylist())
        numbers = [self._numbers(table[name], name) for name in names if name != self.label]
        return [(np.ascontiguousarray(np.stack(numbers, axis=1)), labels)]

    def normalizations(self, shape: tuple[int, ...]) -> dict[str, Normalization]:
        """Return `none`, because columns are taken as they are."""
        return {"none": ((), ())}

    def _names(self, blob: bytes) -> list[str]:
        """Read the names of the columns.

        Raises UsageError unless all are named, distinct, and the column of labels is among them.
        """
        with io.TextIOWrapper(io.BytesIO(blob), "utf-8-sig", newline="") as text:
            names = next(csv.reader(text), [])
        if len(names) > MOST_COLUMNS:
            raise self.problem(
                f"it has {len(names):,} columns, and at most {MOST_COLUMNS:,} are allowed: leave "
                "some out"
            )
        if not any(names):
            raise self.problem("its first line, which names the columns, is empty: remove it")
        if "" in names:
            raise self.problem(
                f"column {names.index('') + 1} has no name: name it, or leave it out if it numbers "
                "the rows, as pandas writes it without index=False"
            )
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            raise self.problem(f"the header has {_some(repeated)} more than once: rename columns")
        if not self.label:
            raise self.problem(
                "which column has the labels? --set label=NAME (elsewhere --label NAME), "
                f"of {_some(names)}"
            )
        if self.label not in names:
            separated = "; columns must be separated by commas" if len(names) == 1 else ""
            raise self.problem(
                f"no column {self.label!r} for label; there is {_some(names)}"
                f"{nearest(self.label, names)}{separated}"
            )
        if len(names) < 2:
            raise self.problem(
                f"{self.label!r} is the only column: columns of numbers, separated by commas, "
                "must be beside it"
            )
        return names

    def _table(self, blob: bytes, names: Sequence[str]) -> pa.Table:
        """Read all cells as text.

        Raises an error of pyarrow for rows of another length, and for bytes that are not UTF-8.
        """
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        return arrow_csv.read_csv(
            pa.BufferReader(blob),
            arrow_csv.ReadOptions(block_size=BLOCK, use_threads=False),
            arrow_csv.ParseOptions(newlines_in_values=True),
            arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )

    def _labels(self, texts: Sequence[str]) -> Labels:
        """Number the labels of N rows; returns (N,) numbers from 0."""
        values = [_composed(text.strip()) for text in texts]
        if "" in values:
            raise self.problem(f"row {values.index('') + 1} has no label in {self.label!r}")
        classes = sorted(set(values))
        if all(map(_is_whole, classes)):
            classes.sort(key=int)
        if len(classes) < 2:
            raise self.problem(
                f"{self.label!r} has the one value {classes[0]!r}: at least two classes are needed"
            )
        if len(classes) > MOST_CLASSES:
            raise self.problem(
                f"{self.label!r} has {len(classes):,} values in {len(values):,} rows, "
                f"and at most {MOST_CLASSES:,} classes are allowed: name the column of classes"
            )
        self._check_numbers(classes)
        numbers = {name: number for number, name in enumerate(classes)}
        return np.array([numbers[value] for value in values], np.int64)

    def _check_numbers(self, classes: Sequence[str]) -> None:
        """Raise UsageError if two labels are one number, as 1 and 1.0 are."""
        spellings: dict[Decimal, str] = {}
        for label in classes:
            try:
                number = Decimal(label)
            except InvalidOperation:
                continue
            if not number.is_finite():
                continue
            other = spellings.setdefault(number, label)
            if other != label:
                raise self.problem(
                    f"labels {other!r} and {label!r} in {self.label!r} are one number: "
                    "write it in one way"
                )

    def _numbers(self, column: pa.ChunkedArray, name: str) -> NDArray[np.float32]:
        """Convert a column of text to (N,) numbers.

        Raises a UsageError that names the first row with another text.
        """
        numbers = _converted(column)
        if numbers is not None:
            return numbers
        good = 0  # all rows before it are numbers
        bad = len(column)  # some row before it is no number
        while bad - good > 1:
            middle = (good + bad) // 2
            if _converted(column[good:middle]) is None:
                bad = middle
            else:
                good = middle
        raise self.problem(
            f"row {good + 1}, column {name!r}: {column[good].as_py()!r} is no finite number of 32 "
            "bits; mend it, or leave the column out"
        )


def _converted(column: pa.ChunkedArray) -> NDArray[np.float32] | None:
    """Convert text to finite numbers; None if that is not possible."""
    import pyarrow as pa
    from pyarrow import compute

    try:
        trimmed = compute.utf8_trim_whitespace(column)
        numbers = compute.cast(trimmed, pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        return None
    with np.errstate(over="ignore"):
        narrow = numbers.astype(np.float32)
    return narrow if np.isfinite(narrow).all() else None


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and len(text) < SHOWN


def _composed(text: str) -> str:
    """Return a text whose accented letters are one character each, however it was written."""
    return unicodedata.normalize("NFC", text)


def _size(size: tuple[int, int]) -> str:
    """Format columns and rows, as Pillow gives them, as rows x columns."""
    return f"{size[1]}x{size[0]}"


def _some(names: Sequence[str | Path]) -> str:
    """List the first names, and how many more there are."""
    texts = [name.name if isinstance(name, Path) else name for name in names]
    more = len(texts) - SHOWN
    shown = ", ".join(texts[:SHOWN]) or "none"
    return f"{shown} and {more:,} more" if more > 0 else shown


# The data sets that were read in this process, or in the process that started this one, by the
# names that their contents give them.
defined: dict[str, tuple[OwnFiles, DatasetInfo]] = {}


def define(typed: str, label: str = "") -> DatasetInfo:
    """Read the data set at a typed `folder:PATH` or `csv:PATH`; from now on its name is defined.

    Args:
        typed: as typed; the path may be relative, and begin with `~`.
        label: the column of labels, of a CSV file alone.

    Raises:
        UsageError: the files are missing, or hold other data; or nobody typed the path, but a
            stored row has it.
    """
    KIND.check_typed(typed)
    prefix, _, path = typed.partition(":")
    if not path:
        raise UsageError(f"{typed!r}: name a path behind it, as {prefix}:PATH")
    files: OwnFiles
    if prefix == CsvFile.prefix:
        files = CsvFile(resolved(path), label)
    else:
        files = ImageFolder(resolved(path))
        if label:
            raise files.problem(f"label={label} is for csv:PATH: folders name the classes here")
    info, _ = files.load()
    defined[info.name] = (files, info)
    return info


def find(name: str) -> DatasetInfo:
    """Return the entry of a data set by its name, or by what is typed for it.

    Raises UsageError as `define`, or if this process does not know the name.
    """
    if "@" not in name.partition(":")[0]:
        return define(name)
    if name not in defined:
        prefix = name.partition("@")[0]
        raise UsageError(
            f"the data set {name} is known by its content alone: "
            f"say where it is, as {prefix}:PATH, with --dataset, or in a sweep's "
            f"public={prefix}:PATH:N"
        )
    _, info = defined[name]
    return info


def loader(name: str) -> FunctionLoader:
    """Return the loader of a data set by its name, or by what is typed for it, as `find`."""
    info = find(name)
    files, _ = defined[info.name]
    return FunctionLoader(partial(_unchanged, files, info))


def _unchanged(files: OwnFiles, known: DatasetInfo) -> Dataset:
    """Read files, which were read before.

    Raises:
        EnvironmentProblem: they are not here any more, or have another content.
    """
    try:
        info, dataset = files.load()
    except UsageError as error:
        raise EnvironmentProblem(str(error)) from error
    if info.name != known.name:
        raise EnvironmentProblem(
            f"{files.typed} has changed: it is {info.name} now, and was {known.name}; "
            "give the command again"
        )
    return dataset
