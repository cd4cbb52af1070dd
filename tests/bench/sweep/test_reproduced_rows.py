"""`bench.sweep reproduce`: which run a row was, and what is said of its columns."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rows import CURVE, START, make_row

from algorithms import entry
from bench.errors import UsageError
from bench.execution import Execution
from bench.planning.options import SweepOptions
from bench.planning.planner import make_plan
from bench.planning.run_spec import RunSpec, row_entry
from bench.sweep import command, reproduce
from bench.sweep.reproduce import _check_data, _compare, run_spec_of_row
from leaderboards import Store, identity_columns
from leaderboards.numbers import NUMBERS
from leaderboards.rows.schema import READ_OFF_CURVES

OPTIONAL = next(name for name in READ_OFF_CURVES if NUMBERS[name].optional)


@pytest.mark.parametrize(
    ("stored", "new", "status", "out", "err"),
    [
        ({}, {}, 0, ["equal in all {} result columns, bit for bit"], ""),
        (
            {},
            {"best_accuracy": 0.25},
            1,
            ["best_accuracy: stored 0.5, now 0.25"],
            "",
        ),
        ({}, {"diverged": True}, 1, ["diverged: stored False, now True"], ""),
        ({OPTIONAL: None}, {OPTIONAL: 0.5}, 0, ["equal in all {} result columns, bit for bit"], ""),
        ({OPTIONAL: 0.5}, {OPTIONAL: None}, 1, [OPTIONAL + ": stored 0.5, now None"], ""),
        ({"pack": 2}, {"partition_hash": "x"}, 1, ["partition_hash: stored ab12, now x"], ""),
        (
            {"pack": 2, "backend": "stacked"},
            {"partition_hash": "x"},
            1,
            ["partition_hash: stored ab12, now x"],
            "in one program with 1 other run: alone it",
        ),
        (
            {"pack": 1, "backend": "stacked"},
            {"partition_hash": "x"},
            1,
            ["partition_hash: stored ab12, now x"],
            "",
        ),
    ],
)
def test_columns_that_differ_are_told(
    stored: dict[str, Any],
    new: dict[str, Any],
    status: int,
    out: list[str],
    err: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    old = make_row() | stored
    assert _compare(old, old | new) == status
    said = capsys.readouterr()
    columns = len(READ_OFF_CURVES) + 2
    assert said.out.splitlines() == [line.format(columns) for line in out]
    assert (err in said.err) == bool(said.err or not err)
    assert bool(said.err) == bool(err)


def row_of(run: RunSpec, suffix: str = "", **columns: Any) -> dict[str, Any]:
    """The row of a run."""
    identity = identity_columns(*run.identity(row_entry(run.algorithm, suffix)))
    return make_row() | identity | columns


def test_a_row_is_of_its_run() -> None:
    (run,) = make_plan(SweepOptions(("fedproto",), values={"proto_weight": ("0.5",)})).run_specs
    for suffix in run.rows:
        found = run_spec_of_row(row_of(run, suffix, paper=run.paper))
        assert (found.key, found.paper) == (run.key, run.paper)
        assert found.hyperparameters["proto_weight"] == 0.5


COMMIT = "; check out commit abc to reproduce it"


@pytest.mark.parametrize(("commit", "advice"), [("abc", COMMIT), (None, "")])
def test_a_row_of_another_version(commit: str | None, advice: str) -> None:
    (run,) = make_plan(SweepOptions(("fedavg",))).run_specs
    version = entry("fedavg").version + 1
    identity = identity_columns("fedavg", version, {}, run.setting.as_dict(), 0)
    row = make_row() | identity | {"git_commit": commit}
    with pytest.raises(UsageError) as refused:
        run_spec_of_row(row)
    assert str(refused.value) == (
        "the row was made by another version of fedavg, or of its data, model or settings: its key "
        f"is {row['run_key'][:16]}, that of the same values is {run.key[:16]} here{advice}"
    )


def test_paths_must_be_of_the_runs_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "names_of_paths", lambda paths, label: {"csv:a": "csv@1"})
    asked: list[str] = []
    monkeypatch.setattr(reproduce.data, "info", asked.append)
    _check_data("ab", ["digits", "csv@1"], ["csv:a"], "kind")
    assert asked == ["digits", "csv@1"]
    with pytest.raises(UsageError) as refused:
        _check_data("ab", ["digits", "csv@2"], ["csv:a"], "kind")
    said = "--dataset csv:a is csv@1, and the run ab has digits and csv@2: name its data"
    assert str(refused.value) == said


def test_rounds_are_told_while_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = [
        {"done": False, "round": 0, "accuracy": math.nan},
        {"done": False, "round": 1, "accuracy": math.nan},
        {"done": True, "round": 2, "accuracy": 0.12345},
    ]
    closed: list[bool] = []

    class Trial:
        """A trial that reports as told."""

        def __init__(self, run_specs: Any, execution: Any) -> None: ...

        def report(self) -> Any:
            return reports.pop(0)

        step = report

        def close(self) -> None:
            closed.append(True)

    monkeypatch.setattr("bench.trial.trial.Trial", Trial)
    values = {"rounds": ("2",)}
    (run,) = make_plan(SweepOptions(("fedavg",), values=values)).run_specs
    report = reproduce._train(run, Execution(out=str(tmp_path)))
    assert report["round"] == 2
    assert closed == [True]
    assert capsys.readouterr().err.splitlines() == [
        "fedavg seed 0: 2 rounds",
        "round 1",
        "round 2: accuracy 12.35 %",
    ]


@pytest.mark.parametrize("tracked", [None, 0.5])
@pytest.mark.parametrize("certified", [True, False])
def test_a_row_is_trained_as_it_was(
    tracked: float | None,
    certified: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It is compared with the row that was written last."""
    (run,) = make_plan(SweepOptions(("fedavg",))).run_specs
    out = tmp_path / "out"
    columns = {"local_accuracy_mean": tracked, "certified": certified, "threads": 3}
    row = row_of(run, paper=run.paper, backend="stacked", **columns)
    Store(out).write(row, CURVE)
    trained: list[Any] = []

    def train(run_spec: RunSpec, execution: Execution) -> dict[str, Any]:
        trained.append((run_spec.key, replace(execution, provenance={})))
        for hours, accuracy in ((2, 0.75), (1, 0.5)):
            later = {"finished": START + timedelta(hours=hours), "best_accuracy": accuracy}
            Store(Path(execution.out)).write(row | later | {"device": f"gpu {hours}"}, CURVE)
        return {"status": "finished"}

    monkeypatch.setattr(reproduce, "_train", train)
    words = [run.key[:12], "--out", str(out), "--offline", "--data-dir", "/d", "--device", "cpu"]
    assert reproduce.main(words) == 1
    assert trained == [
        (
            run.key,
            Execution(
                out=str(out / "reproduced"),
                data_dir="/d",
                offline=True,
                backend="stacked",
                threads=3,
                force=True,
                track=() if tracked is None else ("local",),
                certified=("fedavg",) if certified else (),
            ),
        )
    ]
    assert capsys.readouterr().out == "best_accuracy: stored 0.5, now 0.75\n"


