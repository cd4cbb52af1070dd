"""Trainables without Ray: reports, configurations, domains, and what a trial's process does."""

from __future__ import annotations

import json
import math
import signal
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.result import (
    AUTO_RESULT_KEYS,
    DEBUG_METRICS,
    DEFAULT_EXPERIMENT_INFO_KEYS,
)
from ray.tune.search.sample import Categorical, Float, Integer

from algorithms import entry
from bench.errors import EnvironmentProblem, Slower, UsageError
from bench.executors import ray_trainable
from bench.executors.ray_trainable import (
    FederatedTrainable,
    SweepTrainable,
    _check_choices,
    _rounds_per_report,
    _tracks,
    _with_label,
    _with_paths,
    domain_of,
    execution_of,
    last_values,
    make_trainable,
    write_warnings,
)
from bench.planning.single_run import run_spec_of
from bench.trial.trial import Trial
from leaderboards.numbers import check_own
from search_spaces import Grid, Range


def test_the_last_rounds_metrics_are_reported() -> None:
    curve: list[Any] = [
        (1, "accuracy", 0.1),
        (1, "only_before", 0.1),
        (2, "accuracy", 0.5),
        (2, "loss", math.nan),
        (2, "val_loss", -math.inf),
        (2, "drift", math.nan),
        (2, "nothing", None),
        (2, "client_accuracy/3", 0.5),
    ]
    clients = ray_trainable.CLIENT_ACCURACY
    curve[-1] = (2, f"{clients}3", 0.5)
    values = last_values(curve)
    assert math.isnan(values.pop("drift"))
    assert values == {"accuracy": 0.5, "loss": math.inf, "val_loss": math.inf}
    assert last_values([]) == {}


def test_own_metrics_replace_nothing_in_reports(tmp_path: Path) -> None:
    execution = execution_of({"out": str(tmp_path)})
    fields = {"dataset": "digits", "rounds": 1}
    trial = Trial([run_spec_of("fedavg", fields)], replace(execution, report_curves=True))
    names = {*trial.report(), *AUTO_RESULT_KEYS, *DEBUG_METRICS, *DEFAULT_EXPERIMENT_INFO_KEYS}
    trial.close()
    for name in names:
        with pytest.raises(ValueError, match="take another name"):
            check_own(name)


@pytest.mark.parametrize(
    ("search", "kind", "low", "high", "log"),
    [
        (Range(0.1, 2.0), Float, 0.1, 2.0, True),
        (Range(0.1, 2.0, log=False), Float, 0.1, 2.0, False),
        (Range(1, 4, whole=True), Integer, 1, 5, True),
        (Range(1, 4, log=False, whole=True), Integer, 1, 5, False),
    ],
)
def test_a_range_is_a_domain_of_tune(
    search: Range, kind: type, low: float, high: float, log: bool
) -> None:
    domain = domain_of(search)
    assert type(domain) is kind
    assert (domain.lower, domain.upper) == (low, high)
    assert type(domain.sampler).__name__.startswith("_LogUniform" if log else "_Uniform")


def test_a_grid_is_a_choice() -> None:
    domain = domain_of(Grid(1, "a"))
    assert isinstance(domain, Categorical)
    assert domain.categories == [1, "a"]
    assert make_trainable("fedprox", {}).param_space() == {}


# Configurations


def test_a_configuration_is_an_execution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    plain = execution_of({"out": str(tmp_path)})
    assert (plain.out, plain.data_dir, plain.offline) == (str(tmp_path), None, False)
    assert (plain.device, plain.backend, plain.threads) == ("cpu", "auto", 1)
    assert (plain.track, plain.rounds_per_report) == ((), 1)
    assert plain.provenance["command"] == "ray.tune.Tuner"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    given = {"offline": True, "device": "cuda", "backend": "loop", "track": "models,local"}
    full = execution_of({"out": "/a", "data_dir": "/b", "rounds_per_report": "4", **given})
    assert (full.out, full.data_dir, full.offline, full.threads) == ("/a", "/b", True, 3)
    assert (full.device, full.backend) == ("cuda", "loop")
    assert (full.track, full.rounds_per_report) == (("local", "models"), 4)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"out": "a"}, "out must be an absolute path in a trial's configuration, got 'a'"),
        (
            {"out": "/a", "data_dir": "b"},
            "data_dir must be an absolute path in a trial's configuration, got 'b'",
        ),
        (
            {"out": "/a", "dataset": "csv:b"},
            "folder: or csv: takes an absolute path in a trial's configuration, got 'b'",
        ),
        ({"out": "/a", "device": "gpu"}, "device must be one of auto, cpu, cuda, got 'gpu'"),
        ({"out": "/a", "offline": 2}, "offline must be one of False, True, got 2"),
        ({"out": "/a", "rounds_per_report": 0}, "rounds_per_report must be >= 1, got 0"),
    ],
)
def test_wrong_configurations_are_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        execution_of(given)
    assert str(refused.value) == problem


