"""Timed rounds with given clocks: the timed calls, their order, the figures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bench.errors import UsageError
from bench.perf import measure, training, workload
from bench.perf.measure import alternate, figure, synchroniser
from bench.perf.workload import BareLoop, Workload, together

WORK = Workload("resnet8", clients=8, cohort=4, samples=10, epochs=3)


class Calls:
    """Clocks that each kind of call moves by its own time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **costs: float) -> None:
        self.costs = costs
        self.made: list[str] = []
        self.now = 0.0
        monkeypatch.setattr(measure.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(measure.time, "process_time", lambda: self.now / 2)
        monkeypatch.setattr(training, "simulation", self.simulation)
        monkeypatch.setattr(training, "simulations", self.simulations)
        monkeypatch.setattr(training, "one_round", lambda run: self.call(run.name))
        monkeypatch.setattr(training, "together", lambda runs: lambda: self.call(runs[0].name))
        monkeypatch.setattr(training, "operations", lambda run: run.operations)
        monkeypatch.setattr(training, "BareLoop", self.loop)
        monkeypatch.setattr(training.torch, "get_num_threads", lambda: 1)
        self.asked: list[Any] = []

    def call(self, name: str) -> None:
        """Spend a call's time; the first call of each takes longer."""
        self.now += self.costs[name] * (1 if name in self.made else 100)
        self.made.append(name)

    def simulation(self, work: Workload, algorithm: str, like: str = "") -> Any:
        """A run, whose rounds have operations of their own."""
        self.asked.append((work, algorithm, like))
        counts = {"fedavg": 480, "fedprox": 960}
        return SimpleNamespace(name=algorithm, backend="stacked", operations=counts[algorithm])

    def simulations(self, work: Workload, algorithm: str, count: int) -> list[Any]:
        """Runs side by side."""
        return [self.simulation(work, algorithm) for _ in range(count)]

    def loop(self, work: Workload) -> Any:
        """A bare loop."""
        self.asked.append((work, "bare"))
        return SimpleNamespace(segment=lambda: self.call("bare"))


def test_a_bare_loop_takes_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch, fedavg=4.0, bare=3.0)
    found = training.beside_bare_loop(WORK, 3)
    assert calls.asked == [(WORK, "fedavg", ""), (WORK, "bare")]
    assert calls.made == ["fedavg", "bare", "fedavg", "bare", "bare", "fedavg", "fedavg", "bare"]
    assert found == {
        "backend": "stacked",
        "engine_rate": figure([30.0] * 3, "samples/s"),
        "bare_rate": figure([40.0] * 3, "samples/s"),
        "ratio": figure([0.75] * 3, "x", 0.95, at_least=True),
        "cpu_ratio": figure([0.75] * 3, "x"),
    }


def test_augmentation_has_no_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    Calls(monkeypatch, fedavg=4.0, bare=4.0)
    crop = Workload("resnet8", augmentation="crop_flip")
    assert training.beside_bare_loop(crop, 1)["ratio"] == figure([1.0], "x")


def test_algorithms_are_timed_after_they_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch, fedprox=9.0, fedavg=3.0)
    found = training.beside_fedavg("fedprox", WORK, 2)
    assert calls.asked == [(WORK, "fedprox", ""), (WORK, "fedavg", "fedprox")]
    timed = ["fedprox", "fedavg", "fedavg", "fedprox"]
    assert calls.made == ["fedprox"] * 6 + ["fedavg", *timed]
    assert found == {
        "ratio": figure([3.0, 3.0], "x"),
        "cpu_ratio": figure([3.0, 3.0], "x"),
        "arithmetic": figure([2.0], "x"),
        "over_arithmetic": figure([1.5, 1.5], "x", 1.15),
    }


def test_rates_of_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch, fedavg=2.0)
    packed = Workload("resnet8", clients=8, cohort=4, samples=10, epochs=3, pack=5)
    alone = Workload("resnet8", clients=1, cohort=1, samples=10, epochs=3, pack=5)
    rates = [300.0] * 2
    expected = {
        "rate": figure(rates, "samples/s"),
        "cpu_rate": figure([600.0] * 2, "samples/s"),
        "flops": figure([300 * 480 / 30] * 2, "FLOP/s"),
    }
    assert training.rate(packed, 2) == expected
    assert calls.made == ["fedavg"] * 3
    assert calls.asked == [*[(packed, "fedavg", "")] * 5, (alone, "fedavg", "")]
    monkeypatch.setattr(training.torch, "get_num_threads", lambda: 2)
    del expected["cpu_rate"]
    assert training.rate(packed, 2) == expected


