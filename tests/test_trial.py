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
from bench.errors import EXIT_ENVIRONMENT
from bench.execution import Execution, command_columns
from bench.planning.run_spec import RunSpec
from bench.terminal.console import exit_status
from bench.trial.results import at_chance
from bench.trial.trial import LOST, RunGroup
from leaderboards import Store
from search_spaces import SETTINGS

SETTING = replace(SETTINGS["fedkd", "digits"], rounds=3, local_epochs=1)


def unit(seed: int = 0, algorithm: str = "fedavg") -> RunSpec:
    return RunSpec(algorithm, ALGORITHMS[algorithm].defaults(), SETTING, seed)


@pytest.fixture
def execution(tmp_path: Path) -> Execution:
    return Execution(
        out=str(tmp_path), rounds_per_report=1, stop_file=str(tmp_path / "stop"), provenance=command_columns([])
    )


def test_a_trial_closed_before_its_end_was_stopped(execution: Execution, tmp_path: Path) -> None:
    trial = RunGroup([unit()], execution)
    trial.step()
    trial.close()
    row = Store(tmp_path).runs().iloc[0]
    assert (row.status, row.communications) == ("stopped", 1)
    again = RunGroup([unit()], execution)
    assert again.runs[0].round == 1, "its state stays, for a command without the scheduler to go on from"
    assert finish(again)["status"] == "finished"
    assert Store(tmp_path).runs().iloc[0].status == "finished"


def free(trial: RunGroup) -> list[bool]:
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
    trial = RunGroup([unit(0), unit(1)], execution)
    assert free(trial) == [False, False]
    while not trial.step()["done"]:
        assert free(trial) == [False, False]
    assert free(trial) == [True, True]
    again = RunGroup([unit(0), unit(1), unit(2)], execution)
    assert free(again) == [True, True, False], "two were stored"
    again.step()
    again.end()
    assert [run.status for run in again.runs] == ["finished", "finished", "stopped"]
    assert free(again) == [True] * 3
    again.close()
    trial.close()


def test_a_run_under_way_elsewhere_is_waited_for_and_not_run_twice(execution: Execution, tmp_path: Path) -> None:
    first = RunGroup([unit()], execution)
    first.step()
    reports = []

    def second() -> None:
        trial = RunGroup([unit()], execution)
        reports.append(trial.report())
        trial.close()

    thread = threading.Thread(target=second)
    thread.start()
    finish(first)
    thread.join(timeout=30)
    assert reports[0]["status"] == "finished"
    assert reports[0]["objective"] > 0, "the stored value is told to whoever proposed the run again"
    assert len(Store(tmp_path).runs(replicates=True)) == 1


def test_a_stored_seed_does_not_make_a_scheduler_think_that_the_others_are_done(execution: Execution) -> None:
    finish(RunGroup([unit(0)], execution))
    trial = RunGroup([unit(0), unit(1)], execution)
    assert [trial.step()["round"] for _ in range(SETTING.rounds)] == [1, 2, 3]
    trial.close()


def test_guessing_the_largest_class_is_guessing() -> None:
    assert at_chance(0.10 + 0.009, 0.1, 10_000)
    assert not at_chance(0.10 + 0.01, 0.1, 10_000)
    assert at_chance(0.196, 0.196, 26_032), "SVHN, of which a fifth are ones"


def test_one_seed_that_fails_leaves_the_others(execution: Execution, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = RunGroup([unit(0), unit(1)], execution)

    def broken() -> None:
        raise ArithmeticError("seed 0 is unlucky")

    monkeypatch.setattr(trial.runs[0], "save_or_finish", broken)
    trial.step()
    assert free(trial) == [True, False]
    report = finish(trial)
    assert report["status"] == "failed"
    assert report["objective"] == LOST < 0, "a number: ASHA lets go of what is worse, and a NaN is not"
    assert "unlucky" in report["error"]
    runs = Store(Path(execution.out)).runs().set_index("seed")
    assert runs.status.to_dict() == {0: "failed", 1: "finished"}
    assert "unlucky" in runs.error[0]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_disk_without_locks_is_named(number: int, execution: Execution, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    report = RunGroup([unit()], execution).report()
    assert (report["status"], report["ends_sweep"]) == ("environment", True)
    assert "--mirror" in report["error"]


def test_want_of_memory_ends_a_command_with_3() -> None:
    def fill() -> int:
        raise MemoryError

    assert exit_status(fill) == EXIT_ENVIRONMENT
