"""Timed rounds: which are counted, when they are enough, and on which made-up run."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from bench.engine import pace
from bench.planning.cost_model import Pace
from search_spaces import Setting

SETTING = Setting(batch_size=8, auxiliary_per_class=3, validation_fraction=0.1)


class Timed:
    """A run whose rounds take given seconds on a clock of its own."""

    arguments: tuple[Any, ...] = ()
    seconds: Iterator[float] = iter(())
    clock = 0.0
    rounds = 0
    done = False

    def __init__(self, *arguments: Any, backend: str) -> None:
        Timed.arguments = arguments
        assert backend == "loop"

    def advance(self) -> None:
        Timed.clock += next(Timed.seconds)
        Timed.rounds += 1


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> type[Timed]:
    monkeypatch.setattr(pace, "Simulation", Timed)
    monkeypatch.setattr(pace.time, "thread_time", lambda: Timed.clock)
    monkeypatch.setattr(Timed, "rounds", 0)
    return Timed


@pytest.mark.parametrize(
    ("seconds", "rounds", "median"),
    [
        ([1 / 32] * 6 + [1 / 64] * 2 + [1 / 128] * 3, 11, (1 / 64 + 1 / 128) / 2),
        ([1 / 256] * 6 + [1 / 512] * 99, 6 + 26, 1 / 512),
        ([0.5, 0.25], 2, 0.25),
        ([0.25, 0.125, 0.0625], 3, (0.125 + 0.0625) / 2),
    ],
)
def test_rounds_are_timed_until_they_are_enough(
    seconds: list[float], rounds: int, median: float, timed: type[Timed]
) -> None:
    timed.seconds = iter(seconds)
    assert pace._round_seconds("fedavg", {}, SETTING) == pytest.approx(median)
    assert timed.rounds == rounds


def test_the_timed_run_is_as_asked(timed: type[Timed]) -> None:
    timed.seconds = iter([1.0] * 9)
    setting = replace(SETTING, lr=0.5, client_models="mlp/cnn_digits", local_test_fraction=0.2)
    pace._round_seconds("fedgen", {}, setting, epochs=3, batches=2, server_steps=5)
    algorithm, given, seed, dataset, info, split = timed.arguments
    assert algorithm.generator_steps == 5
    assert (seed, info.name) == (0, "digits")
    assert list(map(len, split.clients)) == [2 * 8]
    assert (len(split.auxiliary), len(split.validation)) == (3 * 10, pace.HELD_OUT)
    assert len(dataset.test_y) == pace.TESTS
    expected: dict[str, Any] = {
        "partition": "iid",
        "alpha": None,
        "num_clients": 1,
        "local_epochs": 3,
    }
    expected |= {"rounds": 10**9, "evaluate_every": 10**9, "local_test_fraction": 0.0}
    assert given == replace(setting, lr=1e-4, **expected)


@pytest.mark.parametrize(
    ("changes", "auxiliary", "held_out"),
    [
        ({"validation_fraction": 0.0, "auxiliary_per_class": 0}, 0, 0),
        ({"public": "mnist:7"}, 7, pace.HELD_OUT),
    ],
)
def test_samples_are_made_up_as_needed(
    changes: dict[str, Any], auxiliary: int, held_out: int, timed: type[Timed]
) -> None:
    timed.seconds = iter([1.0] * 9)
    pace._round_seconds("fedavg", {}, replace(SETTING, **changes), evaluated=True)
    _, given, _, _, _, split = timed.arguments
    assert (given.evaluate_every, given.step_rule, given.public) == (1, "epochs", "")
    assert (len(split.auxiliary), len(split.validation)) == (auxiliary, held_out)


def test_a_diverging_run_is_not_timed(timed: type[Timed], monkeypatch: pytest.MonkeyPatch) -> None:
    timed.seconds = iter([1.0])
    monkeypatch.setattr(timed, "done", True)
    monkeypatch.setattr(timed, "progress", type("", (), {"complaint": "NaN"}), raising=False)
    with pytest.raises(RuntimeError, match=r"^fedavg diverged on made-up samples: NaN$"):
        pace._round_seconds("fedavg", {}, SETTING)


def test_a_round_without_validation_has_fewer_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(*_: Any, evaluated: bool = False, **__: Any) -> float:
        return 0.02 if evaluated else 0.01

    monkeypatch.setattr(pace, "_round_seconds", seconds)
    found = pace.measure("fedavg", {}, replace(SETTING, validation_fraction=0.0))
    assert found.sample == pytest.approx(0.01 / pace.TESTS)


def test_unlike_models_have_their_mean_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = {"mlp": 0.01, "cnn_digits": 0.04}
    monkeypatch.setattr(
        pace, "_round_seconds", lambda a, b, setting, **_: cost[setting.client_models]
    )
    setting = replace(SETTING, client_models="mlp/cnn_digits/mlp")
    found = pace.measure("fedavg", {}, setting)
    assert vars(found) == pytest.approx(vars(Pace(0.02, 0.0, 0.0, 0.0, 0.0)))


def test_the_limit_itself_is_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_round_seconds", lambda *given: pace.SLOW)
    assert pace._slow_pace("fedavg", {}, SETTING) is None


def linear(
    algorithm: str,
    values: Any,
    setting: Setting,
    epochs: int = 1,
    batches: int = 1,
    evaluated: bool = False,
    server_steps: int = 1,
) -> float:
    """Seconds of a round of which each part has a price of its own."""
    samples = 200 + 32 * bool(setting.validation_fraction)
    seconds = 0.001 * setting.batch_size * epochs * batches + 0.0007 * batches + 0.005
    return seconds + 0.00002 * samples * evaluated + 0.003 * (server_steps - 1)


@pytest.mark.parametrize(("algorithm", "server"), [("fedavg", 0.0), ("fedgen", 0.003)])
def test_each_price_is_found(
    algorithm: str, server: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "_round_seconds", linear)
    measured = pace.measure(algorithm, {}, SETTING)
    assert vars(measured) == pytest.approx(vars(Pace(0.0057, 0.0007, 0.008, 0.00002, server)))


@pytest.mark.parametrize(("algorithm", "server"), [("fedavg", 0.0), ("fedgen", 0.3)])
@pytest.mark.parametrize("batch_size", [3, 4, 8])
def test_slow_rounds_are_timed_with_few_samples(
    algorithm: str, server: float, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seconds(*given: Any, **changes: Any) -> float:
        assert given[2].batch_size <= 4
        return 100 * linear(*given, **changes)

    monkeypatch.setattr(pace, "_round_seconds", seconds)
    measured = pace.measure(algorithm, {}, replace(SETTING, batch_size=batch_size))
    expected = Pace(0.57, 0.0, 0.1 * batch_size, 0.1 / 3, server)
    assert vars(measured) == pytest.approx(vars(expected))


def test_every_form_may_start_from_drawn_weights() -> None:
    assert pace._without_weights("distilbert+lora8") == "distilbert_scratch+lora8"
    assert pace._without_weights("mlp+bn+head") == "mlp+bn+head"


def test_each_entry_has_its_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    threads: list[int] = []

    def measured(algorithm: str, values: Any, setting: Setting) -> Pace:
        sys.stdout.write("not a line of JSON\n")
        if algorithm == "fedprox":
            raise ValueError("no such round")
        return Pace(setting.lr, 1.0, 2.0, 3.0, 4.0)

    monkeypatch.setattr(pace, "measure", measured)
    monkeypatch.setattr(pace, "prepare_process", threads.append)
    monkeypatch.setattr(sys, "argv", ["pace", "3"])
    asked = [["fedavg", {}, {"lr": 0.25}], ["fedprox", {}, {}]]
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(asked)))
    monkeypatch.setattr(sys, "stdout", out := io.StringIO())
    assert pace.main() == 0
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first == vars(Pace(0.25, 1.0, 2.0, 3.0, 4.0))
    assert second == {"error": "ValueError: no such round"}
    assert threads == [3]
