"""How many trainable numbers a body has, from its description. Imports neither torch nor ray."""

from __future__ import annotations

from itertools import pairwise

RESNET50_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # planes and blocks


def conv(kernel: int, inputs: int, outputs: int, bias: bool = True) -> int:
    """Weights and biases of a square convolution."""
    return (kernel * kernel * inputs + bias) * outputs


def dense(inputs: int, outputs: int) -> int:
    """Weights and biases of a linear layer."""
    return (inputs + 1) * outputs


def norm(*channels: int) -> int:
    """Scales and shifts of normalisation layers."""
    return 2 * sum(channels)


def mlp(channels: int) -> int:
    """`bench.models.mlp:MLP8`."""
    return mlp_vectors(64 * channels)


def mlp_vectors(numbers: int) -> int:
    """`bench.models.mlp:MLP`."""
    return dense(numbers, 64) + dense(64, 64)


def cnn_digits(channels: int) -> int:
    """`bench.models.cnn:DigitsCNN`."""
    return conv(3, channels, 16) + conv(3, 16, 32)


def cnn_cifar(channels: int) -> int:
    """`bench.models.cnn:CifarCNN`."""
    return conv(5, channels, 6) + conv(5, 6, 16) + dense(400, 120) + dense(120, 84)


def lenet5(channels: int) -> int:
    """`bench.models.cnn:LeNet5`."""
    return conv(5, channels, 6) + conv(5, 6, 16) + conv(5, 16, 120) + dense(120, 84)


def lenet5_convolutions(channels: int) -> int:
    """`bench.models.cnn:LeNet5Convolutions`."""
    return lenet5(channels) - dense(120, 84)


def cnn_femnist(channels: int) -> int:
    """`bench.models.cnn:FemnistCNN`."""
    return conv(3, channels, 32) + conv(3, 32, 64) + conv(3, 64, 64) + dense(256, 512)


def cnn_fedgen(channels: int) -> int:
    """`bench.models.cnn:FedGenCNN`."""
    return conv(3, channels, 6) + conv(3, 6, 16) + norm(6, 16) + dense(784, 32)


def cnn_digits5(channels: int) -> int:
    """`bench.models.cnn:Digits5CNN`."""
    convolutions = conv(5, channels, 64) + conv(5, 64, 64) + conv(5, 64, 128)
    return convolutions + dense(6272, 2048) + dense(2048, 512) + norm(64, 64, 128, 2048, 512)


def vgg9(channels: int) -> int:
    """`bench.models.cnn:VGG9`."""
    widths = (channels, 32, 64, 128, 128, 256, 256)
    convolutions = sum(conv(3, inputs, outputs) for inputs, outputs in pairwise(widths))
    return convolutions + dense(4096, 512) + dense(512, 512)


def resnet8(channels: int, width: int) -> int:
    """`bench.models.resnet:resnet8`, and `resnet8_wide`."""
    total, inputs = conv(3, channels, width, bias=False) + norm(width), width
    for outputs in (width, 2 * width, 4 * width):
        total += conv(3, inputs, outputs, bias=False) + conv(3, outputs, outputs, bias=False) + norm(outputs, outputs)
        if inputs != outputs:
            total += conv(1, inputs, outputs, bias=False) + norm(outputs)
        inputs = outputs
    return total


def resnet50(channels: int, stem: int) -> int:
    """`bench.models.resnet:resnet50`, and `resnet50_imagenet`; `stem` is the side of the first kernel."""
    total, inputs = conv(stem, channels, 64, bias=False) + norm(64), 64
    for planes, blocks in RESNET50_STAGES:
        outputs = 4 * planes
        total += conv(1, inputs, outputs, bias=False) + norm(outputs)  # the first block's shortcut
        for _ in range(blocks):
            total += conv(1, inputs, planes, bias=False) + conv(3, planes, planes, bias=False)
            total += conv(1, planes, outputs, bias=False) + norm(planes, planes, outputs)
            inputs = outputs
    return total


def distilbert(words: int, positions: int, dim: int, hidden: int, layers: int) -> int:
    """`bench.models.distilbert`: embeddings, encoder and the dense layer before the classifier."""
    block = 4 * dense(dim, dim) + dense(dim, hidden) + dense(hidden, dim) + norm(dim, dim)
    return (words + positions) * dim + norm(dim) + layers * block + dense(dim, dim)
