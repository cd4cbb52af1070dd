"""One run: how it is claimed, saved and stored, and what its rows say of its execution."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

from algorithms import ALGORITHMS, entry
from bench.engine.counters import Progress
from bench.errors import Waiting
from bench.execution import Execution
from bench.planning.run_spec import RunSpec
from bench.provenance import command_columns
from bench.trial import run as runs
from bench.trial.results import failed_rows, guesses, rows_of
from bench.trial.run import Run, record_failure
from bench.trial.trial import claim
from leaderboards import SCHEMA_VERSION, Store
from search_spaces import SETTINGS, Setting

SETTING = replace(SETTINGS["fedkd", "digits"], rounds=2, local_epochs=1)


def spec(seed: int = 0, algorithm: str = "fedavg", **fields: Any) -> RunSpec:
    values = ALGORITHMS[algorithm].defaults()
    return RunSpec(algorithm, values, replace(SETTING, **fields), seed)


@pytest.fixture
def execution(tmp_path: Path) -> Execution:
    files = {"out": str(tmp_path), "stop_file": str(tmp_path / "stop")}
    return Execution(**files, provenance=command_columns("test"), save_seconds=1000)


def advanced(run: Run, rounds: int = 1) -> Run:
    """Open a run and train some rounds."""
    run.open()
    for _ in range(rounds):
        run.simulation.advance(1)
    return run


def manifests(out: str) -> list[Path]:
    return list(Path(out).glob("state/*/manifest.json"))


def test_a_run_ends_with_its_row(execution: Execution) -> None:
    before = datetime.now(UTC)
    run = advanced(Run(spec(), execution))
    run.save_or_finish()
    assert (run.status, run.unsaved, manifests(execution.out)) == ("running", True, [])
    run.save()
    assert not run.unsaved
    assert len(manifests(execution.out)) == 1
    run.simulation.advance(1)
    assert run.unsaved
    run.save_or_finish()
    assert (run.status, manifests(execution.out)) == ("finished", [])
    samples = run.simulation.progress.samples
    run.release()
    assert run.simulation is None
    (row,) = Store(Path(execution.out)).runs().to_dict("records")
    assert (row["status"], row["backend"], row["pack"]) == ("finished", "loop", 1)
    assert (row["threads"], row["device"], row["certified"]) == (1, "cpu", True)
    assert row["samples_per_second"] == pytest.approx(samples / row["seconds"])
    assert before <= row["started"] <= row["finished"] <= datetime.now(UTC)
    assert 2**25 < row["peak_memory_bytes"] < 2**36
    assert len(row["partition_hash"]) == len(row["dataset_hash"]) == 64


@pytest.mark.parametrize(("seconds", "saved"), [(0.0, 1), (1000.0, 0)])
def test_a_state_is_saved_when_due(seconds: float, saved: int, execution: Execution) -> None:
    run = advanced(Run(spec(), replace(execution, save_seconds=seconds)))
    run.save_or_finish()
    assert len(manifests(execution.out)) == saved
    run.release()


def test_a_stopping_sweep_saves(execution: Execution) -> None:
    run = advanced(Run(spec(), execution))
    Path(str(execution.stop_file)).touch()
    run.save_or_finish()
    assert (run.status, len(manifests(execution.out))) == ("interrupted", 1)
    run.save()
    run.stop()
    assert run.status == "interrupted"
    run.release()


def test_a_run_without_rounds_is_not_stopped(execution: Execution) -> None:
    run = Run(spec(), execution)
    run.open()
    run.stop()
    assert run.status == "running"
    assert Store(Path(execution.out)).status() == {}
    run.save()
    assert len(manifests(execution.out)) == 1, "its first weights"
    run.release()


def test_a_stored_run_has_its_curve(execution: Execution) -> None:
    first = advanced(Run(spec(), execution), 2)
    first.save_or_finish()
    live = {name: first.number(name) for name in ("final_accuracy", "best_val_accuracy")}
    points = sorted(first.curve)
    first.release()
    again = Run(spec(), execution)
    again.open()
    assert (again.status, again.round, again.unsaved) == ("finished", 2, False)
    assert {name: again.number(name) for name in live} == live
    assert sorted(again.curve) == points
    assert math.isnan(again.number("local_accuracy_mean"))
    assert again.backend == "loop"
    again.release()
    forced = Run(spec(), replace(execution, force=True))
    forced.open()
    assert (forced.status, forced.round) == ("running", 0)
    forced.release()


@pytest.mark.parametrize("force", [False, True])
def test_rows_state_that_they_were_forced(force: bool, execution: Execution) -> None:
    run = advanced(Run(spec(), replace(execution, force=force)), 2)
    run.save_or_finish()
    run.release()
    (path,) = Path(execution.out).glob("runs/*.parquet")
    assert pq.read_table(path)["forced"].to_pylist() == [force]


def test_force_begins_anew(execution: Execution) -> None:
    run = advanced(Run(spec(), execution))
    run.save()
    run.release()
    again = Run(spec(), execution)
    again.open()
    assert (again.round, again.unsaved) == (1, False)
    again.release()
    forced = Run(spec(), replace(execution, force=True))
    forced.open()
    assert (forced.round, manifests(execution.out)) == (0, [])
    forced.release()


def test_numbers_follow_the_curve(execution: Execution) -> None:
    run = Run(spec(), execution)
    points = [(1, "accuracy", 0.5), (2, "accuracy", 0.25), (3, "accuracy", 0.75)]
    for count, best, final in ((1, 0.5, 0.5), (2, 0.5, 0.25), (3, 0.75, 0.75)):
        run._recalled = points[:count]
        assert (run.number("best_accuracy"), run.number("final_accuracy")) == (best, final)
        assert run.round == count
    assert math.isnan(run.number("best_val_accuracy"))
    assert Run(spec(), execution).round == 0


@pytest.mark.parametrize(
    ("fields", "options", "number"),
    [
        ({}, {}, "mean_last10_val_accuracy"),
        ({}, {"chosen_by": "best"}, "best_val_accuracy"),
        (
            {"local_test_fraction": 0.2, "local_validation_fraction": 0.1},
            {},
            "mean_last10_client_val_accuracy",
        ),
        (
            {"local_test_fraction": 0.2, "local_validation_fraction": 0.1},
            {"select_on": "global"},
            "mean_last10_val_accuracy",
        ),
    ],
)
def test_a_number_selects(
    fields: dict[str, Any], options: dict[str, Any], number: str, execution: Execution
) -> None:
    assert Run(spec(**fields), replace(execution, **options)).selecting_number == number


# Claims


def test_a_claimed_run_is_waited_for(execution: Execution, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning tells so once; a stopping sweep waits no longer."""
    monkeypatch.setattr(runs, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(runs, "SILENT_SECONDS", 0.03)
    run = Run(spec(), execution)
    other = FileLock(f"{run.folder.path}.lock")
    Path(execution.out, "state").mkdir()
    other.acquire()
    waited: list[float] = []
    stop = Path(str(execution.stop_file))
    acquire = run._lock.acquire

    def count(**options: Any) -> Any:
        waited.append(time.monotonic())
        if len(waited) == 20:
            stop.touch()
        return acquire(**options)

    monkeypatch.setattr(run._lock, "acquire", count)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run.open()
    assert run.status == "interrupted"
    (warning,) = caught
    assert (warning.category, warning.filename) == (Waiting, runs.__file__)
    said = f"{run.run_spec.label} is already running in another sweep or trial on {execution.out}"
    assert str(warning.message) == f"{said}: waiting until it is done there"
    assert len(waited) == 20
    other.release()


def test_trials_claim_all_runs_or_none(execution: Execution) -> None:
    both = claim([spec(0), spec(1)], execution)
    assert [run.run_spec.seed for run in both] == [0, 1]
    assert claim([spec(1), spec(2)], execution) == []
    third = Run(spec(2), execution)
    assert third.claim(), "it was given back"
    for run in (*both, third):
        run.give_claim()
    assert Run(spec(0), execution).claim()


def test_a_finished_run_leaves_no_lock(execution: Execution) -> None:
    for status, left in (("running", 1), ("finished", 0)):
        run = Run(spec(), execution)
        assert run.claim()
        run.status = status
        run.give_claim()
        run.give_claim()
        assert len(list(Path(execution.out).glob("state/*.lock"))) == left


def test_a_folder_that_cannot_be_made_is_free(execution: Execution, tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    assert Run(spec(), execution).claim()


# Failures


def test_a_dead_workers_runs_failed(execution: Execution) -> None:
    record_failure(spec(), execution, "it died", together=3)
    (row,) = Store(Path(execution.out)).runs().to_dict("records")
    facts = (row["status"], row["error"], row["pack"], row["backend"])
    assert facts == ("failed", "RuntimeError: it died", 1, "loop")
    assert row["peak_memory_bytes"] is None or np.isnan(row["peak_memory_bytes"])
    record_failure(spec(1), replace(execution, backend="stacked"), "it died", together=3)
    rows = Store(Path(execution.out)).runs().set_index("seed")
    assert (rows.pack[1], rows.backend[1]) == (3, "stacked")


def test_a_stored_run_did_not_fail(execution: Execution) -> None:
    run = advanced(Run(spec(), execution), 2)
    run.save_or_finish()
    run.release()
    record_failure(spec(), execution, "it died", together=1)
    assert list(Store(Path(execution.out)).status().values()) == ["finished"]


def test_a_failure_has_its_traceback(execution: Execution) -> None:
    run = Run(spec(), execution)

    def broken() -> None:
        raise ValueError("a mistake")

    try:
        broken()
    except ValueError as error:
        run.fail(error)
    assert run.error.startswith("ValueError: a mistake (test_run_ends.py:")
    assert run.traceback.startswith("Traceback (most recent call last):\n")
    assert "in broken" in run.traceback
    (row,) = Store(Path(execution.out)).runs().to_dict("records")
    assert (row["error"], row["diverged"]) == (run.error, False)


# Rows


def test_failed_rows_have_no_results() -> None:
    rows = failed_rows(spec(algorithm="fedavg_t1"), "no", {"status": "failed"})
    assert [row["algorithm"] for row in rows] == ["fedavg", "fedavg_t1"]
    for row in rows:
        assert (row["error"], row["diverged"], row["personal"]) == ("no", False, None)
        assert (row["status"], row["schema_version"]) == ("failed", SCHEMA_VERSION)
        assert (row["selected_on"], row["shortened"]) == ("validation", False)


@pytest.mark.parametrize(
    ("accuracy", "short", "full"),
    [(0.109, False, True), (0.1091, False, False), (0.091, False, True), (0.0909, True, True)],
)
def test_three_standard_errors_are_guesses(accuracy: float, short: bool, full: bool) -> None:
    """Of 10,000 samples, of which a tenth is of each class: 0.003 each."""
    assert guesses(accuracy, 0.1, 10_000, shortened=True) == short
    assert guesses(accuracy, 0.1, 10_000, shortened=False) == full


def diverged(
    algorithm: str, personal: tuple[str, ...] = (), complaint: str = "", **fields: Any
) -> tuple[bool, str | None]:
    """What the row of a run says that ends by guessing."""
    progress = Progress(complaint=complaint)
    progress.curves[""] = [(1, "accuracy", 0.1), (1, "loss", 2.3)]
    run = spec(algorithm=algorithm, **({"rounds": Setting.rounds} | fields))
    for suffix in run.rows:
        progress.curves.setdefault(suffix, progress.curves[""])
    ((row, curve), *_) = rows_of(
        run, progress, {}, personal=personal, chance=0.1, test_samples=10_000
    )
    assert curve == progress.curves[""]
    assert row["personal"] == ("" in personal)
    return row["diverged"], row["error"]


OWN = {"local_test_fraction": 0.2, "local_validation_fraction": 0.1}


def test_guessing_is_divergence_of_some() -> None:
    assert diverged("fedavg") == (True, None)
    assert diverged("fedavg", rounds=Setting.rounds - 1) == (False, None)
    assert diverged("fedbn", ("",)) == (True, None)
    assert diverged("fedbn", ("",), **OWN) == (False, None), "it is for the client itself"
    assert diverged("fedavg", **OWN) == (True, None)
    assert entry("local").reference
    assert diverged("local") == (False, None)
    assert diverged("fedavg", complaint="round 1") == (True, "round 1")
    assert diverged("local", complaint="round 1") == (False, "round 1")
