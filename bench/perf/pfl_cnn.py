"""The network of pfl-research's own CIFAR-10 benchmark (Granqvist et al. 2024, arXiv 2404.06430), 1,626,442 parameters.

Two 3x3 convolutions of 32 and 64 channels, one 2x2 pooling, dropout of 0.25, 128 units, dropout of 0.5.
"""

from __future__ import annotations

from torch import nn

from bench.models import ModelInfo


def body(channels: int, batchnorm: bool) -> nn.Module:
    """Images (B, channels, 32, 32) to 128 features."""
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(12544, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
    )


MODEL = ModelInfo("bench.perf.pfl_cnn:body", "pfl-research's CNN for CIFAR-10", features=128, size=32)
NAME = "bench.perf.pfl_cnn:MODEL"
