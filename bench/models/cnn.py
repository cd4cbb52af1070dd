"""Convolutional networks without residuals."""

from __future__ import annotations

from torch import nn


def DigitsCNN(channels: int, batchnorm: bool) -> nn.Module:
    """Twice Conv3x3-[BatchNorm]-ReLU-MaxPool2 with 16 and 32 channels: 8x8 inputs to 128 features."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((channels, 16), (16, 32)):
        norm = [nn.BatchNorm2d(outputs)] if batchnorm else []
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), *norm, nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten())


def CifarCNN(channels: int, batchnorm: bool) -> nn.Module:
    """FedCAD's CNN (Experiments, Models): 5x5 convolutions of 6 and 16 channels, dense layers of 120 and 84 units."""
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
    )
