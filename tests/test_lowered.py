"""A stack's parameters in bfloat16, cast all at once: the numbers that each would be by itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from conftest import largest_gap, simulate
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bench.engine.network import Network
from bench.engine.stacked.lowered import lowered
from bench.engine.trees import num_bytes

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


def calls(net: Network, name: str, seen: list[torch.dtype]) -> None:
    """Note the type of a parameter in every call of the training module."""
    module = net._train._module
    layer, _, own = name.rpartition(".")
    module.register_forward_pre_hook(lambda *_: seen.append(module.get_submodule(layer)._parameters[own].dtype))


def test_a_model_that_is_not_the_clients_own_is_cast_by_itself() -> None:
    run = simulate("fedavg", model="cnn_digits", precision="bf16")
    net, own, other = run.net, run.server.params, {name: value.clone() for name, value in run.server.params.items()}
    seen: list[torch.dtype] = []
    calls(net, "head.weight", seen)
    x = run.federation.train.at(torch.arange(4))
    with net.lowering(own, lowered(net, own)):
        first, second = net(own, x), net(other, x)
    net(own, x)
    assert seen == [torch.bfloat16, torch.float32, torch.float32]
    assert torch.equal(first.logits, second.logits)


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
