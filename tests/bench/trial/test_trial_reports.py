"""A trial of pretended runs: when it reports, what it reports, and which actions its runs get."""

from __future__ import annotations

import errno
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.errors import EnvironmentProblem, Interrupted, UnusableState
from bench.execution import Execution
from bench.trial import trial as trials
from bench.trial.trial import LOST, Trial, on_this_machine


class Run:
    """A run that keeps what is asked of it."""

    def __init__(self, key: str, rounds: int = 5, **facts: Any) -> None:
        self.status = "running"
        self.round = 0
        self.backend = "loop"
        self.pack = 0
        self.error = self.traceback = self.complaint = ""
        self.diverged = self.unsaved = False
        self.selecting_number = "best_val_accuracy"
        self.numbers: dict[str, float] = {}
        self.actions: list[str] = []
        self.errors: dict[str, Exception] = {}
        self.run_spec = SimpleNamespace(key=key, rows={"": key, "_t": f"{key}_t"})
        curves: dict[str, list[Any]] = {"": []}
        self.simulation: Any = SimpleNamespace(progress=SimpleNamespace(curves=curves))
        self.last = rounds
        vars(self).update(facts)

    def number(self, name: str) -> float:
        return self.numbers.get(name, math.nan)

    def _do(self, name: str) -> None:
        self.actions.append(name)
        if name in self.errors:
            raise self.errors[name]

    def open(self) -> None:
        self._do("open")

    def save(self) -> None:
        self._do("save")

    def stop(self) -> None:
        self._do("stop")

    def give_claim(self) -> None:
        self.actions.append("give")

    def release(self) -> None:
        self.actions.append("release")

    def save_or_finish(self) -> None:
        self._do("settle")
        if self.round >= self.last:
            self.status = "finished"

    def fail(self, error: BaseException) -> None:
        self._do("fail")
        self.status = "failed"
        self.error = str(error)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which each round of a run moves by 0.25 seconds."""
    now = [100.0]
    monkeypatch.setattr(trials.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture(autouse=True)
def engine(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> dict[Any, Exception]:
    """Rounds without training; the errors that simulations end with."""
    failures: dict[Any, Exception] = {}

    def advance(simulations: list[Any]) -> dict[Any, Exception]:
        clock[0] += 0.25
        assert clock[0] < 200, "a step that does not end"
        for simulation in simulations:
            if simulation in failures:
                continue
            run = simulation.run
            run.round += 1
            simulation.progress.curves[""].append((run.round, "accuracy", run.round / 10))
        return {one: failures[one] for one in simulations if one in failures}

    monkeypatch.setattr(trials, "advance_together", advance)
    return failures


class Simulation(SimpleNamespace):
    """A simulation, which is itself alone."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


def trial_of(*runs: Run, **options: Any) -> Trial:
    """The trial of some runs."""
    for run in runs:
        if run.simulation:
            run.simulation = Simulation(run=run, progress=run.simulation.progress)
    given: Any = runs
    return Trial([], Execution(out="out", **options), given)


def test_runs_are_opened_in_every_sweeps_order() -> None:
    opened: list[str] = []
    runs = [Run(key) for key in "cab"]
    for run in runs:
        run.open = lambda run=run: opened.append(run.run_spec.key)  # type: ignore[method-assign]
    trial = trial_of(*runs)
    assert opened == ["a", "b", "c"]
    assert [run.run_spec.key for run in trial.runs] == ["c", "a", "b"]


def test_stacked_runs_share_a_program() -> None:
    runs = [Run("a", backend="stacked"), Run("b"), Run("c", backend="stacked"), Run("d")]
    over = Run("e", backend="stacked", status="finished")
    trial_of(*runs, over)
    assert [run.pack for run in (*runs, over)] == [2, 1, 2, 1, 0]
    assert over.actions == ["open", "give"]
    assert runs[0].actions == ["open"]


