"""The models as torch modules: bodies without residuals, and the head on any body.

If a paper has ReLU and then MaxPool, ReLU is applied after the pooling here, to a quarter of the
values: it keeps their order, so that values and gradients are the same to the last bit. No ReLU is
in place: under `vmap` its input is a view, and gradients of a changed view are copies.

Axes: B examples, C channels, H rows, W columns, L tokens, D features.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from algorithms.base import Outputs


class Classifier(nn.Module):
    """A body, an optional projection head, and the head.

    The head is the linear classifier, in some models after a dense layer.

    Args:
        body: maps inputs (B, ...) to features (B, D).
        features: D, the number of features.
        num_classes: C, the number of classes.
        width: features to which the body's are pooled; 0 leaves them as they are. Adaptive average
            pooling: feature i of the width is the mean of the body's from floor(i D / width) to
            ceil((i + 1) D / width), exclusive.
        projection: output size of Linear(D, D)-ReLU-Linear(D, projection) before the classifier, or
            None (MOON, section 3.2: the classifier reads the projection).
        hidden: units of a dense layer with ReLU between features and classifier; 0 for none.
        dropout: share of the features that is dropped before the head reads them, in training.

    Attributes:
        still_buffers: names of floating-point buffers that no training pass changes.
    """

    still_buffers: frozenset[str] = frozenset()

    def __init__(
        self,
        body: nn.Module,
        features: int,
        num_classes: int,
        projection: int | None = None,
        hidden: int = 0,
        width: int = 0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.body = body
        self.pooling: nn.Module = nn.AdaptiveAvgPool1d(width) if width else nn.Identity()
        features = width or features
        self.projection: nn.Module = nn.Identity()
        if projection is not None:
            dense = nn.Linear(features, features)
            self.projection = nn.Sequential(dense, nn.ReLU(), nn.Linear(features, projection))
        self.dropout: nn.Module = nn.Dropout(dropout) if dropout else nn.Identity()
        inputs = projection or features
        between = [nn.Linear(inputs, hidden), nn.ReLU()] if hidden else []
        classifier = nn.Linear(hidden or inputs, num_classes)
        self.head = nn.Sequential(*between, classifier) if hidden else classifier

    def forward(self, x: Tensor) -> Outputs:
        """Return logits (B, C) and the features that the head reads, before any are dropped."""
        features = self.projection(self.pooling(self.body(x)))
        return Outputs(self.head(self.dropout(features)), features)


def MLP(numbers: int, batchnorm: bool) -> nn.Module:
    """Build Flatten, then twice Linear(., 64)-[BatchNorm]-ReLU."""
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs in (numbers, 64):
        norm = [nn.BatchNorm1d(64)] if batchnorm else []
        layers += [nn.Linear(inputs, 64), *norm, nn.ReLU()]
    return nn.Sequential(*layers)


def MLP8(channels: int, batchnorm: bool) -> nn.Module:
    """Build the `MLP` for images (B, channels, 8, 8)."""
    return MLP(64 * channels, batchnorm)


def DigitsCNN(channels: int, batchnorm: bool) -> nn.Module:
    """Build twice Conv3x3-[BatchNorm]-ReLU-MaxPool2: 8x8 inputs to 128 features.

    There are 16 and 32 channels.
    """
    layers: list[nn.Module] = []
    for inputs, outputs in ((channels, 16), (16, 32)):
        norm = [nn.BatchNorm2d(outputs)] if batchnorm else []
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), *norm, *_pooled_relu()]
    return nn.Sequential(*layers, nn.Flatten())


def CifarCNN(channels: int, batchnorm: bool) -> nn.Module:
    """Build FedCAD's CNN (Experiments, Models).

    5x5 convolutions of 6 and 16 channels, dense layers of 120 and 84.
    """
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5),
        *_pooled_relu(),
        nn.Conv2d(6, 16, 5),
        *_pooled_relu(),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
    )


def LeNet5(channels: int, batchnorm: bool) -> nn.Module:
    """Build LeNet-5 for 32x32 inputs.

    5x5 convolutions of 6, 16 and 120 channels, then 84 units, the features.
    """
    return nn.Sequential(*LeNet5Convolutions(channels, batchnorm), nn.Linear(120, 84), nn.ReLU())


def LeNet5Convolutions(channels: int, batchnorm: bool) -> nn.Sequential:
    """Build LeNet-5 up to its 120 channels, the features in FedKF's code.

    The head there has the dense layer of 84.
    """
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5),
        *_pooled_relu(),
        nn.Conv2d(6, 16, 5),
        *_pooled_relu(),
        nn.Conv2d(16, 120, 5),
        nn.ReLU(),
        nn.Flatten(),
    )


def FemnistCNN(channels: int, batchnorm: bool) -> nn.Module:
    """Build FedDKD's CNN for FEMNIST (Table VII).

    Three Conv-ReLU-MaxPool2 of 32, 64 and 64 channels, then 512 units. The table gives the dense
    layer 256 inputs and leaves kernel and padding open; 3x3 without padding fits on 32x32 inputs
    (28x28 and two black pixels on each side, as in FedMAX).
    """
    layers: list[nn.Module] = []
    for inputs, outputs in ((channels, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3), *_pooled_relu()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, 512), nn.ReLU())


def FedGenCNN(channels: int, batchnorm: bool) -> nn.Module:
    """Build the CNN of FedGen's code for 28x28 inputs.

    Twice Conv3x3 of stride 2-BatchNorm-ReLU, then 32 units.
    """
    layers: list[nn.Module] = []
    for inputs, outputs in ((channels, 6), (6, 16)):
        layers += [
            nn.Conv2d(inputs, outputs, 3, stride=2, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(784, 32))


def Digits5CNN(channels: int, batchnorm: bool) -> nn.Module:
    """Build FedBN's CNN for 28x28 inputs (FedDKD, Table IX).

    5x5 convolutions of 64, 64, 128, then 2048 and 512 units. BatchNorm and ReLU follow each layer;
    MaxPool2 the first two.
    """
    layers: list[nn.Module] = []
    for inputs, outputs, pooled in ((channels, 64, True), (64, 64, True), (64, 128, False)):
        layers += [nn.Conv2d(inputs, outputs, 5, padding=2), nn.BatchNorm2d(outputs)]
        layers += _pooled_relu() if pooled else [nn.ReLU()]
    layers.append(nn.Flatten())
    for inputs, outputs in ((6272, 2048), (2048, 512)):
        layers += [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


def FedProtoCNN(channels: int, batchnorm: bool, second: int = 20) -> nn.Module:
    """Build the CNN of FedProto's code for 28x28 inputs.

    5x5 convolutions of 10 and `second` channels, each with MaxPool2 and ReLU, then 50 units. In
    training, half of the second convolution's channels are dropped before the pooling.
    """
    return nn.Sequential(
        nn.Conv2d(channels, 10, 5),
        *_pooled_relu(),
        nn.Conv2d(10, second, 5),
        nn.Dropout2d(0.5),
        *_pooled_relu(),
        nn.Flatten(),
        nn.Linear(16 * second, 50),
        nn.ReLU(),
    )


FedProtoCNN18 = partial(FedProtoCNN, second=18)
FedProtoCNN22 = partial(FedProtoCNN, second=22)


def VGG9(channels: int, batchnorm: bool) -> nn.Module:
    """Build FedDKD's VGG-9 for 32x32 inputs (Table VIII).

    Three pairs of 3x3 convolutions, two dense layers of 512. MaxPool2 ends each pair. Dropout: 0.05
    of the channels after the second pair, 0.1 before the dense layers and of the features.
    """
    layers: list[nn.Module] = []
    for inputs, middle, outputs in ((channels, 32, 64), (64, 128, 128), (128, 256, 256)):
        layers += [nn.Conv2d(inputs, middle, 3, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(middle, outputs, 3, padding=1), *_pooled_relu()]
        layers += [nn.Dropout2d(0.05)] if outputs == 128 else []
    layers += [nn.Flatten(), nn.Dropout(0.1), nn.Linear(4096, 512), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(512, 512), nn.ReLU(), nn.Dropout(0.1))


class MaxPool2(nn.MaxPool2d):
    """Maxima of 2x2 squares; a last odd row or column is left out, as in `nn.MaxPool2d(2)`.

    `nn.MaxPool2d` finds where each maximum is, which only gradients need. Without them, pairs are
    compared on a CPU, which gives the same values in a fraction of the time.
    """

    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, input: Tensor) -> Tensor:
        """Map (..., H, W) to (..., H // 2, W // 2)."""
        if torch.is_grad_enabled() or input.device.type != "cpu":
            pooled: Tensor = super().forward(input)
            return pooled
        height, width = input.shape[-2:]
        even = input[..., : height - height % 2, : width - width % 2]
        upper = torch.maximum(even[..., 0::2, 0::2], even[..., 0::2, 1::2])
        lower = torch.maximum(even[..., 1::2, 0::2], even[..., 1::2, 1::2])
        return torch.maximum(upper, lower)


def _pooled_relu() -> list[nn.Module]:
    """Return ReLU and MaxPool2, in the cheaper order."""
    return [MaxPool2(), nn.ReLU()]
