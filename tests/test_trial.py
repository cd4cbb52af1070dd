"""A trial by itself: what it reports, and how it ends."""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from filelock import FileLock, Timeout

from algorithms import ALGORITHMS
from bench.engine.state import StateFolder
from bench.errors import Waiting
from bench.execution import Execution
from bench.executors import ray_executor
from bench.executors.events import Events
from bench.executors.ray_callback import Watcher
from bench.executors.trials import Outcome
from bench.planning.run_spec import RunSpec
from bench.provenance import of_command
from bench.trial.halving import objective
from bench.trial.run import record_failure
from bench.trial.trial import LOST, RunGroup
from leaderboards import Store
from search_spaces import SETTINGS

SETTING = replace(SETTINGS["fedkd", "digits"], rounds=3, local_epochs=1)


def unit(seed: int = 0, algorithm: str = "fedavg") -> RunSpec:
    return RunSpec(algorithm, ALGORITHMS[algorithm].defaults(), SETTING, seed)


@pytest.fixture
def execution(tmp_path: Path) -> Execution:
    return Execution(
        out=str(tmp_path), rounds_per_report=1, stop_file=str(tmp_path / "stop"), provenance=of_command([])
    )


def test_a_trial_that_begins_while_the_sweep_stops_touches_nothing(execution: Execution, tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    trial = RunGroup([unit()], execution)
    report = trial.step()
    trial.close()
    assert (report["status"], report["done"]) == ("interrupted", True)
    assert not Store(tmp_path).status()


def test_a_trial_closed_before_its_end_was_stopped(execution: Execution, tmp_path: Path) -> None:
    trial = RunGroup([unit()], execution)
    trial.step()
    trial.close()
    row = Store(tmp_path).runs().iloc[0]
    assert (row.status, row.communications) == ("stopped", 1)
    again = RunGroup([unit()], execution)
    assert again.runs[0].round == 1, "its state stays, for a command without the scheduler to go on from"
    again.step()
    assert again.step()["status"] == "finished"
    again.close()
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


def test_closing_a_trial_takes_no_claim_from_another(execution: Execution) -> None:
    first = RunGroup([unit()], execution)
    while not first.step()["done"]:
        pass
    second = RunGroup([unit()], replace(execution, force=True))
    first.close()
    assert free(second) == [False]
    second.close()


def test_what_another_holds_is_waited_for_aloud(execution: Execution, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.trial.run.SILENT_SECONDS", 0.0)
    monkeypatch.setattr("bench.trial.run.WAIT_SECONDS", 0.01)
    holder = RunGroup([unit()], execution)
    ending = threading.Timer(0.2, holder.close)
    ending.start()
    with pytest.warns(Waiting, match="fedavg seed 0 is at work elsewhere") as said:
        after = RunGroup([unit()], execution)
    ending.join()
    assert len(said) == 1, "once"
    assert free(after) == [False]
    after.close()


def test_a_stop_between_a_round_and_its_report_loses_no_round(execution: Execution, tmp_path: Path) -> None:
    trial = RunGroup([unit(0), unit(1)], execution)
    trial.step()
    (tmp_path / "stop").touch()
    assert trial.report()["status"] == "interrupted"
    trial.close()
    (tmp_path / "stop").unlink()
    again = RunGroup([unit(0), unit(1)], execution)
    assert [run.round for run in again.runs] == [1, 1]
    again.close()


def test_a_seed_whose_state_is_unusable_is_left_out_of_no_mean(execution: Execution, tmp_path: Path) -> None:
    state = tmp_path / "state" / unit(1).key
    state.mkdir(parents=True)
    (state / "manifest.json").write_text("junk")
    trial = RunGroup([unit(0), unit(1)], execution)
    report = trial.step()
    assert (report["status"], report["objective"], report["unusable"], report["ends_sweep"]) == (
        "running",
        LOST,
        1,
        False,
    )
    assert objective(trial.runs) == -math.inf
    watcher, outcome = watcher_of(execution)
    ended: Any = SimpleNamespace(trial_id="a", config={"index": 0}, last_result=report)
    watcher.on_trial_complete(0, [], ended)
    assert outcome.exit_status == 3, "ASHA may end it before its other seeds are done"
    while not (report := trial.step())["done"]:
        pass
    assert report["status"] == "environment"
    trial.close()


def watcher_of(execution: Execution) -> tuple[Watcher, Outcome]:
    """Who watches a trial of two seeds under Ray, and what it counts."""
    outcome = Outcome()
    return Watcher(ray_executor.listed([[unit(0), unit(1)]], [execution]), execution, Events(), outcome), outcome


def test_a_machine_that_is_not_ready_for_one_run_leaves_the_rounds_of_the_others(
    execution: Execution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = RunGroup([unit(0), unit(1)], execution)

    def denied() -> None:
        raise PermissionError(13, "Permission denied", "/nowhere")

    monkeypatch.setattr(trial.runs[0], "save_or_finish", denied)
    report = trial.step()
    assert (report["status"], report["error"][:17]) == ("environment", "Permission denied")
    trial.close()
    assert [run.round for run in RunGroup([unit(0), unit(1)], execution).runs] == [1, 1]


def test_a_state_that_cannot_be_saved_is_no_failed_run(execution: Execution, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = RunGroup([unit()], execution)
    trial.step()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(StateFolder, "save", full)
    trial.save()
    assert (trial.report()["status"], "no space left" in trial.problem) == ("environment", True)
    trial.close()
    assert not Store(Path(execution.out)).status()


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
    while not first.step()["done"]:
        pass
    first.close()
    thread.join(timeout=30)
    assert reports[0]["status"] == "finished"
    assert reports[0]["objective"] > 0, "the stored value is told to whoever proposed the run again"
    assert len(Store(tmp_path).runs(replicates=True)) == 1


def test_one_seed_that_fails_leaves_the_others(execution: Execution, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = RunGroup([unit(0), unit(1)], execution)

    def broken() -> None:
        raise ArithmeticError("seed 0 is unlucky")

    monkeypatch.setattr(trial.runs[0], "save_or_finish", broken)
    trial.step()
    assert free(trial) == [True, False]
    while not (report := trial.step())["done"]:
        pass
    trial.close()
    assert report["status"] == "failed"
    assert report["objective"] == LOST < 0, "a number: ASHA lets go of what is worse, and a NaN is not"
    assert "unlucky" in report["error"]
    statuses = Store(Path(execution.out)).runs().set_index("seed").status.to_dict()
    assert statuses == {0: "failed", 1: "finished"}


def test_a_dead_worker_takes_nothing_from_what_asha_had_stopped(execution: Execution, tmp_path: Path) -> None:
    compared = replace(execution, keep_stopped=True)
    trial = RunGroup([unit(0), unit(1), unit(2)], compared)
    trial.step()
    trial.runs[0].stop()
    curve = Store(tmp_path).curves()
    for one in (unit(0), unit(1)):
        record_failure(one, compared, "the worker died: killed")
    rows = Store(tmp_path).runs().set_index("seed")
    assert rows.status.to_dict() == {0: "stopped", 1: "failed"}
    assert len(curve)
    assert Store(tmp_path).curves().equals(curve)
    trial.close()
    record_failure(unit(0), execution, "killed where it was to go on")
    assert Store(tmp_path).status()[unit(0).key] == "failed"


def test_the_rows_of_a_run_whose_process_is_gone_ask_nothing_of_a_gpu(
    execution: Execution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep's own process may have none; where it has one, it is to stay the workers'."""

    def touched(*_: Any) -> None:
        raise RuntimeError("Found no NVIDIA driver on your system")

    for name in ("_lazy_init", "get_device_name", "max_memory_reserved", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, touched)
    record_failure(unit(), replace(execution, device="cuda"), "the worker died: killed")
    row = Store(tmp_path).runs().iloc[0]
    assert (row.status, row.error, row.device) == ("failed", "RuntimeError: the worker died: killed", "cuda")
    assert row.isna()["peak_memory_bytes"], "that of the process that is gone is not known"
