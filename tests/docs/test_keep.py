"""`docs/keep.py --board`: runs of result folders become a board's, without what tells of a machine."""

from __future__ import annotations

import sys
from pathlib import Path

import keep
import pytest
from commands import run

from leaderboards import Store

OPTIONS = 'options = ["--tuned", "lr", "--chosen-by", "last10"]\n'


def test_runs_are_added_to_a_board_as_it_selects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    board = tmp_path / "boards" / "small"
    board.mkdir(parents=True)
    (board / "board.toml").write_text(OPTIONS)
    assert run(out, "--algo", "fedavg", "--dataset", "digits", "--rounds", "1", "--lr", "0.1") == 0
    monkeypatch.setattr(keep, "PACKAGE", board.parent)
    monkeypatch.setattr(sys, "argv", ["keep.py", str(out), "--board", "small"])
    keep.main()
    (row,) = Store(board).runs().to_dict("records")
    assert row["host"] == ""
    assert str(tmp_path) not in row["command"]
    assert (board / "leaderboard.parquet").is_file()
