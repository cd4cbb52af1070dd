"""The benchmarks' records: their structure and arithmetic. Timings belong to a machine and are never asserted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.utils.flop_counter import FlopCounterMode

from bench.engine.stacked.backend import Stacked
from bench.engine.stacked.cuda_graphs import traced
from bench.engine.stacked.step_executors import Captured
from bench.errors import EnvironmentProblem, UsageError
from bench.executors import runner
from bench.perf import main, startup, training, tune
from bench.perf.floors import floor
from bench.perf.measure import Spent, alternate, figure
from bench.perf.peers import beside_peers, our_rates, read_peers
from bench.perf.report import figures
from bench.perf.workload import BareLoop, Workload, one_round, simulation

TINY = Workload("cnn_cifar", clients=2, cohort=2, samples=40, epochs=2, batch_size=16)
COMMAND = ["--part", "training", "--model", "cnn_cifar", "--clients", "2", "--samples", "32", "--rounds", "2"]
PEER = {"peer": "plain", "model": "cnn", "samples_per_s": 100.0, "device": "cpu", "threads": 1}


def silent(text: str) -> None:
    """Progress that nobody reads."""


def lines_file(folder: Path, *records: Any) -> str:
    file = folder / "peers.jsonl"
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    file.write_text("\n".join(lines) + "\n\n")
    return str(file)


def test_figure_is_median_and_quartiles() -> None:
    found = figure([4.0, 1.0, 2.0, 3.0, 5.0], "s")
    assert found == {"median": 3.0, "low": 2.0, "high": 4.0, "least": 1.0, "n": 5, "unit": "s"}
    assert figure([7.0], "s")["low"] == figure([7.0], "s")["high"] == 7.0


@pytest.mark.parametrize(("value", "at_least", "met"), [(0.9, True, False), (0.9, False, True), (0.95, True, True)])
def test_figure_says_whether_its_target_is_met(value: float, at_least: bool, met: bool) -> None:
    found = figure([value], "x", limit=0.95, at_least=at_least)
    assert found["met"] is met
    assert found["bound"] == (">=" if at_least else "<=")


def test_alternate_turns_the_order_round() -> None:
    calls: list[str] = []
    pairs = alternate(lambda: calls.append("a"), lambda: calls.append("b"), 3)
    assert "".join(calls) == "abbaab"
    assert len(pairs) == 3
    assert all(isinstance(spent, Spent) for pair in pairs for spent in pair)


@pytest.mark.parametrize("model", ["cnn_cifar", "resnet8"])
def test_bare_loop_does_the_engines_arithmetic(model: str) -> None:
    # 40 samples in batches of 16: both take a short last batch.
    work = replace(TINY, model=model)
    run, bare = simulation(work, "fedavg"), BareLoop(work)
    with FlopCounterMode(display=False) as engine:
        one_round(run)
    with FlopCounterMode(display=False) as loop:
        bare.segment()
    assert engine.get_total_flops() == loop.get_total_flops() > 0
    assert run.progress.samples == work.processed == 2 * 2 * 40


def test_diverged_run_is_not_timed() -> None:
    run = simulation(TINY, "fedavg")
    one_round(run)
    run.progress.diverged = True
    with pytest.raises(RuntimeError, match="diverged in round 1"):
        one_round(run)


# Two epochs of a client's samples: six passes of the student.
@pytest.mark.parametrize(
    ("algorithm", "augmentation", "passes"),
    [
        ("fedavg", "none", 0),
        ("fedlsd", "none", 1),  # the teacher's answers on fixed inputs are kept for the round
        ("fedlsd", "flip_crop", 2),
        ("moon", "none", 2),
        ("feddistill", "none", 2),
        ("qffl", "none", 1),
        ("feddkd", "none", 3 * 4),  # J requests, each on as many samples as a client has
    ],
)
def test_floor_counts_passes(algorithm: str, augmentation: str, passes: int) -> None:
    work = replace(TINY, augmentation=augmentation, samples=64)
    run = simulation(work, algorithm)
    one_round(run)
    assert floor(run, work) == pytest.approx(1 + passes / 6)


def test_algorithms_stand_beside_fedavg() -> None:
    prox = training.beside_fedavg("fedprox", TINY, rounds=1)
    distilled = training.beside_fedavg("fedgkd", TINY, rounds=1)
    assert prox["arithmetic"] == prox["floor"] == 1.0
    assert distilled["arithmetic"] > 1
    assert distilled["floor"] == pytest.approx(7 / 6)


def test_operations_of_a_captured_run_are_counted() -> None:
    run = simulation(replace(TINY, backend="stacked"), "fedavg")
    run.trainer = Stacked(lambda: Captured(traced, warm_ups=0))
    one_round(run)
    trainer = run.trainer
    assert training._operations(run) == training._operations(simulation(TINY, "fedavg")) > 0
    assert run.trainer is trainer


def test_training_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "perf.json"
    options = ["--algo", "fedgkd", "--json", "--out", str(out), "--compare", lines_file(tmp_path, PEER)]
    assert main([*COMMAND, *options]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    record = json.loads(printed)
    assert record == json.loads(out.read_text())
    assert {"schema", "command", "versions", "device", "cpu", "cores", "threads", "git_commit", "started"} < set(record)
    assert "host" not in record
    part = record["parts"]["training"]
    assert set(part["engine"]["cnn_cifar"]) == {"none", "flip_crop"}
    entry = part["engine"]["cnn_cifar"]["none"]
    assert set(entry) == {"backend", "engine_rate", "bare_rate", "ratio", "cpu_ratio"}
    assert (entry["ratio"]["limit"], entry["ratio"]["bound"], entry["ratio"]["n"]) == (0.95, ">=", 2)
    assert "limit" not in part["engine"]["cnn_cifar"]["flip_crop"]["ratio"]
    assert set(part["algorithms"]["cnn_cifar"]) == {"fedgkd"}
    peer = record["peers"][0]
    assert (peer["peer"], peer["alike"], peer["ratio"]["limit"]) == ("plain", True, 1.0)
    assert peer["ratio"]["median"] == pytest.approx(entry["engine_rate"]["median"] / 100)


def test_tables_show_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--augmentation", "none", "--algo", "fedprox", "--compare", lines_file(tmp_path, PEER)]
    assert main([*COMMAND, *options]) == 0
    printed, progress = capsys.readouterr()
    for text in ("training: cnn_cifar, no augmentation, ratio", ">= 0.95", "fedprox", "plain"):
        assert text in printed
    assert "beside a bare loop" in progress


@pytest.mark.parametrize(
    ("error", "key", "status"), [(RuntimeError("no"), "error", 1), (UsageError("no"), "left_out", 0)]
)
def test_one_algorithms_failure_leaves_the_others(
    error: Exception, key: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = training.beside_fedavg

    def fail(algorithm: str, work: Workload, rounds: int) -> dict[str, Any]:
        if algorithm == "fedprox":
            raise error
        return measured(algorithm, work, rounds)

    monkeypatch.setattr(training, "beside_fedavg", fail)
    assert main([*COMMAND, "--augmentation", "none", "--algo", "fedprox", "fedlsd"]) == status
    assert "no" in capsys.readouterr().out
    entries = training.measure_training(TINY, ["cnn_cifar"], ["none"], ["fedprox", "fedlsd"], 1, silent)
    entries = entries["algorithms"]["cnn_cifar"]
    assert "no" in entries["fedprox"][key]
    assert "ratio" in entries["fedlsd"]


ENGINE = {"engine": {"cnn_cifar": {"none": {"ratio": figure([1.0], "x")}}}, "algorithms": {}}


def ends(error: BaseException) -> Callable[..., Any]:
    def part(*given: Any) -> dict[str, Any]:
        raise error

    return part


@pytest.mark.parametrize(
    ("error", "said", "status"),
    [
        (EnvironmentProblem("no space"), "part tune: no space", 1),
        (RuntimeError("odd"), "part tune: RuntimeError: odd", 1),
        (KeyboardInterrupt(), "part tune: interrupted", 130),
    ],
)
def test_a_part_that_fails_costs_no_other(
    error: BaseException,
    said: str,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(training, "measure_training", lambda *given: ENGINE)
    monkeypatch.setattr(tune, "measure_tune", ends(error))
    file = tmp_path / "perf.json"
    assert main(["--part", "tune", "training", "--out", str(file)]) == (130 if status == 130 else 1)
    assert main(["--part", "training", "tune", "--out", str(file)]) == status
    printed = capsys.readouterr().out
    assert "training: cnn_cifar, no augmentation, ratio" in printed
    assert said in printed
    record = json.loads(file.read_text())
    assert record["parts"] == {"training": ENGINE}
    assert f"part tune: {record['failed']['tune']}" == said


def test_what_was_measured_is_kept_before_the_next_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "perf.json"
    monkeypatch.setattr(training, "measure_training", lambda *given: ENGINE)
    monkeypatch.setattr(tune, "measure_tune", lambda *given: json.loads(file.read_text()))
    assert main(["--part", "training", "tune", "--json", str(file)]) == 0
    assert json.loads(file.read_text())["parts"]["tune"]["parts"] == {"training": ENGINE}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_a_part_measured_before_it_was_interrupted_is_kept(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A time limit, say: SIGTERM."""
    file = tmp_path / "perf.json"
    compared = training.beside_fedavg

    def interrupted(algorithm: str, work: Workload, rounds: int) -> dict[str, Any]:
        if algorithm == "fedlsd":
            kept = json.loads(file.read_text())["parts"]["training"]["algorithms"]["cnn_cifar"]
            assert set(kept) == {"fedprox"}, "a kill would not have lost it either"
            signal.raise_signal(number)
        return compared(algorithm, work, rounds)

    monkeypatch.setattr(training, "beside_fedavg", interrupted)
    before = signal.getsignal(signal.SIGTERM)
    options = ["--rounds", "1", "--augmentation", "none", "--algo", "fedprox", "fedlsd", "--out", str(file)]
    heard = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background hears none
    try:
        assert main([*COMMAND, *options]) == 130
    finally:
        signal.signal(signal.SIGINT, heard)
    assert signal.getsignal(signal.SIGTERM) is before
    printed = capsys.readouterr().out
    assert "fedprox" in printed
    assert "part training: interrupted" in printed
    record = json.loads(file.read_text())
    assert set(record["parts"]["training"]["algorithms"]["cnn_cifar"]) == {"fedprox"}
    assert record["failed"] == {"training": "interrupted"}