@pytest.mark.parametrize(
    ("report", "status", "said"),
    [
        ({"status": "failed", "error": "no"}, 1, "failed: no\n"),
        ({"status": "environment", "error": "full"}, 3, "error: full\n"),
    ],
)
def test_unfinished_runs_are_not_compared(
    report: dict[str, Any],
    status: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A row may be read from a file; the new one goes below the usual folder."""
    values = {"start_from": ("ab" * 32,)}
    (run,) = make_plan(SweepOptions(("fedavg",), values=values)).run_specs
    Store(tmp_path / "out").write(row_of(run, paper=run.paper), CURVE)
    (file,) = (tmp_path / "out" / "runs").iterdir()
    monkeypatch.setenv("FEDKD_OUT", str(tmp_path / "usual"))
    copied: list[Any] = []
    monkeypatch.setattr(reproduce.artifacts, "copy", lambda *given: copied.append(given))
    monkeypatch.setattr(reproduce, "_train", lambda *given: report)
    assert reproduce.main([run.key, "--out", str(file)]) == status
    assert capsys.readouterr().err == said
    into = tmp_path / "usual" / "reproduced"
    assert copied == [([file], into, "ab" * 32)]


def test_a_rows_data_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"public": ("mnist:50",), "image_size": ("resize32",), "model": ("resnet8",)}
    run, *_ = make_plan(SweepOptions(("fedmd",), values=values)).run_specs
    Store(tmp_path).write(row_of(run, paper=run.paper), CURVE)
    monkeypatch.setattr(reproduce, "names_of_paths", lambda paths, label: {paths[0]: label})
    monkeypatch.setattr(reproduce, "_train", lambda *given: pytest.fail("of other data"))
    words = [run.key, "--out", str(tmp_path), "--dataset", "csv:a", "--label", "kind"]
    assert reproduce.main(words) == 2
    assert capsys.readouterr().err == (
        f"error: --dataset csv:a is kind, and the run {run.key[:16]} has digits and mnist: "
        "name its data\n"
    )


def test_the_first_word_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[list[str]] = []

    def main(words: list[str]) -> int:
        given.append(words)
        return 7

    monkeypatch.setattr(reproduce, "main", main)
    monkeypatch.setattr("sys.argv", ["sweep", "reproduce", "ab", "--into", "x"])
    assert command.main() == 7
    assert command.main(["reproduce", "cd"]) == 7
    assert given == [["ab", "--into", "x"], ["cd"]]
