"""Parquet files of data sets, in the layout of the Hugging Face hub: how they are found and decoded.

A reader here may raise any error for a damaged file, with the file's name; `PreparedSource.read` converts it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.data.download import snapshots
from bench.errors import with_its_kind
from leaderboards.rows.decoded import check_size, expanding

if TYPE_CHECKING:
    from bench.data.dataset import Images, Labels

KINDS = (".parquet", ".jsonl")  # endings of the names of tables
SHARDS = re.compile(r"-of-(\d+)")  # in a name: the number of files of the part


def find(folder: Path, repository: str, part: str) -> list[Path]:
    """Find the tables of one part, in order: in `folder`, else in the hub client's cache; [] if some are missing.

    Args:
        folder: a copy of the repository, or of its `data` folder.
        repository: on the hub, as owner/name.
        part: the beginning of the files' names, such as `train`.
    """
    cached = [place for version in snapshots(repository, "datasets") for place in (version / "data", version)]
    for place in (folder / "data", folder, *cached):
        for kind in KINDS:
            files = sorted(place.glob(f"{part}-*{kind}")) or sorted(place.glob(f"{part}{kind}"))
            totals = {int(total[1]) for file in files if (total := SHARDS.search(file.name))}
            if files and totals <= {len(files)}:
                return files
    return []


def read(files: Sequence[Path], columns: Sequence[str]) -> dict[str, list[Any]]:
    """Read columns of parquet files, one file after another.

    Raises ValueError if one decodes to too much.
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
    """Decode a column of images, each a mapping with the encoded `bytes`, to (N, C, H, W) pixels."""
    pixels = np.empty((len(cells), *shape), np.uint8)
    for row, cell in enumerate(cells):
        try:
            pixels[row] = decoded(cell["bytes"], shape)
        except Exception as problem:
            raise ValueError(f"row {row}: {with_its_kind(problem)}") from problem
    return pixels


def labelled(files: Sequence[Path], shape: tuple[int, ...]) -> tuple[Images, Labels]:
    """Read (N, C, H, W) pixels and (N,) labels from tables with columns `image` and `label`."""
    columns = read(files, ("image", "label"))
    return images(columns["image"], shape), np.array(columns["label"], np.int64)


def decoded(blob: bytes, shape: tuple[int, ...]) -> Images:
    """Decode an image to (C, H, W) pixels, grey or coloured by the channels of `shape`.

    Raises:
        ValueError: it has another size; other errors if it is not an image.
    """
    from PIL import Image

    with Image.open(io.BytesIO(blob)) as image:
        if image.size != (shape[2], shape[1]):
            raise ValueError(f"an image of {image.size[1]}x{image.size[0]} pixels")
        pixels = np.asarray(image.convert("L" if shape[0] == 1 else "RGB"))
    return pixels.reshape(*shape[1:], shape[0]).transpose(2, 0, 1)