def test_a_failure_that_leaves_nothing_leaves_an_earlier_record_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "perf.json"
    file.write_text("{}")
    for error, status in ((EnvironmentProblem("no space"), 3), (KeyboardInterrupt(), 130)):
        monkeypatch.setattr(tune, "measure_tune", ends(error))
        assert main(["--part", "tune", "--out", str(file)]) == status
    assert file.read_text() == "{}"
    assert capsys.readouterr().err == "error: no space\n"


def test_a_lack_of_ray_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "bench.executors.ray_executor", raising=False)
    assert main(["--part", "tune"]) == 3
    assert "error: Ray cannot be imported: " in (said := capsys.readouterr().err)
    assert "pip install 'ray[tune]'; a sweep works without it with --executor inline" in said


def test_informing_commands_import_neither_torch_nor_ray(tmp_path: Path) -> None:
    found = startup.measure_startup(tmp_path, 1, silent)
    assert {name: found[name]["imports"] for name in startup.COMMANDS} == {name: [] for name in startup.COMMANDS}
    assert [found[name]["present"] for name in startup.READ] == [[], []]
    assert {path for path, value in figures(found) if "limit" in value} == {
        f"{name} beyond_interpreter" for name in startup.COMMANDS
    }
    probe = "import sys, bench.perf; sys.exit(bool({'torch', 'ray'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", probe], check=True)
    helped = subprocess.run([sys.executable, "-m", "bench.perf", "--help"], capture_output=True, text=True, check=True)
    assert "--compare" in helped.stdout


