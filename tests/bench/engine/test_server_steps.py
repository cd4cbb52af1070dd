"""What a server trains: step after step as an ordinary loop would, and captured once as a GPU's would be."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from conftest import largest_gap, nothing_falls_back, simulate
from torch import Tensor

from algorithms import build, feddf
from algorithms.adam import adam_init, adam_step
from algorithms.base import Algorithm, Cohort, Fed, Params, Server, Upload
from bench.engine import server_context
from bench.engine.server_context import ServerSteps
from bench.engine.simulation import Simulation
from bench.engine.stacked.backend import Stacked
from bench.engine.stacked.step_executors import Act, Captured, traced
from bench.engine.together import advance_together
from bench.selftest.candidate import candidate

ROUNDS = 2
WAYS = ["as they come", "captured"]
DOUBLES = (torch.device("cpu"), torch.float64)


def steps_of(way: str) -> ServerSteps:
    """Those of a network that nobody asks anything."""
    capture = captured().server if way == "captured" else None
    return ServerSteps(object(), *DOUBLES, lambda: capture)  # type: ignore[arg-type]


def captured(made: list[Act] | None = None) -> Stacked:
    """A backend that captures as on a GPU, and says what it has captured."""

    def capture(step: Act) -> Act:
        if made is not None:
            made.append(step)
        return traced(step)

    return Stacked(None, server=lambda: Captured(capture, warm_ups=1))


@pytest.fixture(autouse=True)
def _nothing_falls_back() -> Any:
    with nothing_falls_back():
        yield


def falls(net: Any, state: Any, one: Any, given: Any) -> Any:
    """Towards each input in turn, and counted."""
    x = state["x"].detach().requires_grad_()
    (slope,) = torch.autograd.grad(((x - one["to"]) ** 2).sum(), x)
    return {"x": x.detach() - given["lr"] * slope, "made": state["made"] + 1}


@pytest.mark.parametrize("way", WAYS)
def test_each_input_moves_the_state_on(way: str) -> None:
    server, start = steps_of(way), torch.tensor([1.0, -2.0], dtype=torch.float64)
    for lr, count in (
        (0.1, 3),
        (0.25, 2),
        (0.05, 5),
    ):  # other numbers, and other numbers of steps, in each round
        to = torch.arange(2.0 * count, dtype=torch.float64).view(count, 2)
        found = server.repeat(falls, {"x": start, "made": 0}, {"to": to}, {"lr": lr})
        x = [1.0, -2.0]
        for row in to.tolist():
            x = [value - lr * 2 * (value - goal) for value, goal in zip(x, row, strict=True)]
        assert found["x"].tolist() == pytest.approx(x, rel=1e-14)
        assert int(found["made"]) == count
        assert start.tolist() == [1, -2], "the state that was given is not written to"
        assert not found["x"].requires_grad


@pytest.mark.parametrize(
    "inputs",
    [torch.tensor(1.0), {"to": torch.ones(2, 2), "more": torch.ones(3)}, {}],
)
def test_inputs_have_one_common_length(inputs: Any) -> None:
    with pytest.raises(ValueError, match="of one common length, got shapes"):
        steps_of("as they come").repeat(falls, {"x": torch.zeros(2), "made": 0}, inputs, {})


LR = 0.5


@dataclass(frozen=True)
class Halves(Algorithm):
    """Of a method, what it is bound to is no closure; nor is the class that `super()` reads."""

    def half(self, net: Any, state: Any, one: Any, given: Any) -> Any:
        super().__repr__()
        return state * LR


def test_a_step_that_belongs_to_one_round_is_refused() -> None:
    """Captured it would be that round's for ever, or captured anew in each."""
    lr = 0.5

    class Closes(Halves):
        def half(self, net: Any, state: Any, one: Any, given: Any) -> Any:
            return state * lr

    def within(net: Any, state: Any, one: Any, given: Any) -> Any:
        return state

    refused = {
        "closes over lr": Closes().half,
        "<locals>.within": within,
        "<lambda>": lambda net, state, one, given: state,
        "functools.partial": partial(falls),
    }
    for message, step in refused.items():
        with pytest.raises(TypeError, match=message):
            steps_of("as they come").repeat(step, torch.zeros(2), torch.ones(3, 2), {})


