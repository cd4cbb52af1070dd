"""Files of a result folder: reading regular ones, writing whole ones, checks of our parquet files.

A result folder may be somebody else's. The folder itself is named by the user and may be a link;
below it no link is followed. Links, pipes and devices are not read (`open_regular`), folders that
are links are not entered (`part_of`), and a new file replaces whatever had its name
(`atomic_file`). Only a file that the user has named is written through a link or into a device
(`typed_file`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import time
import uuid
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from io import BufferedReader
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from leaderboards.rows.decoded import check_size, expanding, plain, plain_type
from leaderboards.rows.schema import REQUIRED, SCHEMA_VERSION, curves_schema, runs_schema

if TYPE_CHECKING:
    import pyarrow as pa

CURVES_HASH = b"fedkd_curves_sha256"  # in the metadata of a file of rows
PARTS = ("runs", "curves", "tracked", "state", "logs")  # folders of a result folder
TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp")  # the name of a file until it is whole
_DAY = 24 * 60 * 60
# The system names no file in these.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
_REPEATED = "; its runs are then run again"
# Microseconds from 1970 to the year 9999, the last that Python knows.
_LAST_TIME = 253_370_764_800_000_000
_READ_WHOLE = 2**22  # bytes up to which a file is read in one go, for any part of it
_NO_LINK_NO_WAIT = os.O_NOFOLLOW | os.O_NONBLOCK  # flags of `os.open`
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFDIR: "a folder",
    stat.S_IFSOCK: "a socket",
}


class StoreError(ValueError):
    """An error about an unusable file of a result folder. `path` is the file."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


class BrokenFileError(StoreError):
    """An error about a truncated, damaged or foreign file."""

    def __init__(self, path: Path, problem: str, advice: str = "") -> None:
        super().__init__(path, f"{problem}: {advice or remedy(path)}")


def remedy(path: Path) -> str:
    """Advise what to do about an unusable file.

    A segment may hold thousands of runs, so it must not be deleted; nor must a file that is in no
    result folder, because the user may have named it by mistake.
    """
    if path.parent.name not in ("runs", "curves"):
        return "name a result folder, or a file of rows"
    files = "it"
    if path.parent.name == "curves":  # its rows, left without it, would count as done
        files = f"it and {path.parent.parent / 'runs' / path.name}"
    if path.name.startswith("packed-"):
        return f"bring it back from a backup or a mirror, or move {files} away{_REPEATED}"
    return f"delete {files}, or move {files} away{_REPEATED}"


def part_of(folder: Path, name: str) -> Path:
    """Return the folder `name` in `folder`, which need not exist.

    Raises:
        StoreError: it is a link, whose target another may have chosen.
    """
    path = folder / name
    if path.is_symlink():
        advice = "move the link away; the result folder itself may be a link"
        raise StoreError(
            path, f"{path} is a link, and no link below a result folder is followed: {advice}"
        )
    return path


def is_regular(path: Path) -> bool:
    """Return whether `path` is a regular file itself: no link, pipe or device, and not missing."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file to read; never waits for a pipe, and follows no link.

    Raises:
        BrokenFileError: it is no regular file.
        OSError: it is missing, or cannot be opened.
    """
    _check_regular(path, path.lstat())
    # It may be replaced meanwhile.
    file = os.fdopen(os.open(path, os.O_RDONLY | _NO_LINK_NO_WAIT), "rb")
    try:
        _check_regular(path, os.fstat(file.fileno()))
    except StoreError:
        file.close()
        raise
    return file


