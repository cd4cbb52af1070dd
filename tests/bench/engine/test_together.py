"""Runs in one program equal lone runs, also when memory is short or one member fails."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any
from weakref import ref

import pytest
import torch
from conftest import apart, identical, largest_gap, simulate, trained
from torch import Tensor

from algorithms.base import Algorithm, hyper
from algorithms.fedavg import FedAvg
from algorithms.fedprox import FedProx
from algorithms.losses import cross_entropy
from algorithms.t1 import T1
from bench.engine.loop import Loop
from bench.engine.simulation import Simulation
from bench.engine.stacked import backend
from bench.engine.stacked.backend import Stacked
from bench.engine.stacked.stack import Stack
from bench.engine.together import advance_together
from bench.errors import Slower
from bench.selftest.candidate import candidate

ROUNDS = 3


def test_members_may_differ_in_clients_rates_and_length() -> None:
    fields = [
        {"participation": 0.5},
        {"participation": 1.0, "lr": 0.05, "lr_decay": 0.9},
        {"local_epochs": 1, "seed": 3},
        {"sizes": (20, 10, 5, 5, 8), "seed": 1},
    ]
    alone = [trained(FedProx(0.1 * i), rounds=ROUNDS, **given) for i, given in enumerate(fields)]
    pack = [simulate(FedProx(0.1 * i), "stacked", **given) for i, given in enumerate(fields)]
    assert not advance_together(pack, ROUNDS)
    assert apart(pack) is None
    assert all(largest_gap(one, other) < 1e-12 for one, other in zip(alone, pack, strict=True))
    assert all(a.progress.traffic == b.progress.traffic for a, b in zip(alone, pack, strict=True))


def test_in_a_loop_members_equal_lone_runs_bit_for_bit() -> None:
    alone = [trained("fedcad", rounds=ROUNDS, seed=seed) for seed in (0, 1)]
    pack = [simulate("fedcad", "loop", seed=seed) for seed in (0, 1)]
    assert not advance_together(pack, ROUNDS)
    assert all(identical(one, other) for one, other in zip(alone, pack, strict=True))


def with_labels(run: Simulation, labels: Tensor) -> Simulation:
    """The run, with other labels of its training samples."""
    run.federation.train = copy.copy(run.federation.train)
    run.federation.train.labels = labels
    return run


def test_runs_on_other_labels_train_one_by_one() -> None:
    labels = simulate("fedavg").federation.train.labels
    alone = [with_labels(simulate("fedavg", "stacked"), labels.roll(k)) for k in (0, 1)]
    pack = [with_labels(simulate("fedavg", "stacked"), labels.roll(k)) for k in (0, 1)]
    for run in alone:
        run.advance(2)
    with pytest.warns(Slower, match="samples or labels differ"):
        assert not advance_together(pack, 2)
    assert all(identical(one, other) for one, other in zip(alone, pack, strict=True))


def test_copies_of_the_same_samples_train_together() -> None:
    labels = simulate("fedavg").federation.train.labels
    pack = [with_labels(simulate("fedavg", "stacked", seed=k), labels.clone()) for k in (0, 1)]
    assert not advance_together(pack, 1)
    assert apart(pack) is None


def test_those_behind_catch_up() -> None:
    ahead, behind = (simulate("fedgkd_vote", "stacked", seed=seed) for seed in (0, 1))
    ahead.advance(2)
    pack = [ahead, behind]
    assert not advance_together(pack, 2)
    assert (ahead.round, behind.round) == (2, 2)
    assert not advance_together(pack, 1)
    assert (ahead.round, behind.round) == (3, 3)


def test_members_may_differ_in_their_bases_numbers() -> None:
    methods = [T1(FedProx(mu)) for mu in (0.0, 0.5)]
    alone = [trained(method, rounds=ROUNDS) for method in methods]
    assert largest_gap(*alone) > 1e-3
    pack = [simulate(method, "stacked") for method in methods]
    failures = advance_together(pack, ROUNDS)
    assert (failures, apart(pack)) == ({}, None)
    for one, other in zip(alone, pack, strict=True):
        assert largest_gap(one, other) < 1e-12


class Breaks(FedAvg):
    """Fails in round 2."""

    def broadcast(self, fed: Any, server: Any) -> Any:
        if server.round == 1:
            raise ArithmeticError("out of luck")
        return {"params": server.params}


def test_one_that_fails_leaves_and_the_others_go_on() -> None:
    whole, broken = simulate("fedavg", "stacked"), simulate(Breaks(), "stacked")
    alone = trained("fedavg", rounds=ROUNDS)
    pack = [broken, whole]
    failures = advance_together(pack, ROUNDS)
    assert "out of luck" in str(failures[broken])
    assert (broken.round, whole.round) == (1, ROUNDS)
    assert largest_gap(alone, whole) < 1e-12


@dataclass(frozen=True)
class Asks(Algorithm):
    """Asks a number for its value, which a program of several configurations cannot answer."""

    weight: float = hyper(0.5, 0)

    def local_loss(
        self, net: Any, local: Any, batch: Any, message: Any, memory: Any, plan: Any
    ) -> Tensor:
        return cross_entropy(net(local["params"], batch.x).logits, batch.y) * (
            2 if self.weight > 0.3 else 1
        )


def test_what_cannot_share_a_program_trains_one_by_one() -> None:
    pack = [simulate(Asks(weight), "stacked") for weight in (0.1, 0.5)]
    with pytest.warns(Slower):
        assert not advance_together(pack, 1)
    with warnings.catch_warnings(action="error"):  # said once, and tried once
        failures = advance_together(pack, ROUNDS - 1)
    assert not failures
    for member, weight in zip(pack, (0.1, 0.5), strict=True):
        assert largest_gap(trained(Asks(weight), rounds=ROUNDS), member) < 1e-12


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory"),
    getattr(torch, "AcceleratorError", RuntimeError)("CUDA error: out of memory"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
]
NO_ENGINE = RuntimeError("GET was unable to find an engine to execute this computation")


@pytest.mark.parametrize(
    ("algorithm", "error"),
    [("fedgen", ERRORS[0]), ("feddkd", ERRORS[1]), ("moon", ERRORS[2])],
)
def test_short_of_memory_half_the_clients_go_on(
    algorithm: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that was drawn before is drawn no second time."""
    alone = [candidate(algorithm).run(ROUNDS, "stacked", seed=seed) for seed in (0, 1)]
    pack = [candidate(algorithm).simulate("stacked", seed=seed) for seed in (0, 1)]
    tried = limited(monkeypatch, 2, error)
    given_back: list[int] = []
    monkeypatch.setattr(backend, "give_back_gpu_memory", lambda: given_back.append(1))
    with pytest.warns(UserWarning, match="6 clients"):
        assert not advance_together(pack, ROUNDS)
    assert tried[:3] == [6, 3, 2]
    assert len(given_back) == 2, "after each attempt"
    assert isinstance(pack[0].trainer, Stacked)
    assert pack[0].trainer.limit == 2
    assert all(largest_gap(one, other) < 1e-10 for one, other in zip(alone, pack, strict=True))


