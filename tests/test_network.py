"""The network as a function of its parameters, and the models' sizes."""

from __future__ import annotations

import pytest
import torch
from conftest import simulate

from bench import models
from bench.engine.network import Network, initial_params, make_module
from bench.errors import UsageError

# Parameters as printed or counted from the authors' code.
SIZES = {
    ("cnn_cifar", (3, 32, 32), 10): 62_006,
    ("resnet8", (3, 32, 32), 10): 78_042,
    ("resnet8", (3, 32, 32), 100): 83_892,
    ("resnet8+head", (3, 32, 32), 10): 100_762,
    ("resnet8+head", (3, 32, 32), 100): 123_892,
    ("resnet8_wide", (3, 32, 32), 10): 1_227_594,
    ("resnet8_wide", (3, 32, 32), 100): 1_250_724,
}
FORMS = ["mlp", "mlp+head", "mlp+bn", "mlp+bn+head", "cnn_digits", "cnn_digits+bn", "resnet8+bn", "cnn_cifar+head"]


def network(model: str = "mlp+bn") -> tuple[Network, dict[str, torch.Tensor]]:
    shape = (1, 8, 8) if model.startswith(("mlp", "cnn_digits")) else (3, 32, 32)
    module = make_module(lambda: models.make(model, shape, 10), seed=0)
    return Network(module, shape, 10), initial_params(module, torch.float32, torch.device("cpu"))


@pytest.mark.parametrize(("case", "size"), SIZES.items(), ids=[f"{c[0]}-{c[2]}" for c in SIZES])
def test_sizes_are_the_printed_ones(case: tuple[str, tuple[int, ...], int], size: int) -> None:
    assert sum(p.numel() for p in models.make(*case).parameters()) == size
    assert models.num_parameters(*case) == size


@pytest.mark.parametrize("model", FORMS)
def test_the_table_counts_what_torch_counts(model: str) -> None:
    net, params = network(model)
    trainable = sum(params[name].numel() for name in net.trainable)
    assert models.num_parameters(model, net.input_shape, 10) == trainable
    x = torch.randn(4, *net.input_shape)
    out = net(params, x)
    assert out.logits.shape == (4, 10)
    assert out.features.shape == (4, net.feature_dim)
    torch.testing.assert_close(net.head(params, out.features), out.logits)


def test_a_missing_name_is_an_error_not_the_modules_own_value() -> None:
    net, params = network()
    x = torch.randn(4, 1, 8, 8)
    with pytest.raises(KeyError, match=r"head\.bias"):
        net({name: value for name, value in params.items() if name != "head.bias"}, x)
    with pytest.raises(KeyError, match=r"has no parameter 'other'"):
        net({**params, "other": torch.zeros(1)}, x)


def test_training_mode_updates_running_statistics_in_what_was_passed() -> None:
    net, params = network()
    before = {name: value.clone() for name, value in params.items()}
    net.eval(params, torch.randn(8, 1, 8, 8))
    assert all(torch.equal(before[name], params[name]) for name in params)
    net(params, torch.randn(8, 1, 8, 8))
    changed = {name for name in params if not torch.equal(before[name], params[name])}
    assert changed == {name for name in net.batchnorm if "running" in name}
    assert "num_batches_tracked" not in " ".join(net.names), "a counter cannot be averaged"


def test_batchnorm_names_go_by_module_type() -> None:
    net, _ = network("resnet8+bn")
    assert all(("norm" in name) or ("shortcut.1" in name) for name in net.batchnorm)
    assert len(net.batchnorm) == 9 * 4
    assert not network("resnet8")[0].batchnorm, "GroupNorm has no statistics to keep at home"


def test_initial_models_depend_on_the_seed_alone() -> None:
    torch.manual_seed(123)
    state = torch.random.get_rng_state()
    first, second, other = (simulate("fedavg", seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), state), "global randomness stays untouched"
    name = first.net.trainable[0]
    assert torch.equal(first.server.params[name], second.server.params[name])
    assert not torch.equal(first.server.params[name], other.server.params[name])


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("mlp+bm", "+head or +bn"),
        ("mlp+bn+bn", "each once"),
        ("cnn_cifar+bn", "no +bn form"),
        ("resnet", "did you mean"),
    ],
)
def test_forms_that_do_not_exist_are_refused(model: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        models.parse(model)
    assert words in str(caught.value)
