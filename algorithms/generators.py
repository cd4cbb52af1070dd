"""Generator networks as functions of their parameters, {name: tensor}.

FedGen's makes features, FedKF's images.

B batch, C classes, D features, Z length of the noise. Linear layers and biases of convolutions are
drawn uniformly within 1 / sqrt(fan in), torch's default. Weights of FedKF's convolutions are
normal, as in its authors' code.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from algorithms.losses import one_hot

Params = dict[str, Tensor]

FEATURE_STATISTICS = ("norm.mean", "norm.var")
MOMENTUM = 0.1  # of the running statistics
IMAGE_WIDTHS = (128, 128, 64)
IMAGE_EPS = 0.8  # FedKF's code gives its BatchNorm layers 0.8 as eps
SLOPE = 0.2  # of LeakyReLU
# First weights, whatever torch's default type is: other types draw other numbers.
DRAWN = torch.float32


def feature_generator(
    generator: Generator,
    like: Tensor,
    *,
    num_classes: int,
    feature_dim: int,
    hidden: int,
    noise: int,
    embedding: bool,
) -> Params:
    """Initialise FedGen's generator: Linear-BatchNorm-ReLU-Linear.

    It maps noise (Z) and label to `feature_dim` D. It has the device and type of `like`. With
    `embedding`, labels enter as learnt vectors of length Z, not one-hot.
    """
    label_width = noise if embedding else num_classes
    theta = {
        **linear_layer(generator, "hidden", noise + label_width, hidden),
        **_norm("norm", hidden),
        "norm.mean": torch.zeros(hidden),
        "norm.var": torch.ones(hidden),
        **linear_layer(generator, "out", hidden, feature_dim),
    }
    if embedding:
        theta["embedding"] = torch.randn(num_classes, noise, generator=generator, dtype=DRAWN)
    return {name: value.to(like) for name, value in theta.items()}


def generated_features(theta: Params, noise: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Generate (B, D) features for labels (B,) and noise (B, Z), with the running statistics."""
    h = _hidden_layer(theta, noise, labels, num_classes)
    scale = theta["norm.weight"] * (theta["norm.var"] + 1e-5).rsqrt()
    return _output_layer(theta, (h - theta["norm.mean"]) * scale + theta["norm.bias"])


def train_features(
    theta: Params, noise: Tensor, labels: Tensor, num_classes: int
) -> tuple[Tensor, Params]:
    """Return (B, D) features with the batch's statistics, and the new running statistics."""
    h = _hidden_layer(theta, noise, labels, num_classes)
    var, mean = torch.var_mean(h, 0, correction=0)
    unbiased = var.detach() * len(h) / max(len(h) - 1, 1)
    running = {
        "norm.mean": torch.lerp(theta["norm.mean"], mean.detach(), MOMENTUM),
        "norm.var": torch.lerp(theta["norm.var"], unbiased, MOMENTUM),
    }
    normal = (h - mean) * (var + 1e-5).rsqrt()
    return _output_layer(theta, normal * theta["norm.weight"] + theta["norm.bias"]), running


def image_generator(
    generator: Generator, like: Tensor, *, input_shape: tuple[int, ...], noise: int
) -> Params:
    """Initialise FedKF's generator.

    A linear layer to a quarter of the size, then two times upsampling and convolution.

    Weights of convolutions are drawn from N(0, 2 / (9 * output channels)), as in the authors' code.
    With torch's default the first images would be nearly uniform grey: a standard deviation of
    pixels of 0.02 instead of 0.38. It has the device and type of `like`; `input_shape` is
    (channels, H, W) of the images, `noise` Z.
    """
    first, second, third = IMAGE_WIDTHS
    height, width = _quarter_size(input_shape)
    theta = {
        **linear_layer(generator, "in", noise, first * height * width),
        **_norm("norm0", first),
        **_convolution(generator, "conv1", first, second),
        **_norm("norm1", second),
        **_convolution(generator, "conv2", second, third),
        **_norm("norm2", third),
        **_convolution(generator, "conv3", third, input_shape[0]),
    }
    return {name: value.to(like) for name, value in theta.items()}


