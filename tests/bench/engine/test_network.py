"""The network as a function of its parameters."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from test_models import network
from torch import nn

from bench import models
from bench.engine.network import (
    Network,
    constant_names,
    initial_params,
    make_module,
    take_constants,
)
from bench.models.modules import Classifier


def test_a_missing_name_is_an_error_not_the_modules_own_value() -> None:
    net, params = network("mlp+bn")
    x = torch.randn(4, 1, 8, 8)
    with pytest.raises(KeyError, match=r"head\.bias"):
        net({name: value for name, value in params.items() if name != "head.bias"}, x)
    with pytest.raises(KeyError, match="other"):
        net({**params, "other": torch.zeros(1)}, x)


def test_training_mode_updates_running_statistics_in_what_was_passed() -> None:
    net, params = network("mlp+bn")
    before = {name: value.clone() for name, value in params.items()}
    net.eval(params, torch.randn(8, 1, 8, 8))
    assert all(torch.equal(before[name], params[name]) for name in params)
    net(params, torch.randn(8, 1, 8, 8))
    changed = {name for name in params if not torch.equal(before[name], params[name])}
    assert changed == {name for name in net.batchnorm if "running" in name}
    assert "num_batches_tracked" not in " ".join(net.names), "a counter cannot be averaged"


def test_copied_statistics_leave_the_model_still() -> None:
    """As the contract says of a hook that must not move a model's statistics: gradients are the same."""
    net, params = network("mlp+bn")
    x = torch.randn(8, 1, 8, 8)
    before = {name: value.clone() for name, value in params.items()}
    for name in net.trainable:
        params[name].requires_grad_()
    still = {**params, **{name: params[name].clone() for name in net.batchnorm}}
    weights = [params[name] for name in net.trainable]
    copied = torch.autograd.grad(net(still, x).logits.square().sum(), weights)
    assert all(torch.equal(before[name], params[name]) for name in params)
    moved = torch.autograd.grad(net(params, x).logits.square().sum(), weights)
    assert all(torch.equal(one, other) for one, other in zip(copied, moved, strict=True))


def test_batchnorm_names_go_by_module_type() -> None:
    net, _ = network("resnet8+bn")
    assert all(("norm" in name) or ("shortcut.1" in name) for name in net.batchnorm)
    assert len(net.batchnorm) == 9 * 4
    assert not network("resnet8")[0].batchnorm, "GroupNorm has no statistics to keep at home"


@pytest.mark.parametrize("model", ["mlp+bn", "mlp+bn+head", "cnn_digits+bn+head", "cnn_digits"])
def test_training_and_head_agree_with_the_module(model: str) -> None:
    net, params = network(model)
    module = make_module(lambda: models.make(model, (1, 8, 8), 10), seed=0).train()
    x = torch.randn(4, 1, 8, 8)
    out, expected = net(params, x), module(x)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(net.head(params, out.features), out.logits)


