"""A result folder and a mirror written before files were named by their content: read, merged, pulled, gone on from.

`data/results_v1/folder` holds a packed file of three runs, a finished and a failed run in small files, a file of
`--track local`, and an interrupted run with its state; `mirror` is what `boards push` wrote of it. `expected.json` has
the numbers, of the interrupted run those that it reached undisturbed.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from commands import saved_round

from bench import artifacts, boards
from bench.sweep import command as sweep
from leaderboards import Store

DATA = Path(__file__).with_name("data") / "results_v1"
EXPECTED = json.loads((DATA / "expected.json").read_text())
INTERRUPTED = EXPECTED["interrupted"]
SWEEP = ("--dataset", "digits", "--model", "mlp", "--offline", "--executor", "inline", "-q", "--seeds", "1")
RESUME = (*SWEEP, "--algo", "fedgkd", "--set", "gamma=0.5", "buffer=1", "--rounds", "12", "--local-epochs", "5")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "folder", tmp_path / "folder"))


def accuracies(out: Path, key: str) -> list[float]:
    curves = Store(out).curves([key])
    return list(curves[curves["metric"] == "accuracy"].sort_values("round")["value"])


def assert_expected(out: Path) -> None:
    runs = Store(out).runs().set_index("run_key")
    assert set(EXPECTED["stored"]) <= set(runs.index)
    for key, expected in EXPECTED["stored"].items():
        row = runs.loc[key]
        for name in ("algorithm", "seed", "status", "hp_json"):
            assert row[name] == expected[name], name
        for name in ("best_accuracy", "final_accuracy", "local_accuracy_mean"):
            assert row[name] == expected[name] or (row[name] != row[name] and expected[name] is None), name
        assert accuracies(out, key) == expected["accuracy"]
    (kept,) = runs.index[runs["local_accuracy_mean"].notna()]
    assert "local/accuracy" in artifacts.arrays(out, kept)


def test_it_is_read_and_in_order(folder: Path) -> None:
    assert_expected(folder)
    assert boards.main(["validate", str(folder)]) == 0


@pytest.mark.parametrize("source", ["folder", "mirror"])
def test_it_is_merged_and_compacted(source: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        assert boards.main(["merge", str(DATA / source), "--out", str(out)]) == 0
        assert_expected(out)
    assert boards.main(["compact", str(out)]) == 0
    assert_expected(out)
    assert boards.main(["merge", str(DATA / "folder"), str(DATA / "mirror"), "--out", str(out)]) == 0
    assert_expected(out)
    assert boards.main(["validate", str(out)]) == 0


@pytest.mark.parametrize("way", ["folder", "mirror"])
def test_its_interrupted_run_goes_on(way: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out, mirror = tmp_path / "out", tmp_path / "mirror"
    more = []
    if way == "folder":
        shutil.copytree(DATA / "folder", out)
        assert saved_round(out) == INTERRUPTED["round"]
    else:
        shutil.copytree(DATA / "mirror", mirror)
        more = ["--mirror", str(mirror)]
    assert sweep.main([*RESUME, "--out", str(out), *more]) == 0
    assert "1 from where it was saved" in capfd.readouterr().err
    assert accuracies(out, INTERRUPTED["run_key"]) == pytest.approx(INTERRUPTED["accuracy"], abs=0.02)
    assert_expected(out)
    if more:
        assert_expected(mirror)
        assert not list((mirror / "state").rglob("*.json")), "the run is over"


def test_a_failed_run_of_it_is_run_again(folder: Path) -> None:
    words = (*SWEEP, "--algo", "fedprox", "--set", "mu=0.5", "--rounds", "2", "--local-epochs", "1", "--seeds", "2")
    assert sweep.main([*words, "--out", str(folder)]) == 0
    assert set(Store(folder).status().values()) == {"finished"}
    assert len(Store(folder).runs()) == len(EXPECTED["stored"])
