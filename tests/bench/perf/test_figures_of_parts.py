"""Parts of a benchmark with given times: what is measured, in which order, and what is printed."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import bench
from bench.data import MissingData
from bench.errors import EnvironmentProblem, UsageError
from bench.execution import Execution
from bench.executors.progress import Events
from bench.perf import command, data, measure, processes, training, tune
from bench.perf.command import check, figures_of, main, make_parser, print_record
from bench.perf.measure import Spent, alternate, figure, guarded, message_of, seconds_of, timed
from bench.perf.workload import Workload
from leaderboards import Store
from leaderboards.board import leaderboard

# Measurements


def test_two_actions_are_timed_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """First, second, second, first: a steady drift cancels."""
    done: list[str] = []
    clock = iter(range(100))
    monkeypatch.setattr(measure.time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(measure.time, "process_time", lambda: 10.0 * len(done))
    pairs = alternate(lambda: done.append("a"), lambda: done.append("b"), 3)
    assert "".join(done) == "abbaab"
    assert pairs == [(Spent(1.0, 10.0), Spent(1.0, 10.0))] * 3


def test_a_device_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(measure.time, "perf_counter", lambda: done.append("clock") or 0.0)
    timed(lambda: done.append("action"), lambda: done.append("wait"))
    assert done == ["wait", "clock", "action", "wait", "clock"]
    assert measure.synchroniser("cpu")() is None


def test_a_failure_is_an_entry() -> None:
    def fail(error: Exception) -> dict[str, Any]:
        raise error

    assert guarded(lambda: {"a": 1}) == {"a": 1}
    assert guarded(lambda: fail(UsageError("no"))) == {"left_out": "no"}
    assert guarded(lambda: fail(EnvironmentProblem("no"))) == {"error": "no"}
    assert guarded(lambda: fail(KeyError("no"))) == {"error": "KeyError: 'no'"}
    assert message_of(UsageError("no")) == "no"


def test_times_have_a_target() -> None:
    times = [Spent(1.0, 2.0), Spent(3.0, 4.0), Spent(5.0, 9.0)]
    summary = seconds_of(times, 3.0)
    bounds = {"limit": 3.0, "bound": "<=", "met": True}
    assert summary["seconds"] == figure([1.0, 3.0, 5.0], "s") | bounds
    assert summary["cpu_seconds"] == figure([2.0, 4.0, 9.0], "s")
    assert figure([1.0, 2.0], "x", 2.0, at_least=True) == {
        "median": 1.5,
        "low": 1.25,
        "high": 1.75,
        "n": 2,
        "unit": "x",
        "limit": 2.0,
        "bound": ">=",
        "met": False,
    }


# The command


def options_of(*words: str) -> argparse.Namespace:
    options = make_parser().parse_args(words)
    check(options)
    return options


def test_without_options_the_usual_is_measured() -> None:
    options = vars(make_parser().parse_args([]))
    lists = {
        "part": ["startup", "data", "training", "throughput", "tune"],
        "model": ["cnn_cifar", "resnet8"],
        "augmentation": ["none", "flip_crop"],
        "algo": ["fedprox", "fedgkd", "fedlsd", "fedcad"],
        "backend": ["auto"],
        "precision": ["fp32"],
        "pack": [1],
    }
    numbers = {
        "threads": 1,
        "repetitions": 7,
        "runs": 100_000,
        "rounds": 7,
        "clients": 10,
        "cohort": None,
        "samples": 640,
        "epochs": 2,
        "trials": 12,
        "steps": 200,
    }
    others = {"json": None, "verbose": False, "data_dir": None, "device": "auto"}
    assert options == lists | numbers | others
    assert make_parser().parse_args(["--json"]).json == "-"
    assert make_parser().parse_args(["-v"]).verbose


def test_lists_and_cohorts_are_resolved() -> None:
    options = options_of("--algo", "all", "--model", "resnet8,cnn_cifar", "resnet8")
    assert (options.model, options.cohort) == (["resnet8", "cnn_cifar"], 10)
    assert options.algo[0] == "fedprox"
    assert "fedavg" not in options.algo
    assert options_of("--algo", "none", "--cohort", "3").algo == []
    assert options_of("--cohort", "10").cohort == 10


LEAST = {"trials": 2, "steps": 2, "runs": 10, "threads": 1, "repetitions": 1, "rounds": 1}
LEAST |= {"epochs": 1, "clients": 1, "cohort": 1, "samples": 1}


@pytest.mark.parametrize("name", LEAST)
def test_numbers_have_a_least(name: str) -> None:
    few = ["--cohort", "1"] if name == "clients" else []
    allowed = options_of(f"--{name}", str(LEAST[name]), *few)
    assert getattr(allowed, name) == LEAST[name]
    with pytest.raises(UsageError) as refused:
        options_of(f"--{name}", str(LEAST[name] - 1), *few)
    problem = f"--{name} must be >= {LEAST[name]}, got {LEAST[name] - 1}"
    assert str(refused.value) == problem


def test_packs_are_whole_numbers() -> None:
    with pytest.raises(UsageError, match=r"^--pack takes whole numbers >= 1, got 0$"):
        options_of("--pack", "3", "0")
    assert options_of("--pack", "3", "1").pack == [3, 1]


def test_a_record_begins_with_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.25, 1.0, 2.0))
    record = command._new_record("words", options_of("--threads", "1"))
    assert (record["schema"], record["command"], record["device"]) == (3, "words", "cpu")
    assert (record["threads"], record["load"]) == (1, [0.25, 1.0, 2.0])
    assert (record["parts"], record["failed"]) == ({}, {})
    assert record["started"].endswith("+00:00")
    assert "host" not in record


def test_figures_are_found_with_their_paths() -> None:
    tree = {
        "a": {"b": {"median": 1}, "c": [{"name": "x", "rate": {"median": 2}}, {"rate": 3}]},
        "d": 4,
        "e": {"error": "no"},
    }
    assert list(figures_of(tree)) == [("a b", {"median": 1}), ("a c x rate", {"median": 2})]
    assert list(figures_of(tree, key="error")) == [("e", {"error": "no"})]


def rows_of(text: str) -> list[list[str]]:
    """The cells of printed tables, and other lines as such."""
    rows: list[list[str]] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.replace("┃", "│").split("│")]
        if len(cells) > 1:
            rows.append(cells[1:-1])
        elif not line.startswith(("┏", "┡", "└")):
            rows.append([line])
    return rows


RECORD: dict[str, Any] = {
    "device": "cpu",
    "cpu": "a processor",
    "cores": 2,
    "threads": 1,
    "versions": {"torch": "2.9"},
    "load": [0.5, 0, 0],
    "parts": {
        "a": {"rate": figure([1e9, 3e9], "samples/s"), "s": figure([999.6], "s", 1000.0)},
        "b": {"x": figure([0.12345], "x", 0.95, at_least=True), "out": {"left_out": "no GPU"}},
        "c": {"bad": {"error": "broke"}, "n": figure([1234.5, 1234.5, 1234.5], "B")},
        "e": {"flops": figure([1e12], "FLOP/s"), "least": figure([1e9], "FLOP/s")},
    },
    "failed": {"d": "interrupted"},
}


def test_a_record_is_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    print_record(RECORD)
    assert rows_of(capsys.readouterr().out) == [
        ["cpu, a processor, 2 cores, 1 thread, torch 2.9, ray not installed"],
        ["figure", "median", "quartiles", "target", "met"],
        ["a rate", "2 Gsamples/s", "1.5 to 2.5", "", ""],
        ["a s", "1e+03 s", "", "<= 1000", "yes"],
        ["b x", "0.123 x", "", ">= 0.95", "no"],
        ["c n", "1,234 B", "1,234 to 1,234", "", ""],
        ["e flops", "1,000 GFLOP/s", "", "", ""],
        ["e least", "1 GFLOP/s", "", "", ""],
        ["b out: no GPU"],
        ["the load was 0.5 on 2 cores at the start: by the clock all is slower than it is"],
        ["c bad: broke"],
        ["part d: interrupted"],
    ]


@pytest.mark.parametrize("load", [None, [0.49, 1, 1]])
def test_an_idle_machine_has_no_note(load: Any, capsys: pytest.CaptureFixture[str]) -> None:
    print_record(RECORD | {"load": load, "parts": {}, "failed": {}})
    line = "cpu, a processor, 2 cores, 1 thread, torch 2.9, ray not installed\n"
    assert capsys.readouterr().out == line


def test_a_file_has_the_record_before_each_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "perf.json"
    seen: list[Any] = []

    def part(name: str, part: dict[str, Any], options: Any, say: Any) -> None:
        part["begun"] = True
        say(f"measuring {name}")
        seen.append(json.loads(file.read_text())["parts"])

    monkeypatch.setattr(command, "_measure_part", part)
    assert main(["--part", "data", "tune", "--json", str(file)]) == 0
    begun = {"begun": True}
    assert seen == [{"data": begun}, {"data": begun, "tune": begun}]
    assert capsys.readouterr().err == "measuring data\nmeasuring tune\n"
    assert json.loads(file.read_text())["parts"] == seen[1]


def test_an_unwritable_file_fails_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_measure_part", lambda *_: pytest.fail("it was measured"))
    file = tmp_path / "none" / "perf.json"
    assert main(["--part", "data", "--json", str(file)]) == 3
    assert f"error: {file} cannot be written: No such file" in capsys.readouterr().err


@pytest.mark.parametrize("verbose", [False, True])
def test_failures_have_tracebacks_on_request(
    verbose: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("broke")

    monkeypatch.setattr(command, "_measure_part", fail)
    assert main(["--part", "data", "--json", *["-v"] * verbose]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["failed"] == {"data": "ValueError: broke"}
    assert ("Traceback" in shown.err) == verbose


def test_each_part_gets_its_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: dict[str, Any] = {}
    names = ("measure_startup", "measure_boards")
    for module, parts in ((processes, names), (data, ("measure_data",)), (tune, ("measure_tune",))):
        for name in parts:
            monkeypatch.setattr(
                module, name, lambda part, *got, name=name: given.update({name: got})
            )
    for name in ("measure_training", "measure_throughput"):
        monkeypatch.setattr(training, name, lambda part, *got, name=name: given.update({name: got}))
    words = "--part startup data boards tune training throughput --repetitions 3 --runs 20 --trials"
    words += " 4 --steps 5 --threads 1 --rounds 6 --clients 8 --cohort 2 --samples 7 --epochs 9"
    more = "--algo fedprox --model resnet8 cnn_cifar --precision fp32 bf16 --pack 1 2"
    assert main([*words.split(), *more.split(), "--data-dir", str(tmp_path)]) == 0
    trimmed = {name: got[:-1] for name, got in given.items()}
    work = Workload("resnet8", clients=8, cohort=2, samples=7, epochs=9)
    models = (["resnet8", "cnn_cifar"], ["none", "flip_crop"])
    assert trimmed["measure_startup"] == trimmed["measure_data"] == (tmp_path, 3)
    assert trimmed["measure_boards"] == (20, 3)
    assert trimmed["measure_tune"] == (4, 5, 1)
    assert trimmed["measure_training"] == (work, *models, ["fedprox"], 6)
    works, rounds = trimmed["measure_throughput"]
    ways = [(each.model, each.precision, each.pack, each.backend) for each in works]
    assert rounds == 6
    assert ways == [
        (model, precision, pack, "loop")
        for model in ("resnet8", "cnn_cifar")
        for precision in ("fp32", "bf16")
        for pack in (1, 2)
    ]


# Start-up and folders


class Python:
    """Interpreters that take given seconds and keep their arguments."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: Sequence[float]) -> None:
        self.calls: list[tuple[Sequence[str], dict[str, str]]] = []
        self.seconds: Iterator[float] = iter(seconds)
        monkeypatch.setattr(processes, "run_python", self.run)

    def run(self, arguments: Sequence[str], **environment: str) -> Spent:
        """Take the next seconds; a page of a report has a megabyte and a half."""
        self.calls.append((arguments, environment))
        if "--to" in arguments:
            Path(arguments[-1]).write_bytes(b"x" * 1_500_000)
        spent = next(self.seconds)
        return Spent(spent, spent / 2, int(spent * 1e6))


