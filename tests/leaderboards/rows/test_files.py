"""Files that appear whole or not at all, and regular ones, which alone are read."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rows import CURVE, curve_of, make_row, table_of

from leaderboards import StoreError
from leaderboards.rows import files
from leaderboards.rows.files import (
    CURVES_HASH,
    BrokenFileError,
    append_line,
    atomic_file,
    content_hash,
    copy_file,
    is_regular,
    open_regular,
    part_of,
    read_regular,
    read_table,
    remedy,
    results_around,
    sweep_leftovers,
    typed_file,
    write_by_content,
    write_named_by_content,
    write_table,
)
from leaderboards.rows.frames import curve_table
from leaderboards.rows.index import index_of


def test_a_written_file_replaces_anything(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        with atomic_file(path) as file:
            file.write(b"new")
            file.flush()
            assert path.read_bytes() == b"old"
        assert reader.read() == b"old", "who has it open keeps it"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def half() -> None:
        with atomic_file(path) as file:
            file.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        half()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_written_file_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with atomic_file(tmp_path / "file"):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


def test_typed_links_devices_and_pipes_are_written(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_bytes(b"old")
    link.symlink_to(target)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (link, pipe, Path(os.devnull)):
        with typed_file(path) as file:
            file.write(b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert pipe.is_fifo()
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert Path(os.devnull).is_char_device()


def test_a_pipe_without_a_reader_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe"), typed_file(tmp_path / "pipe"):
        pass


@pytest.mark.parametrize("target", ["target", "nothing"])
def test_other_links_are_replaced(target: str, tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / target)
    with atomic_file(link) as file:
        file.write(b"new")
    assert is_regular(link)
    assert link.read_bytes() == b"new"
    assert (tmp_path / "target").read_bytes() == b"old"
    assert not (tmp_path / "nothing").exists()


def irregular(folder: Path) -> dict[str, Path]:
    """What is no regular file, by what it is."""
    (folder / "file").write_bytes(b"content")
    (folder / "link").symlink_to(folder / "file")
    (folder / "device").symlink_to("/dev/zero")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    return {name: folder / name for name in ("link", "device", "folder", "pipe")}


@pytest.mark.parametrize("kind", ["link", "device", "folder", "pipe"])
def test_only_regular_files_are_read(kind: str, tmp_path: Path) -> None:
    """At once: a pipe would be waited for, and a device read for ever."""
    path = irregular(tmp_path)[kind]
    assert not is_regular(path)
    for read in (open_regular, content_hash, lambda path: copy_file(path, tmp_path / "copy")):
        with pytest.raises(BrokenFileError) as raised:
            read(path)
        assert raised.value.path == path
    assert not (tmp_path / "copy").exists()
    assert is_regular(tmp_path / "file")


def test_a_missing_file_is_no_broken_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "file")


def test_reading_ends_at_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular(tmp_path / "file", 5) == b"12345"
    with pytest.raises(BrokenFileError):
        read_regular(tmp_path / "file", 4)


def test_lines_are_appended_to_regular_files(tmp_path: Path) -> None:
    append_line(tmp_path / "new", "one")
    append_line(tmp_path / "new", "two")
    assert (tmp_path / "new").read_text() == "one\ntwo\n"
    for path in irregular(tmp_path).values():
        with pytest.raises(OSError, match=str(path)):
            append_line(path, "line")
    assert (tmp_path / "file").read_bytes() == b"content"


def test_a_folder_behind_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "runs").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "link").symlink_to(tmp_path / "out")
    with pytest.raises(StoreError):
        part_of(tmp_path / "out", "runs")
    assert part_of(tmp_path / "link", "state") == tmp_path / "link" / "state", (
        "the folder itself is the user's choice"
    )


def test_advice_depends_on_the_place(tmp_path: Path) -> None:
    assert remedy(tmp_path / "file").startswith("name a result folder")
    for name, first in (("row.parquet", "delete"), ("packed-0.parquet", "bring it back")):
        row = tmp_path / "runs" / name
        curve = tmp_path / "curves" / name
        assert remedy(row).startswith(first)
        assert remedy(curve).startswith(first)
        assert str(row) in remedy(curve), "its row would count as done"
        assert str(row) not in remedy(row)


def test_a_part_is_a_folder_below(tmp_path: Path) -> None:
    assert part_of(tmp_path, "runs") == tmp_path / "runs"


def test_a_path_in_a_result_folder_is_known(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for folder in (out / "runs", out / "other", tmp_path / "else" / "curves"):
        folder.mkdir(parents=True)
    assert results_around(out / "curves" / "file") is None, "there are no rows yet"
    (out / "runs" / "row.parquet").touch()
    for place in ("runs", "curves/file", "state/deep/file", "tracked/file", "logs"):
        assert results_around(out / place) == out
    for path in (out / "file", out / "other" / "file", tmp_path / "else" / "curves" / "file"):
        assert results_around(path) is None


def test_a_written_pipe_waits_for_its_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with typed_file(tmp_path / "pipe") as file:
        assert os.get_blocking(file.fileno())
    os.close(reader)


@contextmanager
def no_umask() -> Iterator[None]:
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def test_appended_files_are_for_no_execution(tmp_path: Path) -> None:
    with no_umask():
        append_line(tmp_path / "log", "line")
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o666


def test_files_are_copied_into_new_folders(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"content")
    target = tmp_path / "new" / "deep" / "copy"
    for _ in range(2):
        copy_file(tmp_path / "source", target)
        assert target.read_bytes() == b"content"
    assert list(target.parent.iterdir()) == [target]


def test_tables_are_written_into_new_folders(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "file.parquet"
    for number in (1, 2):
        write_table(pa.table({"a": [number]}), path)
        assert pq.read_table(path).to_pydict() == {"a": [number]}
    assert list(path.parent.iterdir()) == [path]


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(("stem", "digits"), [("packed", 32), ("0a-1b", 16)])
def test_names_are_of_the_content(stem: str, digits: int, tmp_path: Path) -> None:
    rows = table_of([make_row()])
    points = curve_table(make_row(), CURVE)
    out = tmp_path / "new" / "out"
    for _ in range(2):
        path = write_by_content(out, stem, (rows.schema, points.schema), [rows], [points])
    assert path.parent == out / "runs"
    assert path.name == f"{stem}-{sha(path)[:digits]}.parquet"
    curves = out / "curves" / path.name
    assert pq.read_schema(path).metadata[CURVES_HASH].decode() == sha(curves)
    assert pq.read_table(path).equals(rows)
    assert pq.read_table(curves).equals(points)
    assert sorted(out.rglob("*")) == [curves.parent, curves, path.parent, path]


def test_any_file_may_have_its_contents_name(tmp_path: Path) -> None:
    path = write_named_by_content(tmp_path, "stem", "npz", lambda file: file.write(b"content"))
    assert path == tmp_path / f"stem-{hashlib.sha256(b'content').hexdigest()[:16]}.npz"
    assert path.read_bytes() == b"content"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("number", "filename", "named"),
    [
        (errno.ENOSPC, None, "file"),
        (errno.EACCES, None, None),
        (errno.ENOSPC, "other", "other"),
        (errno.EACCES, "other", "other"),
    ],
)
def test_errors_of_a_disk_name_the_file(
    number: int, filename: str | None, named: str | None, tmp_path: Path
) -> None:
    def fail() -> None:
        with atomic_file(tmp_path / "file"):
            raise OSError(number, "text", *([filename] if filename else []))

    with pytest.raises(OSError, match="text") as raised:
        fail()
    expected = str(tmp_path / "file") if named == "file" else named
    assert (raised.value.errno, raised.value.filename) == (number, expected)
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_named_by_its_file(tmp_path: Path) -> None:
    path = tmp_path / "none" / "file"
    with pytest.raises(FileNotFoundError) as raised, atomic_file(path):
        pass
    assert raised.value.filename == str(path)


@pytest.mark.parametrize(("hours", "swept"), [(23.99, False), (24.01, True)])
def test_leftovers_stay_for_a_day(hours: float, swept: bool, tmp_path: Path) -> None:
    leftover = tmp_path / f".{'0' * 32}.tmp"
    leftover.touch()
    written = time.time() - hours * 60 * 60
    os.utime(leftover, (written, written))
    sweep_leftovers(tmp_path)
    assert leftover.exists() != swept


def open_files(folder: Path) -> list[Path]:
    """The files and folders there that this process holds open."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    targets = [Path(os.path.realpath(link)) for link in links]
    return [target for target in targets if target.is_relative_to(folder.resolve())]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs the paths of open files")
