"""Parquet files of data sets in the layout of the Hugging Face hub: finding and decoding them.

A reader here may raise any error for a damaged file, with the file's name; `PreparedLoader.read`
converts it.
"""

from __future__ import annotations

import io
import re
import reprlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.data.dataset import whole_numbers
from bench.data.download import snapshots
from bench.errors import with_its_kind
from leaderboards.rows.decoded import check_size, expanding

if TYPE_CHECKING:
    from bench.data.dataset import Images, Labels

KINDS = (".parquet", ".jsonl")  # endings of the names of tables
IMAGES = ("image", "img")  # names of the column of images, and of that of labels
LABELS = ("label", "fine_label")
# Of images. Other formats of Pillow start programs or fill memory on what a file says.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
# Modes of Pillow that one channel of 8 bits holds, and that three do. It cuts wider pixels off at
# 255 without a word.
GREY = ("1", "L", "LA")
COLOURED = ("P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")
SHARDS = re.compile(r"-of-(\d+)")  # in a name: the number of files of the part


def find(folder: Path, repository: str, part: str, configuration: str = "") -> list[Path]:
    """Find the tables of one part, in order: in `folder`, or in the hub client's cache.

    The result is empty if some are missing.

    Args:
        folder: a copy of the repository, or of its `data` folder; a copy beside it, named after the
            repository, or around it counts as well.
        repository: on the hub, as owner/name.
        part: the beginning of the files' names, such as `train`, or the name of their folder.
        configuration: the folder of the tables in the repository, besides `data` and the hub's own
            `default`.
    """
    for files, totals in _candidates(folder, repository, part, configuration):
        if totals == {len(files)}:
            return files
    return []


def incomplete(folder: Path, repository: str, part: str, configuration: str = "") -> str:
    """Say how many tables of a part a place has that lacks others; empty if there is none.

    The arguments are those of `find`.
    """
    for files, totals in _candidates(folder, repository, part, configuration):
        if totals != {len(files)}:
            return f"{files[0].parent} has {len(files)} of {max(totals)} tables of {part}"
    return ""


def _candidates(
    folder: Path, repository: str, part: str, configuration: str
) -> Iterator[tuple[list[Path], set[int]]]:
    """Yield the tables of a part in each place that has any, and the numbers of `_shards`."""
    parent = folder.parent
    base = repository.rpartition("/")[2]
    copies = [folder, parent / repository, parent / base]
    if parent.name in (folder.name, base):
        copies.append(parent)
    copies += snapshots(repository, "datasets")
    for copy in copies:
        for name in dict.fromkeys(("data", "", configuration, "default")):
            for kind in KINDS:
                files, totals = _shards(copy / name, part, kind)
                if files:
                    yield files, totals


def _shards(place: Path, part: str, kind: str) -> tuple[list[Path], set[int]]:
    """List the tables of a part in a folder, and the numbers of tables that their names state."""
    for pattern in (f"{part}-*{kind}", f"{part}{kind}", f"{part}/[0-9]*{kind}"):
        # The hub client's cache keeps links to files that it may have lost.
        files = sorted(file for file in place.glob(pattern) if file.is_file())
        if files:
            stated = [SHARDS.search(file.name) for file in files]
            totals = {int(total[1]) for total in stated if total}
            return files, totals or {len(files)}
    return [], set()


def read(files: Sequence[Path], columns: Sequence[str]) -> dict[str, list[Any]]:
    """Read columns of parquet files, one file after another.

    Raises ValueError if a file decodes to too much.
    """
    import pyarrow.parquet as pq

    content: dict[str, list[Any]] = {column: [] for column in columns}
    for file in files:
        try:
            size = file.stat().st_size
            repeated = expanding(pq.read_metadata(file), size)
            with pq.ParquetFile(file, read_dictionary=repeated) as opened:
                table = opened.read(list(columns))
            check_size(table, size)
            for column in columns:
                content[column].extend(table[column].to_pylist())
        except Exception as problem:
            raise ValueError(f"{file.name}: {with_its_kind(problem)}") from problem
    return content


def images(cells: Sequence[Any], shape: tuple[int, ...]) -> Images:
    """Decode a column of images to (N, C, H, W) pixels.

    Each cell is a mapping with the encoded `bytes`.
    """
    pixels = np.empty((len(cells), *shape), np.uint8)
    for row, cell in enumerate(cells):
        blob = cell.get("bytes") if isinstance(cell, dict) else None
        if blob is None:
            raise ValueError(
                f"row {row}: an image is a struct whose field bytes has its file, got "
                f"{reprlib.repr(cell)}"
            )
        try:
            pixels[row] = decoded(blob, shape)
        except Exception as problem:
            raise ValueError(f"row {row}: {with_its_kind(problem)}") from problem
    return pixels


def labelled(files: Sequence[Path], shape: tuple[int, ...]) -> tuple[Images, Labels]:
    """Read (N, C, H, W) pixels and (N,) labels from tables with columns of `IMAGES` and `LABELS`.

    Raises:
        ValueError: a column is missing, a label is no whole number, or an image has another size.
    """
    image = _column(files[0], IMAGES)
    label = _column(files[0], LABELS)
    columns = read(files, (image, label))
    labels = whole_numbers(columns[label], label)
    return images(columns[image], shape), labels


def _column(file: Path, names: Sequence[str]) -> str:
    """Return the first of `names` that a table has; raises ValueError if it has none."""
    import pyarrow.parquet as pq

    try:
        present = pq.read_schema(file).names
    except Exception as problem:
        raise ValueError(f"{file.name}: {with_its_kind(problem)}") from problem
    for name in names:
        if name in present:
            return str(name)
    raise ValueError(f"{file.name}: no column {' or '.join(names)} among {', '.join(present)}")


def decoded(blob: bytes, shape: tuple[int, ...]) -> Images:
    """Decode an image to (C, H, W) pixels, grey or coloured by the channels of `shape`.

    Raises:
        ValueError: it is no image, or has another size or wider pixels; other errors if it is
            damaged.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        opened = Image.open(io.BytesIO(blob), formats=FORMATS)
    except UnidentifiedImageError:
        raise ValueError(f"{len(blob):,} bytes that are no {', '.join(FORMATS)}") from None
    with opened as image:
        if image.mode not in GREY + COLOURED:
            raise ValueError(f"an image of mode {image.mode}, and 8 bits, grey or RGB, are read")
        if image.size != (shape[2], shape[1]):
            raise ValueError(f"an image of {image.size[1]}x{image.size[0]} pixels")
        pixels = np.asarray(image.convert("L" if shape[0] == 1 else "RGB"))
    return pixels.reshape(*shape[1:], shape[0]).transpose(2, 0, 1)
