"""Whole texts of `bench.compare`, of a board on which every flag and mark occurs."""

from __future__ import annotations

from pathlib import Path

import pytest
from board import assert_approved, ran, searched, varied

from bench.compare.command import main
from bench.compare.diff import main as diff

COST = "best last10 seconds up rounds@55 kl fm loss@3 client_final"
REQUESTS = {
    "plain": "",
    "markdown": f"--format md --intervals --metric {COST}",
    "latex": "--format latex --all-configurations --algo fedavg fedprox moon fedbn",
    "csv": "--format csv --dataset digits --alpha 0.1",
    "json": "--format json --reference fedavg --dataset digits --metric final up --alpha 1",
    "by_seed": "--reference fedavg --metric final seconds --dataset digits",
    "from_best": "--reference best --metric final loss --dataset digits",
    "over_cells": "--over-cells --reference fedavg --metric final loss --dataset digits",
    "over_local": (
        "--over-cells --reference local --metric client_final best rounds@45 "
        "--algo local fedavg ditto moon"
    ),
    "bounded": "--over-cells --reference fedavg --metric final --algo fedavg fedgkd scaffold",
    "over_csv": "--over-cells --reference fedavg --metric final --dataset digits --format csv",
    "by_model": "--by model dataset --where lr=0.01 --metric best --participation 1",
    "on_clients": "--select-on clients --dataset cifar10",
    "global": "--select-on global --dataset cifar10 --chosen-by best",
}
SEARCHES = {
    "searched": "--tuned lr --metric final",
    "confirmed": "--tuned lr --confirmed --over-cells --reference fedavg --metric final",
    "confirmed_at": "--confirmed alpha=0.1 --chosen-by best --intervals --where lr=0.2",
}


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return varied(tmp_path_factory.mktemp("varied"))


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return searched(tmp_path_factory.mktemp("searched"))


def printed(out: Path, request: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a request prints, and what it says beside that."""
    assert main(["--out", str(out), *request.split()]) == 0
    shown = capsys.readouterr()
    return f"{shown.out}\n{shown.err}"


@pytest.mark.parametrize("name", REQUESTS)
def test_a_board_is_printed(name: str, board: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert_approved(f"compare/{name}.txt", printed(board, REQUESTS[name], capsys), board)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_is_printed(name: str, search: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert_approved(f"compare/{name}.txt", printed(search, SEARCHES[name], capsys), search)


@pytest.mark.parametrize("form", ["", "--json"])
def test_two_runs_differ(form: str, board: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, _ = ran("fedavg", (0.1, 0.5), 0)
    second, _ = ran("mine:Own", (0.1, 0.5), 0, {"own": "a"})
    keys = [row["run_key"][:12] for row in (first, second)]
    assert diff([*keys, "--out", str(board), *form.split()]) == 0
    assert_approved(f"compare/diff{form}.txt", capsys.readouterr().out, board)


def test_a_run_differs_from_a_setting(board: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row, _ = ran("fedavg", (0.1, 0.5), 0)
    assert diff([row["run_key"], "fedcad/cifar10", "--out", str(board)]) == 0
    assert_approved("compare/diff_setting.txt", capsys.readouterr().out, board)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("--over-cells --metric kl", "--over-cells takes two algorithms with results in two"),
        ("--over-cells --dataset mnist", "--over-cells takes two algorithms"),
        ("--reference nobody --dataset mnist", "no results to compare with nobody; others with"),
        ("--reference best --metric kl", "no results to compare with best"),
        ("--metric ,", "--metric takes at least one name; --help lists them"),
        ("--paper fedgkd", "--paper and --table go together"),
        ("--table 3", "--paper and --table go together"),
        ("--paper fedgkd --table 3 --metric best --over-cells", "leave out --metric, --over-cells"),
        ("--where lr", "--where takes FIELD=VALUE[,VALUE], got 'lr'"),
        ("--where lrr=1", "no field of a setting for --where 'lrr'"),
        ("--by lrr", "no field of a setting for --by 'lrr'"),
        ("--confirmed alpha", "--confirmed takes FIELD=VALUE, each field once"),
        ("--confirmed alpha=1 alpha=2", "--confirmed takes FIELD=VALUE, each field once"),
        ("--tuned lr --confirmed lr=1", "--confirmed takes FIELD=VALUE, each field once"),
        ("--confirmed alpha=7", "nothing was tuned in"),
        ("--board nowhere", "--board and --out both name result folders"),
    ],
)
def test_a_request_is_refused(
    request_: str, said: str, board: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(board), *request_.split()]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_run_is_named_by_enough_of_its_key(
    board: Path, search: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row, _ = ran("fedavg", (0.1, 0.5), 0)
    key = row["run_key"]
    file = board / "runs" / "all.parquet"
    folders = ["--out", str(board), str(search), str(file)]
    cases = [("x", "the keys are in `python -m bench.status --out"), ("", "runs begin with ''")]
    for start, said in cases:
        assert diff([start, key, *folders]) == 2
        assert said in " ".join(capsys.readouterr().err.split())
    assert diff(["nope/cifar10", key, "--out", str(board)]) == 2
    assert "no setting 'nope/cifar10'" in capsys.readouterr().err
    assert diff(["x", key, "--out", str(file)]) == 2
    assert "the keys are in" not in capsys.readouterr().err


def test_what_help_lists(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for command in (main, diff):
        with pytest.raises(SystemExit) as ended:
            command(["--help"])
        assert ended.value.code == 0
    assert_approved("compare/help.txt", capsys.readouterr().out, Path("nowhere"))
