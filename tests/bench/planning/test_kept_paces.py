"""Paces of this machine: which are measured again, in which process, and where they are kept."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_estimates import STILL, TESTS, run_spec

from bench.planning import cost_model
from bench.planning.configurations import learning_rates
from bench.planning.cost_model import Pace, Time, estimated_time, evaluated_samples, measured_paces
from bench.planning.packing import program_of
from bench.planning.run_spec import RunSpec
from bench.planning.two_stage import rates_around
from search_spaces import Setting

FEDAVG = run_spec("fedavg")
FEDPROX = run_spec("fedprox")
PACE = Pace(1.0, 2.0, 3.0, 4.0, 5.0)
NAN = math.nan


@pytest.mark.parametrize(
    ("time", "known", "estimated", "middle"),
    [
        (Time(1, 4), True, True, 2),
        (Time(3, 3), True, False, 3),
        (Time(NAN, NAN), False, False, NAN),
    ],
)
def test_a_range_of_time_tells_its_origin(
    time: Time, known: bool, estimated: bool, middle: float
) -> None:
    assert (time.known, time.estimated) == (known, estimated)
    assert time.middle == pytest.approx(middle, nan_ok=True)


# What else a run does


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ({}, 1000, 10_000),
        ({"patience": 99_999}, 10_000, 10_000),
        ({"max_steps": 500}, 500, 500),
        ({"max_steps": 0}, 0, 0),
    ],
)
def test_a_server_that_may_stop_early(values: dict[str, int], low: int, high: int) -> None:
    """FedDF's takes `patience` to `max_steps` steps in each of 20 rounds."""
    run = run_spec("feddf", auxiliary_per_class=10, validation_fraction=0.1)
    run = replace(run, hyperparameters={**run.hyperparameters, **values})
    time = estimated_time(run, replace(STILL, server_step=1))
    assert (time.low, time.high) == pytest.approx((20 * low / 1.5, 20 * high * 1.5))


@pytest.mark.parametrize(("algorithm", "rows"), [("fedavg", 1), ("fedavg_t1", 2)])
@pytest.mark.parametrize(("batch_size", "filled"), [(8, 1.0), (1438, 0.1)])
def test_further_steps_take_time(algorithm: str, rows: int, batch_size: int, filled: float) -> None:
    """At 7 evaluations: 3 steps of 10 clients, and each model on the tests."""
    pace = replace(STILL, client=1, step=1, sample=1e-5)
    full = 3 * 1e-5 * batch_size
    plain, further = (
        estimated_time(run_spec(algorithm, batch_size=batch_size, finetune_steps=steps), pace)
        for steps in (0, 3)
    )
    step = 1 - full + filled * full
    seconds = 7 * 10 * rows * (1 + 3 * step + 1e-5 * TESTS)
    assert further.middle - plain.middle == pytest.approx(seconds)


def test_small_clients_have_one_batch() -> None:
    for rule in ("epochs", "whole_epochs"):
        run = run_spec("fedavg", batch_size=1000, step_rule=rule)
        time = estimated_time(run, replace(STILL, batch=1))
        assert time.middle == pytest.approx(20 * 5 * 1)


@pytest.mark.parametrize(
    ("algorithm", "fields", "models"),
    [
        ("fedavg", {}, 7),
        ("fedavg", {"evaluate_personal": "last"}, 7),
        ("fedbn", {"participation": 1.0}, 7 * 10),
        ("fedbn", {"participation": 1.0, "evaluate_personal": "last"}, 10),
        ("fedbn", {"participation": 1.0, "partition": "by_source"}, 7),
        ("fd", {"participation": 1.0, "client_models": "mlp/cnn_digits"}, 7 * 10),
    ],
)
def test_models_on_the_test_set(algorithm: str, fields: dict[str, Any], models: int) -> None:
    run = run_spec(algorithm, **fields)
    assert evaluated_samples(run) == pytest.approx(models * TESTS)


# Keeping


