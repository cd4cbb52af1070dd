"""Copies of one data set that differ, in the order of their rows: what is reused, resumed, marked and reported."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import finish
from rows import CURVE, DIGITS, make_row, sound_row, table_of, tables_of

from algorithms import entry
from bench import data
from bench.boards import main as boards
from bench.compare.command import main as compare
from bench.data.dataset import Dataset
from bench.execution import Execution
from bench.executors.optuna_search import past_tries
from bench.executors.ray_trainable import make_trainable
from bench.executors.trials import count_stored
from bench.planning.options import SweepOptions
from bench.planning.planner import make_plan
from bench.provenance import command_columns
from bench.status import main as status
from bench.sweep.command import main as sweep
from bench.trial.trial import Trial
from leaderboards import NUMBERS, Store, identity_columns
from leaderboards.board import leaderboard, with_seeds
from leaderboards.data_copies import copies_named
from leaderboards.rows.frames import to_pandas
from leaderboards.tables.sheets import against

SHORT = ("--dataset", "digits", "--rounds", "1", "--local-epochs", "1", "--executor", "inline")


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The hash of the copy of the digits in the data folder B, which has their rows in another order."""
    original = data.load("digits")
    order = np.random.RandomState(0).permutation(len(original.train_y))
    train = original.train_x[order].copy(), original.train_y[order].copy()
    test = original.test_x.copy(), original.test_y.copy()
    shuffled = Dataset.of("digits", train, test)

    @cache
    def read(name: str, folder: Path) -> Dataset:
        assert name == "digits"
        if folder.name == "absent":
            raise data.MissingData("no digits")
        return shuffled if folder.name == "B" else original

    monkeypatch.setattr(data, "_read", read)
    return shuffled.hash


def run(out: Path, copy: str, *options: str) -> int:
    folder = str(out.parent / copy)
    command = ["--algo", "fedavg", *SHORT, "--data-dir", folder, "--out", str(out), *options]
    return sweep(command)


def hashes(store: Store) -> dict[int, str]:
    runs = store.runs(columns=["seed", "dataset_hash"])
    return dict(zip(runs["seed"], runs["dataset_hash"], strict=True))


