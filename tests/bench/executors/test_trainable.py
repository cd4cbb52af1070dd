"""`bench.executors.trainable`: a class for anyone's own Tuner."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from ray.tune.result import TRIAL_INFO
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.repeater import TRIAL_INDEX
from rows import hyperparameter

from algorithms import entry
from algorithms.fedavg import FedAvg
from bench.errors import EnvironmentProblem, UsageError
from bench.executors import ray_trainable, trainable
from bench.planning.options import SweepOptions
from bench.planning.planner import make_plan
from bench.planning.single_run import check_names, run_spec_of
from leaderboards import Store

SETTING = {"dataset": "digits", "rounds": 2, "local_epochs": 1}


def test_a_class_is_named_after_its_algorithm() -> None:
    assert trainable("fedcad").__name__ == "fedcad"
    with pytest.raises(UsageError, match=r"did you mean fedcad\?"):
        trainable("fedcat")


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_anyones_own_tuner_can_use_it(tmp_path: Path) -> None:
    from ray import tune

    tuner = tune.Tuner(
        trainable("fedcad", setting=SETTING, gamma=0.5, out=str(tmp_path / "out")),
        param_space={"beta": tune.grid_search([0.0, 0.3]), "seed": tune.grid_search([0, 1])},
        tune_config=tune.TuneConfig(metric="objective", mode="max", reuse_actors=True),
        run_config=tune.RunConfig(storage_path=str(tmp_path / "tune"), verbose=0),
    )
    results = tuner.fit()
    assert not results.errors
    assert {result.metrics["round"] for result in results} == {2}
    assert results.get_best_result().metrics["objective"] > 0
    runs = Store(tmp_path / "out").runs()
    assert sorted(zip(hyperparameter(runs, "beta"), runs.seed, strict=True)) == [
        (0.0, 0),
        (0.0, 1),
        (0.3, 0),
        (0.3, 1),
    ]
    assert (hyperparameter(runs, "gamma") == 0.5).all()


@pytest.mark.parametrize(
    ("assigned", "gpus", "device"), [("0", 1, "cuda"), ("0", 0, "cpu"), ("", 1, "cpu")]
)
def test_a_trial_uses_the_gpu_that_tune_assigned(
    assigned: str, gpus: int, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", assigned)
    monkeypatch.setattr(ray_trainable, "count_gpus", lambda: gpus)
    assert ray_trainable.execution_of({"out": str(tmp_path)}).device == device


@pytest.mark.parametrize(("given", "lr"), [({}, 0.05), ({"lr": 0.01}, 0.01)])
def test_a_rate_that_a_paper_tuned_is_the_presets(given: dict[str, Any], lr: float) -> None:
    """FedGKD tuned FedAvg's rate over 0.1, 0.05 and 0.01; all its other algorithms have 0.05."""
    assert run_spec_of("fedavg", {"dataset": "cifar10", **given}).setting.lr == lr
    assert run_spec_of("fedgkd", {"dataset": "cifar10", **given}).setting.lr == lr


@pytest.mark.parametrize(
    ("defaults", "config"),
    [
        ({"lr": 0.3, "rounds": 2, "gamma": 0.4}, {"setting": {"lr": 0.05}}),
        ({"setting": {"lr": 0.3, "rounds": 2, "gamma": 0.4}}, {"setting": {"lr": 0.05}}),
        ({"setting": {"lr": 0.3, "rounds": 2, "gamma": 0.6}}, {"lr": 0.05, "gamma": 0.4}),
    ],
)
def test_a_trials_values_go_over_the_defaults_and_parameters_over_the_setting(
    defaults: dict[str, Any], config: dict[str, Any]
) -> None:
    run_spec = run_spec_of("fedcad", {"dataset": "digits", **defaults}, config)
    assert (run_spec.setting.lr, run_spec.setting.rounds, run_spec.hyperparameters["gamma"]) == (
        0.05,
        2,
        0.4,
    )