def test_startup_is_beyond_the_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of three repetitions warms the cache."""
    turns = [[9.0] * 5, [1.0, 1.2, 2.0, 3.0, 4.0], [2.0, 2.4, 4.0, 4.5, 5.0]]
    python = Python(monkeypatch, [*chain.from_iterable(turns)])
    record: dict[str, Any] = {}
    said: list[str] = []
    processes.measure_startup(record, tmp_path, 2, said.append)
    assert said == ["start-up: 2 repetitions"]
    assert list(record) == ["interpreter", "help", "list", "dry_run", "paper_dry_run"]
    assert record["interpreter"] == seconds_of([Spent(1.0, 0.5), Spent(2.0, 1.0)])
    beyond = [record[name]["beyond_interpreter"] for name in list(record)[1:]]
    assert [(each["median"], each["limit"]) for each in beyond] == [
        (pytest.approx(0.3), 0.3),
        (1.5, 0.3),
        (2.25, 2.0),
        (3.0, 2.0),
    ]
    assert len(python.calls) == 15
    arguments, environment = python.calls[0]
    assert arguments == ("-c", "pass")
    assert environment["FEDKD_DATA"] == str(tmp_path)
    assert environment["FEDKD_MEASURE_SECONDS"] == "0"
    assert not Path(environment["FEDKD_OUT"]).exists()


def test_boards_of_many_runs_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each folder is written, and its command runs once more than it counts."""
    python = Python(monkeypatch, [100.0, 50.0, 1.0, 3.0] * 3)
    record: dict[str, Any] = {}
    said: list[str] = []
    processes.measure_boards(record, 5000, 2, said.append)
    counts = {name: (part["runs"], part["points"]) for name, part in record.items()}
    assert counts == {
        "leaderboard": (5000, 500_000),
        "compare": (500, 50_000),
        "report": (1000, 100_000),
    }
    for name, limit in (("leaderboard", 5.0), ("compare", 3.0), ("report", 15.0)):
        assert record[name]["seconds"]["median"] == 2.0
        assert record[name]["seconds"]["limit"] == limit
        assert record[name]["memory"]["median"] == 2.0
    assert record["leaderboard"]["memory"]["limit"] == 2000.0
    assert "limit" not in record["compare"]["memory"]
    page = record["report"]["file"]
    assert (page["median"], page["unit"], page["limit"]) == (1.5, "MB", 5.0)
    assert said[0] == "boards: leaderboard of a made-up folder of 5,000 runs, 2 repetitions"
    first = [call[0][:2] for call in python.calls[:5]]
    assert "write_folder" in first[0][1]
    assert "leaderboard(Store" in first[1][1]
    assert "write_folder" in first[4][1]
    assert "5000)" in first[0][1]
    assert "500)" in first[4][1]
    assert python.calls[5][0][:2] == ("-m", "bench.compare")


