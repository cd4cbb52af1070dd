"""The estimate for the printed tables: heaps of packs that can be scheduled by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.perf import main
from bench.perf.measure import figure
from bench.perf.scale import Heap, Rates, estimate, heap_of, makespan, measure_scale
from bench.perf.tables import problem_of, table_works, tables
from bench.perf.workload import Workload
from bench.planning.tables import cells_of
from bench.planning.unit import Unit
from bench.planning.work import samples_of
from search_spaces import SPACES, Setting

FEDGKD = SPACES["fedgkd", "cifar10", "fedgkd"].setting
PROBLEM = "resnet8 cifar10 own sgd 64"
HOUR = 3600.0
# One epoch of 50,000 samples a round, and an evaluation on 10,000, as long as 10,000 / 3 samples of training.
SMALL = Setting(dataset="cifar10", model="resnet8", rounds=3, local_epochs=1, num_clients=10)
SECONDS = 3 * (50_000 + 10_000 / 3)


def units(count: int, algorithm: str = "fedavg", setting: Setting = SMALL) -> list[Unit]:
    return [Unit(algorithm, {}, setting, seed) for seed in range(count)]


def record(**rates: float) -> dict[str, object]:
    """A record with a rate of ResNet-8 for each pack size, `p1=...`."""
    entry = {"model": "resnet8", "dataset": "cifar10", "image_size": "own", "optimizer": "sgd", "batch_size": 64}
    entries = [
        {**entry, "precision": "fp32", "backend": "loop", "pack": int(name[1:]), "rate": figure([rate], "samples/s")}
        for name, rate in rates.items()
    ]
    return {"device": "a GPU", "parts": {"throughput": {"rates": entries}}}


@pytest.mark.parametrize(("gpus", "seconds"), [(1, 12.0), (2, 7.0), (3, 5.0), (4, 4.0), (5, 3.0), (64, 3.0)])
def test_the_longest_pack_goes_first(gpus: int, seconds: float) -> None:
    """3 3 2 2 2: on two GPUs 3 + 2 + 2 beside 3 + 2."""
    assert makespan([2.0, 3.0, 2.0, 3.0, 2.0], gpus) == seconds


def test_packs_grow_with_the_work_that_a_gpu_has() -> None:
    heap = Heap([{1: [3.0, 3.0, 3.0, 3.0], 4: [6.0]}], {}, [])
    assert heap.packs() == [6.0]
    assert [heap.least(gpus) for gpus in (1, 2, 4, 64)] == [6.0, 6.0, 3.0, 3.0]
    assert (heap.floor, heap.useful) == (3.0, 4)


def test_more_gpus_than_packs_are_of_no_use() -> None:
    heap = Heap([{1: [4.0, 2.0]}, {1: [2.0]}], {}, [])
    assert (heap.floor, heap.useful, heap.least(2), heap.least(64)) == (4.0, 2, 4.0, 4.0)
    tenths = Heap([{1: [0.1] * 15}], {}, [])
    assert tenths.useful == 15, "rounding makes no sixteenth"


def test_what_is_left_over_has_the_rate_of_a_size_that_it_fills() -> None:
    rates = Rates({PROBLEM: {1: 100.0, 2: 200.0, 4: 800.0}})
    heap = heap_of(units(7), rates)
    assert heap.groups[0][1] == pytest.approx([SECONDS / 100] * 7)
    assert heap.groups[0][2] == pytest.approx([2 * SECONDS / 200] * 3 + [SECONDS / 100])
    assert heap.groups[0][4] == pytest.approx([4 * SECONDS / 800, 2 * SECONDS / 200, SECONDS / 100])


def test_an_algorithms_ratio_counts_for_its_training() -> None:
    measured = record(p1=100.0)
    measured["parts"]["training"] = {"algorithms": {"resnet8": {"fedgkd": {"ratio": figure([2.0], "x")}}}}  # type: ignore[index]
    rates = Rates.of([measured], "fp32")
    known, assumed = estimate(units(1, "fedgkd"), rates), estimate(units(1, "fedprox"), rates)
    assert known["gpu_hours"] == pytest.approx(3 * (2 * 50_000 + 10_000 / 3) / 100 / HOUR)
    assert known["assumed_as_fedavg"] == []
    assert assumed["gpu_hours"] == pytest.approx(SECONDS / 100 / HOUR)
    assert assumed["assumed_as_fedavg"] == ["fedprox"]


def test_the_faster_backend_and_the_asked_precision_are_read() -> None:
    entries = record(p1=100.0)["parts"]["throughput"]["rates"] * 3  # type: ignore[index]
    entries[1] = {**entries[1], "backend": "stacked", "rate": figure([300.0], "samples/s")}
    entries[2] = {**entries[2], "precision": "bf16", "rate": figure([900.0], "samples/s")}
    found = {"parts": {"throughput": {"rates": [*entries, {"precision": "fp32", "left_out": "no"}]}}}
    assert Rates.of([found], "fp32").samples == {PROBLEM: {1: 300.0}}


def test_unknown_rates_are_unknown() -> None:
    part = measure_scale([record(p1=1e4)], "fp32")
    assert len(part["tables"]) == 22, "twenty tables, a figure's caption, and all together"
    table = part["tables"]["fedgkd 3"]
    assert table["runs"] == 216 + 2 * 9 * 3, "FedAvg with three learning rates"
    assert sum(table["unknown"].values()) == table["runs"] - 18 * 3 - 2 * 3 * 3
    assert table["hours"]["1"] == pytest.approx(table["gpu_hours"])
    assert part["tables"]["feddkd I"]["hours"] is None
    one = next(cell.setting for cell in cells_of("fedgkd", "fig2"))
    trained, evaluated = samples_of(one)
    assert part["tables"]["fedgkd fig2"]["least_hours"] == pytest.approx((trained + evaluated / 3) / 1e4 / HOUR)


def test_every_problem_of_the_tables_can_be_measured() -> None:
    works = table_works(Workload("any", samples=8))
    assert set(works) == {problem_of(unit.setting) for _, own in tables() for unit in own}
    assert works["distilbert sst5 own adam 64"].model == "distilbert_scratch"
    padded = works["cnn_femnist emnist_letters pad32 sgd 64"]
    assert (padded.setting.image_size, padded.setting.batch_size, padded.setting.momentum) == ("pad32", 64, 0.9)
    assert works["vgg9 cifar10 own adam 64"].setting.momentum == 0.0
    for name, work in works.items():
        assert problem_of(work.setting).replace("distilbert_scratch", "distilbert") == name


def test_command_reads_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "perf.json"
    file.write_text(json.dumps(record(p1=1000.0, p4=3000.0)))
    assert main(["--part", "scale", "--from", str(file)]) == 0
    printed = capsys.readouterr().out
    for text in ("fedgkd 3", "hours on 64", "unknown", "rate unknown, so not counted: resnet8+head", "devices such as"):
        assert text in printed
    assert main(["--part", "scale", "--from", str(file), "--precision", "bf16"]) == 0
    assert "fp32" not in (shown := capsys.readouterr().out)
    assert "devices such as a GPU, bf16" in shown
    file.write_text("{}")
    assert main(["--part", "scale", "--from", str(file)]) == 2
    assert "not a record; python -m bench.perf" in capsys.readouterr().err


def test_records_of_one_device_are_joined() -> None:
    ratios = {"device": "a GPU", "parts": {"training": {"algorithms": {"resnet8": {"moon": {"ratio": {"median": 3}}}}}}}
    assert Rates.of([record(p1=1.0), ratios], "fp32") == Rates({PROBLEM: {1: 1.0}}, {("resnet8", "moon"): 3})
    assert measure_scale([record(p1=1.0), ratios], "fp32")["measured_on"]["device"] == "a GPU"


def test_records_of_two_devices_are_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "perf.json"
    file.write_text(json.dumps(record(p1=1000.0)))
    assert main(["--part", "throughput", "scale", "--from", str(file)]) == 2
    printed, problem = capsys.readouterr()
    assert printed == ""
    assert "rates of one kind of device make an estimate, got a GPU and cpu" in problem
