"""Result folders of others: rows and states choose no code, and what they say is held to be text."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rows import CURVE, failed_row, make_row, sound_row

import bench.boards
from bench import artifacts, status
from bench.compare import command as compare
from bench.engine.state import StateFolder
from bench.figures import command as figures
from bench.report import command as report
from bench.sweep import command as sweep
from bench.sweep import reproduce
from leaderboards import Store
from leaderboards.shell_text import printable

KINDS = ("algorithm", "dataset", "model", "partition")
COMMANDS: dict[str, Callable[[str, str], int]] = {
    "compare": lambda out, key: compare.main(["--out", out]),
    "diff": lambda out, key: compare.main(["diff", key, key, "--out", out]),
    "status": lambda out, key: status.main(["--out", out]),
    "figures": lambda out, key: figures.main(["--out", out]),
    "draw": lambda out, key: figures.main(
        ["--all", "--out", out, "--to", "drawn", "--format", "svg"]
    ),
    "report": lambda out, key: report.main(["--out", out, "--to", "page.html"]),
    "validate": lambda out, key: bench.boards.main(["validate", out]),
    "merge": lambda out, key: bench.boards.main(["merge", out, "--out", "merged"]),
    "compact": lambda out, key: bench.boards.main(["compact", out]),
    "reproduce": lambda out, key: reproduce.main([key, "--out", out]),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with `evil_*` modules that write a file when they are imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", sys.path[:])  # importing adds the working directory
    return tmp_path


def evil(folder: Path, of: str) -> str:
    """`module:name` of a module that no other test names."""
    module = f"evil_{of}"
    (folder / f"{module}.py").write_text(f"open({str(folder / 'ran')!r}, 'w')\nthing = None\n")
    return f"{module}:thing"


def forged(folder: Path, kind: str, name: str) -> dict[str, Any]:
    """A stored row that names a module; if it is a model, a figure would draw what was tracked of it."""
    setting = {
        "partition": "iid",
        "alpha": None,
        "dataset": "toy2d" if kind == "model" else "digits",
    }
    setting |= {} if kind == "algorithm" else {kind: name}
    row = sound_row(CURVE, name if kind == "algorithm" else "fedavg", {}, setting)
    Store(folder / "out").write(row, CURVE)
    if kind == "model":
        artifacts.write_tensors(
            folder / "out", row["run_key"], {"weight": np.zeros(2, np.float32)}, {}
        )
    return row


def test_no_run_to_start_from_has_a_module_imported(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = evil(folder, "start")
    row = forged(folder, "dataset", name)
    artifacts.write_tensors(folder / "out", row["run_key"], {"weight": np.zeros(2, np.float32)}, {})
    asked = [
        "--algo",
        "fedavg",
        "--dataset",
        "digits",
        "--start-from",
        row["run_key"][:16],
        "--out",
        "out",
    ]
    assert sweep.main([*asked, "--dry-run"]) == 2
    assert not (folder / "ran").exists()
    assert f"--dataset {name}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "kind"),
    [*product(COMMANDS, ["model"]), *product(["status", "reproduce"], KINDS[:2])],
)
def test_no_row_has_a_module_imported(
    command: str, kind: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = evil(folder, f"{command}_{kind}")
    row = forged(folder, kind, name)
    code = COMMANDS[command](str(folder / "out"), row["run_key"])
    assert not (folder / "ran").exists()
    said = capsys.readouterr().err
    if command == "reproduce" or (command, kind) == ("draw", "model"):
        assert code == 2
        assert f"--import {name}" in said
    else:
        assert code == 0, said


def test_what_is_typed_is_imported_and_nothing_else(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, other = evil(folder, "typed"), evil(folder, "untyped")
    row = make_row("fedavg", {}, {"dataset": name, "partition": other, "alpha": None})
    Store(folder / "out").write(row, CURVE)
    words = [row["run_key"], "--out", str(folder / "out"), "--import"]
    assert reproduce.main([*words, other]) == 2
    assert not (folder / "ran").exists()
    assert reproduce.main([*words, name]) == 2
    assert (folder / "ran").exists()
    assert name in capsys.readouterr().err


# Rows are not trusted


def rewritten(folder: Path, **columns: str | None) -> str:
    """A sound row whose columns somebody has changed in its file; its run key."""
    row = failed_row("fedprox", {"mu": 0.1})
    path = Store(folder / "out").write(row, [])
    Store(folder / "out").write(make_row(), CURVE)  # which sound ones lie beside
    table = pq.read_table(path)
    for name, text in columns.items():
        table = table.set_column(
            table.column_names.index(name), name, pa.array([text], pa.string())
        )
    pq.write_table(table, path)
    return str(row["run_key"])


SETTING = make_row()["setting_json"]
WRONG = [
    ("hp_json", "nope"),
    ("hp_json", "[" * 100_000),
    ("hp_json", '{"mu":NaN}'),
    ("hp_json", '{"mu":"\\u001b[2J"}'),
    ("setting_json", SETTING[:-1]),
    ("setting_json", SETTING.replace('"digits"', '"cifar10"')),
    ("dataset", None),
]


@pytest.mark.parametrize(
    ("command", "column", "text"),
    [("status", *wrong) for wrong in WRONG]
    + [(name, *WRONG[0]) for name in COMMANDS if name != "compact"]
    + [("validate", *WRONG[2]), ("merge", *WRONG[2])],
)
def test_a_row_that_does_not_say_who_it_is_is_said(
    command: str, column: str, text: str | None, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = rewritten(folder, **{column: text})
    assert COMMANDS[command](str(folder / "out"), key) == 3
    said = capsys.readouterr()
    assert column in said.out + said.err
    assert "\x1b" not in said.out + said.err


NASTY = "fed\x1b]0;owned\x07\x9b2J\u202eavg"


@pytest.mark.parametrize("command", COMMANDS)
def test_no_control_character_of_a_row_reaches_a_terminal_or_a_page(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = rewritten(folder, algorithm=NASTY, error=NASTY, command=NASTY)
    COMMANDS[command](str(folder / "out"), key)
    said = capsys.readouterr()
    made = [
        path.read_text()
        for path in (folder / "page.html", *folder.glob("drawn/*.svg"))
        if path.exists()
    ]
    assert bool(made) == (command in ("draw", "report"))
    for text in (said.out, said.err, *made):
        assert printable(text) == text


def test_nor_does_one_of_a_state_or_of_a_message(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {
        "algorithm": NASTY,
        "setting_json": SETTING,
        "hp_json": '{"mu":"\\u001b[2J"}',
        "seed": 0,
    }
    StateFolder(folder / "out" / "state" / ("0" * 64), told).save(3, {}, {}, {})
    assert status.main(["--out", str(folder / "out")]) == 0
    assert compare.main(["--out", str(folder / f"no{NASTY}")]) == 2
    said = capsys.readouterr()
    assert "saved" in said.out
    assert printable(said.out + said.err) == said.out + said.err


def test_rows_are_shown_as_text(folder: Path) -> None:
    key = rewritten(folder, algorithm=NASTY)
    runs = Store(folder / "out").runs().set_index("run_key")
    assert runs.loc[key, "algorithm"] == "fed\ufffd]0;owned\ufffd\ufffd2J\ufffdavg"
    assert printable("one\n\ttwo – 三") == "one\n\ttwo – 三"
