"""A hyper-parameter that joins an algorithm with stored runs leaves the keys of these runs as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from algorithms import entry
from bench.planning.run_spec import RunSpec
from bench.sweep import command, reproduce
from leaderboards import Store
from leaderboards.rows.frames import records
from search_spaces import Setting

BEFORE = "947b2556dfcda0d19f58dbaeec4c98d4626171b0efa618a48977c4f9ccec8d16"  # FedRS's key without `scaling`


def spec(**values: object) -> RunSpec:
    return RunSpec("fedrs", entry("fedrs").resolve(values), Setting(), 0)


def test_the_default_is_in_no_run_key() -> None:
    assert spec().key == spec(scaling="binary").key == BEFORE
    assert json.loads(str(spec().named_by["hp_json"])) == {"missing_scale": 0.5}


def test_another_value_is_in_the_run_key() -> None:
    assert spec(scaling="graded").key != BEFORE
    assert json.loads(str(spec(scaling="graded").named_by["hp_json"]))["scaling"] == "graded"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs with both values."""
    out = tmp_path_factory.mktemp("fedrs")
    short = ("--rounds", "1", "--local-epochs", "1", "--executor", "inline", "--quiet")
    values = ("--set", "missing_scale=0.5", "scaling=binary,graded")
    assert (
        command.main(["--algo", "fedrs", "--dataset", "digits", *values, *short, "--out", str(out)])
        == 0
    )
    return out


@pytest.fixture(scope="module")
def runs(out: Path) -> pd.DataFrame:
    return Store(out).runs()


def test_rows_with_both_values_are_reproduced(out: Path, runs: pd.DataFrame) -> None:
    stored = [json.loads(text).get("scaling") for text in runs["hp_json"]]
    assert sorted(stored, key=str) == [None, "graded"]
    for row in records(runs):
        run_spec = reproduce.run_spec_of_row(row)
        assert run_spec.key == row["run_key"]
        assert run_spec.hyperparameters["scaling"] == json.loads(row["hp_json"]).get(
            "scaling", "binary"
        )


def test_a_graded_scale_is_another_run(runs: pd.DataFrame) -> None:
    assert runs["final_accuracy"].notna().all()
    assert runs["run_key"].nunique() == 2
