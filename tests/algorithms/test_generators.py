"""FedGen's and FedKF's generators beside the same layers of torch.nn, at drawn weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from algorithms import generators
from algorithms.generators import (
    feature_generator,
    generated_features,
    generated_images,
    image_generator,
    train_features,
)

CLASSES, NOISE, HIDDEN, FEATURES, BATCH = 4, 3, 6, 5, 7
SHAPE = (3, 10, 7)  # neither side is a multiple of four


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(theta: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same names and shapes, all values drawn from [0.5, 1.5), so that no factor is one."""
    generator = rng(1)
    return {
        name: torch.rand(value.shape, generator=generator, dtype=torch.float64) + 0.5
        for name, value in theta.items()
    }


def load(layer: nn.Module, theta: dict[str, Tensor], name: str) -> nn.Module:
    """The layer with the weights of that name."""
    values = {"weight": theta[f"{name}.weight"], "bias": theta[f"{name}.bias"]}
    layer.double().load_state_dict(values, strict=False)
    return layer


@pytest.mark.parametrize("embedding", [False, True])
def test_features_are_those_of_layers(embedding: bool) -> None:
    sizes = {"num_classes": CLASSES, "feature_dim": FEATURES, "hidden": HIDDEN, "noise": NOISE}
    like = torch.zeros(1, dtype=torch.float64)
    theta = drawn(feature_generator(rng(), like, **sizes, embedding=embedding))
    noise = torch.randn(BATCH, NOISE, generator=rng(2), dtype=torch.float64)
    labels = torch.arange(BATCH) % CLASSES
    label = theta["embedding"][labels] if embedding else nn.functional.one_hot(labels, CLASSES)
    x = torch.cat([noise, label.double()], 1)
    norm = load(nn.BatchNorm1d(HIDDEN), theta, "norm")
    assert isinstance(norm, nn.BatchNorm1d)
    norm.running_mean = theta["norm.mean"].clone()
    norm.running_var = theta["norm.var"].clone()
    hidden = load(nn.Linear(x.shape[1], HIDDEN), theta, "hidden")
    layers = nn.Sequential(hidden, norm, nn.ReLU(), load(nn.Linear(HIDDEN, FEATURES), theta, "out"))
    expected = layers.eval()(x)
    torch.testing.assert_close(generated_features(theta, noise, labels, CLASSES), expected)
    features, running = train_features(theta, noise, labels, CLASSES)
    torch.testing.assert_close(features, layers.train()(x))
    torch.testing.assert_close(running["norm.mean"], norm.running_mean)
    torch.testing.assert_close(running["norm.var"], norm.running_var)


def test_images_are_those_of_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = widths = (8, 6, 4)
    monkeypatch.setattr(generators, "IMAGE_WIDTHS", widths)
    like = torch.zeros(1, dtype=torch.float64)
    theta = image_generator(rng(), like, input_shape=SHAPE, noise=NOISE)
    theta = {name: value + 0.3 for name, value in drawn(theta).items()}
    noise = torch.randn(BATCH, NOISE, generator=rng(2), dtype=torch.float64)
    layers = nn.Sequential(
        load(nn.Linear(NOISE, first * 3 * 2), theta, "in"),
        nn.Unflatten(1, (first, 3, 2)),
        load(nn.BatchNorm2d(first), theta, "norm0"),
        nn.Upsample(scale_factor=2),
        load(nn.Conv2d(first, second, 3, padding=1), theta, "conv1"),
        load(nn.BatchNorm2d(second, 0.8), theta, "norm1"),
        nn.LeakyReLU(0.2),
        nn.Upsample(scale_factor=2),
        load(nn.Conv2d(second, third, 3, padding=1), theta, "conv2"),
        load(nn.BatchNorm2d(third, 0.8), theta, "norm2"),
        nn.LeakyReLU(0.2),
        load(nn.Conv2d(third, SHAPE[0], 3, padding=1), theta, "conv3"),
        nn.Sigmoid(),
    )
    expected = layers(noise)[..., : SHAPE[1], : SHAPE[2]]
    torch.testing.assert_close(generated_images(theta, noise, SHAPE), expected)


def test_first_weights_are_as_documented() -> None:
    like = torch.zeros(1, dtype=torch.float64)
    sizes = {"num_classes": CLASSES, "feature_dim": 400, "hidden": 300, "noise": 96}
    theta = feature_generator(rng(), like, **sizes, embedding=False)
    for name, inputs in (("hidden", 100), ("out", 300)):
        values = theta[f"{name}.weight"].abs()
        assert values.max() <= inputs**-0.5
        assert values.mean() == pytest.approx(inputs**-0.5 / 2, rel=0.02)
    assert (theta["norm.weight"] == 1).all()
    images = image_generator(rng(), like, input_shape=SHAPE, noise=NOISE)
    second = generators.IMAGE_WIDTHS[1]
    std = float(images["conv1.weight"].std())
    assert std == pytest.approx((2 / (9 * second)) ** 0.5, rel=0.1)