def test_a_process_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    clock = iter((10.0, 12.5))
    monkeypatch.setattr(processes.time, "perf_counter", lambda: next(clock))
    place = tmp_path / "place"
    code = f"import os; open({str(place)!r}, 'w').write(os.environ['PYTHONPATH'] + os.environ['A'])"
    spent = processes.run_python(("-c", code), A="own")
    assert place.read_text() == f"{bench.ROOT}{os.pathsep}/elsewhereown"
    assert spent.seconds == 2.5
    assert 0 < spent.cpu_seconds < 60
    assert spent.memory > 2**20  # that of this process included
    clock = iter((0.0, 0.0))
    wait = os.wait4
    usage = SimpleNamespace(ru_utime=3.0, ru_stime=0.5, ru_maxrss=2)

    def waited(process: int, options: int) -> tuple[int, int, Any]:
        return (*wait(process, options)[:2], usage)

    monkeypatch.setattr(processes.os, "wait4", waited)
    monkeypatch.setattr(processes, "largest_resident", lambda usage: usage.ru_maxrss)
    assert processes.run_python(("-c", "pass")) == Spent(0.0, 3.5, 2)
    clock = iter((0.0, 0.0))
    with pytest.raises(EnvironmentProblem) as failed:
        processes.run_python(("-c", "raise SystemExit(7)"))
    said = "`python -c raise SystemExit(7)` ended with status 7: try it yourself"
    assert str(failed.value) == said


