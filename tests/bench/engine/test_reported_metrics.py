"""Metrics that an algorithm reports of its own: in the curve on both backends, and without any other effect."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from conftest import identical, resumed, simulate
from torch import Tensor

from algorithms.base import Algorithm, Plugin, hyper
from algorithms.losses import cross_entropy
from algorithms.plugins import methods
from bench.engine.simulation import Simulation
from bench.engine.stacked.backend import Stacked
from bench.engine.stacked.step_executors import Captured, traced
from bench.engine.together import advance_together
from bench.selftest.candidate import candidate
from bench.selftest.certify import FAILED, PASSED, run_check
from bench.selftest.toy import SIZES


@dataclass(frozen=True)
class Reporting(Algorithm):
    """FedAvg with an L2 term, which reports terms of the loss, and numbers of clients and of the server."""

    terms: ClassVar = ("entropy", "squares")
    weight: float = hyper(0.1, 0)

    def local_loss(self, net, local, batch, message, memory, plan):  # type: ignore[no-untyped-def]
        loss = cross_entropy(net(local["params"], batch.x).logits, batch.y)
        squares = sum((local["params"][name] ** 2).sum() for name in net.trainable)
        batch.report(entropy=loss, squares=squares)
        return loss + self.weight * squares

    def upload(self, net, local, data, message, memory, plan):  # type: ignore[no-untyped-def]
        return {
            "params": local["params"],
            "metrics": {"samples": float(len(data.y)), "rank": 2.0},
        }, memory

    def server_step(self, fed, server, uploads, cohort):  # type: ignore[no-untyped-def]
        assert "metrics" not in uploads
        assert not server.metrics
        return server.next(cohort.mean(uploads["params"]), metrics={"cohort": len(cohort.ids)})


@dataclass(frozen=True)
class Silent(Algorithm):
    """The same without reports."""

    weight: float = hyper(0.1, 0)

    def local_loss(self, net, local, batch, message, memory, plan):  # type: ignore[no-untyped-def]
        loss = cross_entropy(net(local["params"], batch.x).logits, batch.y)
        return loss + self.weight * sum(
            (local["params"][name] ** 2).sum() for name in net.trainable
        )


OWN = ("entropy", "squares", "samples", "rank", "cohort")


def values(run: Simulation, metric: str) -> list[float]:
    return [value for _, name, value in run.progress.curves[""] if name == metric]


def run(algorithm: Algorithm, backend: str = "loop", rounds: int = 3, **fields: Any) -> Simulation:
    simulation = simulate(algorithm, backend, **fields)
    simulation.advance(rounds)
    return simulation


def test_reports_change_nothing_else() -> None:
    reporting, silent = run(Reporting()), run(Silent())
    assert torch.equal(reporting.server.params["head.weight"], silent.server.params["head.weight"])
    assert reporting.progress.traffic == silent.progress.traffic
    points = [point for point in reporting.progress.curves[""] if point[1] not in OWN]
    assert points == silent.progress.curves[""]
    assert not reporting.server.metrics
    assert set(reporting.server.extra) == set()


def test_they_are_means_over_steps_examples_and_clients() -> None:
    reporting = run(Reporting(weight=0.0), rounds=1, participation=1.0)
    assert values(reporting, "cohort") == [4]
    assert values(reporting, "rank") == [2]
    assert values(reporting, "samples") == [
        pytest.approx(sum(size**2 for size in SIZES) / sum(SIZES))
    ]
    trained = simulate(Reporting(weight=0.0), participation=1.0)
    job = trained.begin()
    results = trained.trainer.train(job)
    mean = sum(size * float(each.loss) for size, each in zip(SIZES, results, strict=True)) / sum(
        SIZES
    )
    assert values(reporting, "entropy") == [pytest.approx(mean)]


@pytest.mark.parametrize("trainer", ["eager", "traced"])
def test_backends_report_the_same(trainer: str) -> None:
    loop = run(Reporting())
    stacked = simulate(Reporting(), "stacked")
    if trainer == "traced":
        stacked.trainer = Stacked(lambda: Captured(traced, warm_ups=1))
    stacked.advance(3)
    for metric in OWN:
        assert values(stacked, metric) == pytest.approx(values(loop, metric), rel=1e-9), metric


def test_members_of_a_pack_report_their_own() -> None:
    algorithms = [Reporting(weight=0.1), Reporting(weight=0.5)]
    pack = [simulate(algorithm, "stacked", seed=seed) for seed, algorithm in enumerate(algorithms)]
    assert not advance_together(pack, 3)
    for seed, (algorithm, member) in enumerate(zip(algorithms, pack, strict=True)):
        alone = run(algorithm, seed=seed)
        for metric in OWN:
            assert values(member, metric) == pytest.approx(values(alone, metric), rel=1e-9), metric


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_a_resumed_run_reports_what_an_undisturbed_one_does(backend: str, tmp_path: Any) -> None:
    assert identical(resumed(tmp_path, Reporting(), backend), run(Reporting(), backend, 4))


def test_rounds_without_evaluation_report_nothing() -> None:
    sparse = run(Reporting(), rounds=4, evaluate_every=3)
    assert len(values(sparse, "cohort")) == len(values(sparse, "accuracy")) == 2


@dataclass(frozen=True)
class Around(Plugin):
    """A plug-in that reports a number beside its base's."""

    def server_step(self, fed, server, uploads, cohort):  # type: ignore[no-untyped-def]
        after = self.base.server_step(fed, server, uploads, cohort)
        return replace(after, metrics={**after.metrics, "more": 1})


