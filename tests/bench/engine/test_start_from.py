"""`--start-from`: runs begin with a stored model, are runs of their own, and leave the keys of all others alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import assert_equal_results, finish
from conftest import INFO, TINY, make, toy_dataset, toy_split

from algorithms import ALGORITHMS
from bench import artifacts
from bench.engine.simulation import Simulation
from bench.engine.tracking import fingerprint, load_model
from bench.execution import Execution
from bench.figures.catalogue import FIGURES
from bench.figures.stored_runs import read
from bench.planning.run_spec import RunSpec, setting_identity, setting_of
from bench.provenance import command_columns
from bench.sweep import command as sweep
from bench.trial.trial import Trial
from leaderboards import Store, run_key
from leaderboards.board import leaderboard
from search_spaces import SETTINGS, Setting

SETTING = replace(SETTINGS["fedkd", "digits"], rounds=3, local_epochs=1, validation_fraction=0.1)
SHORT = ("--dataset", "digits", "--set", "local_epochs=1")


def run(out: Path, *arguments: str) -> int:
    """The command in this process, without Ray."""
    return sweep.main([*arguments, *SHORT, "--executor", "inline", "--out", str(out), "-q"])


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """FedAvg's model, FedBN's, of which each client has its own, and a run whose model is not kept."""
    out = tmp_path_factory.mktemp("start")
    assert run(out, "--algo", "fedavg,fedbn", "--rounds", "2", "--track", "models,classes") == 0
    assert run(out, "--algo", "fedprox", "--rounds", "1", "--set", "mu=0.1") == 0
    return out


def key_of(out: Path, algorithm: str) -> str:
    """Of its run that begins with drawn weights."""
    runs = Store(out).runs()
    return str(
        runs[
            (runs.algorithm == algorithm) & ~runs.setting_json.str.contains("start_from")
        ].run_key.item()
    )


def test_only_a_start_is_in_the_key() -> None:
    fresh, started = Setting(), Setting(start_from="a" * 64)
    assert "start_from" not in setting_identity(fresh)
    expected = run_key(
        "fedavg",
        ALGORITHMS["fedavg"].version,
        {},
        setting_identity(fresh) | {"start_from": "a" * 64},
        0,
    )
    assert RunSpec("fedavg", {}, started, 0).key == expected != RunSpec("fedavg", {}, fresh, 0).key
    assert setting_of(json.dumps(setting_identity(started))) == started
    assert started.of_program() == fresh.of_program(), "packs may hold both"
    with pytest.raises(ValueError, match=r"start_from .*'abc'"):
        Setting(start_from="abc")


def test_w_0_is_the_given_model_bit_for_bit() -> None:
    def simulation(seed: int, initial: Any = None) -> Simulation:
        return Simulation(
            make("fedavg"),
            TINY,
            seed,
            toy_dataset(),
            INFO,
            toy_split(),
            "cpu",
            "loop",
            initial=initial,
        )

    first = simulation(0)
    first.advance(2)
    started = simulation(1, first.server.params)
    assert fingerprint(started.server.params) == fingerprint(first.server.params)
    assert fingerprint(started.server.params) != fingerprint(simulation(1).server.params)
    started.advance(1)
    assert fingerprint(started.server.params) != fingerprint(first.server.params), "it trains on"
    assert all(torch.isfinite(value).all() for value in first.server.params.values())


def test_runs_begin_with_the_stored_model(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By a part of its key; the whole one is stored, with the model's own digits; seeds share it; no rounds are run."""
    start = key_of(swept, "fedavg")
    given = (
        "--algo",
        "fedavg,fedlsd",
        "--rounds",
        "1",
        "--set",
        "distillation_weight=0.3",
        "--start-from",
        start[:9],
    )
    assert run(swept, *given, "--dry-run", "--json") == 0
    planned = json.loads(capsys.readouterr().out)["trials"]
    assert {one["setting"]["start_from"] for one in planned} == {start}
    before = Store(swept).runs()
    assert run(swept, *given, "--seeds", "2", "--track", "classes") == 0
    runs = Store(swept).runs()
    started = runs[~runs.run_key.isin(before.run_key)]
    assert len(started) == 4
    assert {json.loads(text)["start_from"] for text in started.setting_json} == {start}
    digits = fingerprint(load_model(swept, start))
    assert {versions["start_from"] for versions in started.versions} == {digits}
    assert not any("start_from" in versions for versions in before.versions)
    assert run(swept, *given, "--seeds", "2") == 0
    assert "4 runs, 4 already stored, 0 to do" in capsys.readouterr().err
    board = leaderboard(runs)
    cells = board.groupby("cell")["setting_json"].unique()
    assert all(len({json.loads(text).get("start_from") for text in texts}) == 1 for texts in cells)
    pictures = FIGURES["fedcad-1"].find(read([swept], {}))
    (name,) = [name for name in pictures if "start_from" + start in name]
    spec = pictures[name]()
    below = spec["vconcat"][1]["hconcat"][0]["data"]["values"]
    names = list(dict.fromkeys(row["name"] for row in below))
    assert names == ["start: fedavg, round 2", "fedavg, local, round 1", "fedlsd, local, round 1"]
    expected = artifacts.arrays(swept, start)["classes/global"][-1]
    assert [row["value"] for row in below[: len(expected)]] == pytest.approx(list(100 * expected))


