"""Words of all commands: how long something takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rows import curve_of, make_row

from bench.boards import main as boards
from bench.charts.theme import TICKS, whole_numbers
from bench.compare.command import main as compare
from bench.figures.command import main as figures
from bench.report.command import main as report
from bench.sweep.command import main as sweep
from bench.terminal.words import duration, span
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
