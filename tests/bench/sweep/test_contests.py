"""The contests of a sweep, the data that its rows are compared with, and the runs that ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rows import CURVE, make_row

from bench import api, data
from bench.errors import EnvironmentProblem
from bench.executors.trials import searched_rows
from bench.planning.options import SweepOptions
from bench.planning.plan import Plan
from bench.planning.planner import make_plan
from bench.planning.run_spec import RunSpec, row_entry
from bench.sweep import command
from bench.sweep.command import _check_stored, _data_hashes, board_of, contests_of, prepare
from leaderboards import Store
from leaderboards.problems import cell_of


def plan_of(*algorithms: str, **options: Any) -> Plan:
    return make_plan(SweepOptions(algorithms, **options))


def store(out: Path, run_spec: RunSpec, **numbers: Any) -> None:
    """Store the rows of a run."""
    for suffix, name in run_spec.row_names.items():
        own = row_entry(run_spec.algorithm, suffix)
        values = own.identifying(run_spec.hyperparameters)
        setting = run_spec.setting.as_dict()
        row = make_row(name, values, setting, run_spec.seed, own.version, **numbers)
        Store(out).write(row, CURVE)


def test_contests_are_cells_algorithms_and_models(tmp_path: Path) -> None:
    plan = plan_of("fedavg_t1", values={"alpha": ("0.1", "1")}, seeds=2)
    contests = contests_of(plan, Store(tmp_path))
    assert {(name, model) for _, name, model in contests} == {
        ("fedavg_t1", "mlp"),
        ("fedavg", "mlp"),
    }
    assert len(contests) == 4
    assert len({cell for cell, _, _ in contests}) == 2


def test_contests_of_a_search_are_of_stored_rows(tmp_path: Path) -> None:
    plan = plan_of("fedprox", search="optuna", budget=2)
    assert contests_of(plan, Store(tmp_path)) == set()
    (run_spec, *_) = plan_of("fedprox").run_specs
    store(tmp_path, run_spec)
    ((cell, name, model),) = contests_of(plan, Store(tmp_path))
    assert (name, model) == ("fedprox", "mlp")
    text = Store(tmp_path).runs()["setting_json"].iloc[0]
    assert cell == cell_of(text, plan.tuned) != cell_of(text, [])


def test_a_search_may_end_without_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As if its time budget was spent, or it was interrupted, before a first run was stored."""
    plan = plan_of("fedprox", search="optuna", budget=2)
    empty = Store(tmp_path)
    assert list(searched_rows(plan, empty)) == ["run_key", "status", "algorithm", "setting_json"]
    board, runs = board_of(plan, empty)
    assert (len(board), len(runs)) == (0, 0)
    command._print_board(plan, empty)
    assert capsys.readouterr() == ("", "")
    frames = api.sweep(
        algo="fedavg", time_budget=1e-9, executor="inline", rounds=1, out=tmp_path, quiet=True
    )
    assert (len(frames.runs), len(frames.curves), len(frames.board)) == (0, 0, 0)
    assert "run_key" in frames.runs


def test_a_board_is_printed_with_its_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As JSON, alone."""
    plan = plan_of("fedprox", budget=2)
    for run_spec in plan.run_specs:
        store(tmp_path, run_spec)
    for as_json in (False, True):
        options = replace(plan.options, json=as_json)
        command._print_board(replace(plan, options=options), Store(tmp_path))
        out, err = capsys.readouterr()
        assert ("again: python -m bench.compare --tuned lr" in err) != as_json
        assert "fedprox" in out
        assert bool(err) != as_json
        assert out.startswith("{") == as_json


def test_many_files_become_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If that is not possible now, the next sweep does it."""
    asked: list[Path] = []

    def compact(out: Path) -> None:
        asked.append(out)
        raise OSError("read-only")

    monkeypatch.setattr("leaderboards.rows.compaction.compact_if_many", compact)
    command._rebuild(Store(tmp_path))
    assert (asked, list(tmp_path.iterdir())) == ([tmp_path], [])


