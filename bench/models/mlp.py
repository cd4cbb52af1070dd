"""A small multilayer perceptron for 8x8 inputs."""

from __future__ import annotations

from torch import nn


def MLP(channels: int, batchnorm: bool) -> nn.Module:
    """Flatten, then twice Linear(., 64)-[BatchNorm]-ReLU."""
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs in (64 * channels, 64):
        layers += [nn.Linear(inputs, 64), *([nn.BatchNorm1d(64)] if batchnorm else []), nn.ReLU()]
    return nn.Sequential(*layers)
