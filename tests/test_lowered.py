"""A stack's parameters in bfloat16, cast all at once: the numbers that each would be by itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import largest_gap, simulate
from torch import Tensor, nn
from torch.func import vmap
from torch.utils._python_dispatch import TorchDispatchMode

from algorithms.base import Outputs
from bench.engine.network import Network, initial_params
from bench.engine.stacked.convolutions import computed
from bench.engine.stacked.lowered import lowered
from bench.engine.trees import num_bytes

CPU = torch.device("cpu")
SHAPES = {"body.weight": (3, 4, 2, 3, 3), "norm.weight": (3, 4), "head.weight": (3, 5, 4), "head.bias": (3, 5)}


class Counted(TorchDispatchMode):
    """Counts operations by their name."""

    def __init__(self) -> None:
        super().__init__()
        self.found = Counter[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found[func._schema.name] += 1
        return func(*args, **(kwargs or {}))


def parameters() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=draw).requires_grad_() for name, shape in SHAPES.items()}


class Named:
    """Stands for a network of which these layers compute in bfloat16."""

    lowered = ("body.weight", "head.weight", "head.bias")


def test_values_and_slopes_are_those_of_each_by_itself() -> None:
    made, given = lowered(Named(), parameters()), parameters()  # type: ignore[arg-type]
    assert list(made) == list(Named.lowered)
    for name, low in made.items():
        assert low.dtype is torch.bfloat16
        assert not low.storage_offset() % 16, "kernels load 32 bytes at once"
        assert torch.equal(low, given[name].to(torch.bfloat16))
    leaves = parameters()
    used = lowered(Named(), leaves)  # type: ignore[arg-type]
    loss = (used["body.weight"].float() ** 3).sum() + (used["head.bias"] * leaves["head.bias"]).sum()
    own = (given["body.weight"].to(torch.bfloat16).float() ** 3).sum()
    own = own + (given["head.bias"].to(torch.bfloat16) * given["head.bias"]).sum()
    slopes = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    expected = torch.autograd.grad(own, list(given.values()), allow_unused=True, materialize_grads=True)
    for slope, other in zip(slopes, expected, strict=True):
        assert slope.dtype is torch.float32
        assert torch.equal(slope, other), "of the one that nobody used zero"


def test_only_bfloat16_has_any() -> None:
    assert not simulate("fedavg", model="cnn_digits", precision="fp32").net.lowered
    net = simulate("fedavg", model="cnn_digits+bn", precision="bf16").net
    assert set(net.lowered) == set(net.trainable) - net.batchnorm, "statistics stay in float32, and their weights"


class Own(nn.Linear):
    """Rounds its weights to tenths, in float32."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, (10 * self.weight).round() / 10, self.bias)


class Free(nn.Module):
    """Takes its layers' weights as they are, outside of what autocast casts, and one layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.mix, self.own, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4, 4), Own(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Outputs:
        h = self.own(self.mix(self.mix(self.body(x).mean((2, 3)))))
        with torch.autocast("cpu", enabled=False):
            h = torch.lerp(self.mix(h.float()) @ self.mix.weight, self.mix.bias, 0.3)
        return Outputs(self.head(h), h)


def slopes_of(calls: int, low: bool, precision: str = "bf16") -> tuple[Tensor, int]:
    """Gradients of two clients' models, called so many times, and the casts that it took."""
    torch.manual_seed(0)
    module = Free()
    net = Network(module, (1, 8, 8), 3, precision)
    params = {name: torch.stack([value, 2 * value]) for name, value in initial_params(module, net.dtype, CPU).items()}
    leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
    x, mode = torch.randn(2, calls, 5, 1, 8, 8), computed("grouped")

    def loss(own: dict[str, Tensor], cast: dict[str, Tensor], x: Tensor) -> Tensor:
        with mode.lowering(own, cast):
            return torch.stack([net(own, part).logits.square().mean() for part in x]).mean()

    with mode, Counted() as counted:
        values = vmap(loss)(leaves, lowered(net, leaves) if low else {}, x)
        slopes = torch.autograd.grad(values.sum(), list(leaves.values()))
    assert all(slope.dtype is torch.float32 for slope in slopes)
    return torch.cat([slope.flatten() for slope in slopes]), counted.found["aten::_to_copy"]


@pytest.mark.parametrize("calls", [1, 30])
def test_a_model_may_take_weights_as_they_are_and_be_called_often(calls: int) -> None:
    (alone, more), (together, fewer) = slopes_of(calls, low=False), slopes_of(calls, low=True)
    exact, _ = slopes_of(calls, low=False, precision="fp32")
    assert fewer < more
    errors = [float((slopes - exact).norm() / exact.norm()) for slopes in (together, alone)]
    assert 0 < errors[0] < 1.5 * errors[1] < 0.05


def test_only_torchs_own_layers_are_cast() -> None:
    assert set(Network(Free(), (1, 8, 8), 3, "bf16").lowered) == {
        f"{layer}.{name}" for layer in ("body", "mix", "head") for name in ("weight", "bias")
    }


def test_a_model_that_is_not_the_clients_own_is_cast_by_itself() -> None:
    run = simulate("fedavg", model="cnn_digits", precision="bf16")
    net, own = run.net, run.server.params
    other = {name: value.clone() for name, value in own.items()}
    x, mode = run.federation.train.at(torch.arange(4)), computed("grouped")
    casts, made = [], []
    with mode, mode.lowering(own, lowered(net, own)):
        for params in (other, own, own):
            with Counted() as counted:
                made.append(net(params, x).logits)
            casts.append(counted.found["aten::_to_copy"])
    assert casts[0] == casts[2] == casts[1] + len(net.trainable)
    assert torch.equal(made[0], made[1])
    assert torch.equal(made[1], made[2])


@pytest.mark.parametrize("algorithm", ["fedavg", "fedgkd", "moon"])
def test_a_step_has_few_casts_however_many_layers(algorithm: str) -> None:
    model = "cnn_digits+head" if algorithm == "moon" else "cnn_digits"
    options = {"model": model, "augmentation": "flip_crop", "local_epochs": 1, "participation": 1.0}
    runs = [simulate(algorithm, "stacked", precision="bf16", sizes=(8,) * 4, **options) for _ in range(2)]
    runs[1].net.lowered = ()
    counts = []
    for run in runs:
        run.advance(1)  # a second round has all teachers
        with Counted() as counted:
            run.advance(1)
        counts.append(counted.found["aten::_to_copy"])
    layers = len(runs[0].net.trainable)
    assert counts[1] - counts[0] >= 2 * layers - 4, "one cast, and one of the slopes, for all"
    assert largest_gap(*runs) < 1e-3
    assert num_bytes(runs[0].server.params) == num_bytes(runs[1].server.params)