def test_no_file_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.parquet"
    write_table(pa.table({"a": [1]}), path)
    assert open_files(tmp_path) == []
    with pytest.raises(BrokenFileError) as raised:
        read_table(path, "runs")
    assert raised.traceback, "which keeps what was open"
    assert open_files(tmp_path) == []
    folder = tmp_path.stat()
    monkeypatch.setattr(os, "fstat", lambda _: folder)  # it was replaced meanwhile
    with pytest.raises(BrokenFileError) as raised:
        open_regular(path)
    monkeypatch.undo()
    assert raised.traceback
    assert open_files(tmp_path) == []


# Our parquet files


def sorted_rows(path: Path, statistics: bool = True) -> list[str]:
    """Write six rows in groups of two, sorted by run key; their keys."""
    rows = sorted((make_row(seed=seed) for seed in range(6)), key=lambda row: row["run_key"])
    table = table_of(rows)
    pq.write_table(table, path, row_group_size=2, write_statistics=statistics)
    return [row["run_key"] for row in rows]


@pytest.mark.parametrize(
    ("asked", "read"),
    [
        ([], []),
        ([0], [0, 1]),
        ([1], [0, 1]),
        ([2, 5], [2, 3, 4, 5]),
        ([0, 3, 4], [0, 1, 2, 3, 4, 5]),
        (["0" * 64], []),
        (["f" * 64], []),
        (["0" * 64, 3, "f" * 64], [2, 3]),
    ],
)
def test_groups_without_a_key_are_skipped(
    asked: list[int | str], read: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "rows.parquet"
    keys = sorted_rows(path)
    wanted = [keys[each] if isinstance(each, int) else each for each in asked]
    found = read_table(path, "runs", ["run_key"], keys=wanted)
    assert found["run_key"].to_pylist() == [keys[at] for at in read]
    assert read_table(path, "runs")["run_key"].to_pylist() == keys
    sorted_rows(path, statistics=False)
    unknown = read_table(path, "runs", ["run_key"], keys=wanted)["run_key"].to_pylist()
    assert unknown == (keys if wanted else [])


def one_row(path: Path, change: Callable[[pa.Table], pa.Table]) -> Path:
    """A file of one row, changed."""
    pq.write_table(change(table_of([make_row()])), path)
    return path


def with_kind(**metadata: str) -> Callable[[pa.Table], pa.Table]:
    """Put other metadata in a table."""
    return lambda table: table.replace_schema_metadata(metadata)


REFUSED: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "foreign": (with_kind(), "is not a file of runs (not written by fedkd-bench)"),
    "curves": (with_kind(fedkd_kind="curves", fedkd_schema_version="1"), "(a 'curves' file)"),
    "no version": (with_kind(fedkd_kind="runs"), "is not a file of runs"),
    "a later version": (
        with_kind(fedkd_kind="runs", fedkd_schema_version="2"),
        "has schema version 2, this package reads up to 1",
    ),
    "lacks": (lambda table: table.drop_columns(["host", "seed"]), "lacks the columns seed, host"),
    "twice": (lambda table: table.append_column("lr", table["lr"]), "has 2 columns lr"),
    "thrice": (
        lambda table: table.append_column("lr", table["lr"]).append_column("lr", table["lr"]),
        "has 3 columns lr",
    ),
    "type": (
        lambda table: table.set_column(table.column_names.index("lr"), "lr", pa.array(["x"])),
        "has a column lr of type string, which must be double",
    ),
    "written": (
        lambda table: table.append_column("written", pa.array(["x"])),
        "has a column written of type string, which must be timestamp[us, tz=UTC]",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_with_a_file_is_said(case: str, tmp_path: Path) -> None:
    change, problem = REFUSED[case]
    path = one_row(tmp_path / "row.parquet", change)
    with pytest.raises(StoreError) as raised:
        read_table(path, "runs", ["run_key"])
    assert problem in str(raised.value)
    assert raised.value.path == path
    assert isinstance(raised.value, BrokenFileError) == (case != "a later version")


LAST = 253_370_764_799_999_999  # microseconds: the end of the year 9998


@pytest.mark.parametrize(
    ("microseconds", "problem"),
    [(0, ""), (LAST, ""), (-1, "a time before 1970"), (LAST + 1, "a time before 1970")],
)
def test_times_are_within_four_digits_of_years(
    microseconds: int, problem: str, tmp_path: Path
) -> None:
    def at_time(table: pa.Table) -> pa.Table:
        place = table.column_names.index("finished")
        return table.set_column(
            place, table.field(place), pa.array([microseconds], table.field(place).type)
        )

    path = one_row(tmp_path / "row.parquet", at_time)
    if not problem:
        assert read_table(path, "runs").num_rows == 1
        return
    with pytest.raises(BrokenFileError) as raised:
        read_table(path, "runs")
    assert f"has {problem} or after 9998 in the column finished" in str(raised.value)


TEXTS = pa.map_(pa.string(), pa.string())
MAPS = [
    ([[("a", "1"), ("b", "2")], [("a", "3")]], ""),
    ([[("a", "1")], [("b", "2"), ("b", "2")]], "one key twice"),
    ([[("a", None)], []], "an empty key or value"),
]


@pytest.mark.parametrize(("maps", "problem"), MAPS)
def test_maps_have_each_key_once(
    maps: list[list[tuple[str, str | None]]], problem: str, tmp_path: Path
) -> None:
    table = table_of([make_row(), make_row(seed=1)])
    place = table.column_names.index("versions")
    path = tmp_path / "rows.parquet"
    pq.write_table(table.set_column(place, table.field(place), pa.array(maps, TEXTS)), path)
    if not problem:
        assert read_table(path, "runs")["versions"].to_pylist() == maps
        return
    with pytest.raises(BrokenFileError, match=f"has {problem} in the column versions"):
        read_table(path, "runs")


def test_text_must_be_text(tmp_path: Path) -> None:
    def spoiled(table: pa.Table) -> pa.Table:
        ends = pa.array([0, 1], pa.int32()).buffers()[1]
        texts = pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(b"\xff")])
        place = table.column_names.index("host")
        return table.set_column(place, table.field(place), texts)

    path = one_row(tmp_path / "row.parquet", spoiled)
    assert read_table(path, "runs", ["seed"])["seed"].to_pylist() == [0]
    with pytest.raises(BrokenFileError, match="UTF8"):
        read_table(path, "runs", ["host"])


