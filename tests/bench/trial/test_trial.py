"""A trial by itself: what it reports, and how it ends."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from commands import finish
from filelock import FileLock, Timeout

from algorithms import ALGORITHMS
from bench.engine.counters import Progress
from bench.errors import EXIT_ENVIRONMENT
from bench.execution import Execution
from bench.planning.run_spec import RunSpec
from bench.provenance import command_columns
from bench.terminal.console import exit_status
from bench.trial.results import guesses, rows_of
from bench.trial.trial import LOST, Trial
from leaderboards import Store
from search_spaces import SETTINGS, Setting

COUNTERS = ("communications", "bytes_down", "bytes_up", "train_steps")
SETTING = replace(SETTINGS["fedkd", "digits"], rounds=3, local_epochs=1)


def run_spec(seed: int = 0, algorithm: str = "fedavg") -> RunSpec:
    return RunSpec(algorithm, ALGORITHMS[algorithm].defaults(), SETTING, seed)


@pytest.fixture
def execution(tmp_path: Path) -> Execution:
    return Execution(
        out=str(tmp_path),
        rounds_per_report=1,
        stop_file=str(tmp_path / "stop"),
        provenance=command_columns("test"),
    )


def test_a_trial_closed_before_its_end_was_stopped(execution: Execution, tmp_path: Path) -> None:
    trial = Trial([run_spec()], execution)
    trial.step()
    trial.close()
    row = Store(tmp_path).runs().iloc[0]
    assert (row.status, row.communications) == ("stopped", 1)
    again = Trial([run_spec()], execution)
    assert again.runs[0].round == 1, (
        "its state stays, for a command without the scheduler to go on from"
    )
    assert finish(again)["status"] == "finished"
    assert Store(tmp_path).runs().iloc[0].status == "finished"


def test_a_run_may_end_while_the_sweep_stops(execution: Execution, tmp_path: Path) -> None:
    finished = Trial([run_spec()], execution)
    assert finish(finished)["status"] == "finished"
    unfinished = Trial([run_spec(1)], execution)
    unfinished.step()
    (tmp_path / "stop").touch()
    assert finished.report()["status"] == "finished"
    assert unfinished.report()["status"] == "interrupted"
    assert [trial.report()["done"] for trial in (finished, unfinished)] == [True, True]
    unfinished.close()


def free(trial: Trial) -> list[bool]:
    """Of each run, in the order of the trial's, whether another trial could claim it now."""
    found = []
    for run in trial.runs:
        lock = FileLock(f"{run.folder.path}.lock")
        with suppress(Timeout):
            lock.acquire(timeout=0)
        found.append(lock.is_locked)
        lock.release()
    return found


def test_a_run_that_is_over_can_be_claimed_while_its_trial_is_kept(execution: Execution) -> None:
    """A sampler may propose again what another worker has ended, which keeps that trial until it is given a new one."""
    trial = Trial([run_spec(0), run_spec(1)], execution)
    assert free(trial) == [False, False]
    while not trial.step()["done"]:
        assert free(trial) == [False, False]
    assert free(trial) == [True, True]
    again = Trial([run_spec(0), run_spec(1), run_spec(2)], execution)
    assert free(again) == [True, True, False], "two were stored"
    again.step()
    again.end()
    assert [run.status for run in again.runs] == ["finished", "finished", "stopped"]
    assert free(again) == [True] * 3
    again.close()
    trial.close()


def test_a_run_under_way_elsewhere_is_waited_for_and_not_run_twice(
    execution: Execution, tmp_path: Path
) -> None:
    first = Trial([run_spec()], execution)
    first.step()
    reports = []

    def second() -> None:
        trial = Trial([run_spec()], execution)
        reports.append(trial.report())
        trial.close()

    thread = threading.Thread(target=second)
    thread.start()
    finish(first)
    thread.join(timeout=30)
    assert reports[0]["status"] == "finished"
    assert reports[0]["objective"] > 0, "the stored value is told to whoever proposed the run again"
    assert len(Store(tmp_path).runs(replicates=True)) == 1


