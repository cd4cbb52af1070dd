"""What a server trains: step after step as an ordinary loop would, and captured once as a GPU's would be."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from conftest import largest_gap, simulate
from torch import Tensor

from algorithms import build
from algorithms.adam import adam_init, adam_step
from algorithms.base import Algorithm, Cohort, Fed, Server, Upload
from bench.engine.pack import Pack
from bench.engine.server_steps import ServerSteps
from bench.engine.simulation import Simulation
from bench.engine.stacked.backend import Stacked
from bench.engine.stacked.captures import Act, traced
from bench.engine.stacked.probe import Preparer
from bench.engine.stacked.programs import Captured
from bench.selftest.candidate import candidate

ROUNDS = 4
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

    return Stacked(None, server=lambda: Captured(Preparer(capture, warm_up=1)))


@pytest.fixture(autouse=True)
def _nothing_falls_back() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


def falls(net: Any, state: Any, one: Any, given: Any) -> Any:
    """Towards each input in turn, and counted."""
    x = state["x"].detach().requires_grad_()
    (slope,) = torch.autograd.grad(((x - one["to"]) ** 2).sum(), x)
    return {"x": x.detach() - given["lr"] * slope, "made": state["made"] + 1}


@pytest.mark.parametrize("way", WAYS)
def test_each_input_moves_the_state_on(way: str) -> None:
    server, start = steps_of(way), torch.tensor([1.0, -2.0], dtype=torch.float64)
    for lr, count in ((0.1, 3), (0.25, 2), (0.05, 5)):  # other numbers, and other numbers of steps, in each round
        to = torch.arange(2.0 * count, dtype=torch.float64).view(count, 2)
        found = server.repeat(falls, {"x": start, "made": 0}, {"to": to}, {"lr": lr})
        x = [1.0, -2.0]
        for row in to.tolist():
            x = [value - lr * 2 * (value - goal) for value, goal in zip(x, row, strict=True)]
        assert found["x"].tolist() == pytest.approx(x, rel=1e-14)
        assert int(found["made"]) == count
        assert start.tolist() == [1, -2], "the state that was given is not written to"
        assert not found["x"].requires_grad


@pytest.mark.parametrize("way", WAYS)
def test_what_was_given_back_stays_what_it_was(way: str) -> None:
    """A server may keep the state after some steps while it goes on from it."""
    server, to = steps_of(way), {"to": torch.ones(2, 2, dtype=torch.float64)}
    first = server.repeat(falls, {"x": torch.zeros(2, dtype=torch.float64), "made": 0}, to, {"lr": 0.25})
    kept = first["x"].clone()
    second = server.repeat(falls, first, to, {"lr": 0.25})
    assert first["x"].equal(kept)
    assert not second["x"].equal(kept)


@pytest.mark.parametrize("way", WAYS)
def test_no_inputs_no_steps(way: str) -> None:
    found = steps_of(way).repeat(falls, {"x": torch.ones(2), "made": 3}, {"to": torch.ones(0, 2)}, {"lr": 1.0})
    assert (found["x"].tolist(), int(found["made"])) == ([1, 1], 3)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("inputs", [{}, {"to": torch.ones(())}, {"to": torch.ones(2, 2), "by": torch.ones(3)}])
def test_inputs_of_no_common_length_are_refused(way: str, inputs: Any) -> None:
    with pytest.raises(ValueError, match=r"one common length, got shapes \["):
        steps_of(way).repeat(falls, {"x": torch.ones(2), "made": 0}, inputs, {"lr": 1.0})


def test_a_step_that_closes_over_something_is_refused() -> None:
    lr, kind = 0.5, steps_of("as they come")

    def closed(net: Any, state: Any, one: Any, given: Any) -> Any:
        return state - lr * one

    with pytest.raises(TypeError, match="closes over lr: what a server's step reads has to reach it in"):
        kind.repeat(closed, torch.zeros(2), torch.ones(3, 2), {})
    with pytest.raises(TypeError, match="must be a method of the algorithm or a function"):
        kind.repeat(partial(falls), {"x": torch.zeros(2), "made": 0}, {"to": torch.ones(3, 2)}, {"lr": 1.0})


class Halves:
    """Of a method, what it is bound to is no closure; nor is the class that `super()` reads."""

    def __repr__(self) -> str:
        return super().__repr__()

    def step(self, net: Any, state: Any, one: Any, given: Any) -> Any:
        super().__init__()
        return state / 2


@pytest.mark.parametrize("way", WAYS)
def test_a_method_may_say_super(way: str) -> None:
    found = steps_of(way).repeat(Halves().step, torch.ones(2), torch.zeros(3), {})
    assert found.tolist() == [0.125, 0.125]


def forgets(net: Any, state: Any, one: Any, given: Any) -> Any:
    return {"x": state["x"]}


def grows(net: Any, state: Any, one: Any, given: Any) -> Any:
    return {**state, "x": torch.cat([state["x"], state["x"]])}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("step", "said"),
    [
        (forgets, r"state had \['made', 'x'\], got \['x'\]"),
        (grows, r"state\['x'\] was \(\(2,\), torch.float32\), got \(\(4,\), torch.float32\)"),
    ],
)
def test_the_state_keeps_its_structure(way: str, step: Any, said: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ValueError, match=f"{step.__name__} must give back its state with the .*: {said}"):
            steps_of(way).repeat(step, {"x": torch.ones(2), "made": 0}, torch.ones(3), {})


def asks(net: Any, state: Any, one: Any, given: Any) -> Any:
    return state + (1 if float(one) > 0 else -1)


def test_a_step_that_cannot_be_captured_is_made_as_it_comes() -> None:
    server, inputs = steps_of("captured"), torch.tensor([1.0, -1.0, 1.0])
    with pytest.warns(UserWarning, match="asks: the server's steps are not captured, which makes them slower"):
        found = server.repeat(asks, torch.zeros(2), inputs, {})
    assert found.tolist() == [1, 1]
    assert server.repeat(asks, torch.zeros(2), inputs, {}).tolist() == [1, 1], "said once"


@pytest.mark.parametrize("model", ["mlp", "mlp+bn", "cnn_digits"])
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
        drawn = torch.rand(3, generator=fed.stream("drift", server.round)).to(next(iter(mean.values())))
        return server.next(fed.repeat(self.drift, mean, drawn, {"scale": self.share / (1 + server.round)}))

    def drift(self, net: Any, state: Any, one: Any, given: Any) -> Any:
        return {name: value + given["scale"] * one for name, value in state.items()}


def test_runs_of_a_pack_have_steps_of_their_own() -> None:
    def runs(share: float, seed: int) -> tuple[Simulation, Simulation]:
        one, other = (simulate(Drifts(share), backend, seed=seed) for backend in ("loop", "stacked"))
        return one, other

    pairs = [runs(0.1, 0), runs(0.3, 0), runs(0.3, 1)]
    for alone, member in pairs:
        alone.advance(ROUNDS)
        member.trainer = captured()
    pack = Pack([member for _, member in pairs])
    pack.advance(ROUNDS)
    assert not pack.failures
    assert all(largest_gap(alone, member) < 1e-12 for alone, member in pairs)


def test_adam_is_torchs() -> None:
    """In float32, too, where 1 - 0.999 ** 1 has an error of 1e-5, and with a weight decay."""
    for dtype, tolerance in ((torch.float64, 1e-14), (torch.float32, 1e-6)):
        generator = torch.Generator().manual_seed(0)
        params = {"a": torch.randn(3, 2, generator=generator, dtype=dtype), "b": torch.zeros((), dtype=dtype)}
        leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
        optimizer, state = torch.optim.Adam(leaves.values(), 0.01, weight_decay=0.1), adam_init(params)
        for _ in range(5):
            slopes = {
                name: torch.randn(value.shape, generator=generator, dtype=dtype) for name, value in params.items()
            }
            for name, leaf in leaves.items():
                leaf.grad = slopes[name]
            optimizer.step()
            params, state = adam_step(params, slopes, state, 0.01, 0.1)
            assert all(torch.allclose(params[name], leaves[name], rtol=0, atol=tolerance) for name in params)


def test_feddf_checks_where_it_says() -> None:
    """The last steps are a shorter block where `check_every` does not divide them."""
    asked: list[int] = []

    class Counted(ServerSteps):
        def repeat(self, step: Any, state: Any, inputs: Tensor, given: Any) -> Any:
            asked.append(len(inputs))
            return super().repeat(step, state, inputs, given)

    run = candidate("feddf").simulate()
    run.algorithm = build("feddf", max_steps=7, check_every=3, patience=100)
    run.fed = type(run.fed)(**{**vars(run.fed), "steps": Counted(run.net, *DOUBLES, lambda: None)})
    run.advance(1)
    assert asked == [3, 3, 1]
