"""Samples and operations a second, counted by hand at times that are given."""

from __future__ import annotations

import pytest
import torch

from bench.perf import training
from bench.perf.measure import Spent
from bench.perf.workload import Workload

WORK = Workload("cnn_cifar", clients=4, cohort=2, samples=40, epochs=3, batch_size=16, pack=5)
SAMPLES = 5 * 2 * 40 * 3  # of a round of all packed runs


def test_rates_count_all_packed_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter((2.0, 4.0, 8.0))
    advanced: list[int] = []
    monkeypatch.setattr(training, "simulations", lambda *given: [])
    monkeypatch.setattr(training, "together", lambda runs: lambda: advanced.append(1))
    monkeypatch.setattr(training, "simulation", lambda work, method: work)
    monkeypatch.setattr(training, "operations", lambda work: 7 * work.processed)

    def timed(advance: object, wait: object) -> Spent:
        spent = next(seconds)
        return Spent(spent, spent / 2)

    monkeypatch.setattr(training, "timed", timed)
    torch.set_num_threads(1)
    figures = training.rate(WORK, rounds=3)
    assert len(advanced) == 1, "the first round is not timed"
    assert figures["rate"]["median"] == pytest.approx(SAMPLES / 4)
    assert figures["cpu_rate"]["median"] == pytest.approx(SAMPLES / 2)
    assert figures["flops"]["median"] == pytest.approx(7 * SAMPLES / 4)
