"""The roofline: costs counted by hand, shares of ceilings, phases, memory and energy. Timings are never asserted."""

from __future__ import annotations

import ctypes
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bench.engine import process
from bench.engine.stacked.backend import Stacked
from bench.engine.stacked.cuda_graphs import traced
from bench.engine.stacked.step_executors import Captured
from bench.perf import ceilings, energy, main, memory, printed, split
from bench.perf.ceilings import bound, check_precision, copy_rate, matrix_peak
from bench.perf.costs import Costs, Traffic, costs_of
from bench.perf.energy import Energy, NoCounter
from bench.perf.measure import figure, nothing
from bench.perf.split import PHASES, Stopwatch, measure_split, watching
from bench.perf.throughput import Case, cases, measure_throughput, roofline
from bench.perf.workload import Workload, one_round, simulation, simulations, together

TINY = Workload("cnn_cifar", clients=2, cohort=2, samples=40, epochs=2, batch_size=16)
LINUX = Path("/proc/self/clear_refs").exists()
CEILINGS = {"matrix": {"fp32": figure([1000.0], "FLOP/s")}, "copy": figure([100.0], "B/s")}


def silent(text: str) -> None:
    """Progress that nobody reads."""


def test_flops_are_those_of_the_printed_layers() -> None:
    # Multiply and add of each output: 5x5 convolutions to 28x28x6 and 10x10x16, then 400-120-84-10.
    first, rest = 28 * 28 * 6 * 75, 10 * 10 * 16 * 150 + 400 * 120 + 120 * 84 + 84 * 10
    # Backward every layer costs twice as much, but that the first one's inputs need no gradient.
    assert costs_of(simulation(TINY, "fedavg")).flops == 2 * (2 * first + 3 * rest)


def test_costs_leave_the_run_alone() -> None:
    run, other = simulations(TINY, "fedavg", 1)[0], simulation(TINY, "fedavg")
    costs_of(run)
    one_round(run)
    one_round(other)
    assert all(torch.equal(value, other.server.params[name]) for name, value in run.server.params.items())


def test_traffic_counts_what_is_read_and_written() -> None:
    a, b = torch.ones(100), torch.ones(100)  # 400 bytes each

    def counted(action: Any) -> int:
        with Traffic() as traffic:
            action()
        return traffic.bytes

    assert counted(lambda: a + b) == 1200
    assert counted(lambda: a.view(10, 10).t()) == 0, "a view moves nothing"
    assert counted(lambda: a.add_(b)) == 1200, "what is changed is read and written"
    assert counted(lambda: torch._foreach_add_([a, b], [b, a])) == 2400
    assert counted(lambda: torch.zeros(100)) == 400
    assert counted(lambda: a.view(10, 10) @ b.view(10, 10)) == 1200


@pytest.mark.parametrize(
    ("flops", "traffic", "found"), [(10.0, 0.5, ("arithmetic", 100.0)), (1.0, 2, ("bandwidth", 50))]
)
def test_what_allows_less_binds(flops: float, traffic: float, found: tuple[str, float]) -> None:
    assert bound(CEILINGS, "fp32", flops, traffic) == found


def test_a_rate_stands_beside_the_ceilings() -> None:
    case = Case(TINY, "cnn_cifar", 1)
    found = roofline(case, Costs(10.0, 0.5), CEILINGS, figure([40.0], "samples/s"))
    assert (found["arithmetic_share"], found["bandwidth_share_estimate"]) == (0.4, 0.2)
    assert (found["binds"], found["bound"], found["bound_share"]["median"]) == ("arithmetic", 100.0, 0.4)
    assert "limit" not in found["bound_share"], "the target is a GPU's"
    gpu = roofline(replace(case, work=replace(TINY, device="cuda")), Costs(10.0, 0.5), CEILINGS, figure([20.0], "/s"))
    assert (gpu["bound_share"]["limit"], gpu["bound_share"]["met"]) == (0.25, False)