class Machine:
    """Measurements that end as told, each with the runs that were asked for."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[list[str]] = []
        self.results: list[Any] = []
        self.set = lambda seconds: monkeypatch.setenv(cost_model.LIMIT, str(seconds))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setattr(cost_model, "_measured", self.measure)

    def measure(self, run_specs: Sequence[RunSpec], threads: int, limit: float) -> list[Any]:
        """End as told."""
        self.asked.append([run.algorithm for run in run_specs])
        return [self.results.pop(0) for _ in run_specs]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


BOTH = [FEDAVG, FEDPROX, replace(FEDAVG, seed=3)]


def test_a_pace_is_measured_once(
    machine: Machine, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    machine.set(20)
    machine.results = [PACE, None]
    found = measured_paces(BOTH, 1)
    assert found == {program_of(FEDAVG): PACE}
    said = "note: measuring this machine for 2 kinds of runs, once, in at most 20 s\n"
    assert capsys.readouterr().err == said
    (file,) = (tmp_path / "cache").rglob("*.json")
    assert json.loads(file.read_bytes()) == asdict(PACE)
    assert file.parent.name == "paces"
    assert len(file.stem) == 16
    machine.results = [PACE]
    assert len(measured_paces(BOTH, 1)) == 2, "what failed is tried again"
    assert machine.asked == [["fedavg", "fedprox"], ["fedprox"]]
    assert "1 kind of runs, once" in capsys.readouterr().err
    assert len(measured_paces(BOTH, 1)) == 2
    assert capsys.readouterr().err == ""


def test_a_pace_is_of_threads_and_models(machine: Machine) -> None:
    machine.set(20)
    unlike = run_spec("fd", client_models="mlp/cnn_digits")
    files = {
        cost_model._pace_file(run, threads)
        for run in (FEDAVG, FEDPROX, unlike, run_spec("fedavg", model="cnn_digits"))
        for threads in (1, 2)
    }
    assert len(files) == 8
    assert cost_model._pace_file(replace(FEDAVG, seed=3), 1) in files


def test_twice_the_time_tries_again(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    """What ten seconds each did not suffice for."""
    unmeasured = "note: 2 kinds of runs not measured; FEDKD_MEASURE_SECONDS gives more than {} s\n"
    machine.set(20)
    machine.results = [10.0, 10.0]
    assert measured_paces(BOTH, 1) == {}
    for seconds, tried in ((20, 1), (39, 1), (0, 1), (40, 2)):
        machine.set(seconds)
        machine.results = [20.0, 20.0]
        capsys.readouterr()
        assert measured_paces(BOTH, 1) == {}
        assert len(machine.asked) == tried
        said = capsys.readouterr().err
        assert said == (unmeasured.format(seconds) if seconds in (20, 39) else said)
        assert bool(said) == (seconds > 0)
    machine.results = [PACE]
    assert measured_paces([FEDAVG], 1) == {program_of(FEDAVG): PACE}, "alone it gets all"


def test_damaged_paces_are_none(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    assert cost_model._load(file) == 0.0
    for text in ("[]", "{", '{"client": 1}', '"seconds_too_short"', "7"):
        file.write_text(text)
        assert cost_model._load(file) == 0.0
    file.write_text('{"seconds_too_short": 3}')
    assert cost_model._load(file) == 3.0
    cost_model._store(file / "below" / "b.json", {})
    assert file.is_file()


# Measuring


def line(**values: float) -> bytes:
    return json.dumps(values).encode() + b"\n"


MEASURED = line(**asdict(PACE))


@pytest.mark.parametrize(
    ("output", "in_time", "results", "said"),
    [
        (MEASURED + line(error=1) + MEASURED, True, [PACE, None, PACE], ""),
        (MEASURED + b'{"cut": ', True, [PACE, None, None], "2 kinds"),
        (MEASURED + b'{"cut": ', False, [PACE, 7.0, 7.0], "2 kinds"),
        (None, False, [7.0, 7.0, 7.0], "3 kinds"),
    ],
)
def test_a_process_measures(
    output: bytes | None,
    in_time: bool,
    results: list[Any],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    calls: list[tuple[Any, dict[str, Any]]] = []

    def run(command: Sequence[str], **options: Any) -> Any:
        calls.append((command, options))
        if not in_time:
            raise subprocess.TimeoutExpired(command, options["timeout"], output)
        return SimpleNamespace(stdout=output)

    monkeypatch.setattr(cost_model.subprocess, "run", run)
    monkeypatch.setattr(sys, "path", ["", "/a"])
    assert cost_model._measured(BOTH, 3, 21.0) == results
    end = " of runs not measured; FEDKD_MEASURE_SECONDS gives more than 21 s\n"
    assert capsys.readouterr().err == (f"note: {said}{end}" if said else "")
    ((command, options),) = calls
    assert command == [sys.executable, "-P", "-m", "bench.engine.pace", "3"]
    tasks = json.loads(options["input"])
    assert [task[0] for task in tasks] == ["fedavg", "fedprox", "fedavg"]
    assert tasks[1][1:] == [dict(FEDPROX.hyperparameters), FEDPROX.setting.as_dict()]
    assert (options["timeout"], options["check"]) == (21.0, False)
    assert options["env"]["PYTHONPATH"] == f"{Path.cwd()}{os.pathsep}/a"


def test_without_a_limit_there_are_twenty_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, seconds in (("", 20.0), ("0", 0.0), ("2.5", 2.5)):
        monkeypatch.setenv(cost_model.LIMIT, value)
        assert cost_model._limit() == seconds
    monkeypatch.delenv(cost_model.LIMIT)
    assert cost_model._limit() == 20.0


# Rates of learning


def test_rates_follow_van_der_corput() -> None:
    """The binary digits of 1, 2, 3, ... reversed; six digits once three would repeat."""
    rates = learning_rates(Setting(lr=0.5), (), 600)
    assert len(set(rates)) == 600
    expected: dict[float, None] = {}
    number = 0
    while len(expected) < 600:
        number += 1
        place, share, rest = 0.0, 0.5, number
        while rest:
            place += share * (rest % 2)
            rest //= 2
            share /= 2
        digits = 3 if number < 500 else 6
        expected[float(f"{0.5 * 10 ** (2 * place - 1):.{digits}g}")] = None
    assert rates == list(expected)


def test_all_halves_between_rates_are_tried() -> None:
    """Halves, quarters, ... down to 256ths: 255 places on either side."""
    rates = list(rates_around(1.0, [1e-6, 1.0, 1e6]))
    assert len(rates) == len(set(rates)) == 2 * 255
    assert rates[:6] == [0.001, 1000.0, 0.0316, 31.6, 3.16e-05, 31600.0]
    for best, first in ((1e-6, [1e-09, 0.001]), (1e6, [1000.0, 1e9])):
        assert list(rates_around(best, [1e-6, 1.0, 1e6]))[:2] == first