def test_rows_of_another_copy_are_not_reused(
    other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert run(out, "A", "--seeds", "2") == 0
    capsys.readouterr()
    assert run(out, "B", "--seeds", "3", "--dry-run", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["to_do"] == 3
    assert any("2 stored runs" in note for note in report["notes"])
    asked = ("--algo", "fedavg", *SHORT[:6], "--seeds", "2", "--data-dir", str(tmp_path / "B"))
    assert status([*asked, "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"missing": 2}
    assert run(out, "B", "--seeds", "3") == 0
    assert "2 stored runs" in capsys.readouterr().err
    assert hashes(Store(out)) == dict.fromkeys(range(3), other)
    assert run(out, "A", "--seeds", "2") == 0
    assert "2 already stored" in capsys.readouterr().err
    assert boards(["compact", str(out)]) == 0
    assert hashes(Store(out, {"digits": DIGITS})) == {0: DIGITS, 1: DIGITS}, "nothing is lost"
    assert boards(["validate", str(out)]) == 0, "only one copy counts"


@pytest.mark.parametrize("case", ["absent", "no hash"])
def test_unknown_copies_are_reused(other: str, tmp_path: Path, case: str) -> None:
    out = tmp_path / "out"
    if case == "no hash":
        (run_spec,) = make_plan(SweepOptions(("fedavg",), values=plain())).run_specs
        row = make_row() | named(run_spec) | {"dataset_hash": None}
        Store(out).write(row, CURVE)
    else:
        assert run(out, "A") == 0
    assert run(out, "absent" if case == "absent" else "B") == 0
    assert len(Store(out).runs(replicates=True)) == 1


def plain() -> dict[str, tuple[str, ...]]:
    return {"rounds": ("1",), "local_epochs": ("1",)}


def named(run_spec: Any) -> dict[str, Any]:
    return identity_columns(*run_spec.identity(entry(run_spec.algorithm)))


def test_a_search_knows_its_own_copy(other: str, tmp_path: Path) -> None:
    values = {**plain(), "mu": ("0.1", "1")}
    for run_spec in make_plan(SweepOptions(("fedprox",), values=values)).run_specs:
        Store(tmp_path).write(make_row() | named(run_spec), CURVE)
    plan = make_plan(SweepOptions(("fedprox",), values=values, search="optuna", num_samples=2))
    (same,) = past_tries(plan, str(tmp_path), {"digits": DIGITS})
    (unlike,) = past_tries(plan, str(tmp_path), {"digits": other})
    assert (len(same.known), len(unlike.known)) == (2, 0)
    assert count_stored(plan, Store(tmp_path)) == 2
    assert count_stored(plan, Store(tmp_path, {"digits": other})) == 0


def test_a_trainable_knows_the_data_at_hand(other: str, tmp_path: Path) -> None:
    made = make_trainable("fedavg", {"out": str(tmp_path), "data_dir": str(tmp_path / "B")})
    _, execution = made.resolve(made, {})  # type: ignore[arg-type]
    assert execution.data_hashes == {"digits": other}


def test_a_state_of_another_copy_begins_anew(other: str, tmp_path: Path) -> None:
    (run_spec,) = make_plan(
        SweepOptions(("fedavg",), values={**plain(), "rounds": ("3",)})
    ).run_specs
    stop = tmp_path / "stop"
    execution = Execution(
        str(tmp_path / "out"),
        data_dir=str(tmp_path / "A"),
        rounds_per_report=1,
        stop_file=str(stop),
        provenance=command_columns("test"),
    )
    trial = Trial([run_spec], execution)
    stop.touch()
    assert trial.step()["status"] == "interrupted"
    trial.close()
    stop.unlink()
    on_other = replace(execution, data_dir=str(tmp_path / "B"))
    with pytest.warns(UserWarning, match="another copy"):
        resumed = Trial([run_spec], on_other)
    assert resumed.runs[0].round == 0
    finish(resumed)
    finish(Trial([run_spec], replace(on_other, out=str(tmp_path / "whole"))))
    one, whole = (Store(tmp_path / name).curves() for name in ("out", "whole"))
    assert one.equals(whole)


# What stands in one table.


def board_of(*rows: dict[str, Any]) -> Any:
    return leaderboard(to_pandas(table_of(list(rows))))


def marked(board: Any) -> dict[str, bool]:
    return dict(zip(board["algorithm"], board["data_mixed"].astype(bool), strict=True))


def test_other_copies_than_most_are_marked() -> None:
    rows = [make_row("fedavg", seed=seed) for seed in range(3)]
    odd = make_row("fedprox", seed=2, dataset_hash="ef56")
    rows += [make_row("fedprox", seed=0), make_row("fedprox", seed=1), odd]
    unknown = make_row("moon", dataset_hash=None)
    assert marked(board_of(*rows, unknown)) == {"fedavg": False, "fedprox": True, "moon": False}
    elsewhere = make_row("scaffold", setting={"alpha": 5.0}, dataset_hash="ef56")
    assert not marked(board_of(*rows, elsewhere))["scaffold"], "another cell"


def test_equally_many_copies_are_all_marked() -> None:
    board = board_of(make_row("fedavg"), make_row("fedprox", dataset_hash="ef56"))
    assert marked(board) == {"fedavg": True, "fedprox": True}
    (table,) = tables_of(board, [NUMBERS["best_accuracy"]])
    assert any("another copy" in line for line in table.captions)


def test_another_partition_of_one_seed_is_marked() -> None:
    rows = [make_row("fedavg", seed=0), make_row("moon", seed=0)]
    rows += [make_row("fedprox", seed=seed, partition_hash=f"p{seed}") for seed in (0, 1)]
    assert marked(board_of(*rows)) == {"fedavg": False, "fedprox": True, "moon": False}


def test_a_replicates_own_seed_names_no_partition() -> None:
    """Its partition is that of `partition_seed`; another run's may be that of the same seed."""
    replicate = {"partition_seed": 101}
    rows = [
        make_row("fedavg", setting=replicate, seed=1101, partition_hash="of 101"),
        make_row("fedavg", seed=101, partition_hash="of 101"),
        make_row("fedprox", {"mu": 0.1}, seed=1101, partition_hash="of 1101"),
        make_row("fedgkd", seed=1101, partition_hash="of 1101"),
    ]
    assert not list(copies_named(to_pandas(table_of(rows))))


def test_differences_between_copies_are_marked() -> None:
    rows = [make_row("fedavg", seed=seed) for seed in range(3)]
    rows += [make_row("fedprox", seed=seed, dataset_hash="ef56") for seed in range(2)]
    rows += [make_row("moon", seed=seed) for seed in range(3)]
    runs, metrics = to_pandas(table_of(rows)), [NUMBERS["best_accuracy"]]
    (table,) = tables_of(with_seeds(leaderboard(runs), runs, metrics), metrics)
    found = against(table, "fedavg")
    assert found is not None
    texts = {row.label: row.cells[0].words for row in found.table.rows}
    assert ("‖" in texts["fedprox"], "‖" in texts["moon"]) == (True, False)


def test_merging_and_validating_name_copies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, algorithm, digest in (("a", "fedavg", DIGITS), ("b", "fedprox", "ef56")):
        Store(tmp_path / name).write(sound_row(CURVE, algorithm, dataset_hash=digest), CURVE)
        assert boards(["validate", str(tmp_path / name)]) in (0, 3)
    capsys.readouterr()
    sources = [str(tmp_path / name) for name in ("a", "b")]
    assert boards(["merge", *sources, "--out", str(tmp_path / "all"), "--json"]) == 0
    merged = capsys.readouterr()
    assert len(json.loads(merged.out)["copies"]) == 1
    assert "2 copies of digits" in merged.err
    assert boards(["validate", str(tmp_path / "all"), "--json"]) == 3
    problems = [fault["problem"] for fault in json.loads(capsys.readouterr().out)["faults"]]
    assert sum("2 copies of digits" in problem for problem in problems) == 1
    assert compare(["--out", str(tmp_path / "all")]) == 0
    assert "another copy" in capsys.readouterr().out


def test_copies_of_one_run_do_not_disagree(tmp_path: Path) -> None:
    for digest, final in ((DIGITS, 0.5), ("ef56", 0.4)):
        curve = [(1, "accuracy", 0.25), (2, "accuracy", final)]
        Store(tmp_path).write(sound_row(curve, dataset_hash=digest), curve)
    assert boards(["merge", str(tmp_path), "--out", str(tmp_path / "all")]) == 0
    assert len(Store(tmp_path / "all").runs()) == 1


def test_copies_and_partitions_are_counted_in_words() -> None:
    rows = [make_row(seed=seed, dataset_hash="0123456789") for seed in range(3)]
    rows.append(make_row(seed=3, dataset_hash="abcdef6789"))
    for name, partition in (("fedavg", "p"), ("fedprox", "q")):
        rows.append(make_row(name, setting={"dataset": "cifar10"}, partition_hash=partition))
    rows.append(make_row(setting={"dataset": "mnist"}))
    assert sorted(copies_named(to_pandas(table_of(rows)))) == [
        "runs on 2 copies of digits, which do not compare: 3 on 01234567, 1 on abcdef67",
        "runs on cifar10 with another partition than others of their setting and seed: 2",
    ]