def read_regular(path: Path, limit: int) -> bytes:
    """Read a regular file of at most `limit` bytes.

    Raises as `open_regular`, and BrokenFileError if it is larger.
    """
    with open_regular(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise BrokenFileError(path, f"{path} has more than {limit:,} bytes", "move it away")
    return content


def append_line(path: Path, line: str) -> None:
    """Append a line to a file, which need not exist.

    Raises OSError if it is no regular file, or cannot be written.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NO_LINK_NO_WAIT
    with os.fdopen(os.open(path, flags, 0o666), "a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def _check_regular(path: Path, status: os.stat_result) -> None:
    """Raise BrokenFileError unless `status` is that of a regular file."""
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "a device")
        raise BrokenFileError(
            path, f"{path} is {kind}, and only regular files are read", "move it away"
        )


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write, which replaces `path`, whatever it is, when all of it is on the disk.

    After an error the old file stays. A process that has the old file open or mapped keeps it. A
    killed writer leaves a hidden file, of a name as `TEMPORARY`.

    Raises:
        OSError: the folder cannot be written, or the disk is full; its `filename` is `path`.
    """
    with _temporary(path.parent) as temporary, _errors_naming(path, temporary):
        with _new_file(temporary) as file:
            yield file
        temporary.replace(path)


def results_around(path: Path) -> Path | None:
    """Return the result folder whose rows, curves or the like lie where `path` is; None if none."""
    whole = Path(os.path.realpath(path))
    for place in (whole, *whole.parents):
        rows = place.parent / "runs"
        if place.name in PARTS and any(rows.glob("*.parquet")):
            return place.parent
    return None


@contextmanager
def typed_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that the user has named, to write; raises as `atomic_file`.

    The target of a link is replaced, not the link; a device or a pipe is written in place. A pipe
    from which nobody reads is an error.
    """
    if path.exists() and not path.is_file():
        with _errors_naming(path, path):
            # An ordinary opening of a pipe waits for its reader.
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(descriptor, True)
            with os.fdopen(descriptor, "wb") as file:
                yield file
        return
    with atomic_file(Path(os.path.realpath(path))) as file:
        yield file


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table to a file, which appears whole or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _temporary(path.parent) as temporary, _errors_naming(path, temporary):
        _write(table.schema, [table], temporary)
        _rename(temporary, path)


def write_by_content(
    out: Path,
    stem: str,
    schemas: Sequence[pa.Schema],
    rows: Iterable[pa.Table],
    points: Iterable[pa.Table],
) -> Path:
    """Write a file of rows and its curves, named by their content.

    The name begins with `stem`, which is `packed` for a segment. It ends with the SHA-256 of the
    file of rows, which states the hash of the curves. `schemas` are those of the rows and of the
    points, with the metadata of the files. Tables are made while they are written, each as a row
    group of its own. Points are in place first, so that every row that a reader sees has its curve.

    Returns:
        The path of the file of rows.

    Raises:
        OSError: a folder cannot be written, or the disk is full; nothing half-written is left.
    """
    for name in ("curves", "runs"):
        part_of(out, name).mkdir(parents=True, exist_ok=True)
    with _temporary(out / "curves") as curves, _temporary(out / "runs") as runs:
        with _errors_naming(curves.parent, curves):
            _write(schemas[1], points, curves)
        metadata = {**schemas[0].metadata, CURVES_HASH: content_hash(curves).encode()}
        with _errors_naming(runs.parent, runs):
            _write(schemas[0].with_metadata(metadata), rows, runs)
        digits = 32 if stem == "packed" else 16
        name = f"{stem}-{content_hash(runs)[:digits]}.parquet"
        _rename(curves, out / "curves" / name)
        _rename(runs, out / "runs" / name)
    return out / "runs" / name


def write_named_by_content(
    folder: Path, stem: str, ending: str, write: Callable[[BinaryIO], Any]
) -> Path:
    """Write a file, which appears whole, as `STEM-HASH.ENDING` with 16 digits of its SHA-256.

    Returns:
        Its path.

    Raises:
        OSError: the folder cannot be written, or the disk is full; nothing half-written is left.
    """
    with _temporary(folder) as temporary, _errors_naming(folder, temporary):
        with _new_file(temporary) as file:
            write(file)
        path = folder / f"{stem}-{content_hash(temporary)[:16]}.{ending}"
        _rename(temporary, path)
    return path


def copy_file(source: Path, target: Path) -> None:
    """Copy a regular file, which appears whole or not at all.

    Raises as `open_regular`, or OSError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with open_regular(source) as file, atomic_file(target) as copy:
        shutil.copyfileobj(file, copy)


def content_hash(path: Path) -> str:
    """Compute the SHA-256 of a regular file's content: 64 hexadecimal digits.

    Raises as `open_regular`.
    """
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _temporary(folder: Path) -> Iterator[Path]:
    """Provide a path in a folder for a temporary file, and remove the file at the end."""
    path = folder / f".{uuid.uuid4().hex}.tmp"
    try:
        yield path
    finally:
        with suppress(OSError):  # the disk's error must reach the caller, not one about leftovers
            path.unlink()


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a new file to write, and wait at the end until all of it is on the disk."""
    with path.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _errors_naming(path: Path, opened: Path) -> Iterator[None]:
    """Make errors name `path` where they name `opened`, which stands in for it, or no file."""
    try:
        yield
    except OSError as error:
        nameless = error.filename is None and error.errno in _DISK_ERRORS
        if error.filename != str(opened) and not nameless:
            raise
        # The constructor picks the class that belongs to the number.
        raise OSError(error.errno, error.strerror, str(path)) from error


def _rename(temporary: Path, path: Path) -> None:
    """Rename a file into place, and sync the folder against a power cut."""
    temporary.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep_leftovers(folder: Path) -> None:
    """Remove temporary files that killed writers left in `folder` more than a day ago."""
    limit = time.time() - _DAY
    for path in folder.glob(".*.tmp"):
        if not TEMPORARY.fullmatch(path.name):
            continue
        try:
            if path.lstat().st_mtime < limit:
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
    """Read one of our parquet files, or some of its columns or row groups.

    Args:
        path: the file.
        kind: what it must be: `runs`, `curves` or `leaderboard`.
        columns: names to read, None is all; the file may lack all but `schema.REQUIRED`.
        keys: run keys; row groups that cannot hold any of them are skipped. The result may hold
            other keys, too.
        dictionaries: text columns to read as dictionary arrays, which repeat no value.

    Raises:
        BrokenFileError: it is not a parquet file, is cut short, or was not written as `kind`; or a
            column has a wrong type, is there twice, or holds what has no Python value.
        StoreError: its schema version is newer than this package's.
        StoreError: memory does not suffice to read it.
        OSError: it cannot be opened, or the file system fails.
    """
    with _opened(path, kind, dictionaries) as (file, repeated):
        groups = list(range(file.num_row_groups))
        if keys is not None:
            groups = list(_groups_with(file, sorted(keys)))
        names = None if columns is None else [*columns]
        table = file.read_row_groups(groups, columns=names, use_threads=False)
        check_size(table, path.lstat().st_size)  # the sizes that a file states may be untrue
        if repeated:
            table = plain(table, dictionaries)
        # Refuses invalid text: files of earlier versions have no checksums.
        table.validate(full=True)
        _check_values(path, kind, table)
        return table


@contextmanager
def _opened(
    path: Path, kind: str, dictionaries: Sequence[str] = ()
) -> Iterator[tuple[Any, list[str]]]:
    """Open a file and check its kind.

    Errors of the file system have an `errno`, errors of the content have none. The columns that are
    named beside the file are read as they are stored, because they may decode to too much.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    opened = open_regular(path)
    size = os.fstat(opened.fileno()).st_size
    try:
        whole = size <= _READ_WHOLE
        source = pa.BufferReader(opened.read(size)) if whole else pa.PythonFile(opened, "r")
        metadata = pq.read_metadata(source)
        repeated = expanding(metadata, size)
        encoded = [name for name in dictionaries if name in metadata.schema.names]
        encoded += repeated
        with pq.ParquetFile(
            source, metadata=metadata, read_dictionary=encoded, page_checksum_verification=True
        ) as file:
            _check(path, kind, file)
            yield file, repeated
    except StoreError:
        raise
    except MemoryError as error:  # the file may be sound
        advice = "free some, or read the folder on a larger machine"
        raise StoreError(
            path, f"memory does not suffice to read {path} ({size:,} bytes): {advice}"
        ) from error
    except (
        pa.ArrowException,
        ValueError,
        TypeError,
        LookupError,
        OverflowError,
        RecursionError,
        OSError,
    ) as error:
        # Such as EIO of a network file system: the file may be sound.
        if getattr(error, "errno", None):
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BrokenFileError(
            path, f"{path} is no readable parquet file ({size} bytes; {reason})"
        ) from error
    finally:
        opened.close()


def _groups_with(file: Any, keys: Sequence[str]) -> Iterator[int]:
    """Yield the row groups whose range of run keys contains one of the sorted `keys`."""
    if not keys:
        return
    column = file.schema_arrow.names.index("run_key")
    for group in range(file.num_row_groups):
        statistics = file.metadata.row_group(group).column(column).statistics
        if statistics is None or not statistics.has_min_max:
            yield group
        else:
            nearest = bisect_left(keys, statistics.min)
            if nearest < len(keys) and keys[nearest] <= statistics.max:
                yield group


def _check(path: Path, kind: str, file: Any) -> None:
    """Raise StoreError unless an opened file has this kind, its columns and a known version."""
    metadata = file.metadata.metadata or {}
    ours = {name: value.decode() for name, value in metadata.items() if name.startswith(b"fedkd_")}
    stated_kind = ours.get(b"fedkd_kind", "")
    version = ours.get(b"fedkd_schema_version", "")
    if stated_kind != kind or not version.isdigit():
        origin = f"a {stated_kind!r} file" if stated_kind else "not written by fedkd-bench"
        raise BrokenFileError(path, f"{path} is not a file of {kind} ({origin})")
    if int(version) > SCHEMA_VERSION:
        raise StoreError(
            path,
            f"{path} has schema version {version}, this package reads up to {SCHEMA_VERSION}: "
            "upgrade fedkd-bench, or move the file away",
        )
    replaced = json.loads(ours.get(b"fedkd_replaces", "[]"))
    if not isinstance(replaced, list) or not all(isinstance(name, str) for name in replaced):
        raise BrokenFileError(path, f"{path} does not list the names of the files that it replaces")
    problem = "; ".join(_schema_problems(path, kind, file.schema_arrow))
    if problem:
        raise BrokenFileError(path, f"{path} {problem}")


def _schema_problems(path: Path, kind: str, schema: pa.Schema) -> Iterator[str]:
    """Yield the columns of a file that are missing, twice there, or of a wrong type."""
    expected = _expected_schema(kind)
    if expected is None:
        return
    names = Counter(schema.names)
    required = list(REQUIRED[kind])
    if path.name.startswith("packed-"):
        required.append("file")
    missing = [name for name in required if name not in names]
    if missing:
        yield f"lacks the columns {', '.join(missing)}"
    for name, count in names.items():
        if count > 1:
            yield f"has {count} columns {name}"
        elif name in expected.names:
            expected_type = expected.field(name).type
            stored_type = plain_type(schema.field(name).type)
            if stored_type != expected_type:
                yield f"has a column {name} of type {stored_type}, which must be {expected_type}"


@cache
def _expected_schema(kind: str) -> pa.Schema | None:
    """Return the columns that a file may have, with `file`, which segments have; None if any."""
    import pyarrow as pa

    schema = {"runs": runs_schema(stored=True), "curves": curves_schema()}.get(kind)
    return schema and schema.append(pa.field("file", pa.string(), nullable=False))


def _check_values(path: Path, kind: str, table: pa.Table) -> None:
    """Raise BrokenFileError if a column holds a value that no row may have.

    No row may have a time far off, a map with one key twice, or some columns empty.
    """
    import pyarrow as pa

    schema = _expected_schema(kind) or ()
    never_empty = [field.name for field in schema if not field.nullable]
    for name, column in zip(table.column_names, table.columns, strict=True):
        problem = ""
        if name in never_empty and column.null_count:
            problem = "an empty value"
        elif pa.types.is_timestamp(column.type):
            problem = _time_problem(column)
        elif pa.types.is_map(column.type):
            problem = _map_problem(column)
        if problem:
            raise BrokenFileError(path, f"{path} has {problem} in the column {name}")


def _time_problem(column: pa.ChunkedArray) -> str:
    import pyarrow as pa
    import pyarrow.compute as pc

    ends = pc.min_max(column.cast(pa.int64())).as_py()
    if ends["min"] is None or 0 <= ends["min"] <= ends["max"] < _LAST_TIME:
        return ""
    return "a time before 1970 or after 9998"


def _map_problem(column: pa.ChunkedArray) -> str:
    for chunk in column.chunks:
        keys = chunk.keys.to_pylist()
        for begin, end in pairwise(chunk.offsets.to_pylist()):
            if len({*keys[begin:end]}) < end - begin:
                return "one key twice"
        if chunk.keys.null_count or chunk.items.null_count:
            return "an empty key or value"
    return ""


def _write(schema: pa.Schema, parts: Iterable[pa.Table], path: Path) -> None:
    """Write tables as one file, a row group each, and wait until it is on the disk."""
    import pyarrow.parquet as pq

    parts = iter(parts)
    first_two = [*islice(parts, 2)]
    # A file of few rows is mostly footer: plain pages make it a third smaller and faster to read.
    large = len(first_two) > 1 or any(part.num_rows >= 100 for part in first_two)
    options = {
        "compression": "zstd" if large else "none",
        "use_dictionary": large,
        "write_statistics": large,
    }
    options["write_page_checksum"] = True  # a changed byte is then an error to every reader
    with _new_file(path) as file, pq.ParquetWriter(file, schema, **options) as writer:
        for part in chain(first_two, parts):
            writer.write_table(
                part.replace_schema_metadata(schema.metadata),
                row_group_size=max(part.num_rows, 1),
            )
