"""Parquet files that appear whole or not at all, and that are told from foreign, broken and newer ones when read."""

from __future__ import annotations

import json
import os
import time
import uuid
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leaderboards.schema import COLUMNS, CURVE_COLUMNS, SCHEMA_VERSION, Column
from leaderboards.upgrades import can_upgrade, upgraded

if TYPE_CHECKING:
    import pyarrow as pa

_DAY = 24 * 60 * 60
_READ_WHOLE = 2**22  # bytes up to which a file is read in one go, whatever part of it is asked for
_COLUMNS: dict[str, tuple[Column, ...]] = {"runs": COLUMNS, "curves": CURVE_COLUMNS}


class StoreError(ValueError):
    """A file of a result folder cannot be used. `path` is the file."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


class BrokenFileError(StoreError):
    """The file is truncated, damaged, or not one of ours. `problem` says how, without what to do about it."""

    def __init__(self, path: Path, problem: str, advice: str = "") -> None:
        super().__init__(path, f"{problem}: {advice or remedy(path)}")
        self.problem = problem


class NewerSchemaError(StoreError):
    """The file was written by a newer version of this package."""


class OlderSchemaError(StoreError):
    """The file was written by a version of this package that this one does not know any more."""


def remedy(path: Path) -> str:
    """What to do about a file that cannot be used. A pack may hold thousands of runs."""
    if path.parent.name == "curves":  # its rows would stand there without it, as done
        rows = path.parent.parent / "runs" / path.name
        away, both = f"move it and {rows} away", f"delete it and {rows}, or move both away"
    else:
        away, both = "move it away", "delete it, or move it away"
    if path.name.startswith("packed-"):
        return f"bring it back from a backup or a mirror, or {away}"
    return both


@dataclass(frozen=True)
class Groups:
    """A table too large to be held at once: its parts are made while it is written, each a row group of its own.

    Args:
        schema: of every part, with the metadata of the file.
        parts: in the order in which they stand in the file.
    """

    schema: pa.Schema
    parts: Iterable[pa.Table]


def write_together(files: Sequence[tuple[pa.Table | Groups, Path]]) -> None:
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


def read_table(
    path: Path,
    kind: str,
    columns: Sequence[str] | None = None,
    keys: Collection[str] | None = None,
    dictionaries: Sequence[str] = (),
) -> pa.Table:
    """Read one of our parquet files, or some of its columns or row groups; an older schema is upgraded.

    Args:
        path: the file.
        kind: what it must be: `runs`, `curves` or `leaderboard`.
        columns: names to read; None is all.
        keys: run keys; row groups that cannot hold any of them are left out. What is read may hold others, too.
        dictionaries: columns of text to give as dictionaries, which repeat no value.

    Raises:
        BrokenFileError: it is no parquet file, is cut short, or was not written as `kind`.
        NewerSchemaError: its schema version is newer than this package's.
        OlderSchemaError: its schema version is older, and nothing here upgrades it.
        OSError: it cannot be opened, or the file system fails.
    """
    with _opened(path, dictionaries) as file:
        version = _check_metadata(path, kind, file.metadata.metadata or {})
        groups = range(file.num_row_groups) if keys is None else _groups_with(file, sorted(keys))
        return _read_groups(path, kind, version, file, list(groups), columns)


def read_groups(path: Path, kind: str) -> Iterator[pa.Table]:
    """As `read_table`, but one row group at a time; of a file without any, one table without rows."""
    with _opened(path) as file:
        version = _check_metadata(path, kind, file.metadata.metadata or {})
        for groups in [[group] for group in range(file.num_row_groups)] or [[]]:
            yield _read_groups(path, kind, version, file, groups)


def read_metadata(path: Path, kind: str) -> dict[bytes, bytes]:
    """What was written about one of our files as a whole. Raises as `read_table` does."""
    with _opened(path) as file:
        metadata: dict[bytes, bytes] = file.metadata.metadata or {}
        _check_metadata(path, kind, metadata)
        return metadata


@contextmanager
def _opened(path: Path, dictionaries: Sequence[str] = ()) -> Iterator[Any]:
    """The file for reading. What the file system says has a number, what is wrong with the content has none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = path.stat().st_size
    source = pa.BufferReader(path.read_bytes()) if size <= _READ_WHOLE else pa.OSFile(str(path))
    try:
        metadata = pq.read_metadata(source)
        known = [name for name in dictionaries if name in metadata.schema.names]
        with pq.ParquetFile(source, metadata=metadata, read_dictionary=known) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None):  # such as EIO of a network's: the file may be sound
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BrokenFileError(
            path,
            f"{path} is no readable parquet file ({size} bytes; {reason})",
            f"{remedy(path)}; its runs are then run again",
        ) from error