def scribbles(net: Any, state: Any, one: Any, given: Any) -> Any:
    given["x"].add_(1)
    return state + given["x"]


def doubles(net: Any, state: Any, one: Any, given: Any) -> Any:
    return state + one.mul_(2)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("step", [scribbles, doubles])
def test_a_step_that_writes_into_what_it_is_given_is_refused(way: str, step: Any) -> None:
    with pytest.raises(ValueError, match=step.__name__):
        steps_of(way).repeat(step, torch.zeros(2), torch.ones(3, 2), {"x": torch.zeros(2)})


def to_mean(net: Any, state: Any, one: Any, given: Any) -> Any:
    return state + one * given.mean(0)


def test_short_of_memory_steps_are_made_as_they_come() -> None:
    def full(step: Act) -> Act:
        raise torch.OutOfMemoryError("CUDA out of memory")

    server = ServerSteps(object(), *DOUBLES, lambda: lambda: Captured(full))  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="CUDA out of memory"):
        found = server.repeat(to_mean, torch.zeros(()), torch.ones(2), torch.ones(3))
    assert float(found) == 2


def test_a_failed_capture_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """When nothing holds the attempt any more, and before the steps are made as they come."""
    attempts: list[weakref.ref[Captured]] = []
    held: list[bool] = []

    def full(step: Act) -> Act:
        raise torch.OutOfMemoryError("CUDA out of memory")

    def attempt() -> Captured:
        made = Captured(full)
        attempts.append(weakref.ref(made))
        return made

    def give_back() -> None:
        gc.collect()
        held.extend(found() is not None for found in attempts)

    monkeypatch.setattr(server_context, "give_back_gpu_memory", give_back)
    server = ServerSteps(object(), *DOUBLES, lambda: attempt)  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="CUDA out of memory"):
        server.repeat(to_mean, torch.zeros(()), torch.ones(2), torch.ones(3))
    assert held == [False]


def adds(net: Any, state: Any, one: Any, given: Any) -> Any:
    return {**state, "more": one}


def grows(net: Any, state: Any, one: Any, given: Any) -> Any:
    return {**state, "x": torch.cat([state["x"], state["x"]])}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("step", [adds, grows])
def test_the_state_keeps_its_structure(way: str, step: Any) -> None:
    with pytest.raises(ValueError, match=step.__name__):
        steps_of(way).repeat(step, {"x": torch.ones(2), "made": 0}, torch.ones(3), {})


def asks(net: Any, state: Any, one: Any, given: Any) -> Any:
    return state + (1 if float(one) > 0 else -1)


def test_a_step_that_cannot_be_captured_is_made_as_it_comes() -> None:
    server, inputs = steps_of("captured"), torch.tensor([1.0, -1.0, 1.0])
    with pytest.warns(UserWarning, match="asks: "):
        found = server.repeat(asks, torch.zeros(2), inputs, {})
    assert found.tolist() == [1, 1]
    assert server.repeat(asks, torch.zeros(2), inputs, {}).tolist() == [1, 1], "said once"


@pytest.mark.parametrize("model", ["mlp+bn", "cnn_digits"])
@pytest.mark.parametrize("name", ["feddf", "fedgen"])
def test_captured_servers_train_what_others_do(name: str, model: str) -> None:
    alone, other = (candidate(name).simulate(model=model) for _ in range(2))
    made: list[Act] = []
    other.trainer = captured(made)
    for run in (alone, other):
        run.advance(ROUNDS)
    # A bias before BatchNorm has no gradient but rounding, of which Adam makes steps.
    assert largest_gap(alone, other) < (1e-9 if model.endswith("+bn") else 1e-12)
    assert len(made) == 1, "captured in round 1, replayed in the others"


