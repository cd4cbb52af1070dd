"""Prepared copies of data sets: .npy files, memory-mapped, made anew whenever in doubt.

A copy is never an error: if the folder cannot be written, or holds something else than was written, the original is
read. A copy counts as long as the originals keep their size and time of change, and its own bytes their CRC-32.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.data import paths
from bench.data.dataset import Dataset
from leaderboards.rows.files import atomic_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.data.dataset import Labels

# Raise it when the files below change their meaning, so that older copies are not taken for new ones.
LAYOUT = 1
ARRAYS = ("train_x", "train_y", "test_x", "test_y")
GROUPS = ("train_groups", "test_groups")  # which not every data set has
META = "meta.json"
# What a missing, foreign, cut off or scribbled-over copy can raise.
_UNUSABLE = (OSError, ValueError, KeyError, TypeError, AttributeError)

Stamp = list[list[str | int]]

_log = logging.getLogger(__name__)


def place(name: str, checksums: Iterable[str]) -> Path:
    """The folder of the copy of a data set whose original files have these checksums; it need not exist."""
    key = sha256("\n".join([str(LAYOUT), *checksums]).encode()).hexdigest()[:12]
    return paths.cache_dir() / f"{name}-{key}"


def stamp(files: Iterable[Path]) -> Stamp:
    """Path, size and time of change of each file; equal stamps mean files that nobody has touched."""
    looked = [(str(file), file.stat()) for file in files]
    return [[path, status.st_size, status.st_mtime_ns] for path, status in looked]


def read(folder: Path, name: str, originals: Stamp) -> Dataset | None:
    """The copy of a data set, or None if there is none of these originals, or a damaged one.

    `folder` is what `place` gave, `originals` the stamp of the original files as they are now.
    """
    try:
        meta = _meta(folder, originals)
        kept = (*ARRAYS, *(array for array in GROUPS if array in meta["crc32"]))
        arrays = {array: _array(folder, array, meta) for array in kept}
        return Dataset(name=name, **arrays, hash=str(meta["hash"]))
    except _UNUSABLE as problem:
        _log.debug("no prepared copy in %s: %s", folder, problem)
        return None


def read_labels(folder: Path, originals: Stamp) -> Labels | None:
    """(N,) training labels from the copy, without touching its images; None as in `read`."""
    try:
        return _array(folder, "train_y", _meta(folder, originals))
    except _UNUSABLE as problem:
        _log.debug("no prepared copy in %s: %s", folder, problem)
        return None


def write(folder: Path, dataset: Dataset, originals: Stamp) -> None:
    """Keep a copy; several processes may do so at once, and a folder that cannot be written is left alone.

    `originals` is the stamp of the original files, taken before they were read.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        kept = [array for array in (*ARRAYS, *GROUPS) if getattr(dataset, array) is not None]
        for array in kept:
            with atomic_file(folder / f"{array}.npy") as file:
                np.save(file, getattr(dataset, array), allow_pickle=False)
        sums = {array: _crc(folder / f"{array}.npy") for array in kept}
        text = json.dumps({"hash": dataset.hash, "originals": originals, "crc32": sums})
        # Last, because it vouches for the others.
        with atomic_file(folder / META) as file:
            file.write(text.encode())
    except OSError as problem:
        _log.info("no prepared copy of %s is kept, so each process reads the originals: %s", dataset.name, problem)


def _meta(folder: Path, originals: Stamp) -> dict[str, Any]:
    meta: dict[str, Any] = json.loads((folder / META).read_text())
    if meta["originals"] != originals:
        raise ValueError("the original files have changed")
    return meta


def _array(folder: Path, name: str, meta: dict[str, Any]) -> NDArray[Any]:
    path = folder / f"{name}.npy"
    if _crc(path) != meta["crc32"][name]:
        raise ValueError(f"{path.name} has changed")
    array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return np.asarray(array)


def _crc(path: Path) -> int:
    # Catches accidents (a full disk, a killed writer) at several GB/s; nobody is kept out by it.
    return zlib.crc32(np.memmap(path, dtype=np.uint8, mode="r").data)