def test_ceilings_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ceilings.SIZES, "cpu", (64,))
    monkeypatch.setitem(ceilings.COPIED, "cpu", 2**16)
    assert matrix_peak("cpu", "fp32")["median"] > 1e8
    assert copy_rate("cpu")["median"] > 1e7
    with pytest.raises(Exception, match="TF32 is a GPU's"):
        check_precision("cpu", "tf32")


def test_cases_are_every_combination_once() -> None:
    found = cases({"cnn_cifar cifar10": TINY}, ["auto", "loop", "stacked"], ["fp32", "bf16"], [1, 8])
    how = [(case.work.backend, case.work.precision, case.pack) for case in found]
    assert how == [(b, p, n) for b in ("loop", "stacked") for p in ("fp32", "bf16") for n in (1, 8)]
    assert {case.name for case in found} == {"cnn_cifar"}


def test_throughput_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "perf.json"
    options = ["--part", "throughput", "--model", "cnn_cifar", "--clients", "2", "--samples", "16", "--rounds", "1"]
    ways = ["--backend", "auto,stacked", "--precision", "fp32", "tf32", "--pack", "1", "2"]
    assert main([*options, *ways, "--json", str(file)]) == 0
    shown = capsys.readouterr().out
    record = json.loads(file.read_text())
    assert (record["schema"], list(record["parts"])) == (2, ["throughput"])
    part = record["parts"]["throughput"]
    assert list(part) == ["work", "ceilings", "rates", "split"]
    assert list(part["ceilings"]["matrix"]) == ["fp32"]
    measured = [entry for entry in part["rates"] if entry["precision"] == "fp32"]
    assert [(entry["backend"], entry["pack"]) for entry in measured] == [
        ("loop", 1),
        ("loop", 2),
        ("stacked", 1),
        ("stacked", 2),
    ]
    for entry in measured:
        assert {"dataset", "model", "rate", "cpu_rate", "bound_share", "binds", "memory", "energy"} < set(entry)
        assert entry["memory_of"] == ("the case" if LINUX else "the process")
        assert entry["memory"]["unit"] == "MB"
        peak = part["ceilings"]["matrix"]["fp32"]["median"]
        assert entry["arithmetic_share"] == pytest.approx(entry["rate"]["median"] * entry["flops_per_sample"] / peak)
    assert all("TF32" in entry["left_out"] for entry in part["rates"] if entry["precision"] == "tf32")
    assert set(part["split"]["cnn_cifar"]["phases"]) == set(PHASES)
    for text in ("throughput: ceilings, copy", "augmentation", "left out", "TF32 is a GPU's", "Ray Tune's share"):
        assert text in shown


def test_one_cases_failure_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = replace(TINY, model="cnn_fedgen")  # takes 28x28 inputs
    monkeypatch.setattr("bench.perf.throughput.measure_ceilings", lambda *_: CEILINGS)
    found = measure_throughput([Case(broken, "cnn_fedgen", 1), Case(TINY, "cnn_cifar", 1)], [], 1, silent)
    assert "28x28" in found["rates"][0]["left_out"]
    assert found["rates"][1]["rate"]["n"] == 1


def test_a_pack_is_advanced_together() -> None:
    runs = simulations(TINY, "fedavg", 2)
    together(runs)()
    assert [run.round for run in runs] == [1, 1]
    assert {run.seed for run in runs} == {0, 1}
    alone = simulation(TINY, "fedavg")
    one_round(alone)
    assert all(torch.equal(value, alone.server.params[name]) for name, value in runs[0].server.params.items())


