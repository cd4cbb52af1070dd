"""Names of trials: the algorithm, what varies, and the seeds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from algorithms import entry
from bench.planning.run_spec import RunSpec
from bench.planning.trial_names import trial_name, varied_names
from search_spaces import Setting

MLP = Setting(dataset="digits", model="mlp")


def prox(mu: float, seed: int = 0) -> RunSpec:
    return RunSpec("fedprox", entry("fedprox").resolve({"mu": mu}), MLP, seed, None, False)


AVG = RunSpec("fedavg", entry("fedavg").resolve({}), MLP, 0, None, False)
HEAD = replace(MLP, model="mlp+head")
MOON = RunSpec("moon", entry("moon").resolve({}), HEAD, 0, None, False)
SWEEP = [AVG, replace(AVG, seed=1), MOON, prox(0.1), prox(0.1, 1), prox(1.0)]


@pytest.mark.parametrize(
    ("trial", "name"),
    [
        ([AVG], "fedavg seed 0"),
        ([MOON], "moon model=mlp+head seed 0"),
        ([prox(0.1, 1)], "fedprox mu=0.1 seed 1"),
        ([prox(0.1), prox(0.1, 1)], "fedprox mu=0.1 2 seeds"),
        ([prox(0.1), prox(1.0)], "fedprox 2 runs of seed 0"),
        ([prox(0.1, 1), prox(1.0)], "fedprox 2 runs"),
    ],
)
def test_a_trial_is_named_by_what_varies(trial: list[RunSpec], name: str) -> None:
    assert trial_name(trial, varied_names(SWEEP)) == name


def test_settings_that_vary_are_named() -> None:
    sparse = replace(AVG, setting=replace(MLP, alpha=0.1))
    varied = varied_names([AVG, sparse])
    assert trial_name([sparse], varied) == "fedavg alpha=0.1 seed 0"
    assert trial_name([AVG, sparse], varied) == "fedavg 2 runs of seed 0"
