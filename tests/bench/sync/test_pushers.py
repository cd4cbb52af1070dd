"""A mirror during a sweep: what is said, what is left for later, and files on their way."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from pyarrow.fs import LocalFileSystem
from rows import CURVE, make_row

from bench.errors import EnvironmentProblem, UsageError
from bench.sync import mirror, place
from bench.sync.mirror import Moved, Pusher, check_place, mirrored, open_mirror
from bench.sync.place import MirrorProblem, first_line, local_folder, open_place, refuse_password
from leaderboards import Store

KEY = "ab" * 32


@pytest.mark.parametrize(
    ("moved", "text"),
    [
        (Moved(), "nothing new"),
        (Moved(1), "1 row"),
        (Moved(1200, 1, 0), "1,200 rows, 1 tracked file"),
        (Moved(0, 2, 3, ("x",)), "2 tracked files, 3 states"),
    ],
)
def test_moved_things_are_counted(moved: Moved, text: str) -> None:
    assert str(moved) == text


class Copies:
    """A mirror whose pushes end as told."""

    def __init__(self, *ends: str) -> None:
        self.ends = list(ends)
        self.out = Path("/out")
        self.place: Any = type("P", (), {"url": "s3://b"})

    def push(self) -> None:
        """End as told; the last end stays."""
        end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        if end:
            raise ConnectionError(end)


def pushed(monkeypatch: pytest.MonkeyPatch, *ends: str) -> Copies:
    """Push while a sweep runs until all ends but the last were met, then finish."""
    monkeypatch.setattr(mirror, "EVERY_SECONDS", 0.001)
    copies: Any = Copies(*ends)
    pusher = Pusher(copies)
    until = time.monotonic() + 10
    while len(copies.ends) > 1 and time.monotonic() < until:
        time.sleep(0.001)
    pusher.finish()
    return copies


NOT_ALL = (
    "note: not all of /out is mirrored (gone); everything is in /out; the same command, or `python "
    "-m bench.boards push s3://b /out`, pushes it\n"
)
LATER = "note: {}; runs go on, and it is tried again every 0.001 s\n"


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (("", ""), ""),
        (("gone", "gone", ""), LATER.format("gone")),
        (("gone", "", "lost", ""), LATER.format("gone") + LATER.format("lost")),
        (("", "gone"), NOT_ALL),
    ],
)
def test_a_problem_is_said_once(
    ends: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pushed(monkeypatch, *ends)
    shown = capsys.readouterr().err
    if ends[-1]:
        shown = shown.replace(LATER.format("gone"), "")
    assert shown == said


def test_ctrl_c_leaves_a_copy_for_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copies: Any = Copies("")
    pusher = Pusher(copies)

    def interrupted() -> None:
        raise KeyboardInterrupt

    join = pusher._thread.join
    monkeypatch.setattr(pusher._thread, "join", interrupted)
    pusher.finish()
    join()
    assert capsys.readouterr().err == NOT_ALL.replace("gone", "interrupted")


def test_a_sweep_pulls_then_pushes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    there = tmp_path / "there"
    Store(out).write(make_row(seed=1), CURVE)
    with mirrored(str(there), out, None):
        pass
    assert len(Store(there).runs()) == 1
    assert capsys.readouterr().err == f"note: mirror {there}: nothing new fetched\n"
    with mirrored(str(there), tmp_path / "fresh", set()):
        Store(tmp_path / "fresh").write(make_row(seed=2), CURVE)
    assert capsys.readouterr().err == f"note: mirror {there}: 1 row fetched\n"
    assert sorted(Store(there).runs()["seed"]) == [1, 2]


def test_a_mirror_in_the_way_has_advice(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    url = str(tmp_path / "file" / "x")
    with pytest.raises(MirrorProblem, match=r"check the URL, the network and your rights$"):
        open_mirror(url, tmp_path / "out")
    context = mirrored(url, tmp_path / "out", None)
    with pytest.raises(MirrorProblem, match=r"or drop --mirror and `boards push` later \(docs/"):
        context.__enter__()


def test_a_mirror_is_no_result_folder(tmp_path: Path) -> None:
    out = tmp_path / "out"
    there = tmp_path / "there"
    check_place(str(there), out)
    for inner, outer in ((out / "x", out), (out, out / "x"), (out, out)):
        with pytest.raises(UsageError) as refused:
            check_place(str(inner), outer)
        text = f"the mirror {inner} and the result folder {outer} contain one another: choose"
        assert str(refused.value) == f"{text} another location"
    there.mkdir()
    (there / "leaderboard.parquet").touch()
    check_place(str(there), out, read_only=True)
    with pytest.raises(UsageError) as refused:
        check_place(str(there), out)
    assert str(refused.value) == (
        f"{there} is a result folder, not a mirror of {out}: name another place, or bring the rows "
        f"into it by `python -m bench.boards merge {out} --out {there}`"
    )


def test_nothing_is_pulled_from_nowhere(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    with pytest.raises(MirrorProblem, match=f"there are no results at {empty}: check it, or push"):
        open_mirror(str(empty), tmp_path / "out", read_only=True)
    assert not empty.exists()
    for folder in ("runs", "state"):
        file = tmp_path / folder / folder / "x"
        file.parent.mkdir(parents=True)
        file.touch()
        open_mirror(str(tmp_path / folder), tmp_path / "out", read_only=True)


# Places


def test_a_place_lists_whole_files(tmp_path: Path) -> None:
    here = open_place(str(tmp_path))
    here.put("runs/a", b"123")
    here.put("runs/deep/er/b", b"1")
    half = tmp_path / "runs" / f".c.{'0' * 8}.tmp"
    half.touch()
    assert here.files("runs") == {"a": 3, "deep/er/b": 1}
    assert here.files("curves") == {}
    here.remove("runs/a")
    here.remove("runs/a")
    assert here.files("runs") == {"deep/er/b": 1}
    here.probe()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


DAY = 24 * 60 * 60


def test_abandoned_files_go_after_a_day(tmp_path: Path) -> None:
    here = open_place(str(tmp_path))
    kept = []
    gone = []
    for folder in ("runs", "curves", "tracked", "state"):
        (tmp_path / folder / "x").mkdir(parents=True)
        names = (f".a.{'0' * 8}.tmp", f".b.{'1' * 8}.tmp", "c", f".d.{'0' * 7}.tmp")
        for name, age in zip(names, (DAY + 60, DAY - 60, 9 * DAY, 9 * DAY), strict=True):
            file = tmp_path / folder / "x" / name
            file.touch()
            os.utime(file, (time.time() - age,) * 2)
            (gone if name == names[0] else kept).append(file)
    here.sweep()
    assert not any(file.exists() for file in gone)
    assert all(file.exists() for file in kept)


def test_files_are_no_larger_than_stated(tmp_path: Path) -> None:
    here = open_place(str(tmp_path))
    here.put("runs/a", b"12345")
    assert here.read("runs/a", 5) == b"12345"
    with pytest.raises(MirrorProblem) as refused:
        here.read("runs/a", 4)
    text = f"mirror {tmp_path}: runs/a has more than its 4 bytes"
    assert str(refused.value) == text
    with pytest.raises(FileNotFoundError):
        here.read("runs/none", 9)
    checked: list[bytes] = []
    target = tmp_path / "new" / "folder" / "b"
    here.fetch("runs/a", target, 5, lambda path: checked.append(path.read_bytes()))
    assert checked == [target.read_bytes()] == [b"12345"]
    (tmp_path / "file").touch()
    with pytest.raises(MirrorProblem, match=r"cannot be stored here: .*; make room here, or name"):
        here.fetch("runs/a", tmp_path / "file" / "x" / "b", 5)


def test_a_failed_put_leaves_nothing(tmp_path: Path) -> None:
    here = open_place(str(tmp_path))

    class Broken:
        """A source that fails once it is read."""

        def read(self, size: int) -> bytes:
            raise OSError("no reading")

    source: Any = Broken()
    with pytest.raises(MirrorProblem, match=f"^mirror {tmp_path}: no reading$"):
        here.put("runs/a", source)
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("/a/b", Path("/a/b")),
        ("file:///a/b%20c", Path("/a/b c")),
        ("s3://a/b", None),
        ("hdfs://host:1/a", None),
    ],
)
def test_a_local_mirror_has_a_folder(url: str, folder: Path | None) -> None:
    assert local_folder(url) == folder


def test_a_long_problem_loses_its_middle() -> None:
    assert first_line(ValueError("a  b\nc")) == "a b"
    assert first_line(ValueError("")) == "ValueError"
    assert first_line(ValueError("x" * 400)) == "x" * 400
    text = "a" * 200 + "b" * 101 + "c" * 100
    assert first_line(ValueError(text)) == "a" * 200 + " ... " + "b" * 90 + "c" * 100


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("s3://key:secret@bucket/x", True),
        ("s3://b/x?sas=1&b=2", True),
        ("hdfs://host:8020/a@b", False),
        ("s3://b/x?zone=1", False),
    ],
)
def test_secrets_are_refused(url: str, secret: bool) -> None:
    if not secret:
        refuse_password(url)
        return
    with pytest.raises(UsageError, match="leave it out, and give it in the environment"):
        refuse_password(url)


def test_other_systems_are_named() -> None:
    with pytest.raises(UsageError) as refused:
        open_place("nope://host/x?q=SECRET")
    text = str(refused.value)
    assert text.startswith("mirror nope://host/x: ")
    assert "SECRET" not in text
    assert text.endswith(
        "; allowed: a path, file:///..., s3://bucket/folder, gs://bucket/folder, "
        "hdfs://host:port/folder"
    )
    assert issubclass(place.MirrorProblem, EnvironmentProblem)


# States


def test_another_sweep_pushes_states(tmp_path: Path) -> None:
    from test_strangers_mirrors import save_state

    out = tmp_path / "out"
    there = tmp_path / "there"
    (out / "runs").mkdir(parents=True)
    save_state(out)
    copies = open_mirror(str(there), out)
    with FileLock(out / "mirror.lock"):
        assert copies.push() == Moved()
    assert copies.push() == Moved(states=1)
    (pushed_state,) = (there / "state" / KEY).iterdir()
    names = sorted(path.name.partition(".pt")[0] for path in pushed_state.iterdir())
    assert names == ["manifest.json", "server-1"]
    assert len(pushed_state.name) == 12
    save_state(out, b"later", "server-2.pt")
    assert copies.push() == Moved(states=1)
    names = sorted(path.name.partition(".pt")[0] for path in pushed_state.iterdir())
    assert names == ["manifest.json", "server-2"], "older files go"
    assert copies.push() == Moved()


def test_states_of_asked_runs_are_fetched(tmp_path: Path) -> None:
    from test_strangers_mirrors import save_state

    out = tmp_path / "out"
    there = tmp_path / "there"
    (out / "runs").mkdir(parents=True)
    save_state(out)
    open_mirror(str(there), out).push()
    for keys, states in ((["cd" * 32], 0), ([KEY], 1)):
        fresh = tmp_path / f"fresh{states}"
        assert open_mirror(str(there), fresh).pull(keys) == Moved(states=states)
        assert (fresh / "state" / KEY / "server-1.pt").exists() == bool(states)


def test_a_folder_is_made_once(tmp_path: Path) -> None:
    asked: list[str] = []

    class Noted:
        """The local file system, which notes what is asked of it."""

        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return getattr(LocalFileSystem(), name)

    there = place.Place("x://y", Noted(), str(tmp_path))
    for name in ("runs/a", "runs/b", "curves/a"):
        there.put(name, b"1")
    assert asked.count("create_dir") == 2


def test_the_smallest_tracked_file_travels(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "tracked").mkdir(parents=True)
    (out / "tracked" / f"{KEY[:16]}.npz").write_bytes(b"1")
    copies = open_mirror(str(tmp_path / "there"), out)
    assert copies.push() == Moved(tracked=1)
    assert copies.push() == Moved()