def test_a_made_up_folder_is_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds vary fastest, then cells, algorithms and configurations; files have few runs."""
    monkeypatch.setattr(processes, "_BATCH", 100)
    monkeypatch.setattr(processes, "ALGORITHMS", 2)
    monkeypatch.setattr(processes, "CELLS", processes.CELLS[:3])
    processes.write_folder(tmp_path, 70)
    runs = Store(tmp_path).runs()
    assert len(runs) == len(set(runs["run_key"])) == 70
    facts = runs["run_key"].groupby([runs["algorithm"], runs["hp_json"]]).size().to_dict()
    assert facts == {
        ("algorithm_00", '{"x":0.0}'): 15,
        ("algorithm_01", '{"x":0.0}'): 15,
        ("algorithm_00", '{"x":0.125}'): 15,
        ("algorithm_01", '{"x":0.125}'): 15,
        ("algorithm_00", '{"x":0.25}'): 10,
    }
    assert sorted(set(runs["seed"])) == [0, 1, 2, 3, 4]
    assert set(runs["status"]) == {"finished"}
    unlike = [name for name in ("diverged", "personal", "shortened") if runs[name].any()]
    assert unlike == []
    assert runs["certified"].all()
    assert (runs["threads"] * runs["pack"]).eq(1).all()
    assert runs["peak_memory_bytes"].between(10, 90).all()
    assert set(runs["validation_fraction"]) == {0.1}
    assert runs["final_accuracy"].between(0.1, 0.9).all()
    assert runs["seconds"].between(10, 90).all()
    curves = Store(tmp_path).curves()
    assert len(curves) == 70 * 10 * 10
    assert sorted(set(curves["round"])) == list(range(1, 11))
    points = curves.groupby(["run_key", "round"])["metric"].nunique()
    assert (points == 10).all()
    assert leaderboard(runs)["n"].eq(5).all()
    processes.write_folder(tmp_path / "several", 150)
    sizes = [len(pq.read_table(path)) for path in sorted((tmp_path / "several/runs").iterdir())]
    assert sizes == [100, 50]


# Ray's cost


def clocks(ends: Sequence[float], updates: Sequence[float]) -> Any:
    """Clocks of small trials and of a long one."""
    small = SimpleNamespace(ends=list(ends))
    return small, SimpleNamespace(updates=list(updates))


def test_ray_costs_what_inline_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    times = {
        "inline": iter([clocks([1, 2, 4], [0, 1]), clocks([3, 5, 7], [0, 3])]),
        "ray": iter([clocks([9, 13, 17], [0, 2.5, 5])]),
    }
    waiting: dict[str, Any] = {}

    def sweep(executor: str, values: Any, seeds: int, execution: Execution) -> Any:
        asked.append((executor, values["rounds"], seeds, execution.rounds_per_report))
        if executor in waiting:
            return waiting.pop(executor)
        small, waiting[executor] = next(times[executor])
        return small

    monkeypatch.setattr(tune, "_sweep", sweep)
    monkeypatch.setattr("bench.executors.runner.import_executor", lambda name: None)
    record: dict[str, Any] = {}
    said: list[str] = []
    tune.measure_tune(record, 3, 2, 1, said.append)
    both = [("2",), ("2",)]
    assert asked == [
        (executor, rounds, seeds, each)
        for executor in ("inline", "ray", "inline")
        for rounds, seeds, each in ((both[0], 3, 0), (both[1], 1, 1))
    ]
    assert record["inline"]["first_trial"] == figure([1, 3], "s")
    assert record["inline"]["trial"] == figure([1, 2, 2, 2], "s")
    assert record["inline"]["step"] == figure([1000.0, 3000.0], "ms")
    assert record["ray"]["step"] == figure([2500.0, 2500.0], "ms")
    cost = {name: part["median"] for name, part in record["overhead"].items()}
    assert cost == {"start": 7.0, "trial": 2.0, "step": 500.0}
    assert record["overhead"]["trial"]["limit"] == 1.0
    assert record["overhead"]["step"]["limit"] == 10.0
    assert said[:2] == ["tune: importing Ray", "tune: 3 small trials and one of 2 reports, inline"]


def test_a_clock_records_reports_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((10.0, 11.5, 14.0))
    monkeypatch.setattr(tune.time, "perf_counter", lambda: next(times))
    clock = tune.Clock()
    nothing: Any = None
    clock.reported(nothing, {})
    clock.ended(nothing, {})
    assert (clock.updates, clock.ends) == ([1.5], [4.0])


@pytest.mark.parametrize(
    ("note", "interrupted", "error"),
    [
        ({"status": "failed", "error": "no space"}, False, "a trial failed under ray: no space"),
        ({"status": "failed"}, False, r"a trial failed under ray: \['failed'\]"),
        ({"status": "interrupted"}, True, "^$"),
    ],
)
def test_a_failed_trial_is_no_measurement(
    note: dict[str, Any], interrupted: bool, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = Events()
    events.note(note)
    events.interrupted = interrupted
    given: list[Any] = []

    def run_plan(plan: Any, trials: Any, execution: Execution, clock: Any) -> Events:
        given.extend((plan.run_specs, trials, execution))
        return events

    monkeypatch.setattr("bench.executors.runner.run_plan", run_plan)
    with pytest.raises(KeyboardInterrupt if interrupted else EnvironmentProblem, match=error):
        tune._sweep("ray", {"rounds": ("2",)}, 3, Execution(out=""))
    runs, trials, execution = given
    assert len(runs) == len(trials) == 3
    assert (runs[0].setting.rounds, runs[0].setting.local_epochs) == (2, 1)
    assert runs[0].setting.participation == 0.2
    assert (execution.executor, execution.concurrent) == ("ray", 1)


# Data and training


def test_missing_data_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking(folder: Path) -> None:
        raise MissingData("no file")

    monkeypatch.setattr(data, "CIFAR10", SimpleNamespace(name="cifar10", read=lacking))
    place = str(tmp_path)
    assert data.preparation(tmp_path, 2) == {
        "left_out": "not here: no file; python -m bench.data prepare cifar10 --data-dir "
        f"{place} brings it"
    }


def test_a_copy_that_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = SimpleNamespace(
        name="cifar10", read=lambda folder: None, place=lambda: tmp_path / "nowhere"
    )
    monkeypatch.setattr(data, "CIFAR10", kept)
    with pytest.raises(EnvironmentProblem, match="cannot keep the prepared copy; set TMPDIR to"):
        data.preparation(tmp_path, 1)


@pytest.mark.parametrize(
    ("name", "samples", "alpha", "group"),
    [("lda", 400, 10.0, None), ("by_source", 400, None, 4), ("by_writer_2000", 400, None, 12)],
)
def test_one_draw_of_a_partition_is_timed(
    name: str, samples: int, alpha: float | None, group: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "SIZES", {"small": (samples, 4, 0.25)})
    monkeypatch.setattr(data, "WRITERS", 3)
    monkeypatch.setattr(data, "FEWER", {})
    drawn: list[Any] = []
    entry = data.PARTITIONS[name]

    def function(wanted: Any, random: Any) -> None:
        drawn.append(wanted)

    changed = SimpleNamespace(**{**vars(entry), "function": function})
    monkeypatch.setitem(data.PARTITIONS, name, changed)
    record = data.partition(name, "small", 2)
    wanted = drawn[0]
    assert len(drawn) == 3, "one more is not counted"
    assert (record["samples"], record["num_clients"], record["alpha"]) == (400, 4, alpha)
    assert (record["seconds"]["n"], record["seconds"]["limit"]) == (2, 0.25)
    assert np.bincount(wanted.labels).tolist() == [40] * 10
    assert (wanted.max_tries, wanted.alpha) == (1, alpha)
    groups = None if wanted.groups is None else len(set(wanted.groups.tolist()))
    assert groups == group


def test_sizes_are_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(data, "preparation", lambda folder, repetitions: {"n": repetitions})
    monkeypatch.setattr(data, "partition", lambda *given: given)
    said: list[str] = []
    record: dict[str, Any] = {}
    data.measure_data(record, tmp_path, 3, said.append)
    assert record["cifar10"] == {"n": 3}
    assert record["partitions"]["large"]["lda"] == ("lda", "large", 3)
    assert said[1:] == [
        "data: partitions of 50,000 samples over 100 clients, 3 repetitions",
        "data: partitions of 1,000,000 samples over 10,000 clients, 3 repetitions",
    ]
    assert said[0].endswith(", 3 repetitions")


def test_algorithms_are_compared_on_less_work() -> None:
    work = Workload("cnn_cifar", clients=10, cohort=7, samples=640)
    less = training.smaller(work)
    assert (less.clients, less.cohort, less.samples) == (4, 4, 320)
    few = Workload("cnn_cifar", clients=3, cohort=2, samples=100)
    assert training.smaller(few) == few


def test_training_is_measured_case_by_case(monkeypatch: pytest.MonkeyPatch) -> None:
    loops: list[Any] = []
    monkeypatch.setattr(
        training, "beside_bare_loop", lambda *given: loops.append(given) or {"l": 1}
    )
    monkeypatch.setattr(training, "beside_fedavg", lambda *given: {"given": given})
    record: dict[str, Any] = {}
    said: list[str] = []
    work = Workload("a", clients=2, cohort=1)
    training.measure_training(record, work, ["a", "b"], ["none", "x"], ["p"], 5, said.append)
    names = ("clients", "cohort", "samples", "epochs", "batch_size", "device", "precision")
    assert record["work"] == {name: getattr(work, name) for name in names}
    assert [(case.model, case.augmentation, rounds) for case, rounds in loops] == [
        ("a", "none", 5),
        ("a", "x", 5),
        ("b", "none", 5),
        ("b", "x", 5),
    ]
    name, case, rounds = record["algorithms"]["b"]["p"]["given"]
    assert (name, case.model, case.augmentation, case.samples, rounds) == ("p", "b", "none", 320, 5)
    assert record["engine"]["b"]["x"] == {"l": 1}
    assert said[1] == "training: a, augmentation x, 5 rounds beside a bare loop"
    assert said[-1] == "training: b, p, 5 rounds beside fedavg"
    alone: dict[str, Any] = {}
    training.measure_training(alone, work, ["a"], ["none"], [], 5, said.append)
    assert alone["algorithms"] == {}


def test_processor_times_need_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(Spent(1, 3.0), Spent(1, 2.0)), (Spent(1, 5.0), Spent(1, 2.0))]
    for threads, expected in ((1, {"cpu_ratio": figure([1.5, 2.5], "x")}), (2, {})):
        monkeypatch.setattr(training.torch, "get_num_threads", lambda threads=threads: threads)
        assert training.cpu_ratio(pairs) == expected


def test_a_cpu_has_no_tf32() -> None:
    with pytest.raises(UsageError, match=r"^a CPU has no TF32: name another precision, or a GPU$"):
        training.rate(Workload("cnn_cifar", precision="tf32"), 1)


def test_a_workload_is_a_setting() -> None:
    work = Workload("cnn_cifar", clients=8, cohort=2, samples=100, epochs=3, batch_size=16, pack=4)
    setting = work.setting
    assert (setting.num_clients, setting.cohort_size, setting.local_epochs) == (8, 2, 3)
    assert (setting.dataset, setting.batch_size) == ("cifar10", 16)
    assert setting.rounds == setting.evaluate_every
    assert setting.validation_fraction == pytest.approx(320 / (800 + 320))
    assert work.processed == 2 * 100 * 3
    assert work.name == "cnn_cifar, auto, fp32, pack 4"
    assert setting.rounds >= 100
