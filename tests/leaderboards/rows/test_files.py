"""Files that appear whole or not at all, and regular ones, which alone are read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leaderboards import StoreError
from leaderboards.rows.files import (
    BrokenFileError,
    append_line,
    atomic_file,
    content_hash,
    copy_file,
    is_regular,
    open_regular,
    part_of,
    read_regular,
    typed_file,
)


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
