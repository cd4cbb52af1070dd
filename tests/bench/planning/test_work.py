"""How much work a run is, and what is left of a sweep's: by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from rows import failed_row, make_row

from algorithms import entry
from bench.executors import progress
from bench.executors.progress import Tally, watched, work_of
from bench.planning.cost_model import evaluated_samples, recorded_rates, recorded_time
from bench.planning.options import SweepOptions
from bench.planning.planner import make_plan
from bench.planning.run_spec import RunSpec
from bench.planning.trial_names import Varied
from bench.planning.work import samples_of
from bench.sweep.plan_report import _memory
from leaderboards import Store
from search_spaces import SPACES, Setting

FEDGKD = SPACES["fedgkd", "cifar10", "fedgkd"].setting


def run_of(algorithm: str, setting: Setting) -> RunSpec:
    return RunSpec(algorithm, entry(algorithm).defaults(), setting, 0)


def test_samples_of_fedgkds_setting() -> None:
    # 4 of 20 clients of 2,250, 20 epochs, 100 rounds; each evaluated on 10,000 samples and 5,000
    # held out.
    assert samples_of(run_of("fedavg", FEDGKD)) == 4 * 2_250 * 20 * 100
    assert evaluated_samples(run_of("fedavg", FEDGKD)) == 100 * 15_000
    assert samples_of(run_of("centralized", FEDGKD)) == 20 * 2_250 * 20 * 100, "on all data"


def test_samples_that_a_partition_leaves_out_are_not_counted() -> None:
    setting = SPACES["fedproto", "mnist", "fedproto"].setting
    setting = replace(setting, classes_per_client=3)
    # 20 clients of three classes, 139.5 samples of each: two sevenths are tests.
    dealt = 20 * 3 * 139.5
    run_spec = run_of("fedavg", setting)
    assert samples_of(run_spec) == pytest.approx(100 * dealt * 5 / 7)
    assert evaluated_samples(run_spec) == pytest.approx(100 * (10_000 + dealt * 2 / 7))


def test_further_steps_are_evaluated_for_each_client_or_each_source() -> None:
    """On the whole test set, or where sources have tests of their own, each on its part."""
    plain = evaluated_samples(run_of("fedavg", FEDGKD))
    further = replace(FEDGKD, finetune_steps=3)
    assert evaluated_samples(run_of("fedavg", further)) == plain + 100 * 20 * 15_000
    by_source = replace(FEDGKD, partition="by_source", alpha=None)
    once = evaluated_samples(run_of("fedavg", replace(by_source, finetune_steps=3)))
    assert once - evaluated_samples(run_of("fedavg", by_source)) == 100 * 15_000


def test_own_samples_are_evaluated_beside_the_servers() -> None:
    """Of 90 % of half of 50,000, 30 % are the clients' own, for tests and validation."""
    own = {"local_test_fraction": 0.2, "local_validation_fraction": 0.1}
    setting = replace(FEDGKD, fraction=0.5, validation_fraction=0.1, **own)
    dealt = 50_000 * 0.5 * 0.9
    assert samples_of(run_of("fedavg", setting)) == pytest.approx(4 * dealt / 20 * 0.7 * 20 * 100)
    once = 10_000 + 50_000 * 0.5 * 0.1
    plain = evaluated_samples(run_of("fedavg", setting))
    assert plain == pytest.approx(100 * (once + 0.3 * dealt))
    further = evaluated_samples(run_of("fedavg", replace(setting, finetune_steps=3)))
    assert further - plain == pytest.approx(100 * (20 * once + 0.3 * dealt))