@pytest.mark.parametrize(
    ("interval", "rounds"), [(0, [4, 5]), (1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (3, [3, 5])]
)
def test_reports_come_by_the_clock_or_at_rounds(interval: int, rounds: list[int]) -> None:
    """A round takes a quarter of a second; without an interval a report is due after one."""
    trial = trial_of(Run("a"), rounds_per_report=interval)
    reported = []
    while not trial.report()["done"]:
        reported.append(trial.step()["round"])
        assert reported[-1] == rounds[len(reported) - 1]  # at once: a wrong step may never end
    assert reported == rounds


def test_a_report_has_the_means_of_runs() -> None:
    first = Run("a", numbers={"final_accuracy": 0.25, "best_accuracy": 0.5}, round=3)
    second = Run("b", numbers={"final_accuracy": 0.75, "best_val_accuracy": 0.5}, round=2)
    trial = trial_of(first, second, report_curves=True)
    assert trial.report() == {
        "round": 2,
        "rounds_done": 5,
        "accuracy": 0.5,
        "best_accuracy": 0.5,
        "objective": 0.5,
        "status": "running",
        "error": "",
        "traceback": "",
        "diverged": "",
        "ends_sweep": False,
        "unusable": 0,
        "done": False,
        "statuses": {"a": "running", "a_t": "running", "b": "running", "b_t": "running"},
    }
    second.status = "finished"
    assert trial.report()["round"] == 3
    first.status = "finished"
    report = trial.report()
    assert (report["round"], report["done"], report["status"]) == (3, True, "finished")
    assert report["statuses"]["a"] == "finished"


def test_texts_of_runs_are_joined() -> None:
    first = Run("a", error="e1", traceback="t", complaint="c1", status="failed")
    second = Run("b", error="e2", traceback="t", complaint="c2", status="failed")
    third = Run("c", traceback="u", status="finished")
    report = trial_of(first, second, third).report()
    assert (report["error"], report["diverged"]) == ("e1; e2", "c1; c2")
    assert report["traceback"] == "t\nu"
    assert math.isnan(report["accuracy"])
    assert "statuses" not in report


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        (["finished", "running"], "running"),
        (["finished", "stopped"], "finished"),
        (["failed", "finished"], "failed"),
        (["failed", "environment"], "environment"),
        (["failed", "running"], "running"),
        (["interrupted", "running"], "interrupted"),
    ],
)
def test_a_status_is_the_worst(statuses: list[str], status: str) -> None:
    runs = [Run(str(place), status=each) for place, each in enumerate(statuses)]
    assert trial_of(*runs).report()["status"] == status


def test_runs_without_simulation_are_over(tmp_path: Path) -> None:
    trial = trial_of(Run("a", simulation=None))
    assert trial.report()["status"] == "finished"
    stop = tmp_path / "stop"
    stop.touch()
    late = Run("a", simulation=None)
    assert trial_of(late, stop_file=str(stop)).report()["status"] == "interrupted"
    assert late.actions == []


@pytest.mark.parametrize(
    ("facts", "objective"),
    [
        ({}, 0.5),
        ({"diverged": True}, -0.5),
        ({"status": "failed"}, LOST),
        ({"status": "environment"}, LOST),
        ({"numbers": {}}, 0.25),
    ],
)
def test_an_objective_is_comparable(facts: dict[str, Any], objective: float) -> None:
    first = Run("a", numbers={"best_val_accuracy": 0.25})
    second = Run("b", **({"numbers": {"best_val_accuracy": 0.75}} | facts))
    assert trial_of(first, second).report()["objective"] == objective
    assert LOST == -1.0
    assert math.isnan(trial_of(Run("a")).report()["objective"])


def test_new_points_are_reported_once() -> None:
    trial = trial_of(Run("a"), Run("b", simulation=None), rounds_per_report=2, report_curves=True)
    reported = [trial.step()["curves"] for _ in range(2)]
    points = [(at, "accuracy", at / 10) for at in range(1, 5)]
    none = {"a_t": [], "b": [], "b_t": []}
    assert reported == [none | {"a": points[:2]}, none | {"a": points[2:]}]
    assert "curves" not in trial_of(Run("a"), rounds_per_report=1).step()


