"""The benchmark of large result folders: the folder is like a real one, and figures come out. Timings never matter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.errors import EnvironmentProblem
from bench.perf import boards, main
from bench.perf.interpreter import run
from bench.perf.options import PARTS, make_parser
from leaderboards import Store
from leaderboards.boards import leaderboard
from leaderboards.rows.verify import validate


def test_the_made_up_folder_is_one_of_ours(tmp_path: Path) -> None:
    boards.write_folder(tmp_path, 1_200)
    found = validate(tmp_path)
    assert found.findings == []
    assert (found.files, found.rows, found.points) == (2, 1_200, 120_000)
    board = leaderboard(Store(tmp_path).runs())
    assert board["n"].eq(boards.SEEDS).all()
    assert len(board) == 1_200 / boards.SEEDS
    assert board["cell"].nunique() == len(boards.CELLS)


def test_figures_have_their_targets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--boards", "--runs", "100", "--repetitions", "1", "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)["parts"]
    assert list(parts) == ["boards"]
    board, compare, report = (parts["boards"][name] for name in ("leaderboard", "compare", "report"))
    assert (board["runs"], board["points"], compare["runs"]) == (100, 10_000, 10)
    assert (board["seconds"]["limit"], board["memory"]["limit"], compare["seconds"]["limit"]) == (5.0, 2_000.0, 3.0)
    assert (report["runs"], report["seconds"]["limit"], report["file"]["limit"]) == (100, 15.0, 5.0)
    assert report["file"]["median"] > 1, "the page holds its own scripts"
    assert board["memory"]["median"] > 10
    assert board["cpu_seconds"]["median"] > 0


def test_the_part_is_measured_only_on_request() -> None:
    assert "boards" not in PARTS
    assert make_parser().parse_args([]).part == list(PARTS)


def test_a_process_that_fails_is_reported() -> None:
    with pytest.raises(EnvironmentProblem, match="ended with status 1: ZeroDivisionError"):
        run(("-c", "1 / 0"))
