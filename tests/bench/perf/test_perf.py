"""The benchmarks' records: their structure and arithmetic.

Timings belong to a machine and are never asserted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bench.data import DATASETS, Dataset
from bench.data.download import Original
from bench.data.file_loaders import FileLoader
from bench.data.partition import PARTITIONS
from bench.errors import EnvironmentProblem
from bench.executors import runner
from bench.executors.progress import Events
from bench.perf import data, training, tune
from bench.perf.command import PARTS, figures_of, main, make_parser
from bench.perf.measure import Spent, figure
from bench.perf.workload import BareLoop, Workload, one_round, simulation

TINY = Workload("cnn_cifar", clients=2, cohort=2, samples=40, epochs=2, batch_size=16)
SMALL = [
    "--model",
    "cnn_cifar",
    "--clients",
    "2",
    "--samples",
    "32",
    "--rounds",
    "1",
    "--augmentation",
    "none",
]


def test_figure_is_median_quartiles_and_target() -> None:
    assert figure([4.0, 1.0, 2.0, 3.0, 5.0], "s") == {
        "median": 3.0,
        "low": 2.0,
        "high": 4.0,
        "n": 5,
        "unit": "s",
    }
    assert figure([7.0], "s")["low"] == figure([7.0], "s")["high"] == 7.0
    met = [
        figure([value], "x", 0.95, at_least)["met"]
        for value, at_least in ((0.9, True), (0.9, False), (0.95, True))
    ]
    assert met == [False, True, True]


def test_bare_loop_does_the_engines_arithmetic() -> None:
    # 40 samples in batches of 16: both take a short last batch.
    run, bare = simulation(TINY, "fedavg"), BareLoop(TINY)
    with FlopCounterMode(display=False) as engine:
        one_round(run)
    with FlopCounterMode(display=False) as loop:
        bare.segment()
    assert engine.get_total_flops() == loop.get_total_flops() > 0
    assert run.progress.samples == TINY.processed == 2 * 2 * 40


def test_ratios_are_paired(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(Spent(2.0, 3.0), Spent(1.0, 1.0)), (Spent(8.0, 9.0), Spent(2.0, 3.0))]
    monkeypatch.setattr(training, "alternate", lambda *_: pairs)
    loop = training.beside_bare_loop(TINY, 2)
    assert (loop["ratio"]["low"], loop["ratio"]["high"]) == (0.3125, 0.4375), (
        "quartiles of 0.5 and 0.25"
    )
    assert loop["engine_rate"]["median"] == pytest.approx(
        (TINY.processed / 2 + TINY.processed / 8) / 2
    )
    assert loop["cpu_ratio"]["median"] == pytest.approx(1 / 3)
    other = training.beside_fedavg("fedprox", TINY, 2)
    assert (other["ratio"]["median"], other["arithmetic"]["median"]) == (3.0, 1.0)
    assert other["over_arithmetic"]["median"] == 3.0


def test_a_teacher_costs_a_forward_pass_of_each_sample_once() -> None:
    """A training step counts three passes, an unaugmented sample's teacher one a round: 1 + 1 / (3 x 2 epochs)."""
    assert training.beside_fedavg("fedgkd", TINY, 1)["arithmetic"]["median"] == pytest.approx(
        7 / 6, rel=0.05
    )


def test_record_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "perf.json"
    options = ["--algo", "fedprox", "--json", str(file)]
    ways = ["--precision", "fp32", "tf32", "--pack", "1", "2", "--epochs", "3"]
    assert main(["--part", "training", "throughput", *SMALL, *options, *ways]) == 0
    record = json.loads(file.read_text())
    assert list(record["parts"]) == ["training", "throughput"]
    assert "host" not in record
    one, two, *left = record["parts"]["throughput"]["rates"]
    assert (one["name"], two["pack"]) == ("cnn_cifar, loop, fp32, pack 1", 2)
    assert (record["parts"]["training"]["work"]["epochs"], one["epochs"]) == (3, 3)
    assert all("TF32" in entry["left_out"] for entry in left)
    # Multiply and add of each output: 5x5 convolutions to 28x28x6 and 10x10x16, then 400-120-84-10.
    # Backward every layer costs twice as much, but that the first one's inputs need no gradient.
    first, rest = 28 * 28 * 6 * 75, 10 * 10 * 16 * 150 + 400 * 120 + 120 * 84 + 84 * 10
    assert one["flops"]["median"] / one["rate"]["median"] == pytest.approx(
        2 * (2 * first + 3 * rest)
    )
    printed, progress = capsys.readouterr()
    assert all(text in printed for text in (">= 0.95", "fedprox"))
    assert progress


ENGINE = {"engine": {"cnn_cifar": {"none": {"ratio": figure([1.0], "x")}}}}