def test_a_file_without_rows_is_read(tmp_path: Path) -> None:
    path = one_row(tmp_path / "row.parquet", lambda table: table.slice(0, 0))
    assert read_table(path, "runs").num_rows == 0
    assert index_of(path).num_rows == 0


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (pa.ArrowInvalid("first\nsecond"), BrokenFileError, "bytes; first)"),
        (ValueError(), BrokenFileError, "bytes; ValueError)"),
        (OSError("no number"), BrokenFileError, "bytes; no number)"),
        (OSError(errno.EIO, "of a disk"), OSError, "of a disk"),
        (MemoryError("much"), StoreError, "memory does not suffice"),
    ],
)
def test_errors_of_reading_are_told_apart(
    error: Exception,
    kind: type[Exception],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = one_row(tmp_path / "row.parquet", lambda table: table)

    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr(pq, "read_metadata", fail)
    with pytest.raises(kind) as raised:
        read_table(path, "runs")
    assert type(raised.value) is kind
    assert words in str(raised.value)


@pytest.mark.parametrize(("rows", "large"), [(99, False), (100, True)])
def test_large_files_are_compressed(rows: int, large: bool, tmp_path: Path) -> None:
    table = curve_table(make_row(), curve_of(0, rows))
    write_table(table, tmp_path / "file")
    column = pq.read_metadata(tmp_path / "file").row_group(0).column(0)
    assert (column.compression == "ZSTD") == large
    assert column.has_dictionary_page == large
    assert column.is_stats_set == large


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_each_part_is_a_row_group(parts: int, tmp_path: Path) -> None:
    points = curve_table(make_row(), CURVE)
    rows = table_of([make_row()])
    tables = [points, points.slice(0, 0), points][:parts]
    path = write_by_content(tmp_path, "a", (rows.schema, points.schema), [rows], iter(tables))
    metadata = pq.read_metadata(tmp_path / "curves" / path.name)
    sizes = [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]
    assert sizes == [3, 0, 3][:parts]
    assert (metadata.row_group(0).column(0).compression == "ZSTD") == (parts > 1)


@pytest.mark.parametrize("full", ["table", "curves", "runs"])
def test_a_full_disk_is_named(full: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pyarrow's errors name no file."""
    table = pa.table({"a": [1]}).replace_schema_metadata({})

    def refused(schema: Any, parts: Any, path: Path) -> None:
        if path.parent.name == full:
            raise OSError(errno.ENOSPC, "No space left on device")
        path.touch()

    def write_both() -> None:
        files.write_table(table, tmp_path / "table" / "a.parquet")
        files.write_by_content(tmp_path, "a", [table.schema] * 2, [table], [table])

    monkeypatch.setattr(files, "_write", refused)
    with pytest.raises(OSError, match="No space") as raised:
        write_both()
    name = {"table": "table/a.parquet"}.get(full, full)
    assert raised.value.filename == str(tmp_path / name)
