"""Words of all commands: durations, counts, lists, paths, and values that are typed."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path

import pytest
from rows import curve_of, make_row

from bench.boards import main as boards
from bench.charts.theme import TICKS, whole_numbers
from bench.compare.command import main as compare
from bench.errors import UsageError
from bench.figures.command import main as figures
from bench.report.command import main as report
from bench.sweep.command import main as sweep
from bench.terminal.words import (
    checked_path,
    counted,
    duration,
    flag,
    is_folder,
    listed,
    no_effect,
    number,
    pack_size,
    resolved,
    result_folder,
    run_keys,
    seeds_to_confirm,
    some_of,
    span,
    text,
    unknown,
    whole_number,
)
from leaderboards import Store

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("seconds", "printed"),
    [
        (0, "1 s"),
        (119, "119 s"),
        (2 * MINUTE, "2 min"),
        (2 * HOUR - 31, "119 min"),
        (2 * HOUR, "2.0 h"),
        (3.4 * HOUR, "3.4 h"),
        (2 * DAY - HOUR, "47.0 h"),
        (2 * DAY, "2.0 days"),
        (2.1 * DAY, "2.1 days"),
    ],
)
def test_a_duration_has_one_unit(seconds: float, printed: str) -> None:
    assert duration(seconds) == printed


@pytest.mark.parametrize(
    ("low", "high", "printed"),
    [
        (4 * MINUTE, 9 * MINUTE, "4 to 9 min"),
        (90, 3 * MINUTE, "90 s to 3 min"),
        (4 * MINUTE, 4 * MINUTE + 1, "4 min"),
    ],
)
def test_a_span_names_a_shared_unit_once(low: float, high: float, printed: str) -> None:
    assert span(low, high) == printed


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


NOT_UTF8 = b"\xff\xe9".decode(errors="surrogateescape")


@pytest.mark.parametrize(
    "command",
    [lambda: report(["--title", NOT_UTF8]), lambda: compare(["diff", NOT_UTF8, "3fa1"])],
)
def test_text_that_is_not_utf8_is_refused(
    command: Callable[[], int], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command()
    assert ended.value.code == 2
    assert "is not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("board", ["", "x" * 400])
def test_a_board_that_no_folder_can_be_is_unknown(
    board: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compare(["--board", board]) == 2
    assert "no board" in capsys.readouterr().err


@pytest.mark.parametrize("last", [3, 100, 10**9, 2**62])
def test_an_axis_has_few_ticks(last: int) -> None:
    assert 2 <= len(whole_numbers(1, last)) <= TICKS + 1


# Counts and lists


def test_a_noun_has_its_number() -> None:
    texts = [counted(number, "run") for number in (0, 1, 2, 1200)]
    assert texts == ["0 runs", "1 run", "2 runs", "1,200 runs"]
    assert listed("seed", [0]) == "seed 0"
    assert listed("seed", {1, 0}) == "seeds 0, 1"
    assert listed("seed", []) == "seeds "


def test_of_many_keys_five_are_listed() -> None:
    keys = [f"{number:064}" for number in range(7)]
    short = [key[:16] for key in keys]
    assert run_keys(keys[:5]) == ", ".join(short[:5])
    assert run_keys(keys[:6]) == ", ".join(short[:5]) + " and 1 more"
    assert run_keys(keys) == ", ".join(short[:5]) + " and 2 more"


@pytest.mark.parametrize(
    ("value", "typed"),
    [(0.1, "0.1"), (1.0, "1"), (1 / 3, "0.333333"), (True, "true"), (None, "none"), ("a", "a")],
)
def test_a_value_is_written_as_typed(value: object, typed: str) -> None:
    assert text(value) == typed
    kept = f"f has no effect with the other settings: it is left at {typed}"
    assert no_effect("f", value) == kept


def test_an_empty_value_is_the_default() -> None:
    assert no_effect("f", "").endswith("it is left at its default")


def test_a_name_is_answered_with_the_nearest() -> None:
    near = "no data set 'digit' (did you mean digits?); known: cifar10, digits"
    assert str(unknown("data set", "digit", ["digits", "cifar10"])) == near
    far = str(unknown("data set", "xyz", ["digits"]))
    assert far == "no data set 'xyz'; known: digits"
    file = str(unknown("algorithm", "mine.py", ["fedavg"], importable=True))
    assert file.startswith("no algorithm 'mine.py': ")
    assert "known" not in file
    assert "known" in str(unknown("algorithm", "mine.py", ["fedavg"]))


def test_options_are_flags() -> None:
    assert [flag(name) for name in ("pack", "import_", "data_dir")] == [
        "--pack",
        "--import",
        "--data-dir",
    ]


def test_names_keep_the_allowed_order() -> None:
    assert some_of(["b,a", "b"], ("a", "b", "c"), "thing") == ("a", "b")
    with pytest.raises(UsageError, match="no thing 'd'"):
        some_of(["a", "d"], ("a", "b"), "thing")


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (whole_number, "-7", -7),
        (number, "1e3", 1000.0),
        (pack_size, "auto", "auto"),
        (pack_size, "8", 8),
    ],
)
def test_numbers_are_parsed(parse: Callable[[str], object], text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "message"),
    [
        (whole_number, "give a whole number, got '1.5x'"),
        (number, "give a number, got '1.5x'"),
        (pack_size, "give auto, or a whole number, got '1.5x'"),
        (seeds_to_confirm, "give a number of seeds, or seeds such as 101-150,200; got '1.5x'"),
    ],
)
def test_texts_that_are_no_numbers(parse: Callable[[str], object], message: str) -> None:
    with pytest.raises(ArgumentTypeError) as refused:
        parse("1.5x")
    assert str(refused.value) == message


ORDER = "seeds are from 1 on, in ascending order, at most 100,000, because configurations are "


@pytest.mark.parametrize("given", ["0", "3-2", "1-100001", "5,0"])
def test_seeds_that_do_not_confirm(given: str) -> None:
    with pytest.raises(ArgumentTypeError) as refused:
        seeds_to_confirm(given)
    assert str(refused.value) == f"{ORDER}chosen on seed 0; got {given!r}"


def test_many_seeds_confirm() -> None:
    assert len(seeds_to_confirm("1-100000")) == len(seeds_to_confirm("100000")) == 100_000
    assert seeds_to_confirm(" 5 , 7 - 8 ") == (5, 7, 8)
    assert seeds_to_confirm("1,5") == (1, 5)


# Paths


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