def test_a_gpus_memory_is_counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(monkeypatch, fedavg=2.0)
    done: list[str] = []
    cuda = SimpleNamespace(
        reset_peak_memory_stats=lambda: done.append("reset"),
        max_memory_allocated=lambda: 2_500_000,
        synchronize=lambda: done.append("wait"),
    )
    monkeypatch.setattr(training.torch, "cuda", cuda)
    monkeypatch.setattr(training, "give_back_gpu_memory", lambda: done.append("give back"))
    found = training.rate(Workload("resnet8", device="cuda", precision="tf32"), 2)
    assert found["memory"] == figure([2.5], "MB")
    assert "cpu_rate" not in found
    assert done == ["give back", "reset", *["wait"] * 4]
    assert calls.made == ["fedavg"] * 3


def test_a_cpu_does_not_wait() -> None:
    assert synchroniser("cpu")() is None


def test_turns_change() -> None:
    made: list[int] = []
    waits: list[int] = []
    spent = alternate(
        lambda: made.append(1), lambda: made.append(2), 3, lambda: waits.append(len(made))
    )
    assert made == [1, 2, 2, 1, 1, 2]
    assert waits == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6]
    assert len(spent) == 3


# Workloads


def test_a_workload_is_a_setting() -> None:
    setting = WORK.setting
    assert (setting.num_clients, setting.participation, setting.rounds) == (8, 0.5, 200)
    assert (setting.local_epochs, setting.batch_size, setting.evaluate_every) == (3, 64, 200)
    assert setting.validation_fraction == 320 / 400
    assert (setting.lr, setting.momentum, setting.precision) == (0.01, 0.9, "fp32")
    assert WORK.processed == 120
    assert WORK.name == "resnet8, auto, fp32, pack 1"


def runs_at(*rounds: int) -> list[Any]:
    return [SimpleNamespace(round=number) for number in rounds]


def test_runs_advance_together(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = runs_at(3, 3)
    failures: dict[Any, Exception] = {}
    moves = [1, 1]

    def advance(given: Any) -> Any:
        for run, move in zip(given, moves, strict=True):
            run.round += move
        return failures

    monkeypatch.setattr(workload, "advance_together", advance)
    together(runs)()
    assert [run.round for run in runs] == [4, 4]
    moves[1] = 0
    with pytest.raises(RuntimeError, match=r"^the run diverged in round 4$"):
        together(runs)()
    failures["run"] = UsageError("no room")
    with pytest.raises(UsageError, match=r"^no room$"):
        together(runs_at(1, 1))()


def test_runs_have_seeds_and_shorter_server_work(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(
        workload, "Simulation", lambda *given, **options: made.append((given, options))
    )
    built: list[Any] = []
    monkeypatch.setattr(workload, "build", lambda name, **short: built.append((name, short)))
    work = Workload("cnn_cifar", clients=2, cohort=2, samples=8, backend="loop")
    workload.simulations(work, "feddf", 3)
    workload.simulations(work, "fedavg", 1, like="feddf")
    assert built == [("feddf", {"max_steps": 20, "check_every": 10}), ("fedavg", {})]
    assert [given[2] for given, _ in made] == [0, 1, 2, 0]
    assert {options["backend"] for _, options in made} == {"loop"}
    assert {options["device"] for _, options in made} == {"cpu"}
    (_, setting, _, _, constants, split) = made[0][0]
    assert setting.momentum == 0.9
    assert (setting.public, setting.model) == (made[3][0][1].public, "cnn_cifar")
    assert constants.num_classes == 10
    assert len(split.clients) == 2
    workload.simulations(work, "scaffold", 1)
    assert made[4][0][1].momentum == 0.0


def test_a_bare_loop_steps_through_its_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Workload("cnn_cifar", cohort=2, samples=3, epochs=2, batch_size=2)
    bare = BareLoop(work)
    sizes: list[int] = []
    module = bare._module
    monkeypatch.setattr(bare, "_module", lambda x: sizes.append(len(x)) or module(x))
    before = [parameter.clone() for parameter in module.parameters()]
    bare.segment()
    assert sizes == [2, 1] * 4
    assert any((one != two).any() for one, two in zip(before, module.parameters(), strict=True))
    (x, y), _ = bare._shards
    assert (x.min() >= -0.5, x.max() <= 0.5, len(y)) == (True, True, 3)
