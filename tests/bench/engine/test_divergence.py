"""A run that leaves the numbers ends, and its row says in which round, at which client and in which term."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from conftest import trained

from algorithms import build, entry
from algorithms.base import Algorithm
from bench.execution import Execution
from bench.planning.run_spec import RunSpec
from bench.provenance import command_columns
from bench.trial.trial import Trial
from leaderboards import Store
from search_spaces import SETTINGS

BACKENDS = ["loop", "stacked"]


@dataclass(frozen=True)
class BrokenServer(Algorithm):
    """What the server adds to its message after round 1 is no number."""

    def broadcast(self, fed, server):
        return {
            "params": server.params,
            "weights": torch.tensor([1.0 if server.round < 1 else float("nan")]),
        }


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("variant", ["paper", "code"])
def test_a_generator_is_named(backend: str, variant: str) -> None:
    run = trained(replace(build("fedkf", variant=variant), generator_lr=1e300), backend, 4)
    first = 1 if variant == "paper" else 2  # the authors' code has no generator in round 1
    assert run.progress.complaint.startswith(
        f"round {first}, client {run.participants(first)[0]}: 'theta'"
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_loss_with_nothing_else_to_blame(backend: str) -> None:
    run = trained("fedavg", backend, 4, lr=1e300)
    assert "loss" in run.progress.complaint
    assert run.progress.diverged
    assert run.round == 1, "of four"


def test_what_the_server_makes_is_named() -> None:
    run = trained(BrokenServer(), rounds=4)
    assert run.progress.complaint.startswith("round 1, ")
    assert "weights" in run.progress.complaint


def test_the_row_keeps_the_complaint_and_the_trial_goes_on(tmp_path: Path) -> None:
    setting = replace(SETTINGS["fedkd", "digits"], rounds=2, local_epochs=1)
    broken = RunSpec(
        "fedkf", {**entry("fedkf").defaults(), "generator_lr": 1e30, "noise_dim": 8}, setting, 0
    )
    sound = RunSpec("fedavg", {}, setting, 0)
    trial = Trial([broken, sound], Execution(out=str(tmp_path), provenance=command_columns("test")))
    while not trial.report()["done"]:
        trial.step()
    rows = Store(tmp_path).runs().set_index("algorithm")
    assert rows.loc["fedkf", ["status", "diverged"]].tolist() == ["finished", True]
    assert "round 1, client" in rows.loc["fedkf", "error"]
    assert rows.loc["fedavg", ["status", "diverged"]].tolist() == ["finished", False]