def test_a_plain_name_is_the_settings() -> None:
    """As on the command line, where `feddkd.lr` is the rate of FedDKD's server."""
    run_spec = run_spec_of("feddkd", {"lr": 0.5, "batch_size": 8, "feddkd.lr": 0.02})
    assert (run_spec.setting.lr, run_spec.setting.batch_size) == (0.5, 8)
    assert (run_spec.hyperparameters["lr"], run_spec.hyperparameters["batch_size"]) == (0.02, 64)
    values = {"lr": ("0.5",), "batch_size": ("8",), "feddkd.lr": ("0.02",)}
    (command,) = make_plan(SweepOptions(("feddkd",), values=values)).run_specs
    assert run_spec.setting == command.setting


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match=r"lr is given twice.*feddkd\.lr"):
        run_spec_of("feddkd", {"lr": 0.3, "setting": {"lr": 0.1}})
    with pytest.raises(UsageError, match=r"rounds is given twice.*: 2 in `setting` and 3 by it"):
        run_spec_of("fedavg", {"rounds": 3, "setting": {"rounds": 2}})
    with pytest.raises(UsageError, match=r"gamma is given twice: 0\.4, and 0\.3 as fedgkd\.gamma"):
        run_spec_of("fedgkd", {"fedgkd.gamma": 0.3, "gamma": 0.4})
    for twice in (2, "2"):
        assert (
            run_spec_of("fedavg", {"rounds": 2, "setting": {"rounds": twice}}).setting.rounds == 2
        )


def test_a_setting_is_a_mapping() -> None:
    with pytest.raises(UsageError, match=r"setting must be a mapping of fields .* got 'lr=0.1'"):
        run_spec_of("fedavg", {"setting": "lr=0.1"})


def test_several_values_are_refused() -> None:
    with pytest.raises(UsageError, match=r"client_models takes one value.*write 'mlp/cnn_digits'"):
        run_spec_of("fd", {"client_models": ["mlp", "cnn_digits"]})
    with pytest.raises(UsageError, match=r"mu takes one value, got \(0.1, 1\)$"):
        run_spec_of("fedprox", {"mu": (0.1, 1)})


def test_own_data_of_a_relative_path_and_a_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"{row % 7},{row % 3},{'yn'[row % 2]}" for row in range(60)]
    (tmp_path / "d.csv").write_text("\n".join(["a,b,kind", *lines]))
    monkeypatch.chdir(tmp_path)
    made = trainable(
        "fedavg", dataset="csv:d.csv", label="kind", rounds=1, num_clients=2, out=str(tmp_path)
    )
    monkeypatch.chdir(tmp_path.parent)  # as Tune does
    trial = made(config={})
    assert trial.train()["done"]
    trial.cleanup()
    made(config={"dataset": "digits"}).cleanup()
    later = trainable("fedavg", label="kind", rounds=1, num_clients=2, out=str(tmp_path))
    later(config={"dataset": f"csv:{tmp_path / 'd.csv'}"}).cleanup()
    public = "csv:e.csv:5"
    (tmp_path / "e.csv").write_text("\n".join(["a,b,kind", *lines[7:]]))
    for config in (
        {"dataset": "csv:d.csv"},
        {"setting": {"dataset": "csv:d.csv"}},
        {"public": public},
        {"setting": {"public": public}},
    ):
        with pytest.raises(UsageError, match=r"csv: takes an absolute path .* got '[de].csv"):
            made(config=config)
    monkeypatch.chdir(tmp_path)
    trainable("fedavg", setting={"dataset": "csv:d.csv"}, label="kind")
    bound = trainable("fedmd", setting={"public": public, "dataset": "csv:d.csv", "label": "kind"})
    setting = bound.defaults["setting"]
    assert setting["public"] == f"csv:{tmp_path.resolve()}/e.csv:5"
    assert setting["dataset"] == f"csv:{tmp_path.resolve()}/d.csv"


def test_a_repetition_is_a_seed(tmp_path: Path) -> None:
    """Ray's Repeater numbers the repetitions of a configuration, and averages their results."""
    trial = trainable("fedavg", setting=SETTING, out=str(tmp_path))(config={TRIAL_INDEX: 3})
    assert [run.run_spec.seed for run in trial.trial.runs] == [3]
    trial.cleanup()