def test_a_pack_that_fails_or_diverges_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = simulations(TINY, "fedavg", 2)
    advance = together(runs)
    advance()
    runs[1].progress.diverged = True
    with pytest.raises(RuntimeError, match="diverged in round 1"):
        advance()
    runs = simulations(TINY, "fedavg", 2)
    advance = together(runs)
    monkeypatch.setattr(runs[0], "begin", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        advance()


def test_stopwatch_gives_each_phase_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 3.0, 7.0, 15.0, 31.0])
    monkeypatch.setattr(split, "perf_counter", lambda: next(clock))
    watch = Stopwatch(lambda: None, _since=next(clock))
    inner = watch.timed("inner", lambda: None)
    watch.timed("outer", inner)()  # outer from 1 to 15, inner from 3 to 7
    assert watch.take() == {"rest": 1.0 + 16.0, "outer": 2.0 + 8.0, "inner": 4.0}
    assert watch.seconds == {}


def test_timers_are_gone_afterwards_and_change_nothing() -> None:
    run, other = simulation(TINY, "fedgkd"), simulation(TINY, "fedgkd")
    points = [(run, "save"), (run, "_evaluate"), (run.algorithm, "server_step"), (run.trainer, "train")]
    with watching(run, Stopwatch(lambda: None)):
        assert all(name in vars(owner) for owner, name in points)
        one_round(run)
    one_round(other)
    assert not any(name in vars(owner) for owner, name in points)
    assert split.engine.make_work.__module__ == "bench.engine.client_round"
    assert all(torch.equal(value, other.server.params[name]) for name, value in run.server.params.items())


def test_split_adds_up() -> None:
    found = measure_split(replace(TINY, augmentation="flip_crop"), "fedavg", 1)
    assert found["not_separated"] == []
    assert sum(found["share"].values()) == pytest.approx(1)
    assert (found["samples"], found["tests"]) == (160, 10_000)


def test_phase_within_a_captured_step_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: a replayed step gathers its inputs without asking Python."""
    monkeypatch.setattr(split.engine, "trainer_of", lambda *_: Stacked(lambda: Captured(traced)))
    found = measure_split(TINY, "fedavg", 1)
    assert found["not_separated"] == ["augmentation"]
    lines = printed.notes({"parts": {"throughput": {"rates": [], "split": {"cnn_cifar": found}}}, "load": None})
    assert any("augmentation cannot be told from step" in line for line in lines)


@pytest.mark.skipif(not LINUX, reason="the high-water mark is Linux's")
def test_memory_sees_a_peak_that_is_over() -> None:
    process.keep_freed_memory()
    earlier = [torch.ones(5_000_000) for _ in range(20)]
    del earlier  # kept by the process, until a measurement begins
    assert memory.begin("cpu")
    before = memory.peak("cpu")["median"]
    held = torch.ones(50_000_000)
    del held
    assert memory.peak("cpu")["median"] > before + 150
    memory.begin("cpu")
    assert memory.peak("cpu")["median"] < before + 150, "a new measurement knows nothing of it"


def test_memory_without_linux_is_the_process_peak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_PROCESS", tmp_path / "missing")
    assert not memory.begin("cpu")
    assert memory.peak("cpu")["median"] > 10


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Counters of two packages, of one's cores, and of the whole platform."""
    for zone, name in {"0": "package-0", "0:0": "core", "1": "package-1", "2": "psys"}.items():
        folder = tmp_path / f"intel-rapl:{zone}"
        folder.mkdir()
        (folder / "name").write_text(name + "\n")
        (folder / "max_energy_range_uj").write_text("10000000000\n")
        (folder / "energy_uj").write_text("9999000000\n")
    monkeypatch.setattr(energy, "POWERCAP", tmp_path)
    return tmp_path


def test_joules_of_all_packages_over_a_full_counter(packages: Path) -> None:
    spent = Energy("cpu")
    (packages / "intel-rapl:0" / "energy_uj").write_text("1000000")  # 2 J on, past its end at 10 kJ
    (packages / "intel-rapl:1" / "energy_uj").write_text("9999500000")
    (packages / "intel-rapl:2" / "energy_uj").write_text("1")
    found = spent.of(samples=5)
    assert (found["joules"]["median"], found["per_sample"]["median"]) == (2.5, 0.5)


