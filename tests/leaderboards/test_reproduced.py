"""The kept runs of the papers' problems: how the file is made, and that the tracked one is what it says."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pandas as pd
import pytest
from keep import CURVES, REPRODUCED, keep, stored_row
from rows import failed_row, make_row

from algorithms import entry
from bench.compare.command import main as compare
from leaderboards import Store, run_key
from leaderboards.numbers import curve_of, numbers_of
from leaderboards.rows.checks import check_row
from leaderboards.rows.frames import records
from search_spaces import SETTINGS

CURVE = [(1, "accuracy", 0.25), (2, "accuracy", 0.5)]
VARIED = ("alpha", "participation", "num_clients", "local_epochs")  # by the papers' tables
VARIED_BY_FEDPROTO = ("classes_per_client", "client_models")
COMMAND = "python -m bench.sweep --algo fedavg --data-dir /home/me/data --out=/home/me/out --set 'beta=0.0 gamma=0.7'"


def fill(folder: Path, **columns: object) -> Store:
    store = Store(folder)
    store.write(make_row("fedavg", command=COMMAND, host="my-machine", **columns), CURVE)
    return store


def test_kept_runs_name_no_local_folder(tmp_path):
    store = fill(tmp_path / "a")
    store.write(make_row("fedprox", {"mu": 0.1}, shortened=True), CURVE)
    store.write(failed_row("moon"), [])
    fill(tmp_path / "b", seed=1)
    runs, curves = tmp_path / "kept.parquet", tmp_path / "kept_curves.parquet"
    assert keep([tmp_path / "a", tmp_path / "b"], runs, curves) == 2
    found = Store(runs)
    rows = found.runs()
    assert rows["algorithm"].tolist() == ["fedavg", "fedavg"]
    assert sorted(rows["seed"]) == [0, 1]
    assert set(rows["host"]) == {""}
    assert set(rows["command"]) == {
        "python -m bench.sweep --algo fedavg --set 'beta=0.0 gamma=0.7'"
    }
    assert len(found.curves()) == 2 * len(CURVE)
    assert len(found.curves({rows["run_key"][0]})) == len(CURVE)


def test_a_file_of_rows_may_be_in_any_folder(tmp_path):
    fill(tmp_path / "a")
    folder = tmp_path / "runs"
    folder.mkdir()
    keep([tmp_path / "a"], folder / "kept.parquet", folder / "kept_curves.parquet")
    assert len(Store(folder / "kept.parquet").curves()) == len(CURVE)


def test_a_repeated_run_replaces_the_old(tmp_path, capsys):
    runs, curves = tmp_path / "kept.parquet", tmp_path / "kept_curves.parquet"
    fill(tmp_path / "a", final_accuracy=0.5)
    fill(tmp_path / "b", seed=1)
    assert keep([tmp_path / "a", tmp_path / "b"], runs, curves) == 2
    fill(tmp_path / "c", final_accuracy=0.6)
    assert keep([tmp_path / "c"], runs, curves) == 1
    rows = Store(runs).runs().set_index("seed")
    assert rows["final_accuracy"].to_dict() == {0: 0.6, 1: 0.5}
    assert len(Store(runs).curves()) == 2 * len(CURVE)
    capsys.readouterr()
    assert compare(["--out", str(runs), "--metric", "accuracy@2"]) == 0
    assert "50.00 ± 0.00 (2)" in capsys.readouterr().out


# --- the tracked file


@pytest.fixture(scope="module")
def rows():
    return Store(REPRODUCED).runs()


def test_kept_rows_have_papers_settings(rows):
    assert CURVES.exists()
    for row in records(rows):
        setting = json.loads(row["setting_json"])
        asked = SETTINGS[row["paper"], row["dataset"]].as_dict()
        unlike = {name for name in setting if setting[name] != asked.get(name)}
        assert unlike <= {*VARIED, *(VARIED_BY_FEDPROTO if row["paper"] == "fedproto" else ())}
        assert (row["status"], row["shortened"], row["git_dirty"]) == ("finished", False, False)
        assert "/" not in row["command"].replace("python -m bench.sweep", "")
        check_row(stored_row(row))


def test_kept_rows_match_their_curves(rows):
    curves = Store(REPRODUCED).curves()
    for row in rows.to_dict("records"):
        curve = curves[curves["run_key"] == row["run_key"]]
        points = list(zip(curve["round"], curve["metric"], curve["value"], strict=True))
        found = numbers_of(curve_of((int(at), name, float(value)) for at, name, value in points))
        for name in ("best_accuracy", "best_round", "final_accuracy", "mean_last10_accuracy"):
            assert found[name] == pytest.approx(row[name]), name


def test_kept_rows_have_present_versions(rows):
    """Once an algorithm's version is raised, its kept runs are to be made again."""
    for row in rows.to_dict("records"):
        setting, hyperparameters = json.loads(row["setting_json"]), json.loads(row["hp_json"])
        version = entry(row["algorithm"].removesuffix("_proto")).version
        assert row["run_key"] == run_key(
            row["algorithm"], version, hyperparameters, setting, row["seed"]
        )


def test_a_whole_run_shortens_no_other(capsys):
    """FedCAD's Table 4 compares numbers of local epochs: 10, which were run, are no short 20."""
    assert (
        compare(["--paper", "fedcad", "--table", "4", "--out", str(REPRODUCED), "--format", "csv"])
        == 0
    )
    cells = csv.DictReader(capsys.readouterr().out.splitlines())
    finished = [cell for cell in cells if cell["state"] == "value"]
    epochs = [cell["local_epochs"] for cell in finished if cell["algorithm"] == "fedavg"]
    assert epochs == ["1", "10"]


def test_the_reference_board_reports_other_seeds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The choices and means of the tracked board by pandas alone, against `bench.compare`."""
    runs = pd.concat(
        map(pd.read_parquet, (REPRODUCED.parent / "reference" / "runs").glob("*.parquet"))
    )
    runs = runs[runs["status"] == "finished"].drop_duplicates("run_key")
    search = runs[(runs["seed"] == 0) & (runs["participation"] == 0.2)].sort_values(
        ["hp_json", "setting_json"]
    )
    best = search.sort_values(
        "best_val_accuracy", ascending=False, kind="stable"
    )  # of equals the first by name
    contest = ["algorithm", "model", "alpha"]
    chosen = best.drop_duplicates(contest)[[*contest, "hp_json", "lr"]]
    confirming = runs[runs["seed"] > 0].merge(chosen)
    means = confirming.groupby([*contest, "participation"])["best_accuracy"].agg(["mean", "size"])
    board = pd.read_parquet(REPRODUCED.parent / "reference" / "leaderboard.parquet")
    tracked = board.set_index([*contest, "participation"])["best_accuracy_mean"].to_dict()
    assert tracked == pytest.approx(means["mean"].to_dict())
    assert compare(["--board", "reference", "--metric", "best", "--format", "csv"]) == 0
    printed = {
        (row["algorithm"], row["variant"], float(row["alpha"]), float(row["participation"])): (
            float(row["mean"]),
            int(row["n"]),
        )
        for row in csv.DictReader(io.StringIO(capsys.readouterr().out))
        if row["state"] == "value"
    }
    assert len(printed) > 10
    assert {key: n for key, (_, n) in printed.items()} == {
        key: means["size"][key] for key in printed
    }
    assert [mean for mean, _ in printed.values()] == pytest.approx(
        [means["mean"][key] for key in printed]
    )