def test_command_that_fails_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(startup.COMMANDS, "help", (("-m", "bench.sweep", "--nonsense"), 0.3))
    with pytest.raises(EnvironmentProblem, match=r"--nonsense` ended with status 2"):
        startup.measure_startup(tmp_path, 1, silent)


def test_tune_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both executors inline here: what is tested is the bookkeeping."""
    run_plan = runner.run_plan
    asked: list[str] = []

    def inline(plan: Any, units: Any, execution: Any, resources: runner.Resources, display: Any) -> runner.Outcome:
        asked.append(resources.executor)
        return run_plan(plan, units, execution, replace(resources, executor="inline"), display)

    monkeypatch.setattr(runner, "run_plan", inline)
    monkeypatch.setattr(tune, "_import_ray", lambda: None)
    check_tune(tune.measure_tune(trials=3, steps=4, threads=1, say=silent))
    assert asked == ["inline"] * 2 + ["ray"] * 2 + ["inline"] * 2


@pytest.mark.slow
def test_tune_record_of_ray_itself() -> None:
    check_tune(tune.measure_tune(trials=3, steps=4, threads=1, say=silent))


def check_tune(found: dict[str, Any]) -> None:
    """Three trials have two after the first, four reports three steps; inline runs twice."""
    assert (found["ray"]["trial"]["n"], found["ray"]["step"]["n"]) == (2, 3)
    assert (found["inline"]["trial"]["n"], found["inline"]["step"]["n"]) == (4, 6)
    limits = {name: value["limit"] for name, value in figures(found["overhead"]) if "limit" in value}
    assert limits == {"trial": 1.0, "step": 10.0}
    assert found["ray"]["import_seconds"] >= 0


def test_failing_trial_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = runner.Outcome(statuses=["failed"], problems=["no space"])
    monkeypatch.setattr(runner, "run_plan", lambda *_: failed)
    monkeypatch.setattr(tune, "_import_ray", lambda: None)
    with pytest.raises(EnvironmentProblem, match="no space"):
        tune.measure_tune(trials=2, steps=2, threads=1, say=silent)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--part", "speed"],
            "cores, tune, settings, scale, profile, boards, got speed",
        ),
        (
            ["--part", ","],
            "cores, tune, settings, scale, profile, boards, got nothing",
        ),
        (["--model", "resnet9"], "did you mean resnet8"),
        (["--model", "mlp"], "takes 8x8 inputs"),
        (["--model", ","], "--model takes"),
        (["--augmentation", "mixup"], "--augmentation takes none, flip_crop"),
        (["--algo", "fedprx"], "did you mean fedprox"),
        (["--algo", "all", "fedprox"], "stand alone"),
        (["--rounds", "0"], "--rounds must be >= 1, got 0"),
        (["--trials", "1"], "--trials must be >= 2, got 1"),
        (["--cohort", "11"], "--cohort must be <= --clients, got 11 and 10"),
        (["--threads", "100000"], "--threads must be <= "),
        (["--compare", "missing.jsonl"], "--compare missing.jsonl: No such file"),
        (["--part", "tune", "--compare", "x"], "--compare needs the part training"),
        (["--out", "missing/perf.json"], "there is no folder missing"),
        (["--json", "/"], "--json / is a folder: name a file in it"),
        (["--json", "missing/perf.json"], "--json missing/perf.json: there is no folder missing"),
        (["--backend", "fast"], "--backend takes auto, loop, stacked, got fast"),
        (["--precision", "fp32,int8"], "--precision takes fp32, tf32, bf16, fp64, got int8"),
        (["--pack", "0"], "--pack takes whole numbers >= 1, got 0"),
        (["--setting", "moon"], "--setting takes fedgkd, fedcad, pfl, got moon"),
        (["--model", "tables"], "stands alone, and goes with --part throughput and scale; got --model tables --part"),
        (["--part", "settings"], "--part settings takes hours on a CPU: --rounds 1"),
        (["--part", "scale"], "--part scale needs rates: --from RECORD"),
        (["--part", "scale", "--from", "missing.json"], "--from missing.json: No such file"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options) == 2
    printed, problem = capsys.readouterr()
    assert printed == ""
    assert problem.startswith("error: ")
    assert message in problem


def test_a_folder_that_takes_nothing_is_said_before_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.access", lambda *asked: False)
    file = tmp_path / "perf.json"
    assert main([*COMMAND, "--json", str(file)]) == 2
    assert f"--json {file}: nothing can be written into {tmp_path}" in capsys.readouterr().err
    file.touch()
    monkeypatch.setattr(training, "measure_training", lambda *given: {"engine": {}, "algorithms": {}})
    assert main([*COMMAND, "--json", str(file)]) == 0, "a file that is there may be writable in such a folder"


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("{cut off", "line 2: not a JSON object"),
        ({"peer": "p", "model": "cnn"}, "line 2: no 'samples_per_s'"),
        ({**PEER, "samples_per_s": "fast"}, "must be a finite number > 0, got 'fast'"),
        ({**PEER, "samples_per_s": float("inf")}, "must be a finite number > 0, got inf"),
        ({**PEER, "samples_per_s": 0}, "must be a finite number > 0, got 0"),
    ],
)
def test_peers_that_are_no_records_are_refused(record: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        read_peers([lines_file(tmp_path, PEER, record)])


def test_what_peers_print_beside_records_is_passed_over(tmp_path: Path) -> None:
    assert read_peers([lines_file(tmp_path, "Metrics at iteration 0 ():", PEER, "  Learning rate : 1.0", "")]) == [PEER]
    with pytest.raises(UsageError, match=r"no record; one is a line of JSON with peer, model, samples_per_s"):
        read_peers([lines_file(tmp_path, "Metrics at iteration 0 ():")])


def test_peers_are_compared_with_the_same_model_only() -> None:
    ours = {"model": "cnn_cifar", "backend": "loop", "precision": "fp32", "pack": 1, "rate": figure([150.0], "/s")}
    others = [PEER, {**PEER, "model": "resnet8"}, {**PEER, "threads": 2}, {**PEER, "device": "cuda"}]
    found = beside_peers(others, [ours, {**ours, "pack": 8, "rate": figure([300.0], "/s")}], "cpu", threads=1)
    ratios = [entry["ratio"] and (entry["pack"], entry["ratio"]["median"]) for entry in found]
    assert ratios == [(1, 1.5), (8, 3.0), None, (1, 1.5), (8, 3.0), (1, 1.5), (8, 3.0)]
    assert [entry["alike"] for entry in found] == [True, True, True, False, False, False, False]
    assert [entry["ratio"].get("limit") for entry in found if entry["ratio"]] == [1.0, 1.0, None, None, None, None]


def test_a_gpu_has_to_leave_the_plain_loop_far_behind() -> None:
    ours = {"model": "cnn_cifar", "backend": "stacked", "precision": "bf16", "pack": 1, "rate": figure([1900.0], "/s")}
    peers = [{**PEER, "device": "cuda"}, {**PEER, "peer": "pfl", "device": "cuda"}]
    plain, pfl = (entry["ratio"] for entry in beside_peers(peers, [ours], "cuda", threads=1))
    assert (plain["median"], plain["limit"], plain["met"]) == (19.0, 20.0, False)
    assert (pfl["limit"], pfl["met"]) == (1.0, True)


def test_peers_stand_beside_rates_of_the_same_work() -> None:
    rate = {"model": "cnn_cifar", "backend": "loop", "precision": "fp32", "pack": 1, "rate": figure([1.0], "/s")}
    rate |= {"dataset": "cifar10", "image_size": "own", "optimizer": "sgd", "batch_size": 64}
    engine = {"none": {"backend": "loop", "engine_rate": figure([2.0], "/s")}}
    parts = {
        "training": {"engine": {"cnn_cifar": engine, "resnet8": engine}},
        "throughput": {
            "work": {"augmentation": "none"},
            "rates": [rate, {**rate, "dataset": "cifar100"}, {**rate, "batch_size": 32}],
        },
    }
    found = [(entry["model"], entry["rate"]["median"]) for entry in our_rates(parts, "fp32")]
    assert found == [("cnn_cifar", 1.0), ("resnet8", 2.0)], "measured twice, the part throughput tells"
    parts["throughput"]["work"]["augmentation"] = "flip_crop"
    assert [entry["rate"]["median"] for entry in our_rates(parts, "fp32")] == [2.0, 2.0]
