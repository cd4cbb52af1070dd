"""What evaluations summarise, when they give up, and what of a round is not finite."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from conftest import simulate, trained

from algorithms.base import Algorithm
from algorithms.forward import chunk_size
from bench.engine import evaluate, simulation
from bench.engine.client_scores import OwnScore, _padded, client_measures, fairness, spread
from bench.engine.evaluate import (
    Alike,
    Evaluator,
    Score,
    StopCheck,
    mean_measures,
    nonfinite_reason,
)
from bench.engine.model_stacks import filled, samples_of_pass
from bench.engine.together import _shares_of_samples
from bench.errors import Interrupted

CPU = torch.device("cpu")


def test_clients_that_train_and_new_ones_are_summarised_apart() -> None:
    own = {
        0: OwnScore(3, 4, 1, 2),
        1: OwnScore(1, 2, 3, 3),
        2: OwnScore(5, 5, 9, 9),
        3: OwnScore(1, 5, 0, 0),
    }
    assert client_measures(own, 2, last=True) == pytest.approx(
        {
            "amp": 4 / 6,
            "fm": 0.125**2,
            "wlp": 0.5,
            "client_mean": 0.625,
            "client_std": 0.125,
            "client_worst10": 0.5,
            "client_val_accuracy": 4 / 5,
            "new_client_accuracy": 0.6,
            "new_client_mean": 0.6,
            "new_client_std": 0.4,
            "new_client_worst10": 0.2,
            "client_accuracy/0": 0.75,
            "client_accuracy/1": 0.5,
            "client_accuracy/2": 1.0,
            "client_accuracy/3": 0.2,
        }
    )
    of_one = client_measures({0: OwnScore(1, 1, 0, 0)}, 1, last=False)
    assert set(of_one) == {"amp", "fm", "wlp", "client_mean", "client_std", "client_worst10"}
    only_new = client_measures({3: OwnScore(1, 2, 1, 1)}, 3, last=False)
    assert set(only_new) == {
        f"new_client_{name}" for name in ("accuracy", "mean", "std", "worst10")
    }
    assert client_measures({}, 3, last=True) == {}


def test_accuracies_are_weighted_by_samples_once() -> None:
    assert fairness([1.0, 0.5], [1, 3]) == pytest.approx({"amp": 0.625, "fm": 1 / 16, "wlp": 0.5})
    shares = [number / 20 for number in range(20)]
    assert spread(shares)["worst10"] == pytest.approx(0.025)
    assert _padded(torch.tensor([4, 7]), 4).tolist() == [4, 7, 7, 7]
    assert _padded(torch.tensor([4, 7]), 2).tolist() == [4, 7]


def test_means_are_over_the_scores_that_have_a_measure() -> None:
    scores = [
        Score(torch.tensor([1, 2]), 4, 0.5, val_accuracy=0.25),
        Score(torch.tensor([1, 0]), 2, 1.5, part=1),
    ]
    assert mean_measures(scores) == {"accuracy": 0.625, "loss": 1.0, "val_accuracy": 0.25}
    assert mean_measures([]) == {}


def test_a_pass_has_as_many_samples_as_memory_bounds() -> None:
    size = chunk_size(CPU)
    assert [samples_of_pass(CPU, width) for width in (1, 3, 16)] == [
        4 * size,
        4 * size // 3,
        size // 4,
    ]
    assert samples_of_pass(CPU, 10**9) == 1
    assert filled([1, 2], 4) == [1, 2, 2, 2]
    assert filled([1, 2], 2) == [1, 2]


# Stopping


class Clock:
    """A clock that is set, and a sweep that is stopping or not."""

    now = 0.0
    stopping = False

    def __init__(self) -> None:
        self.asked: list[float] = []

    def is_stopping(self) -> bool:
        self.asked.append(self.now)
        return self.stopping


def test_evaluation_is_given_up_after_five_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(evaluate.time, "monotonic", lambda: clock.now)
    check = StopCheck(clock.is_stopping)
    for second in (100.0, 100.25, 100.5, 100.75, 101.0, 105.75, 105.99):
        clock.now = second
        clock.stopping = second > 100.75
        check()
    assert clock.asked == [100.0, 100.5, 101.0, 105.75], "at most twice a second"
    clock.now = 106.25
    with pytest.raises(Interrupted, match="the sweep is stopping, and this round's evaluation"):
        check()


# Models that are alike


def test_untrained_models_share_the_scores_of_the_first() -> None:
    alike = Alike({1, 2, 3})
    ones = {"a": torch.ones(1)}
    assert alike.leader(0, ones) == 0
    assert alike.leader(1, ones) == 1
    assert alike.leader(2, {"a": torch.ones(1)}) == 1
    assert alike.leader(3, {"a": torch.zeros(1)}) == 3


# What is not finite

RIGHT = torch.tensor(0.5)
NAN = torch.tensor(math.nan)
INFINITE = torch.tensor([1.0, math.inf])


def result(loss: torch.Tensor = RIGHT, client: int = 3, **nan_in: torch.Tensor) -> Any:
    return SimpleNamespace(client=client, loss=loss, nan_in=nan_in)


@pytest.mark.parametrize(
    ("results", "models", "message", "reason"),
    [
        ([result()], [{"a": torch.ones(2)}], {"params": {"a": NAN}, "mask": INFINITE}, None),
        ([result(NAN)], [], {}, "client 3: the training loss is not finite"),
        ([result(), result(-INFINITE[1], 4)], [], {}, "client 4: the training loss is not finite"),
        ([result(theta=NAN)], [], {}, "client 3: 'theta', trained beside its model, is not finite"),
        ([result()], [{"a": INFINITE}], {}, "the server's model 1 is not finite"),
        ([result()], [{}, {"a": NAN}], {}, "the server's model 2 is not finite"),
        ([result()], [], {"prior": NAN}, "the server's prior is not finite"),
    ],
)
def test_the_first_value_that_is_not_finite_is_named(
    results: list[Any], models: list[Any], message: Any, reason: str | None
) -> None:
    found = nonfinite_reason(7, results, models, message)
    assert found == (f"round 7, {reason}" if reason else None)


# Rounds


def test_time_is_shared_by_samples() -> None:
    def works(*sizes: tuple[int, ...]) -> Any:
        schedules = [SimpleNamespace(schedule=SimpleNamespace(sizes=of_one)) for of_one in sizes]
        return SimpleNamespace(clients=schedules)

    class Job:
        def __init__(self, clients: Any) -> None:
            self.clients = clients

    owners: Any = {Job(works((8, 2), (5,)).clients): "a", Job(works((5,)).clients): "b"}
    assert _shares_of_samples(owners) == {"a": 0.75, "b": 0.25}


class Counted(Algorithm):
    """Counts its messages."""

    made: ClassVar[list[int]] = []

    def broadcast(self, fed: Any, server: Any) -> Any:
        self.made.append(server.round)
        return super().broadcast(fed, server)


def test_a_message_is_made_once_a_round() -> None:
    Counted.made.clear()
    run = simulate(Counted())
    run.advance(2)
    assert Counted.made == [0, 1, 2]


@pytest.mark.parametrize("backend", ["loop", "stacked"])
def test_models_are_evaluated_one_by_one_without_a_gpu(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacked: list[bool] = []

    def noted(*given: Any, **options: Any) -> Evaluator:
        stacked.append(options["stacked"])
        return Evaluator(*given, **options)

    monkeypatch.setattr(simulation, "Evaluator", noted)
    trained("local", backend, rounds=1)
    assert stacked == [False]