def generated_images(theta: Params, noise: Tensor, input_shape: tuple[int, ...]) -> Tensor:
    """Generate (B, channels, H, W) images in (0, 1) for noise (B, Z).

    BatchNorm takes the batch's statistics.
    """
    height, width = _quarter_size(input_shape)
    x = F.linear(noise, theta["in.weight"], theta["in.bias"]).view(
        len(noise), IMAGE_WIDTHS[0], height * width
    )
    if not x.is_cuda:  # there vmap cannot copy tensors in this order
        # Channels last in memory, which all layers keep: a quarter faster on a CPU.
        x = x.mT.contiguous().mT
    x = _batchnorm(theta, "norm0", x.view(*x.shape[:2], height, width), 1e-5)
    x = _upsample_and_convolve(theta, "conv1", x)
    x = F.leaky_relu(_batchnorm(theta, "norm1", x, IMAGE_EPS), SLOPE)
    x = _upsample_and_convolve(theta, "conv2", x)
    x = F.leaky_relu(_batchnorm(theta, "norm2", x, IMAGE_EPS), SLOPE)
    x = F.conv2d(x, theta["conv3.weight"], theta["conv3.bias"], padding=1)
    return x.sigmoid()[..., : input_shape[1], : input_shape[2]]


def _hidden_layer(theta: Params, noise: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    embedded = "embedding" in theta
    label = theta["embedding"][labels] if embedded else one_hot(labels, num_classes).to(noise.dtype)
    return F.linear(torch.cat([noise, label], -1), theta["hidden.weight"], theta["hidden.bias"])


def _output_layer(theta: Params, h: Tensor) -> Tensor:
    return F.linear(h.relu(), theta["out.weight"], theta["out.bias"])


def _quarter_size(input_shape: tuple[int, ...]) -> tuple[int, int]:
    """Return a quarter of height and width, rounded up; the images are then cut to size."""
    return -(-input_shape[1] // 4), -(-input_shape[2] // 4)


def _upsample_and_convolve(theta: Params, name: str, x: Tensor) -> Tensor:
    """Double the size by nearest neighbours, then convolve, 3x3 with a padding of 1.

    Computed as the transposed convolution of stride 2 that equals both: each weight, spread over
    the 2x2 copies of a pixel, gives a kernel of 4x4, and so 16 products for an input pixel instead
    of 36.
    """
    kernel = theta[f"{name}.weight"].flip(-1, -2).transpose(0, 1)
    kernel = F.pad(kernel, (1, 0)) + F.pad(kernel, (0, 1))
    kernel = F.pad(kernel, (0, 0, 1, 0)) + F.pad(kernel, (0, 0, 0, 1))
    return F.conv_transpose2d(x, kernel, theta[f"{name}.bias"], stride=2, padding=1)


def _batchnorm(theta: Params, name: str, x: Tensor, eps: float) -> Tensor:
    return F.batch_norm(
        x, None, None, theta[f"{name}.weight"], theta[f"{name}.bias"], training=True, eps=eps
    )


def linear_layer(generator: Generator, name: str, inputs: int, outputs: int) -> Params:
    """Draw a linear layer `name`: its weight (outputs, inputs) and its bias (outputs,)."""
    bound = inputs**-0.5
    return {
        f"{name}.weight": _uniform(generator, bound, outputs, inputs),
        f"{name}.bias": _uniform(generator, bound, outputs),
    }


def _convolution(generator: Generator, name: str, inputs: int, outputs: int) -> Params:
    std = (2 / (9 * outputs)) ** 0.5
    normal = torch.randn(outputs, inputs, 3, 3, generator=generator, dtype=DRAWN)
    return {
        f"{name}.weight": normal * std,
        f"{name}.bias": _uniform(generator, (9 * inputs) ** -0.5, outputs),
    }


def _norm(name: str, width: int) -> Params:
    return {f"{name}.weight": torch.ones(width), f"{name}.bias": torch.zeros(width)}


def _uniform(generator: Generator, bound: float, *shape: int) -> Tensor:
    return (torch.rand(*shape, generator=generator, dtype=DRAWN) * 2 - 1) * bound