@dataclass(frozen=True)
class Drifts(Algorithm):
    """Its server moves the mean on by what its own stream draws, by less in each round."""

    share: float = 0.1

    def server_step(self, fed: Fed, server: Server, uploads: Upload, cohort: Cohort) -> Server:
        mean = cohort.mean(uploads["params"])
        drawn = torch.rand(3, generator=fed.stream("drift", server.round)).to(
            next(iter(mean.values()))
        )
        return server.next(
            fed.repeat(self.drift, mean, drawn, {"scale": self.share / (1 + server.round)})
        )

    def drift(self, net: Any, state: Any, one: Any, given: Any) -> Any:
        return {name: value + given["scale"] * one for name, value in state.items()}


def test_runs_of_a_pack_have_steps_of_their_own() -> None:
    def runs(share: float, seed: int) -> tuple[Simulation, Simulation]:
        one, other = (
            simulate(Drifts(share), backend, seed=seed) for backend in ("loop", "stacked")
        )
        return one, other

    pairs = [runs(0.1, 0), runs(0.3, 0), runs(0.3, 1)]
    for alone, member in pairs:
        alone.advance(ROUNDS)
        member.trainer = captured()
    pack = [member for _, member in pairs]
    assert not advance_together(pack, ROUNDS)
    assert all(largest_gap(alone, member) < 1e-12 for alone, member in pairs)


def test_adam_is_torchs() -> None:
    """In float32, too, where 1 - 0.999 ** 1 has an error of 1e-5, and with a weight decay."""
    for dtype, tolerance in ((torch.float64, 1e-14), (torch.float32, 5e-6)):
        generator = torch.Generator().manual_seed(0)
        params = {
            "a": torch.randn(3, 2, generator=generator, dtype=dtype),
            "b": torch.zeros((), dtype=dtype),
        }
        leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
        optimizer, state = (
            torch.optim.Adam(leaves.values(), 1.0, weight_decay=0.1),
            adam_init(params),
        )
        for _ in range(5):
            slopes = {
                name: torch.randn(value.shape, generator=generator, dtype=dtype)
                for name, value in params.items()
            }
            for name, leaf in leaves.items():
                leaf.grad = slopes[name]
            optimizer.step()
            params, state = adam_step(params, slopes, state, 1.0, 0.1)
            assert all(
                torch.allclose(params[name], leaves[name], rtol=0, atol=tolerance)
                for name in params
            )


class Counted(ServerSteps):
    """Says how many steps are made at a time."""

    def __init__(self, asked: list[int], run: Simulation) -> None:
        super().__init__(run.net, *DOUBLES, lambda: None)
        self._asked = asked

    def repeat(self, step: Any, state: Any, inputs: Tensor, given: Any, net: Any = None) -> Any:
        self._asked.append(len(inputs))
        return super().repeat(step, state, inputs, given, net)


@pytest.mark.parametrize(("patience", "expected"), [(1, [2]), (4, [2, 2]), (100, [2, 2, 2, 2])])
def test_feddf_ends_without_a_better_model(patience: int, expected: list[int]) -> None:
    """At a rate that changes no answer the mean is never surpassed."""
    asked: list[int] = []
    run = candidate("feddf").simulate()
    run.algorithm = build("feddf", max_steps=8, check_every=2, patience=patience, server_lr=1e-30)
    run.fed = replace(run.fed, steps=Counted(asked, run))
    run.advance(1)
    assert asked == expected


def test_feddf_begins_to_count_at_a_better_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """And keeps the first of equally good ones."""
    asked: list[int] = []
    run = candidate("feddf").simulate()
    run.algorithm = build("feddf", max_steps=60, check_every=1, patience=3)
    run.fed = replace(run.fed, steps=Counted(asked, run))
    seen: list[Params] = []

    def accuracy(net: Any, params: Params, data: Any) -> float:
        seen.append(params)
        return [0.1, 0.1, 0.3, 0.2, 0.3, 0.25, 0.9][len(seen) - 1]

    monkeypatch.setattr(feddf, "_accuracy", accuracy)
    run.advance(1)
    assert len(asked) == 5
    assert all(run.server.params[name].equal(value) for name, value in seen[2].items())