def test_rates_are_medians_of_an_algorithm_or_of_all(tmp_path: Path) -> None:
    store, setting = Store(tmp_path), replace(FEDGKD, dataset="digits", model="mlp")
    for seed, (algorithm, rate, device) in enumerate(
        [
            ("fedavg", 100.0, "cpu"),
            ("fedavg", 300.0, "cpu"),
            ("fedkf", 0.5, "cpu"),
            ("fedkf", 5000.0, "a GPU"),
        ]
    ):
        fields = {"dataset": "digits", "model": "mlp"}
        store.write(
            make_row(algorithm, setting=fields, seed=seed, samples_per_second=rate, device=device),
            [],
        )
    store.write(
        failed_row("fedkf", setting=fields, seed=9, samples_per_second=0.0), []
    )  # it trained nothing
    fedavg, fedkf = run_of("fedavg", setting), run_of("fedkf", setting)
    rates = recorded_rates(store, "cpu")
    trained = samples_of(fedavg)
    assert recorded_time(rates, fedavg).middle == pytest.approx(trained / 200)
    assert recorded_time(rates, fedkf).middle == pytest.approx(trained / 0.5)
    assert not recorded_time(rates, run_of("moon", setting)).known, (
        "another algorithm's rate is not its own"
    )
    assert recorded_time(rates, fedavg, of_all=True).middle == pytest.approx(trained / 100), (
        "the median of all three"
    )
    assert recorded_time(recorded_rates(store, "cuda"), fedkf).middle == pytest.approx(
        trained / 5000
    )
    assert not recorded_time(rates, run_of("fedavg", replace(setting, model="cnn_digits"))).known
    assert recorded_rates(Store(tmp_path / "none"), "cpu") == {}


def test_a_rate_is_of_as_many_steps_of_the_server(tmp_path: Path) -> None:
    one = run_of("feddf", replace(FEDGKD, dataset="digits", model="mlp"))
    columns = {
        "setting": {"dataset": "digits", "model": "mlp"},
        "samples_per_second": 100.0,
        "device": "cpu",
    }
    Store(tmp_path).write(make_row("feddf", dict(one.hyperparameters), **columns), [])
    rates = recorded_rates(Store(tmp_path), "cpu")
    assert recorded_time(rates, one).known
    assert not recorded_time(
        rates, replace(one, hyperparameters={**one.hyperparameters, "max_steps": 10})
    ).known


class Sweep:
    """A tally of trials of so many rounds each, with a clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *rounds: int) -> None:
        self.now = 0.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)
        (run_spec,) = make_plan(SweepOptions(("fedavg",))).run_specs
        settings = [replace(run_spec.setting, rounds=count) for count in rounds]
        run_specs = [
            replace(run_spec, setting=setting, seed=seed) for seed, setting in enumerate(settings)
        ]
        self.trials = [watched([run_spec], {"fedavg": Varied()}) for run_spec in run_specs]
        self.tally = Tally(len(rounds), work_of(run_specs))

    def report(self, at: float, trial: int, round: int, status: str = "running") -> Tally:
        """A report, and the trial's end where it is not running."""
        self.now, said = at, {"rounds_done": round, "status": status}
        self.tally.reported(self.trials[trial], said)
        if status != "running":
            self.tally.ended(self.trials[trial], said)
        return self.tally


def test_time_left_goes_by_work_and_not_by_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep(monkeypatch, 10, 10, 180)
    assert math.isnan(sweep.report(100, 0, 5).seconds_left), (
        "what came before the first report is start-up"
    )
    tally = sweep.report(105, 0, 10, "finished")  # 5 of the 200 in 5 s
    assert (tally.fraction, tally.seconds_left) == (pytest.approx(0.05), pytest.approx(190))
    tally = sweep.report(115, 1, 10, "finished")
    assert tally.line("news") == "2/3 trials, about 3 min left · news"


def test_what_nobody_will_do_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep(monkeypatch, 10, 10, 10)
    sweep.report(0, 0, 1)
    tally = sweep.report(4, 0, 5, "failed")
    assert tally.fraction == pytest.approx(1 / 3)
    tally.ended(sweep.trials[2], {"status": "failed", "error": "the worker died"})
    tally.ended(sweep.trials[1], {"round": 1, "status": "interrupted"})
    assert (tally.fraction, tally.done, tally.failed) == (pytest.approx(2 / 3), 2, 2)


def test_public_samples_take_memory_in_each_run_of_a_pack() -> None:
    plain = Setting(dataset="digits", model="mlp")
    public = replace(plain, public="digits:1000")
    image_bytes = 8 * 8 * 4
    for pack in (1, 3):
        more = _memory(public, pack) - _memory(plain, pack)
        assert more == pack * 1000 * image_bytes


def test_a_small_trials_memory_is_that_of_its_process() -> None:
    setting = Setting(dataset="digits", model="mlp", num_clients=10)
    assert 900 * 1024**2 < _memory(setting) < 910 * 1024**2
    cifar10 = _memory(replace(setting, dataset="cifar10", model="cnn_cifar"))
    assert cifar10 - _memory(setting) > 3 * 60_000 * 3 * 32 * 32, "three copies of the images"
