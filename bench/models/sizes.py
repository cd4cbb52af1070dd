"""How many trainable numbers a body has, from its description. Imports neither torch nor ray."""

from __future__ import annotations

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