def test_no_kernel_is_no_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer clients have no kernel either: the run fails at once, and says what to try."""
    run = simulate("fedavg", "stacked")
    tried = limited(monkeypatch, 0, NO_ENGINE)
    with pytest.raises(RuntimeError, match="--backend loop"):
        run.advance(1)
    assert len(tried) == 1


def test_a_second_attempt_of_the_loop_sees_the_same_draws() -> None:
    run = trained("fedgen", rounds=1)  # without a generator
    job = run.begin()
    first, second = (Loop().train(job) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one.upload, other.upload, rtol=0, atol=0)


@dataclass(frozen=True)
class Refuses(Algorithm):
    """Its stack does not work, or its one of these members' clients."""

    mu: float = hyper(0.0, 0)

    def upload(self, net: Any, local: Any, data: Any, message: Any, memory: Any, plan: Any) -> Any:
        if self.mu == 0.5:
            raise ValueError("no upload")
        return super().upload(net, local, data, message, memory, plan)


def test_what_failed_keeps_no_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """One member fails, the others go on together; the kept error holds no stack."""
    stacks: list[ref[Any]] = []
    whole = Stack.__init__

    def init(self: Stack, *given: Any) -> None:
        stacks.append(ref(self))
        whole(self, *given)

    monkeypatch.setattr(Stack, "__init__", init)
    members = [simulate(Refuses(mu), "stacked") for mu in (0.1, 0.5, 0.2)]
    failures = advance_together(members, ROUNDS)
    assert (list(failures), apart(members)) == ([members[1]], None)
    assert [member.round for member in members] == [ROUNDS, 0, ROUNDS]
    assert len(stacks) == 4 + ROUNDS - 1, "together, three alone, then two together in each round"
    assert not [kept for kept in stacks if kept() is not None]


def test_a_lone_member_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Stack.__init__
    stacks: list[int] = []

    def init(self: Stack, *given: Any) -> None:
        stacks.append(1)
        whole(self, *given)

    monkeypatch.setattr(Stack, "__init__", init)
    alone = simulate(Refuses(0.5), "stacked")
    failures = advance_together([alone])
    assert (list(failures), len(stacks)) == ([alone], 1)


@pytest.mark.filterwarnings("ignore:out of memory")
def test_a_client_that_does_not_fit_alone_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    run = simulate("fedavg", "stacked")
    limited(monkeypatch, 0)
    with pytest.raises(torch.OutOfMemoryError):
        run.advance(1)
    assert run.round == 0


def limited(
    monkeypatch: pytest.MonkeyPatch, clients: int, error: Exception = ERRORS[0]
) -> list[int]:
    """A device whose memory holds so many clients; how many were tried at once."""
    tried: list[int] = []
    whole = Stack.run

    def run(self: Stack) -> Any:
        tried.append(len(self.entries))
        done = whole(self)
        if len(self.entries) > clients:
            raise error
        return done

    monkeypatch.setattr(Stack, "run", run)
    return tried
