"""The callback of Tune: events of trials, warnings of workers, and what becomes of dead ones."""

from __future__ import annotations

import os
import pickle
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, OutOfMemoryError

from bench.errors import EnvironmentProblem, Slower
from bench.execution import Execution
from bench.executors import ray_callback, ray_executor
from bench.executors.progress import Events, Observer
from bench.executors.ray_callback import Watcher, _reason
from bench.planning.run_spec import RunSpec
from bench.provenance import command_columns
from leaderboards import Store
from search_spaces import SETTINGS

RUNS = [RunSpec("fedavg", {}, SETTINGS["fedkd", "digits"], seed) for seed in (0, 1)]
NAME = "fedavg 2 seeds"
DIED = "its worker process died (killed, perhaps for want of memory, or crashed)"


class Told(Observer):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.started_names: list[str] = []
        self.reports: list[Any] = []
        self.ends: list[Any] = []

    def started(self, trial: Any) -> None:
        self.started_names.append(trial.name)

    def reported(self, trial: Any, report: Any) -> None:
        self.reports.append(report)

    def ended(self, trial: Any, report: Any) -> None:
        self.ends.append(report)


class Sweep:
    """A watcher of one trial of two seeds."""

    def __init__(self, out: Path, **options: Any) -> None:
        files: dict[str, Any] = {"stop_file": str(out / "stop"), "notice_file": str(out / "said")}
        files |= {"provenance": command_columns("test")}
        self.execution = Execution(out=str(out), **files, **options)
        self.told = Told()
        self.events = Events([self.told])
        trainable = ray_executor.trainable_for([RUNS], [self.execution])
        self.watcher = Watcher(trainable, self.execution, self.events)
        self.out = out
        (out / "state").mkdir()

    def trial(self, error: BaseException | None = None, **values: Any) -> Any:
        """Tune's trial, with an error on the disk."""
        file = self.out / "error.pkl"
        if error is not None:
            file.write_bytes(pickle.dumps(error))
        facts = {"trial_id": "a", "config": {"index": 0}, "num_failures": 2, "last_result": {}}
        return SimpleNamespace(**(facts | values), pickled_error_file=str(file))

    @property
    def stopped(self) -> bool:
        """Whether the whole sweep ends."""
        return (self.out / "stop").exists()


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    return Sweep(tmp_path)


def test_a_trial_begins_once(sweep: Sweep) -> None:
    for _ in range(2):
        sweep.watcher.on_trial_start(0, [], sweep.trial())
    assert sweep.told.started_names == [NAME]
    assert sweep.watcher.__getstate__() == {}


@pytest.mark.parametrize("ends", [True, False])
def test_a_report_may_end_the_sweep(ends: bool, sweep: Sweep) -> None:
    report = {"ends_sweep": ends}
    sweep.watcher.on_trial_result(0, [], sweep.trial(), report)
    assert sweep.told.reports == [report]
    assert sweep.stopped == ends


@pytest.mark.parametrize(
    ("last", "status"),
    [
        ({"status": "running"}, "stopped"),
        ({"status": "running", "error": "e"}, "failed"),
        ({"status": "running", "error": "e", "unusable": 1}, "environment"),
        ({"status": "finished", "error": "e"}, "finished"),
    ],
)
def test_a_trial_that_still_runs_was_stopped(
    last: dict[str, Any], status: str, sweep: Sweep
) -> None:
    sweep.watcher.on_trial_complete(0, [], sweep.trial(last_result=last))
    assert sweep.told.ends == [last | {"status": status}]
    assert sweep.events.statuses == [status]


def test_new_warnings_of_workers_are_repeated(sweep: Sweep) -> None:
    said = sweep.out / "said"
    heard: list[list[str]] = []
    for content in (None, "one\ntwo\nthr", "ee\nfour\n", ""):
        if content is not None:
            with said.open("a") as file:
                file.write(content)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            sweep.watcher.on_step_end(0, [])
        assert all(warning.category is Slower for warning in caught)
        assert {warning.filename for warning in caught} <= {__file__}
        heard.append([str(warning.message) for warning in caught])
    assert heard == [[], ["one", "two"], ["three", "four"], []]


# Dead workers


@pytest.mark.parametrize(
    ("options", "next_step"),
    [({}, "goes on from its last save"), ({"force": True}, "begins anew, as --force asks")],
)
def test_a_dead_worker_is_warned_of(
    options: dict[str, Any], next_step: str, tmp_path: Path
) -> None:
    sweep = Sweep(tmp_path, **options)
    text = f"{NAME}: {DIED}; it {next_step} (failure 2 of this trial)"
    with pytest.warns(Slower) as caught:
        sweep.watcher.on_trial_recover(0, [], sweep.trial())
    assert [str(warning.message) for warning in caught] == [text]
    assert caught[0].filename == __file__
    assert (sweep.stopped, sweep.events.statuses) == (False, [])


