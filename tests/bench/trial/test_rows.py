"""Rows of a run: what they say of divergence."""

from __future__ import annotations

import math

import pytest

from bench.engine.counters import Progress
from bench.planning.single_run import run_spec_of
from bench.trial.results import rows_of


@pytest.mark.parametrize("lost", [math.nan, math.inf])
def test_further_steps_that_diverge_mark_their_row_alone(lost: float) -> None:
    """NaN scores would count as guesses of the first class."""
    run_spec = run_spec_of("fedavg", {"finetune_steps": 2, "rounds": 2})
    progress = Progress()
    for suffix, losses in (("", (1.0, 0.9)), ("_ft", (lost, 0.8))):
        curve = progress.curves.setdefault(suffix, [])
        for number, loss in enumerate(losses, 1):
            curve += [(number, "accuracy", 0.7), (number, "loss", loss)]
    rows = rows_of(run_spec, progress, {}, personal=["_ft"], chance=0.1, test_samples=100)
    by_name = {row["algorithm"]: row for row, _ in rows}
    assert not by_name["fedavg"]["diverged"]
    assert by_name["fedavg"]["error"] is None
    assert by_name["fedavg_ft"]["diverged"]
    assert "round 1" in by_name["fedavg_ft"]["error"]


def test_a_loss_on_the_test_set_marks_its_row() -> None:
    """As of a model whose outputs overflow, though its weights are finite."""
    progress = Progress()
    progress.curves[""] = [(1, "accuracy", 0.4), (1, "loss", math.nan)]
    progress.curves[""] += [(2, "accuracy", 0.7), (2, "loss", 0.9)]
    run_spec = run_spec_of("fedavg", {"rounds": 2})
    ((row, _),) = rows_of(run_spec, progress, {}, personal=[], chance=0.1, test_samples=100)
    assert row["diverged"]
    assert row["error"] == "round 1, the loss on the test set is not finite"