# Errors


@pytest.mark.parametrize(
    ("error", "status", "text", "ends"),
    [
        (Interrupted(), "interrupted", "", False),
        (UnusableState("damaged"), "environment", "damaged", False),
        (EnvironmentProblem("no data"), "interrupted", "", True),
        (ValueError("a mistake"), "failed", "a mistake", False),
    ],
)
def test_a_failed_round_leaves_the_other(
    error: Exception, status: str, text: str, ends: bool, engine: dict[Any, Exception]
) -> None:
    bad = Run("a")
    good = Run("b")
    trial = trial_of(bad, good, rounds_per_report=1)
    engine[bad.simulation] = error
    report = trial.step()
    assert (bad.status, bad.error) == (status, text)
    assert report["ends_sweep"] == ends
    assert good.round == 1
    assert "settle" in good.actions
    assert "settle" not in bad.actions
    assert report["error"] == ("no data" if ends else text)
    assert report["status"] == ("environment" if ends else report["status"])
    assert bad.actions.count("give") >= 1
    assert "give" not in good.actions


@pytest.mark.parametrize(
    ("storing", "status", "error", "problem"),
    [
        (OSError(errno.ENOSPC, "full"), "running", "", "no space left for out: free some, then"),
        (TypeError("odd"), "failed", "; its row cannot be stored: odd", ""),
    ],
)
def test_a_failure_that_cannot_be_stored(
    storing: Exception, status: str, error: str, problem: str
) -> None:
    run = Run("a", errors={"open": ValueError("x"), "fail": storing})
    trial = trial_of(run)
    assert run.status == status
    assert run.error.endswith(error)
    assert run.error.startswith("ValueError: x" if error else "")
    assert trial.problem.startswith(problem)
    assert bool(trial.problem) == bool(problem)


# The end


@pytest.mark.parametrize("stopping", [False, True])
def test_an_end_stops_or_saves(stopping: bool, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    behind, saved = Run("a", unsaved=True), Run("b")
    trial = trial_of(behind, saved, stop_file=str(stop))
    if stopping:
        stop.touch()
    trial.end()
    actions = (["open", "save"], ["open"]) if stopping else (["open", "stop"],) * 2
    assert (behind.actions, saved.actions) == actions
    trial.save()
    assert behind.actions[-1] == "save"
    assert saved.actions[-1] == "save"
    trial.close()
    assert behind.actions[-1] == saved.actions[-1] == "release"


def test_a_machine_not_ready_saves() -> None:
    run = Run("a", unsaved=True)
    trial = trial_of(run)
    trial.problem = "full"
    trial.end()
    assert run.actions == ["open", "save"]
    trial.save()
    assert run.actions == ["open", "save"], "nothing goes on"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (None, ""),
        (ValueError("x"), ""),
        (EnvironmentProblem("no data"), "no data"),
        (
            OSError(errno.ENOSPC, "full", "file"),
            "no space left for file: free some, then run the same command again",
        ),
        (
            OSError(errno.EDQUOT, "full"),
            "no space left for out: free some, then run the same command again",
        ),
        (
            OSError(errno.EIO, "broken"),
            "broken (out): fix this, then run the same command again",
        ),
        (
            PermissionError(errno.EACCES, "denied", "f"),
            "denied (f); ask for the right to it, or name another place",
        ),
        (OSError("odd"), "odd (out): fix this, then run the same command again"),
    ],
)
def test_a_lack_of_the_machine_has_a_next_step(error: BaseException | None, text: str) -> None:
    assert on_this_machine(error, "out") == text


def test_a_closed_trial_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    monkeypatch.setattr(trials, "prepare_process", done.append)
    monkeypatch.setattr(trials, "release_gpu", lambda: done.append("GPU"))
    run = Run("a")
    trial_of(run, threads=3).close()
    assert done == [3, "GPU"]
    assert [name for name in run.actions if name in ("open", "stop", "release")] == [
        "open",
        "stop",
        "release",
    ]