def _read_groups(
    path: Path, kind: str, version: int, file: Any, groups: list[int], columns: Sequence[str] | None = None
) -> pa.Table:
    if version == SCHEMA_VERSION:
        _check_columns(path, kind, file.schema_arrow.names)
        return file.read_row_groups(groups, columns=None if columns is None else list(columns), use_threads=False)
    table = upgraded(file.read_row_groups(groups, use_threads=False), kind, version)
    _check_columns(path, kind, table.column_names)
    return table if columns is None else table.select(list(columns))


def _groups_with(file: Any, keys: Sequence[str]) -> Iterator[int]:
    """The row groups that may hold one of the sorted `keys`, by their least and greatest run key."""
    if not keys:
        return
    at = file.schema_arrow.names.index("run_key")
    for group in range(file.num_row_groups):
        found = file.metadata.row_group(group).column(at).statistics
        if found is None or not found.has_min_max:
            yield group
        else:
            nearest = bisect_left(keys, found.min)
            if nearest < len(keys) and keys[nearest] <= found.max:
                yield group


def _check_metadata(path: Path, kind: str, metadata: dict[bytes, bytes]) -> int:
    """The version of its schema, which this package can read."""
    found, version = (metadata.get(name, b"").decode() for name in (b"fedkd_kind", b"fedkd_schema_version"))
    if found != kind or not version.isdigit():
        what = f"a {found!r} file" if found else "not written by fedkd-bench"
        raise BrokenFileError(path, f"{path} is no file of {kind} ({what})")
    if int(version) > SCHEMA_VERSION:
        raise NewerSchemaError(
            path,
            f"{path} has schema version {version}, this package reads up to {SCHEMA_VERSION}: "
            "upgrade fedkd-bench, or move the file away",
        )
    if not can_upgrade(kind, int(version)):
        raise OlderSchemaError(
            path,
            f"{path} has schema version {version}, which this package cannot upgrade to {SCHEMA_VERSION}: run "
            "`python -m bench.boards compact` of a version between the two on its folder, or move the file away",
        )
    if int(version) == SCHEMA_VERSION:
        _check_units(path, kind, metadata)
    return int(version)


def _check_units(path: Path, kind: str, metadata: dict[bytes, bytes]) -> None:
    """Files of other units are not read as ours; the first ones of version 1 did not state theirs."""
    stated, ours = json.loads(metadata.get(b"fedkd_units", b"{}")), _units(kind)
    wrong = [f"{name} in {stated[name]}, not {unit}" for name, unit in ours.items() if stated.get(name, unit) != unit]
    if wrong:
        raise BrokenFileError(path, f"{path} has other units ({'; '.join(wrong)})")


def _units(kind: str) -> dict[str, str]:
    return {column.name: column.unit for column in _COLUMNS.get(kind, ()) if column.unit}


def _check_columns(path: Path, kind: str, names: Sequence[str]) -> None:
    missing = [column.name for column in _COLUMNS.get(kind, ()) if column.name not in names]
    if missing:
        raise BrokenFileError(path, f"{path} lacks the columns {', '.join(missing)}")


def _write_synchronised(content: pa.Table | Groups, path: Path) -> None:
    with path.open("xb") as file:
        if isinstance(content, Groups):
            _write_groups(content, file)
        else:
            file.write(_encoded(content))
        file.flush()
        os.fsync(file.fileno())


def _write_groups(content: Groups, file: Any) -> None:
    import pyarrow.parquet as pq

    schema = _with_units(content.schema)
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for part in content.parts:
            writer.write_table(part.replace_schema_metadata(schema.metadata), row_group_size=max(part.num_rows, 1))


def _encoded(table: pa.Table) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # A file of few rows is mostly footer: plain pages make it a third smaller and faster to read.
    small = table.num_rows < 100
    table = table.replace_schema_metadata(_with_units(table.schema).metadata)
    sink = pa.BufferOutputStream()
    compression = "none" if small else "zstd"
    pq.write_table(table, sink, use_dictionary=not small, write_statistics=not small, compression=compression)
    return sink.getvalue()


def _with_units(schema: pa.Schema) -> pa.Schema:
    """The schema with its columns' units in the metadata, so that a file can be read without this package."""
    metadata = dict(schema.metadata or {})
    units = _units(metadata.get(b"fedkd_kind", b"").decode())
    return schema.with_metadata(metadata | ({b"fedkd_units": json.dumps(units).encode()} if units else {}))


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