def test_every_way_takes_qualified_names() -> None:
    own = "feddkd.lr"
    trainable("feddkd", **{own: 0.02})
    check_names("feddkd", [own, "lr", "steps", "seed"], ["seed"], "name")
    for wrong in ("fedprox.lr", "feddkd.nesterov", "feddkd.lrr"):
        with pytest.raises(UsageError, match=wrong):
            trainable("feddkd", **{wrong: 0.02})


def test_a_papers_run_has_its_values() -> None:
    """What it fixes and what it chose, at the alpha of the run; others have the defaults."""
    (sweep,) = make_plan(SweepOptions(("local",), "mnist", "fedproto")).run_specs[:1]
    run_spec = run_spec_of("local", {"dataset": "mnist", "paper": "fedproto"})
    assert run_spec.hyperparameters == sweep.hyperparameters != entry("local").defaults()
    for alpha, buffer in ((0.1, 5), (0.5, 1)):
        layer = {"dataset": "cifar10", "paper": "fedgkd", "alpha": alpha}
        assert run_spec_of("fedgkd", layer).hyperparameters["buffer"] == buffer


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"roundz": 3}, r"no configuration key 'roundz' \(did you mean rounds\?\); known: "),
        ({"seed": "a"}, "seed must be a whole number, got 'a'"),
        ({"backend": "fast"}, "backend must be one of auto, loop, stacked, got 'fast'"),
        ({"device": "gpu"}, "device must be one of auto, cpu, cuda, got 'gpu'"),
        ({"offline": "false"}, "offline must be one of False, True, got 'false'"),
        ({"gamma": 5}, r"gamma must be in \[0, 1\), got 5"),
        ({"rounds_per_report": 0}, "rounds_per_report must be >= 1, got 0"),
        ({"rounds_per_report": "all"}, "rounds_per_report must be a whole number, got 'all'"),
    ],
)
def test_a_wrong_default_is_said_in_the_driver(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        trainable("fedcad", **given)


def test_a_step_reports_and_a_checkpoint_is_a_pointer(tmp_path: Path) -> None:
    made = trainable("fedgkd", setting=SETTING, out=str(tmp_path / "out"))
    trial = made(config={"buffer": 1})
    report = trial.trial.report()
    assert (report["round"], report["done"]) == (0, False)
    pointer = tmp_path / "pointer"
    pointer.mkdir()
    trial.save_checkpoint(str(pointer))
    assert sum(file.stat().st_size for file in pointer.iterdir()) < 1000
    trial.load_checkpoint(str(pointer))
    other = made(config={"buffer": 5})
    with pytest.raises(UsageError, match="PopulationBasedTraining, PB2"):
        other.load_checkpoint(str(pointer))
    trial.cleanup()
    other.cleanup()


def test_a_copied_trials_checkpoint_is_refused(tmp_path: Path) -> None:
    """PBT may copy a trial with its configuration: the same run, but not the same trial."""
    made = trainable("fedavg", setting=SETTING, out=str(tmp_path / "out"))
    trial = made(config={TRIAL_INFO: SimpleNamespace(trial_id="first")})
    trial.save_checkpoint(str(tmp_path))
    trial.load_checkpoint(str(tmp_path))
    trial.cleanup()
    copy = made(config={TRIAL_INFO: SimpleNamespace(trial_id="second")})
    with pytest.raises(UsageError, match="PopulationBasedTraining, PB2"):
        copy.load_checkpoint(str(tmp_path))
    copy.cleanup()


def reports(out: Path, algorithm: str = "fedavg", **given: Any) -> list[dict[str, Any]]:
    """Return the reports of a trial, step by step."""
    fields = {"dataset": "digits", "local_epochs": 1, **given}
    trial = trainable(algorithm, out=str(out), **fields)(config={})
    every = [trial.train()]
    while not every[-1]["done"]:
        every.append(trial.train())
    trial.cleanup()
    return every


@pytest.mark.parametrize(
    ("given", "rounds"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"rounds_per_report": 2}, [2, 4, 5]),
        ({"evaluate_every": 2}, [2, 4, 5]),
        ({"evaluate_every": 2, "rounds_per_report": 3}, [4, 5]),
    ],
)
def test_a_step_is_counted_in_rounds(
    given: dict[str, Any], rounds: list[int], tmp_path: Path
) -> None:
    every = reports(tmp_path, rounds=5, **given)
    assert [report["round"] for report in every] == rounds
    assert [report["training_iteration"] for report in every] == rounds