def test_a_board_is_of_the_sweeps_contests(tmp_path: Path) -> None:
    plan = plan_of("fedavg", "fedprox", values={"alpha": ("0.1",), "mu": ("0.1", "1")})
    for number, run_spec in enumerate(plan.run_specs):
        store(tmp_path, run_spec, best_val_accuracy=number / 10, final_accuracy=number / 10)
    other = plan_of("fedavg", values={"alpha": ("1",)})
    store(tmp_path, other.run_specs[0])
    board, runs = board_of(plan, Store(tmp_path))
    assert len(runs) == 4
    assert set(board["algorithm"]) == {"fedavg", "fedprox"}
    chosen = board[board["algorithm"] == "fedprox"]
    assert len(chosen) == 2
    assert chosen.loc[chosen["selected"], "final_accuracy_mean"].to_list() == [0.2]
    alone, _ = board_of(other, Store(tmp_path))
    assert alone["algorithm"].to_list() == ["fedavg"]


def test_data_are_fetched_only_for_what_may_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[tuple[Any, ...]] = []

    def load(*given: Any) -> Any:
        fetched.append(given)
        return SimpleNamespace(hash="5" * 64)

    monkeypatch.setattr(data, "hashes", lambda names, folder: {})
    monkeypatch.setattr(data, "load", load)
    plan = plan_of("fedavg", offline=True, data_dir="/data")
    assert _data_hashes(plan, tmp_path) == {}
    assert fetched == []
    store(tmp_path, plan_of("fedprox").run_specs[0])
    assert _data_hashes(plan, tmp_path) == {"digits": "5" * 64}
    assert fetched == [("digits", "/data", True)]
    store(tmp_path, plan.run_specs[0])
    assert _data_hashes(plan, tmp_path) == {}
    monkeypatch.setattr(data, "hashes", lambda names, folder: {"digits": "6" * 64})
    assert _data_hashes(plan, tmp_path) == {"digits": "6" * 64}
    assert len(fetched) == 1


def test_runs_that_ended_are_in_the_folder(tmp_path: Path) -> None:
    plan = plan_of("fedavg", "fedprox", values={"mu": ("0.1", "1")}, force=True)
    runs = plan.run_specs
    with pytest.raises(EnvironmentProblem) as problem:
        _check_stored(plan, runs, tmp_path)
    assert str(problem.value) == (
        f"3 runs of this sweep ended and are not in {tmp_path}: it was deleted or changed "
        "meanwhile; the same command runs them again"
    )
    store(tmp_path, runs[0])
    store(tmp_path, runs[1])
    _check_stored(plan, runs[:2], tmp_path)
    with pytest.raises(EnvironmentProblem, match=r"^1 run of this sweep"):
        _check_stored(plan, runs, tmp_path)


def test_only_confirming_plans_have_runs_that_follow() -> None:
    options = SweepOptions(("fedavg",), budget=2)
    assert prepare(options).confirming == ()
    follow = prepare(replace(options, confirm=(1, 2))).confirming
    assert [run_spec.seed for run_spec in follow] == [1, 2]


def test_unfit_algorithms_of_all_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[Any] = []

    def fitting(options: SweepOptions, left_out: Any = None) -> Any:
        left.append(left_out)
        return SimpleNamespace(left_out={"kept": "why"})

    def run(plan: Any, execution: Any, words: str) -> Any:
        if len(left) < 3:
            raise command.Unfit({f"unfit {len(left)}": "needs"}, ["kept"])
        return words

    monkeypatch.setattr(command, "prepare", fitting)
    monkeypatch.setattr(command, "ready", lambda plan: None)
    monkeypatch.setattr(command, "run", run)
    every: Any = SweepOptions(("all",))
    assert command.sweep(every, "words") == "words"
    assert left == [
        {},
        {"kept": "why", "unfit 1": "needs"},
        {"kept": "why", "unfit 2": "needs"},
    ]
    left.clear()
    with pytest.raises(command.Unfit):
        command.sweep(SweepOptions(("fedavg",)), "words")
