"""Every registered algorithm as Ray Tune trials on the embedded data: one command, a row for each name."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from commands import command

from algorithms import ALGORITHMS
from bench.sweep import command as sweep
from leaderboards import Store


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory, shared_ray: None) -> Path:
    """The results of `--algo all`, one round of one epoch each."""
    out = tmp_path_factory.mktemp("all")
    short = ("--rounds", "1", "--local-epochs", "1", "--set", "noise_dim=8", "max_steps=20")
    places = ("--executor", "ray", "--out", str(out))
    assert sweep.main(["--algo", "all", "--dataset", "digits", *short, *places, "-q"]) == 0
    return out


@pytest.fixture(scope="module")
def runs(out: Path) -> pd.DataFrame:
    """Their rows."""
    return Store(out).runs()


def test_there_is_a_finished_row_for_each_name(runs: pd.DataFrame) -> None:
    rows = set(ALGORITHMS)
    for entry in ALGORITHMS.values():
        rows |= set(entry.rows.values())
    assert set(runs.algorithm) == rows
    assert set(runs.status) == {"finished"}


def test_each_ran_on_a_model_that_has_what_it_needs(runs: pd.DataFrame) -> None:
    forms = {name: set(rows.model) for name, rows in runs.groupby("algorithm")}
    assert forms["moon"] == forms["fedgkd_plus"] == {"mlp+head"}
    assert forms["fedbn"] == forms["feddkd_bn"] == {"mlp+bn"}
    assert forms["fedavg"] == {"mlp"}


def test_one_table_ranks_them(out: Path) -> None:
    done = command("--out", str(out), module="bench.compare")
    assert done.returncode == 0, done.stderr
    assert all(f"\n{name} " in done.stdout for name in ALGORITHMS)