def test_choices_may_be_none() -> None:
    _check_choices({"device": None, "backend": "stacked", "offline": True})
    assert _tracks({"track": ["local", "models"]}) == ("local", "models")
    assert _tracks({}) == ()
    assert _rounds_per_report({}) == 1


@pytest.mark.parametrize(
    ("name", "value"), [("out", 5), ("out", b"x"), ("data_dir", 7), ("track", 5), ("paper", 3)]
)
def test_values_of_other_types_are_refused(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=rf"{name}\b.*{value!r}"):
        make_trainable("fedavg", {name: value})


def test_labels_are_of_tables() -> None:
    """The last data set that is named counts, in a layer or in its setting."""
    label = {"label": "kind", "rounds": 2}
    table = {"dataset": "csv:/a"}
    digits = {"dataset": "digits"}
    without = {"rounds": 2}
    assert _with_label(label, table) == (label, table)
    assert _with_label({"setting": table}, label) == ({"setting": table}, label)
    assert _with_label(table, {**label, **digits}) == [table, {**without, **digits}]
    assert _with_label(label) == [without]
    kept = {**table, "setting": digits}
    assert _with_label(label, kept) == (label, kept)
    assert _with_label(table, {"setting": digits, **label}) == [
        table,
        {"setting": digits, **without},
    ]


def test_paths_are_changed_everywhere() -> None:
    given = {
        "dataset": "csv:a",
        "public": "folder:b:5",
        "setting": {"dataset": "digits", "public": "csv:c:1"},
        "lr": 1,
    }
    assert _with_paths(given, str.upper) == {
        "dataset": "csv:A",
        "public": "folder:B:5",
        "setting": {"dataset": "digits", "public": "csv:C:1"},
        "lr": 1,
    }
    assert given["dataset"] == "csv:a"


def test_a_class_has_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDKD_OUT", raising=False)
    made = make_trainable("fedprox", {"data_dir": "d", "mu": 0.5})
    here = tmp_path.resolve()
    assert made.defaults == {
        "out": str(here / "leaderboards"),
        "data_dir": str(here / "d"),
        "mu": 0.5,
    }
    assert (made.algorithm, made.method) == ("fedprox", None)
    assert make_trainable("fedprox", {"out": "o"}).defaults == {"out": str(here / "o")}


# Steps


class Pretended:
    """A trial that reports as told and keeps what it is asked."""

    def __init__(self, *reports: dict[str, Any]) -> None:
        self.reports = list(reports)
        curve = [(3, "accuracy", 0.5), (3, "loss", 1.0)]
        self.runs = [SimpleNamespace(curve=curve, run_spec=SimpleNamespace(key="ab" * 32))]
        self.problem = ""
        self.asked: list[str] = []

    def step(self) -> dict[str, Any]:
        return self.reports.pop(0)

    def save(self) -> None:
        self.asked.append("save")

    def end(self) -> None:
        self.asked.append("end")

    def close(self) -> None:
        self.asked.append("close")


def shell(kind: type[FederatedTrainable], *reports: dict[str, Any]) -> Any:
    """A trainable around a pretended trial."""
    made = kind.__new__(kind)
    made.trial = Pretended(*reports)  # type: ignore[assignment]
    made._trial_info = SimpleNamespace(trial_id="t1")
    return made


def test_a_step_reports_what_there_is() -> None:
    report = {"status": "running", "round": 3, "accuracy": 0.25, "objective": math.nan}
    assert shell(FederatedTrainable, report).step() == {
        "status": "running",
        "round": 3,
        "training_iteration": 3,
        "accuracy": 0.25,
        "loss": 1.0,
    }
    assert shell(SweepTrainable, report).step() == report