def test_a_started_run_is_reproduced(swept: Path, tmp_path: Path) -> None:
    """One that learns next to nothing is as right as the model that it begins with."""
    start, before = key_of(swept, "fedavg"), set(Store(swept).runs().run_key)
    assert (
        run(swept, "--algo", "fedavg", "--rounds", "1", "--lr", "1e-12", "--start-from", start) == 0
    )
    (key,) = set(Store(swept).runs().run_key) - before
    accuracy = Store(swept).runs().set_index("run_key").final_accuracy
    assert accuracy[key] == accuracy[start]
    assert sweep.main(["reproduce", key, "--out", str(swept), "--into", str(tmp_path)]) == 0


def trial(out: Path, run_spec: RunSpec, **options: Any) -> Trial:
    return Trial(
        [run_spec],
        Execution(str(out), rounds_per_report=1, provenance=command_columns("test"), **options),
    )


def test_an_interrupted_run_goes_on_with_the_same_w_0(swept: Path, tmp_path: Path) -> None:
    """With `local`, whose clients begin with w_0 in whichever round they first take part."""
    start = key_of(swept, "fedavg")
    setting = replace(SETTING, participation=0.3, start_from=start)
    run_spec = RunSpec("local", ALGORITHMS["local"].defaults(), setting, 0)
    outs = [tmp_path / "whole", tmp_path / "parts"]
    for out in outs:
        artifacts.copy([swept], out, start)
        assert artifacts.path_of(out, start, "safetensors").exists()
    begun = trial(outs[1], run_spec, save_seconds=-1, stop_file=str(tmp_path / "stop"))
    begun.step()
    (tmp_path / "stop").touch()
    begun.close()
    assert not Store(outs[1]).status()
    for out in outs:
        finish(trial(out, run_spec))
    assert_equal_results(*outs)


@pytest.mark.parametrize(
    ("arguments", "start", "said"),
    [
        ("--algo fedavg", "nothing", "'nothing'"),
        ("--algo fedavg", "fedbn", "fedbn"),
        ("--algo fedavg", "fedprox", "model"),
        ("--algo fedbn", "fedavg", "mlp+bn"),
        ("--algo fedavg --confirm 1 --confirm-at model=cnn_digits", "fedavg", "cnn_digits"),
    ],
)
def test_models_that_cannot_be_started_from_are_refused_before_anything_runs(
    arguments: str, start: str, said: str, swept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = len(Store(swept).runs())
    key = key_of(swept, start) if start in ALGORITHMS else start
    assert run(swept, *arguments.split(), "--rounds", "1", f"--start-from={key}") == 2
    assert said in capsys.readouterr().err
    assert len(Store(swept).runs()) == before
