"""Parquet files that appear whole or not at all, and that are told from foreign, broken and newer ones when read."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from leaderboards.schema import COLUMNS, CURVE_COLUMNS, SCHEMA_VERSION

if TYPE_CHECKING:
    import pyarrow as pa

_DAY = 24 * 60 * 60


class StoreError(ValueError):
    """A file of a result folder cannot be used. `path` is the file."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


class BrokenFileError(StoreError):
    """The file is truncated, damaged, or not one of ours."""


class NewerSchemaError(StoreError):
    """The file was written by a newer version of this package."""


def write_together(files: Sequence[tuple[pa.Table, Path]]) -> None:
    """Write each table to its path, in order; every file appears whole or not at all.

    All are written and synchronised under temporary names in their own folders first, so that a full disk is met
    before anything is visible; then each is renamed into place. A process killed between two renames leaves the
    earlier files in place.

    Raises:
        OSError: a folder cannot be written, or the disk is full; the temporary files are removed.
    """
    staged: list[tuple[Path, Path]] = []
    try:
        for table, path in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f".{path.stem}.{uuid.uuid4().hex}.tmp")
            staged.append((temporary, path))
            _write_synchronised(table, temporary)
        for temporary, path in staged:
            temporary.replace(path)
            _synchronise_folder(path.parent)
    finally:
        for temporary, _ in staged:
            _remove(temporary)


def sweep_leftovers(folder: Path, older_than: float = _DAY) -> None:
    """Remove temporary files that killed writers left in `folder`, if `older_than` seconds have passed since."""
    limit = time.time() - older_than
    for path in folder.glob(".*.tmp"):
        try:
            if path.stat().st_mtime < limit:
                path.unlink()
        except FileNotFoundError:  # another process swept it, or its writer finished
            continue


def read_table(path: Path, kind: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read one of our parquet files, or some of its columns.

    Args:
        path: the file.
        kind: what it must be: `runs`, `curves` or `leaderboard`.
        columns: names to read; None is all.

    Raises:
        BrokenFileError: it is no parquet file, is cut short, or was not written as `kind`.
        NewerSchemaError: its schema version is newer than this package's.
        OSError: it cannot be opened.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Read the bytes first: what fails here is the file system's fault, what fails below is the content's.
    content = path.read_bytes()
    try:
        with pq.ParquetFile(pa.BufferReader(content)) as file:
            _check_metadata(path, kind, file.metadata.metadata or {})
            _check_columns(path, kind, file.schema_arrow.names)
            return file.read(columns=None if columns is None else list(columns), use_threads=False)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BrokenFileError(
            path,
            f"{path} is no readable parquet file ({len(content)} bytes; {reason}): "
            "delete it, or move it away; its run is then run again",
        ) from error


def _check_metadata(path: Path, kind: str, metadata: dict[bytes, bytes]) -> None:
    found, version = (metadata.get(name, b"").decode() for name in (b"fedkd_kind", b"fedkd_schema_version"))
    if found != kind or not version.isdigit():
        what = f"a {found!r} file" if found else "not written by fedkd-bench"
        raise BrokenFileError(path, f"{path} is no file of {kind} ({what}): delete it, or move it away")
    if int(version) > SCHEMA_VERSION:
        raise NewerSchemaError(
            path,
            f"{path} has schema version {version}, this package reads up to {SCHEMA_VERSION}: "
            "upgrade fedkd-bench, or move the file away",
        )


def _check_columns(path: Path, kind: str, names: Sequence[str]) -> None:
    expected = {"runs": COLUMNS, "curves": CURVE_COLUMNS}.get(kind, ())
    missing = [column.name for column in expected if column.name not in names]
    if missing:
        raise BrokenFileError(path, f"{path} lacks the columns {', '.join(missing)}: delete it, or move it away")


def _write_synchronised(table: pa.Table, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # A file of few rows is mostly footer: plain pages make it a third smaller and faster to read.
    small = table.num_rows < 100
    sink = pa.BufferOutputStream()
    compression = "none" if small else "zstd"
    pq.write_table(table, sink, use_dictionary=not small, write_statistics=not small, compression=compression)
    with path.open("xb") as file:
        file.write(sink.getvalue())
        file.flush()
        os.fsync(file.fileno())


def _synchronise_folder(folder: Path) -> None:
    """Make a rename survive a power cut, where the system lets folders be opened (POSIX)."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    # The disk's error must reach the caller, not one about its leftovers; a file in place of the folder included.
    try:
        path.unlink()
    except OSError:
        return
