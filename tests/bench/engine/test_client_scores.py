"""Accuracy by client: FedKF's three metrics, and its worked example (section 3)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import ROOT
from conftest import simulate

from bench.engine.client_scores import fairness
from bench.sweep.command import main as sweep
from leaderboards import Store

DOCS = ROOT / "docs"
SPLIT = (np.arange(0, 6), np.arange(6, 8), np.empty(0, np.int64), np.arange(8, 12))


# FedKF, Table 2. Of three models and three clients our copy has FM, the third client of the second
# model (0.7) and AMP of the third (0.65); these accuracies give all of that, and what the text says
# of the three. Divided by K - 1 instead of K, FM would be 0.01 and 0.0075: what is printed is the
# population variance, as in Definition 2.
@pytest.mark.parametrize(
    ("accuracies", "amp", "fm", "wlp"),
    [
        ((0.5, 0.6, 0.7), 0.6, 0.00667, 0.5),
        ((0.55, 0.55, 0.7), 0.6, 0.005, 0.55),
        ((0.55, 0.65, 0.75), 0.65, 0.00667, 0.55),
    ],
)
def test_the_worked_example_of_fedkf(
    accuracies: tuple[float, ...], amp: float, fm: float, wlp: float
) -> None:
    found = fairness(accuracies, (10, 10, 10))
    assert found == {"amp": pytest.approx(amp), "fm": pytest.approx(fm, abs=5e-6), "wlp": wlp}


@pytest.mark.parametrize("algorithm", ["fedavg", "local"])
def test_the_last_round_has_each_clients_accuracy_and_the_metrics_follow_from_them(
    algorithm: str,
) -> None:
    simulation = simulate(algorithm)
    simulation.federation.local_tests = tuple(torch.tensor(index) for index in SPLIT)
    simulation.advance(simulation.setting.rounds)
    points = simulation.progress.curves[""]
    named = {name: value for at, name, value in points if at == simulation.round}
    clients, sizes = [0, 1, 3], np.array([6, 2, 4])
    assert [name for at, name, _ in points if name.startswith("client_accuracy/")] == [
        f"client_accuracy/{client}" for client in clients
    ]
    accuracies = np.array([named[f"client_accuracy/{client}"] for client in clients])
    row, federation = simulation.algorithm.evaluated(simulation.server)[""], simulation.federation
    for client, accuracy in zip(clients, accuracies, strict=True):
        own = federation.data(federation.local_tests[client])
        hits = (
            simulation.net.eval(simulation.local_model(row, client), own.x).logits.argmax(1)
            == own.y
        )
        assert accuracy == pytest.approx(hits.double().mean().item(), abs=1e-12)
    assert named["amp"] == pytest.approx(accuracies @ sizes / sizes.sum(), abs=1e-12)
    assert named["fm"] == pytest.approx(np.var(accuracies), abs=1e-12)
    assert named["wlp"] == accuracies.min()


def test_the_documented_lines_read_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [
        "--algo",
        "fedavg",
        "--rounds",
        "2",
        "--local-epochs",
        "1",
        "--set",
        "local_test_fraction=0.2",
    ]
    assert sweep([*arguments, "--executor", "inline", "--out", "leaderboards", "-q"]) == 0
    section = (
        (DOCS / "results.md")
        .read_text()
        .partition("### Accuracy by client")[2]
        .partition("\n## ")[0]
    )
    values: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(block, values)
    accuracies, (row,) = values["accuracies"], Store("leaderboards").runs().to_dict("records")
    assert accuracies.var(axis=1, ddof=0).item() == pytest.approx(row["fm"], abs=1e-12)
    assert accuracies.min(axis=1).item() == row["wlp"]
    assert accuracies.shape == (1, row["num_clients"])