def test_a_plugin_reports_beside_its_base() -> None:
    around = run(Around(base=Reporting()))
    assert {*OWN, "more"} <= {name for _, name, _ in around.progress.curves[""]}


def test_a_plugin_says_what_its_hooks_take() -> None:
    for name in methods(Algorithm):
        hook = getattr(Around, name)
        expected = getattr(Algorithm, name)
        if name != "server_step":
            assert inspect.signature(hook) == inspect.signature(expected)
            assert hook.__doc__ == expected.__doc__


def reporting(metrics: Any = None, of_server: Any = None, terms: Any = None) -> Algorithm:
    """FedAvg that reports these."""
    declared = tuple(name for name in terms or {} if name != "undeclared")

    @dataclass(frozen=True)
    class Given(Algorithm):
        terms: ClassVar = declared

        def local_loss(self, net, local, batch, message, memory, plan) -> Tensor:  # type: ignore[no-untyped-def]
            batch.report(**(terms or {}))
            return cross_entropy(net(local["params"], batch.x).logits, batch.y)

        def upload(self, net, local, data, message, memory, plan):  # type: ignore[no-untyped-def]
            return {"params": local["params"], "metrics": metrics or {}}, memory

        def server_step(self, fed, server, uploads, cohort):  # type: ignore[no-untyped-def]
            return server.next(cohort.mean(uploads["params"]), metrics=of_server)

    return Given()


@pytest.mark.parametrize("backend", ["loop", "stacked"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"metrics": {"accuracy": 1.0}},
        {"metrics": {"best": 1.0}},
        {"metrics": {"rounds": 1.0}},
        {"metrics": {"client_accuracy/0": 1.0}},
        {"metrics": {"Two words": 1.0}},
        {"metrics": {"vector": torch.zeros(2)}},
        {"metrics": {"text": "high"}},
        {"metrics": [1.0]},
        {"of_server": {"bytes_up": 1.0}},
        {"metrics": {"norm": 1.0}, "of_server": {"norm": 1.0}},
        {"terms": {"undeclared": torch.zeros(())}},
        {"terms": {"matrix": torch.zeros(2, 10)}},
        {"terms": {"number": 0.5}},
    ],
)
def test_a_wrong_report_is_refused(wrong: dict[str, Any], backend: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=r"metric|local_loss reports"):
        run(reporting(**wrong), backend)


@dataclass(frozen=True)
class Early(Algorithm):
    """FedAvg that reports before its steps."""

    terms: ClassVar = ("early",)

    def before_step(self, net, local, batch, message, plan):  # type: ignore[no-untyped-def]
        batch.report(early=batch.x.sum())
        return local


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_a_report_before_steps_is_refused(backend: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match="before_step reports the terms"):
        run(Early(), backend)


def test_the_self_test_takes_reports_as_they_are() -> None:
    tested = candidate(f"{__name__}:Reporting")
    for check in ("contract", "communication", "memory", "resume"):
        outcome = run_check(tested, check)
        assert outcome.status == PASSED, outcome


@dataclass(frozen=True)
class Wrong(Algorithm):
    """FedAvg whose clients report a vector."""

    def upload(self, net, local, data, message, memory, plan):  # type: ignore[no-untyped-def]
        return {"params": local["params"], "metrics": {"vector": data.y}}, memory


def test_the_contract_refuses_a_wrong_report() -> None:
    assert run_check(candidate(f"{__name__}:Wrong"), "contract").status == FAILED


@dataclass(frozen=True)
class Undefined(Algorithm):
    """Reports a metric that has no value."""

    def upload(self, net, local, data, message, memory, plan):  # type: ignore[no-untyped-def]
        ratio = data.y.sum() * math.nan
        return {"params": local["params"], "metrics": {"ratio": ratio}}, memory


def test_a_metric_without_a_value_changes_nothing(tmp_path: Path) -> None:
    whole = simulate(Undefined())
    whole.advance(4)
    assert identical(whole, resumed(tmp_path / "state", Undefined()))
    assert not whole.progress.diverged
    assert all(value != value for _, name, value in whole.progress.curves[""] if name == "ratio")