@pytest.mark.parametrize(
    ("error", "said", "status"),
    [
        (EnvironmentProblem("no space"), "part tune: no space", 1),
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
    monkeypatch.setattr(training, "measure_training", lambda part, *given: part.update(ENGINE))
    monkeypatch.setattr(tune, "measure_tune", Mock(side_effect=error))
    file = tmp_path / "perf.json"
    assert main(["--part", "training", "tune", "--json", str(file)]) == status
    printed = capsys.readouterr().out
    assert "training engine cnn_cifar none ratio" in printed
    assert said in printed
    record = json.loads(file.read_text())
    assert record["parts"] == {"training": ENGINE, "tune": {}}
    assert f"part tune: {record['failed']['tune']}" == said


@pytest.mark.parametrize("part", ["startup", "data", "tune", "training", "throughput"])
def test_a_part_measures_itself_alone(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.perf import data, processes

    measured = []
    for module in (processes, data, tune, training):
        for name in vars(module):
            if name.startswith("measure_"):
                monkeypatch.setattr(module, name, lambda *_, name=name: measured.append(name))
    assert main(["--part", part]) == 0
    assert measured == [f"measure_{part}"]


@pytest.mark.slow
def test_tune_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three trials have two after the first, four reports three steps; inline runs twice."""
    found: dict[str, Any] = {}
    tune.measure_tune(found, trials=3, steps=4, threads=1, say=Mock())
    assert (found["ray"]["trial"]["n"], found["ray"]["step"]["n"]) == (2, 3)
    assert (found["inline"]["trial"]["n"], found["inline"]["step"]["n"]) == (4, 6)
    limits = {
        name: value["limit"] for name, value in figures_of(found["overhead"]) if "limit" in value
    }
    assert limits == {"trial": 1.0, "step": 10.0}
    failed = Events()
    failed.note({"status": "failed", "error": "no space"})
    monkeypatch.setattr(runner, "run_plan", lambda *_: failed)
    with pytest.raises(EnvironmentProblem, match="no space"):
        tune.measure_tune({}, trials=2, steps=2, threads=1, say=Mock())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--part", "speed"], "'speed'"),
        (["--model", "resnet9"], "did you mean resnet8"),
        (["--algo", "fedprx"], "did you mean fedprox"),
        (["--trials", "1"], "--trials must be >= 2, got 1"),
        (["--epochs", "0"], "--epochs must be >= 1, got 0"),
        (["--cohort", "11"], "--cohort must be <= --clients, got 11 and 10"),
        (["--precision", "fp32,int8"], "'int8'"),
        (["--model", ","], "--model takes at least one"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options) == 2
    printed, problem = capsys.readouterr()
    assert printed == ""
    assert message in problem


@pytest.mark.slow
def test_boards_are_measured_only_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert "boards" not in PARTS
    assert make_parser().parse_args([]).part == list(PARTS)
    assert main(["--part", "boards", "--runs", "100", "--repetitions", "1", "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)["parts"]
    board, compare, report = (
        parts["boards"][name] for name in ("leaderboard", "compare", "report")
    )
    assert (board["runs"], board["points"], compare["runs"], report["runs"]) == (
        100,
        10_000,
        10,
        100,
    )
    assert report["file"]["median"] > 1, "the page holds its own scripts"


@dataclass(frozen=True)
class Counted(FileLoader):
    """A small CIFAR-10 that counts how often its files are read."""

    parsed: list[Path] = field(default_factory=list)

    def parse(self, folder: Path) -> Dataset:
        self.parsed.append(folder)
        images, labels = np.zeros((20, 3, 32, 32), np.uint8), np.arange(20) % 10
        return Dataset.of(self.name, (images, labels), (images[:10], labels[:10]))


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Its file lies in tmp_path/data."""
    made = Counted(
        replace(DATASETS["cifar10"], train_size=20, test_size=10), "bytes", (Original("batch"),)
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "batch").write_bytes(b"x")
    monkeypatch.setattr(data, "CIFAR10", made)
    monkeypatch.setattr(data, "SIZES", {"small": (5_000, 20, 0.2), "large": (10_000, 40, 3.0)})
    monkeypatch.setattr(data, "FEWER", {("fedgen", "large"): 20})
    monkeypatch.setattr(data, "WRITERS", 100)
    return made


def test_each_preparation_reads_the_originals_and_each_loading_the_copy(
    counted: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = data.preparation(tmp_path / "data", 3)
    assert len(counted.parsed) == 3
    assert not (tmp_path / "cache").exists(), "the user's own copies are left alone"
    assert {name: entry["seconds"]["n"] for name, entry in found.items()} == {
        "prepare": 3,
        "load": 3,
    }


def test_every_partition_is_measured_at_each_size(
    counted: Counted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            ["--part", "data", "--repetitions", "2", "--data-dir", str(tmp_path / "data"), "--json"]
        )
        == 0
    )
    part = json.loads(capsys.readouterr().out)["parts"]["data"]
    assert {title: list(found) for title, found in part["partitions"].items()} == {
        "small": list(PARTITIONS),
        "large": list(PARTITIONS),
    }
    lda = part["partitions"]["large"]["lda"]
    assert (lda["samples"], lda["num_clients"], lda["alpha"], lda["seconds"]["n"]) == (
        10_000,
        40,
        10.0,
        2,
    )
    assert part["partitions"]["large"]["fedgen"]["num_clients"] == 20


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_record_on_a_gpu(tmp_path: Path) -> None:
    file = tmp_path / "perf.json"
    options = ["--part", "throughput", "training", "--algo", "fedgkd", "--device", "cuda"]
    ways = [
        "--model",
        "cnn_cifar",
        "--samples",
        "64",
        "--precision",
        "fp32",
        "tf32",
        "bf16",
        "--pack",
        "1",
        "4",
    ]
    assert main([*options, *ways, "--rounds", "2", "--json", str(file)]) == 0
    parts = json.loads(file.read_text())["parts"]
    assert (
        parts["training"]["algorithms"]["cnn_cifar"]["fedgkd"]["over_arithmetic"]["limit"] == 1.15
    )
    assert all(entry["memory"]["median"] > 0 for entry in parts["throughput"]["rates"])