def test_a_stored_seed_does_not_make_a_scheduler_think_that_the_others_are_done(
    execution: Execution,
) -> None:
    finish(Trial([run_spec(0)], execution))
    trial = Trial([run_spec(0), run_spec(1)], execution)
    assert [trial.step()["round"] for _ in range(SETTING.rounds)] == [1, 2, 3]
    trial.close()


def test_guessing_the_largest_class_is_guessing() -> None:
    assert guesses(0.10 + 0.009, 0.1, 10_000, shortened=False)
    assert not guesses(0.10 + 0.01, 0.1, 10_000, shortened=False)
    assert guesses(0.196, 0.196, 26_032, shortened=False), "SVHN, of which a fifth are ones"


def test_a_shortened_run_that_ends_below_guessing_has_diverged() -> None:
    assert guesses(0.0888, 0.1, 10_000, shortened=True)
    assert not guesses(0.0911, 0.1, 10_000, shortened=True), "it may have hardly begun"
    assert guesses(0.0911, 0.1, 10_000, shortened=False)


@pytest.mark.parametrize("rounds", [SETTING.rounds, Setting.rounds])
@pytest.mark.parametrize(
    ("last", "short", "full"), [(0.4, False, False), (0.1, False, True), (0.05, True, True)]
)
def test_shortened_runs_may_end_guessing(rounds: int, last: float, short: bool, full: bool) -> None:
    curve = [
        (at, name, value)
        for at, accuracy in enumerate((0.3, last), start=1)
        for name, value in {"accuracy": accuracy, **dict.fromkeys(COUNTERS, 1.0)}.items()
    ]
    run = replace(run_spec(), setting=replace(SETTING, rounds=rounds))
    ((row, _),) = rows_of(
        run, Progress({"": curve}), {}, personal=(), chance=0.1, test_samples=10_000
    )
    assert row["diverged"] is (full if rounds == Setting.rounds else short)


def test_one_loss_not_finite_lowers_the_objective(execution: Execution, tmp_path: Path) -> None:
    """Live, and told again to whoever proposes the stored run."""
    wild = replace(run_spec(0), setting=replace(SETTING, lr=1e9))
    first = finish(Trial([wild], execution))
    assert -1 <= first["objective"] < 0
    assert Trial([wild], execution).report()["objective"] == first["objective"]
    stored = Store(tmp_path).runs()
    assert stored["diverged"].all()
    assert first["objective"] == stored["best_val_accuracy"].iloc[0] - 1


def test_a_run_under_way_has_not_diverged(execution: Execution) -> None:
    trial = Trial([run_spec()], execution)
    assert 0 < trial.step()["objective"] <= 1
    trial.close()


def test_one_seed_that_fails_leaves_the_others(
    execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial([run_spec(0), run_spec(1)], execution)

    def broken() -> None:
        raise ArithmeticError("seed 0 is unlucky")

    monkeypatch.setattr(trial.runs[0], "save_or_finish", broken)
    trial.step()
    assert free(trial) == [True, False]
    report = finish(trial)
    assert report["status"] == "failed"
    assert report["objective"] == LOST < 0, (
        "a number: ASHA lets go of what is worse, and a NaN is not"
    )
    assert "unlucky" in report["error"]
    runs = Store(Path(execution.out)).runs().set_index("seed")
    assert runs.status.to_dict() == {0: "failed", 1: "finished"}
    assert "unlucky" in runs.error[0]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_disk_without_locks_is_named(
    number: int, execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    report = Trial([run_spec()], execution).report()
    assert (report["status"], report["ends_sweep"]) == ("environment", True)
    assert "--mirror" in report["error"]


def test_want_of_memory_ends_a_command_with_3() -> None:
    def fill() -> int:
        raise MemoryError

    assert exit_status(fill) == EXIT_ENVIRONMENT
