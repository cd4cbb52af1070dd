"""How much work a run is, and what is left of a sweep's: by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rows import failed_row, make_row

from bench.executors import progress
from bench.executors.events import watched
from bench.executors.progress import Ahead, Tally
from bench.planning.cost_model import RecordedRates, samples_of
from bench.planning.labels import Varied
from bench.planning.plan import make_plan
from bench.planning.request import Request
from leaderboards import Store
from search_spaces import SPACES

FEDGKD = SPACES["fedgkd", "cifar10", "fedgkd"].setting


def test_samples_of_fedgkds_setting() -> None:
    # 4 of 20 clients of 2,250, 20 epochs, 100 rounds; each evaluated on 10,000 samples and 5,000 held out.
    assert samples_of(FEDGKD) == (4 * 2_250 * 20 * 100, 100 * 15_000)


def test_rates_are_medians_of_an_algorithm_or_of_all(tmp_path: Path) -> None:
    store, setting = Store(tmp_path), replace(FEDGKD, dataset="digits", model="mlp")
    for seed, (algorithm, rate, device) in enumerate(
        [("fedavg", 100.0, "cpu"), ("fedavg", 300.0, "cpu"), ("fedkf", 20.0, "cpu"), ("fedkf", 5000.0, "a GPU")]
    ):
        fields = {"dataset": "digits", "model": "mlp"}
        store.write(make_row(algorithm, setting=fields, seed=seed, samples_per_second=rate, device=device), [])
    store.write(failed_row("fedkf", setting=fields, seed=9, samples_per_second=0.0), [])  # it trained nothing
    rates, trained = RecordedRates(store, "cpu"), samples_of(setting)[0]
    assert rates.seconds("fedavg", setting) == trained / 200
    assert rates.seconds("fedkf", setting) == trained / 20
    assert math.isnan(rates.seconds("moon", setting)), "another algorithm's rate is not its own"
    assert rates.seconds_of_any(setting) == rates.work("moon", setting) == trained / 100, "the median of all three"
    assert RecordedRates(store, "cuda").seconds("fedkf", setting) == trained / 5000
    other = replace(setting, model="cnn_digits")
    assert math.isnan(rates.seconds("fedavg", other))
    assert rates.work("fedavg", other) == trained / 100, "of what is recorded, 20, 100 and 200, the typical one"
    assert RecordedRates(Store(tmp_path / "none"), "cpu").work("fedavg", setting) == trained


class Sweep:
    """A tally of trials of given work, ten rounds each, with a clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *works: float) -> None:
        self.now = 0.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)
        units = make_plan(Request(("fedavg",), values={"rounds": ("10",)}, seeds=len(works))).units
        self.trials = [watched([unit], {"fedavg": Varied()}) for unit in units]
        of = dict(zip((trial.name for trial in self.trials), works, strict=True))
        self.tally = Tally(Ahead(len(works), sum(works), lambda trial: of[trial.name]))

    def report(self, at: float, trial: int, round: int, status: str = "running", before: int = 0, **more: Any) -> Tally:
        """A report, and the trial's end where it is not running."""
        self.now, said = at, {"rounds_done": round, "rounds_before": before, "status": status, **more}
        said |= {"round": round, "accuracy": 0.5, "best_accuracy": 0.5}
        self.tally.reported(self.trials[trial], said)
        if status != "running":
            self.tally.ended(self.trials[trial], said)
        return self.tally


def test_time_left_goes_by_work_and_not_by_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep(monkeypatch, 10, 10, 180)
    assert math.isnan(sweep.report(100, 0, 5).seconds_left), "what came before the first report is start-up"
    tally = sweep.report(105, 0, 10, "finished")  # 5 of the 200 in 5 s
    assert (tally.fraction, tally.seconds_left) == (pytest.approx(0.05), pytest.approx(190))
    tally = sweep.report(115, 1, 10, "finished")
    assert tally.line().startswith("2/3 trials · about 3 min left")


def test_rounds_that_an_earlier_command_did_say_nothing_of_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep(monkeypatch, 10, 10)
    sweep.report(0, 0, 9, before=8)
    tally = sweep.report(2, 0, 10, "finished", before=8)  # a round in 2 s
    assert (tally.fraction, tally.seconds_left) == (0.5, pytest.approx(20))
    tally = sweep.report(4, 1, 7, before=6)  # another one, of a run that was saved as well
    assert (tally.fraction, tally.seconds_left) == (pytest.approx(0.85), pytest.approx(6))


def test_what_nobody_will_do_is_not_waited_for_and_not_taken_for_done(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep(monkeypatch, 10, 10, 10)
    sweep.report(0, 0, 1)
    sweep.report(4, 0, 5, "failed", error="no more")  # four rounds in 4 s, five are given up
    tally = sweep.report(5, 1, 1)
    assert (tally.fraction, tally.seconds_left) == (pytest.approx(11 / 30), pytest.approx(19))
    tally.ended(sweep.trials[2], {"status": "failed", "error": "the worker died"})
    assert (tally.fraction, tally.seconds_left) == (pytest.approx(21 / 30), pytest.approx(9))
    tally.ended(sweep.trials[1], {"round": 1, "status": "interrupted"})
    assert (tally.done, tally.failed) == (2, 2)