@pytest.mark.parametrize(
    ("status", "kind"), [("environment", EnvironmentProblem), ("failed", RuntimeError)]
)
def test_a_failed_step_raises(status: str, kind: type[Exception]) -> None:
    report = {"status": status, "error": "a reason"}
    with pytest.raises(kind, match=r"^a reason$"):
        shell(FederatedTrainable, report).step()
    assert shell(SweepTrainable, report).step() == report


def test_a_checkpoint_saves_or_ends(tmp_path: Path) -> None:
    for kind, action in ((FederatedTrainable, "save"), (SweepTrainable, "end")):
        made = shell(kind)
        made.save_checkpoint(str(tmp_path))
        assert made.trial.asked == [action]
    pointer = json.loads((tmp_path / "state.json").read_text())
    assert pointer == {"trial": "t1", "runs": ["ab" * 32]}
    made.load_checkpoint(str(tmp_path))
    (tmp_path / "state.json").write_text(json.dumps(pointer | {"runs": ["cd" * 32]}))
    with pytest.raises(UsageError) as refused:
        made.load_checkpoint(str(tmp_path))
    start = f"trial t1 (run {'ab' * 8}) was given the checkpoint of another trial (run {'cd' * 8})"
    assert str(refused.value).startswith(f"{start}, but a run's state belongs to its configuration")


def test_a_problem_of_a_save_is_raised_once(tmp_path: Path) -> None:
    made = shell(FederatedTrainable)

    def full() -> None:
        made.trial.problem = "no space"

    made.trial.save = full
    with pytest.raises(EnvironmentProblem, match=r"^no space$"):
        made.save_checkpoint(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    made.save_checkpoint(str(tmp_path))
    assert (tmp_path / "state.json").exists(), "it was reported before"


def test_a_process_takes_the_next_trial() -> None:
    made = shell(FederatedTrainable)
    begun: list[Any] = []
    made.setup = begun.append
    assert made.reset_config({"a": 1}) is True
    made.cleanup()
    assert (made.trial.asked, begun) == (["close", "close"], [{"a": 1}])


@pytest.mark.parametrize(("actor", "ignored"), [("id", True), (None, False)])
def test_workers_leave_ctrl_c_to_the_driver(
    actor: str | None, ignored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = SimpleNamespace(get_actor_id=lambda: actor)
    fake = SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: context)
    monkeypatch.setattr(ray_trainable, "ray", fake)
    monkeypatch.setattr("bench.trial.trial.Trial", lambda *given: given)
    noted: list[str] = []
    monkeypatch.setattr(ray_trainable, "write_warnings", noted.append)
    made = shell(SweepTrainable)
    execution = SimpleNamespace(notice_file="file" if ignored else None)
    made.resolve = lambda config: ([config], execution)
    made.own_data = {"name": "loader"}
    # A test run in the background of a shell ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread = threading.Thread(target=lambda: made.setup({"a": 1}))
        thread.start()
        thread.join()
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
        made.setup({"a": 1})
        assert (signal.getsignal(signal.SIGINT) == signal.SIG_IGN) == ignored
    finally:
        signal.signal(signal.SIGINT, before)
        ray_trainable.own.defined.pop("name")
    assert made.trial == ([{"a": 1}], execution)
    assert noted == (["file"] * 2 if ignored else [])


def test_warnings_are_written_in_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "said"
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    write_warnings.cache_clear()
    for _ in range(2):
        write_warnings(str(file))
    warnings.showwarning("one\n two", Slower, "f", 1)
    warnings.showwarning("three", Slower, "f", 1)
    assert file.read_text() == "one two\nthree\n"
    file.unlink()
    file.mkdir()
    warnings.showwarning("lost", Slower, "f", 1)
    write_warnings.cache_clear()


def test_repetitions_are_seeds_unless_given(tmp_path: Path) -> None:
    made = make_trainable("fedavg", {"out": str(tmp_path), "rounds": 9, "evaluate_every": 3})
    resolve = made.__new__(made).resolve
    index = ray_trainable.TRIAL_INDEX
    ((run,), execution) = resolve({index: 3, "rounds_per_report": 4})
    assert (run.seed, execution.rounds_per_report) == (3, 6)
    assert list(execution.data_hashes) == ["digits"]
    ((run,), execution) = resolve({index: 3, "seed": 7})
    assert (run.seed, execution.rounds_per_report) == (7, 3)
    assert entry("fedavg").name == run.algorithm