def test_personal_models_measured_last_report_last(tmp_path: Path) -> None:
    (report,) = reports(tmp_path, algorithm="fedrep", rounds=3, evaluate_personal="last")
    assert report["round"] == report["training_iteration"] == 3
    assert {"objective", "accuracy", "val_accuracy"} <= report.keys()
    every = reports(tmp_path, rounds=3, evaluate_personal="last")
    assert [report["round"] for report in every] == [1, 2, 3], "a global model is measured always"


def test_reports_carry_the_curves_metrics(tmp_path: Path) -> None:
    every = reports(tmp_path, rounds=3)
    curves = Store(tmp_path).curves().set_index(["round", "metric"])["value"]
    for report in every:
        for metric in ("accuracy", "val_accuracy", "loss", "bytes_down", "bytes_up"):
            assert report[metric] == curves[report["round"], metric]


def test_numbers_that_do_not_exist_are_missing(tmp_path: Path) -> None:
    (report,) = reports(tmp_path, rounds=1, validation_fraction=0)
    assert report["accuracy"] > 0
    assert not {"objective", "val_accuracy"} & report.keys()


def test_a_resumed_run_reports_its_own_rounds(tmp_path: Path) -> None:
    made = trainable("fedavg", dataset="digits", local_epochs=1, rounds=4, out=str(tmp_path))
    first = made(config={"rounds_per_report": 3})
    assert first.train()["training_iteration"] == 3
    first.cleanup()
    second = made(config={"rounds_per_report": 2})
    assert second.train()["training_iteration"] == 4
    second.cleanup()


def test_ashas_rungs_are_rounds(tmp_path: Path) -> None:
    """Whatever the clock says, ASHA compares trials at the same rounds."""
    rungs = ASHAScheduler(
        metric="objective", mode="max", grace_period=2, max_t=8, reduction_factor=2
    )
    made = trainable("fedprox", dataset="digits", local_epochs=1, rounds=8, out=str(tmp_path))
    last_rounds = []
    for mu in (0.0, 5.0):
        trial: Any = SimpleNamespace(trial_id=str(mu))
        rungs.on_trial_add(mock.Mock(), trial)
        shell, decision = made(config={"mu": mu}), "CONTINUE"
        while decision == "CONTINUE":
            report = shell.train()
            decision = rungs.on_trial_result(mock.Mock(), trial, report)
        shell.cleanup()
        last_rounds.append(report["round"])
    assert last_rounds == [8, 2]


def test_a_loss_that_is_not_finite_is_infinite(tmp_path: Path) -> None:
    """Tune ends the whole experiment if a report lacks its metric."""
    (report,) = reports(tmp_path, rounds=3, lr=1e6)
    assert report["done"]
    assert report["loss"] == math.inf


def test_a_failed_run_is_an_error_to_tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(FedAvg, "local_loss", fail)
    trial = trainable("fedavg", setting=SETTING, out=str(tmp_path))(config={})
    with pytest.raises(RuntimeError, match="a mistake"):
        trial.train()
    trial.cleanup()
    assert [*Store(tmp_path).status().values()] == ["failed"], "its row is stored"


def test_missing_data_are_an_error_to_tune(tmp_path: Path) -> None:
    trial = trainable(
        "fedgkd", dataset="cifar10", offline=True, data_dir=str(tmp_path), out=str(tmp_path)
    )(config={})
    with pytest.raises(EnvironmentProblem, match="CIFAR-10"):
        trial.train()


@pytest.mark.parametrize(
    "config",
    [
        {"gama": 1},
        {"gamma": -1},
        {"setting": {"rounds": 0}},
        {"dataset": "cifar11"},
        {"out": "here"},
        {"device": "gpu"},
        {"backend": "fast"},
        {"offline": "false"},
    ],
)
def test_a_wrong_configuration_is_refused_in_words(config: dict, tmp_path: Path) -> None:
    made = trainable("fedgkd", out=str(tmp_path))
    with pytest.raises(UsageError):
        made(config=config)