def test_whole_numbers_that_a_module_keeps_are_no_parameters() -> None:
    class Shuffled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("order", torch.tensor([2, 0, 1]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, self.order]

    module = Classifier(Shuffled(), 3, 2)
    net, params = (
        Network(module, (3,), 2),
        initial_params(module, torch.float32, torch.device("cpu")),
    )
    assert net.names == ("head.weight", "head.bias")
    x = torch.randn(4, 3)
    assert torch.equal(net(params, x).features, x[:, [2, 0, 1]])
    elsewhere = torch.device("meta")
    there = {name: value.to(elsewhere) for name, value in params.items()}
    moved = Network(module, (3,), 2).to(elsewhere)
    assert moved(there, x.to(elsewhere)).logits.device == elsewhere, "they are where the data are"


def test_constants_go_where_the_network_goes() -> None:
    """Frozen layers of the body and of the head, in both modes."""
    module = Classifier(nn.Linear(3, 3), 3, 2)
    module.body.requires_grad_(False)
    module.head.bias.requires_grad_(False)
    for device in (torch.device("cpu"), torch.device("meta")):
        x = torch.randn(4, 3, device=device)
        net = Network(module, (3,), 2).to(device)
        params = initial_params(module, torch.float32, device)
        params = {name: params[name] for name in net.names}
        for call in (net, net.eval):
            out = call(params, x)
            assert out.logits.device == net.head(params, out.features).device == device
            if device.type == "cpu":
                torch.testing.assert_close(out, module(x))
                torch.testing.assert_close(net.head(params, out.features), out.logits)


class Tied(torch.nn.Module):
    """Two layers share a weight, which is a buffer of a third as well."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("start", self.first.weight.detach())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) + self.start[0]  # type: ignore[no-any-return, operator, index]


def test_layers_may_share_their_parameters() -> None:
    torch.manual_seed(0)
    module = Classifier(Tied(), 4, 5)
    net, params = (
        Network(module, (4,), 5),
        initial_params(module, torch.float32, torch.device("cpu")),
    )
    assert net.trainable == tuple(dict(module.named_parameters()))
    assert set(net.names) == set(net.trainable) | {"body.start"}
    assert net.tied == {"body.second.weight": "body.first.weight"}
    leaves = {name: value.requires_grad_(name in net.trainable) for name, value in params.items()}
    x = torch.randn(3, 4)
    out, expected = net(leaves, x), module(x)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(net.head(leaves, out.features), out.logits)
    slopes = torch.autograd.grad(
        out.logits.square().sum(), [leaves[name] for name in net.trainable]
    )
    own = torch.autograd.grad(expected.logits.square().sum(), list(module.parameters()))
    torch.testing.assert_close(slopes, own)


def test_weights_that_numpy_or_python_draws_follow_the_seed() -> None:
    def module() -> nn.Module:
        made = nn.Linear(3, 2)
        drawn = [np.random.randn(), random.gauss(), float(torch.randn(()))]
        made.weight.data[0] = torch.tensor(drawn)
        return made

    before = np.random.get_state()[1].copy(), random.getstate()
    first, again, other = (make_module(module, seed) for seed in (1, 1, 2))
    assert torch.equal(first.weight, again.weight)
    assert (first.weight[0] != other.weight[0]).all()
    assert (np.random.get_state()[1] == before[0]).all()
    assert random.getstate() == before[1]


@pytest.mark.parametrize(
    ("model", "features", "layers", "drops", "takes_statistics", "norms", "kernels"),
    [
        ("mlp", 64, False, False, False, 0, 0),
        ("mlp+bn", 64, False, False, True, 2 * 4, 0),
        ("mlp+head", 256, False, False, False, 0, 0),
        ("cnn_digits", 128, True, False, False, 0, 2),
        ("cnn_fedproto", 50, True, True, False, 0, 2),
        ("resnet8", 64, True, False, False, 9 * 2, 9),
        ("resnet8+bn", 64, True, False, True, 9 * 4, 9),
        ("distilbert_tiny", 32, True, True, False, 5 * 2, 0),
    ],
)
def test_a_network_knows_its_layers(
    model: str,
    features: int,
    layers: bool,
    drops: bool,
    takes_statistics: bool,
    norms: int,
    kernels: int,
) -> None:
    net, params = network(model)
    assert (net.feature_dim, net.num_classes) == (features, 10)
    assert net.has_batched_layers is layers
    assert net.has_dropout is drops
    assert net.batch_statistics is takes_statistics
    assert (len(net.norms), len(net.conv_weights)) == (norms, kernels)
    assert net.common is net
    assert net.is_whole(params)
    assert not net.is_whole({name: params[name] for name in net.names[1:]})
    assert network(model, "bf16")[0].has_batched_layers
    assert network(model, "fp64")[0].dtype == torch.float64
    assert network(model, "tf32")[0].dtype == net.dtype == torch.float32


def test_images_are_normalised_by_channel() -> None:
    module = Classifier(nn.Flatten(), 8, 2)
    net = Network(module, (2, 2, 2), 2, "fp64", (0.25, 0.5), (0.5, 2.0))
    image = torch.tensor([0.75, 0.0])[:, None, None].expand(1, 2, 2, 2)
    expected = torch.tensor([1.0, -0.25])[:, None, None].expand(1, 2, 2, 2)
    assert torch.equal(net.normalise(image), expected)
    plain = Network(module, (2, 2, 2), 2)
    assert torch.equal(plain.normalise(image), image)


def test_autocast_gives_back_float32() -> None:
    net, params = network("mlp", "bf16")
    x = torch.randn(4, 1, 8, 8)
    out = net(params, x)
    assert out.logits.dtype == out.features.dtype == torch.float32
    exact = network("mlp")[0](params, x)
    assert 0 < (out.logits - exact.logits).abs().max() < 0.1


def test_gradients_survive_moved_statistics() -> None:
    """A pass in evaluation reads the running statistics, which a pass in training then moves."""
    net, params = network("mlp+bn")
    x = torch.randn(8, 1, 8, 8)
    leaves = {name: value.requires_grad_(name in net.trainable) for name, value in params.items()}
    loss = net.eval(leaves, x).logits.square().sum()
    net(leaves, x)
    slopes = torch.autograd.grad(loss, [leaves[name] for name in net.trainable])
    assert all(slope.isfinite().all() for slope in slopes)


def test_constants_are_frozen_resting_and_still() -> None:
    """A frozen weight, the statistics of a norm that never trains, and what a module names."""

    class Resting(nn.BatchNorm1d):
        def train(self, mode: bool = True) -> Resting:
            return super().train(False)

    module = nn.Sequential(nn.Linear(2, 2), Resting(2), nn.BatchNorm1d(2))
    module[0].bias.requires_grad_(False)
    module.register_buffer("kept", torch.zeros(1))
    module.register_buffer("moved", torch.zeros(1))
    module.still_buffers = frozenset({"kept"})
    resting = {"1.running_mean", "1.running_var"}
    assert constant_names(module) == {"0.bias", "kept", *resting}
    params = initial_params(module, torch.float64, torch.device("cpu"))
    assert set(params) == {
        *("0.weight", "1.weight", "1.bias", "2.weight", "2.bias"),
        *("2.running_mean", "2.running_var", "moved"),
    }
    assert {value.dtype for value in params.values()} == {torch.float64}
    take_constants(module, {"0.bias": torch.ones(2), "0.weight": torch.zeros(2, 2)})
    assert module[0].bias.tolist() == [1, 1]
    assert module[0].weight.abs().sum() > 0
