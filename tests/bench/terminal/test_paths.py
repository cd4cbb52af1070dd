"""Typed paths: what can be there, and what may be written where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rows import curve_of, make_row

from bench.boards import main as boards
from bench.compare.command import main as compare
from bench.errors import UsageError
from bench.figures.command import main as figures
from bench.report.command import main as report
from bench.sweep.command import main as sweep
from bench.terminal.paths import checked_path, folders_of, is_folder, resolved, result_folder
from leaderboards import Store

WRITING: dict[str, Callable[[str, str], int]] = {
    "report": lambda out, place: report(["--out", out, "--to", f"{place}/page.html"]),
    "figures": lambda out, place: figures(["--all", "--out", out, "--to", place]),
    "merge": lambda out, place: boards(["merge", out, "--out", place]),
    "sweep": lambda out, place: sweep(
        ["--algo", "fedavg", "--dataset", "digits", "--executor", "inline", "--out", place]
    ),
}


@pytest.mark.parametrize("part", ["runs", "curves/below"])
@pytest.mark.parametrize("command", WRITING)
def test_nothing_is_written_among_stored_rows(
    command: str, part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    Store(out).write(make_row(), curve_of(0))
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert WRITING[command](str(out), str(out / part)) == 2
    assert f"lies among the rows of the result folder {out}" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_a_folder_named_runs_is_a_place_like_others(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "first"
    Store(out).write(make_row(), curve_of(0))
    assert report(["--out", str(out), "--to", str(tmp_path / "runs" / "page.html")]) == 0


@pytest.mark.parametrize("board", ["", "x" * 400])
def test_a_board_that_no_folder_can_be_is_unknown(
    board: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(["--board", board]) == 2
    assert "no board" in capsys.readouterr().err


def test_a_deep_path_is_refused(tmp_path: Path) -> None:
    deep = Path("/" + "/".join(["x"] * 199))
    assert checked_path(deep) == deep
    with pytest.raises(UsageError, match="has 201 folders in one another, and at most 200 are"):
        checked_path(deep / "x")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(UsageError, match=r"loop: Too many levels .*; name another path"):
        checked_path(loop)


def test_a_home_is_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert resolved("~/link") == tmp_path / "real"
    with pytest.raises(UsageError, match=r"~nobody-here/x: there is no such user, .* set HOME"):
        resolved("~nobody-here/x")


def test_results_are_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDKD_OUT", str(tmp_path / "usual"))
    assert result_folder(None) == tmp_path / "usual"
    assert result_folder(tmp_path) == tmp_path
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as refused:
        result_folder(tmp_path / "file", "--into")
    named = f"{tmp_path / 'file'} is a file, and results are a folder: name another with --into"
    assert str(refused.value) == named
    with pytest.raises(UsageError, match="/dev/null is no folder, and results"):
        result_folder("/dev/null")
    assert is_folder(str(tmp_path))
    assert not is_folder("x" * 5000)


def test_folders_are_named_once_each_and_the_usual_one_needs_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "x, y"):
        Path(name).mkdir()
    assert folders_of(["a, b", "a/"]) == [Path("a"), Path("b")]
    assert folders_of(["x, y"]) == [Path("x, y")], "one that is there has its whole name"
    assert folders_of(["c"]) == [Path("c")]
    with pytest.raises(UsageError, match="no such folder: c, d"):
        folders_of(["a,c", "d"])
    monkeypatch.setenv("FEDKD_OUT", "usual")
    assert folders_of(None) == folders_of([","]) == [Path("usual")]
