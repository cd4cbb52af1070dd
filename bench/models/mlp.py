"""A small multilayer perceptron, for vectors and for 8x8 images."""

from __future__ import annotations

from torch import nn


def MLP(numbers: int, batchnorm: bool) -> nn.Module:
    """Flatten, then twice Linear(., 64)-[BatchNorm]-ReLU."""
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs in (numbers, 64):
        layers += [nn.Linear(inputs, 64), *([nn.BatchNorm1d(64)] if batchnorm else []), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


def MLP8(channels: int, batchnorm: bool) -> nn.Module:
    """The same of images (B, channels, 8, 8)."""
    return MLP(64 * channels, batchnorm)
