"""`bench.status` in print: each standing of a run, its table, and reasons in short."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import cells_of
from filelock import FileLock
from rows import CURVE, make_row

from bench import status
from bench.state_files import STATE_VERSION
from bench.status import UnderWay, _print, _reasons, _status_of
from leaderboards import Store

KEY = "ab" * 32
OURS = {"version": STATE_VERSION, "round": 3}
OLD = {"version": STATE_VERSION - 1, "round": 3}


@pytest.mark.parametrize(
    ("row", "manifest", "running", "standing", "saved"),
    [
        ("missing", None, False, "missing", None),
        ("failed", None, False, "failed", None),
        ("missing", None, True, "running", None),
        ("failed", OURS, True, "running", 3),
        ("finished", OURS, True, "finished", None),
        ("finished", OURS, False, "finished", None),
        ("missing", OURS, False, "saved", 3),
        ("failed", OURS, False, "failed", 3),
        ("missing", OLD, False, "other version", None),
        ("failed", OLD, False, "failed", None),
        ("missing", {}, False, "damaged", None),
        ("failed", {"round": "x"}, False, "damaged", None),
        ("missing", {"round": float("inf")}, False, "damaged", None),
    ],
)
def test_a_row_and_a_state_are_a_standing(
    row: str, manifest: Any, running: bool, standing: str, saved: int | None
) -> None:
    states = UnderWay(
        {} if manifest is None else {KEY: manifest}, frozenset({KEY} if running else ())
    )
    assert states.standing(KEY, row) == {"status": standing, "saved_round": saved}


@pytest.mark.parametrize(
    ("rows", "status_"),
    [
        ({"finished"}, "finished"),
        ({"finished", "failed"}, "failed"),
        ({"stopped"}, "stopped"),
        ({"failed", "stopped"}, "missing"),
    ],
)
def test_unfinished_rows_must_agree(rows: set[str], status_: str) -> None:
    assert _status_of(rows) == status_


def row(number: int, status_: str = "failed", **facts: Any) -> dict[str, Any]:
    key = f"{number:064}"
    sound = {"status": status_, "saved_round": None, "error": None, "diverged": False}
    return {"run_key": key, "run": f"run {number}"} | sound | facts


def test_equal_reasons_are_told_once() -> None:
    first = "round 3, client 1: loss is nan"
    rows = [
        row(0, error=first),
        row(1, error="round 9, clients [1, 2]: loss is nan"),
        row(2, error=first, diverged=True),
        row(3),
    ]
    keys = [each["run_key"][:16] for each in rows]
    assert list(_reasons(rows)) == [
        f"failed: {keys[0]}, {keys[1]}: loss is nan",
        f"diverged: {keys[2]}: {first}",
    ]


@pytest.mark.parametrize(
    ("count", "last"),
    [
        (5, None),
        (6, "and for 1 other reason, which --json tells"),
        (7, "and for 2 other reasons, which --json tells"),
    ],
)
def test_five_reasons_are_told(count: int, last: str | None) -> None:
    lines = list(_reasons([row(number, error=str(number)) for number in range(count)]))
    assert len(lines) == 5 + (last is not None)
    assert last in (None, lines[-1])
    assert lines[4] == f"failed: {4:016}: 4"[:7] + f" {'0' * 16}: 4"


def test_the_table_has_a_count_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    why = "why " * 50 + "not"
    rows = [row(1, "saved", saved_round=0), row(2, error=why), row(3)]
    _print(rows, Path("/out"), as_json=False)
    lines = cells_of(capsys.readouterr().out)
    short = "0" * 16
    assert lines == [
        ["run key", "run", "status", "saved round"],
        [short, "run 1", "saved", "0"],
        [short, "run 2", "failed", ""],
        [short, "run 3", "failed", ""],
        ["2 failed, 1 saved in /out"],
        [f"failed: {short}: {why}"],
    ]
    _print(rows, Path("/out"), as_json=True)
    document = json.loads(capsys.readouterr().out)
    assert document == {"out": "/out", "counts": {"saved": 1, "failed": 2}, "runs": rows}
    _print([], Path("/out"), as_json=False)
    assert capsys.readouterr().out == "no run of this search is stored in /out\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--seeds", "2"], "--seeds describes a sweep: add its --algo or --table, or leave it out"),
        ([], "no runs in {out}; `python -m bench.sweep` makes some, --out looks elsewhere"),
    ],
)
def test_what_status_cannot_tell(
    words: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status.main([*words, "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {problem.format(out=tmp_path)}\n"


def test_a_file_is_for_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.parquet"
    file.touch()
    assert status.main(["--out", str(file)]) == 2
    assert capsys.readouterr().err == (
        f"error: {file} is a file, and --out takes a folder; `python -m bench.compare --out {file}`"
        " reads rows\n"
    )


def test_a_folder_without_locks_has_no_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any, **options: Any) -> None:
        raise PermissionError(13, "read-only")

    monkeypatch.setattr("filelock.FileLock", fail)
    assert not status._is_claimed(tmp_path / "a.lock")


def test_help_names_the_sweeps_options(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("-h", "--help"):
        assert status.main(["--algo", "fedavg", word]) == 0
        said = capsys.readouterr().out
        assert said.startswith("usage: python -m bench.status ")
        assert "Takes the options of `python -m bench.sweep`; see its --help." in said
        assert "--json" in said
        assert "--out DIR" in said


def test_quiet_words_describe_no_sweep(tmp_path: Path) -> None:
    Store(tmp_path).write(make_row(), CURVE)
    assert status.main(["--out", str(tmp_path), "-q", "-v", "--json"]) == 0


def test_a_lock_is_a_claim_while_held(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    for name in (KEY, "cd" * 32, "short"):
        (state / f"{name}.lock").touch()
    with FileLock(state / f"{KEY}.lock"), FileLock(state / "short.lock"):
        assert status._under_way(tmp_path).running == {KEY}
    assert status._under_way(tmp_path).running == frozenset()