def test_a_stopping_sweep_warns_of_nothing(sweep: Sweep) -> None:
    (sweep.out / "stop").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sweep.watcher.on_trial_recover(0, [], sweep.trial())
        sweep.watcher.on_trial_error(0, [], sweep.trial())
    assert sweep.told.ends == [{"status": "interrupted"}]
    assert Store(sweep.out).status() == {}


PROBLEM = EnvironmentProblem("no data")


def test_a_machine_not_ready_ends_all(sweep: Sweep) -> None:
    told = {"status": "environment", "error": "no data"}
    sweep.watcher.on_trial_recover(0, [], sweep.trial(PROBLEM))
    assert sweep.stopped
    assert (sweep.events.statuses, sweep.events.problems) == (["environment"], ["no data"])
    (sweep.out / "stop").unlink()
    sweep.watcher.on_trial_error(0, [], sweep.trial(PROBLEM))
    assert sweep.stopped
    assert sweep.told.ends == [told]


def test_a_trial_that_keeps_dying_failed(sweep: Sweep) -> None:
    sweep.watcher.on_trial_error(0, [], sweep.trial(ValueError("a\nmistake")))
    reason = "its worker failed with ValueError: a mistake, 2 times"
    assert sweep.told.ends == [{"status": "failed", "error": f"{NAME}: {reason}"}]
    rows = Store(sweep.out).runs()
    assert sorted(rows["seed"]) == [0, 1]
    assert set(rows["status"]) == {"failed"}
    assert set(rows["error"]) == {f"RuntimeError: {reason}"}
    assert not sweep.stopped


def test_rows_that_cannot_be_stored_are_told(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("full")

    monkeypatch.setattr("bench.trial.run.record_failure", full)
    sweep.watcher.on_trial_error(0, [], sweep.trial())
    (report,) = sweep.told.ends
    assert report["error"] == f"{NAME}: {DIED}, 2 times; its row cannot be stored: full"


def test_a_closed_watcher_ignores_errors(sweep: Sweep) -> None:
    sweep.watcher.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sweep.watcher.on_trial_recover(0, [], sweep.trial(PROBLEM))
        sweep.watcher.on_trial_error(0, [], sweep.trial(PROBLEM))
    assert (sweep.stopped, sweep.told.ends, sweep.events.statuses) == (False, [], [])


def test_a_full_disk_is_tried(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tune could not keep the error."""
    assert sweep.watcher._problem(None) == ""
    written: list[int] = []

    class Full:
        """A file on a full disk."""

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None: ...

        def write(self, content: bytes) -> None:
            written.append(len(content))

        def flush(self) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(ray_callback.tempfile, "TemporaryFile", lambda dir: Full())
    problem = sweep.watcher._problem(None)
    assert problem.startswith(f"no space left for {sweep.out}: ")
    assert written == [65536]


class Wrapped(Exception):
    """Ray's error, with that of the worker in it."""

    cause = OSError(28, "No space left on device", "a file")


def test_the_cause_of_rays_error_counts(sweep: Sweep) -> None:
    assert sweep.watcher._problem(Wrapped()).startswith("no space left for a file: ")
    assert sweep.watcher._problem(ValueError("x")) == ""


class Died(ActorDiedError):
    """A worker that could not start, or died, with this text."""

    def __init__(self, text: str, init_failed: bool) -> None:
        self.text = text
        self.init_failed = init_failed

    @property
    def actor_init_failed(self) -> bool:
        return self.init_failed

    def __str__(self) -> str:
        return self.text


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OutOfMemoryError("x"), "Ray ended its worker, because memory ran out (fewer trials at "),
        (Died(" a\n  b  \n\n", True), "its worker could not start: b"),
        (Died("", True), "its worker could not start: ?"),
        (Died("a", False), DIED),
        (None, DIED),
        (KeyError("a"), "its worker failed with KeyError: 'a'"),
    ],
)
def test_the_end_of_a_worker_has_a_reason(error: BaseException | None, reason: str) -> None:
    assert _reason(error).startswith(reason)


def test_no_stop_file_is_no_error(tmp_path: Path) -> None:
    execution = Execution(out=str(tmp_path))
    watcher = Watcher(ray_executor.trainable_for([RUNS], [execution]), execution, Events())
    watcher._stop_all()
    watcher.on_step_end(0, [])
    assert os.listdir(tmp_path) == []  # noqa: PTH208