def test_joules_of_rounds_that_together_fill_a_counter(packages: Path) -> None:
    spent, file = Energy("cpu"), packages / "intel-rapl:0" / "energy_uj"
    for count in (5_999_000_000, 1_999_000_000):  # 6 kJ each, of 10 that it counts to
        spent.timed(lambda count=count: file.write_text(str(count)), nothing)
    assert spent.of(samples=6)["per_sample"]["median"] == 2_000


def test_energy_of_rounds_that_may_fill_a_counter_is_left_out(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spent = Energy("cpu")
    with monkeypatch.context() as patch:
        patch.setattr(energy, "MOST_WATTS", 1e12)
        spent.timed(nothing, nothing)
    spent.timed(nothing, nothing)
    assert "may have been full more than once in a round of 0 s" in spent.of(1)["left_out"]


def test_energy_that_is_not_reported_is_said(packages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (packages / "intel-rapl:1" / "energy_uj").write_text("closed")
    assert Energy("cpu").of(1)["left_out"].startswith(f"not reported: {packages}/intel-rapl:1/energy_uj cannot be read")
    monkeypatch.setattr(energy, "POWERCAP", packages / "missing")
    assert "no RAPL counters" in Energy("cpu").of(1)["left_out"]


@pytest.mark.usefixtures("packages")
def test_energy_of_too_short_a_time_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(energy.LEAST_SECONDS, "cpu", 60.0)
    assert "too short for its counter, which needs 60: take more --rounds" in Energy("cpu").of(1)["left_out"]


class FakeNvml:
    """NVML of one GPU that has taken so many millijoules."""

    def __init__(self, status: int = 0) -> None:
        self.millijoules, self.status = 7_000, status

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByUUID(self, name: bytes, handle: Any) -> int:
        return 0 if name == b"GPU-abc" else 6

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: ctypes.c_void_p, found: Any) -> int:
        found._obj.value = self.millijoules
        return self.status


def test_joules_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    monkeypatch.setitem(energy.LEAST_SECONDS, "cuda", 0.0)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: nvml)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="abc"))
    spent = Energy("cuda")
    nvml.millijoules += 3_000
    assert spent.of(samples=6)["per_sample"]["median"] == 0.5
    nvml.status = 3
    assert Energy("cuda").of(1) == {"left_out": "not reported: this GPU counts no energy"}
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="other"))
    with pytest.raises(NoCounter, match="NVML does not know this GPU"):
        energy._gpu()


@pytest.mark.parametrize(("load", "said"), [([0.1, 0, 0], False), ([3.25, 0, 0], True), (None, False)])
def test_busy_machine_is_said(load: list[float] | None, said: bool) -> None:
    found = " ".join(printed.notes({"parts": {}, "load": load, "cores": 2}))
    assert ("the load was 3.2 on 2 cores" in found) is said


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_record_on_a_gpu(tmp_path: Path) -> None:
    file = tmp_path / "perf.json"
    options = [
        "--part",
        "throughput",
        "training",
        "profile",
        "--algo",
        "fedgkd",
        "--device",
        "cuda",
        "--model",
        "cnn_cifar",
        "--samples",
        "64",
    ]
    ways = ["--precision", "fp32", "tf32", "bf16", "--pack", "1", "4", "--rounds", "2"]
    assert main([*options, *ways, "--json", str(file)]) == 0
    parts = json.loads(file.read_text())["parts"]
    assert parts["training"]["algorithms"]["cnn_cifar"]["fedgkd"]["over_floor"]["limit"] == 1.15
    assert all("rate" in entry for entry in parts["throughput"]["rates"])
    assert parts["throughput"]["rates"][0]["bound_share"]["limit"] == 0.25
    assert parts["profile"]["cnn_cifar"]["clock"] == "CUDA"
