"""ResNet-8 and ResNet-50 for small images: He et al. 2016, with the papers' widths and norms.

ResNet-8 is that of section 4.2 with n = 1; ResNet-50 that of Table 1, but with the stride of its
blocks in the 3x3 convolution, as has become usual.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch.nn.functional as F
from torch import Tensor, nn

RESNET50_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))  # planes and blocks
Norm = Callable[[int], nn.Module]


def _shortcut(inputs: int, outputs: int, stride: int, norm: Norm) -> nn.Module:
    """Return the identity, or a 1x1 convolution and norm if the shape changes."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))


class Block(nn.Module):
    """Residual block: conv3x3-norm-ReLU-conv3x3-norm beside a shortcut, then ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = norm(outputs)
        self.shortcut = _shortcut(inputs, outputs, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, inputs, H, W) to (B, outputs, H / stride, W / stride)."""
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(h)) + self.shortcut(x))


class Bottleneck(nn.Module):
    """Residual block of 4 * planes outputs.

    conv1x1-norm-ReLU-conv3x3-norm-ReLU-conv1x1-norm beside a shortcut, then ReLU.
    """

    def __init__(self, inputs: int, planes: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 1, bias=False)
        self.norm1 = norm(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False)
        self.norm2 = norm(planes)
        self.conv3 = nn.Conv2d(planes, 4 * planes, 1, bias=False)
        self.norm3 = norm(4 * planes)
        self.shortcut = _shortcut(inputs, 4 * planes, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, inputs, H, W) to (B, 4 * planes, H / stride, W / stride)."""
        h = F.relu(self.norm1(self.conv1(x)))
        h = F.relu(self.norm2(self.conv2(h)))
        return F.relu(self.norm3(self.conv3(h)) + self.shortcut(x))


class ResNet(nn.Module):
    """A stem and residual blocks, then the mean over positions: (B, D) features.

    Convolutions start from N(0, 2 / (k * k * outputs)).
    """

    def __init__(
        self,
        stem: nn.Conv2d,
        norm: nn.Module,
        blocks: Sequence[nn.Module],
        pool: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.conv = stem
        self.norm = norm
        self.pool = pool or nn.Identity()
        self.blocks = nn.Sequential(*blocks)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                fan_out = part.kernel_size[0] * part.kernel_size[1] * part.out_channels
                nn.init.normal_(part.weight, 0.0, math.sqrt(2 / fan_out))

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, channels, H, W) to (B, D)."""
        # ReLU after the pooling gives the same result from fewer values.
        h: Tensor = self.blocks(F.relu(self.pool(self.norm(self.conv(x)))))
        return h.mean((2, 3))


def resnet8(channels: int, batchnorm: bool) -> nn.Module:
    """Build ResNet-8 of 16/32/64 channels, GroupNorm with 16 channels a group.

    Source: FedGKD, section 5.1 and its code.
    """
    return _resnet8(channels, 16, _norm(batchnorm, 16))


def resnet8_wide(channels: int, batchnorm: bool) -> nn.Module:
    """Build ResNet-8 of 64/128/256 channels, GroupNorm with one channel a group (FedKF's code)."""
    return _resnet8(channels, 64, _norm(batchnorm, 1))


def resnet50(channels: int, batchnorm: bool) -> nn.Module:
    """Build ResNet-50: 3x3 stem without pooling, GroupNorm with 16 channels a group.

    Source: FedGKD, section 5.1, and code.
    """
    norm = _norm(batchnorm, 16)
    stem = nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
    return ResNet(stem, norm(64), _bottlenecks(norm))


def resnet50_imagenet(channels: int, batchnorm: bool) -> nn.Module:
    """Build ResNet-50 with the stem for ImageNet: 7x7 of stride 2 and a max-pool of stride 2."""
    norm = _norm(batchnorm, 16)
    stem = nn.Conv2d(channels, 64, 7, 2, 3, bias=False)
    return ResNet(stem, norm(64), _bottlenecks(norm), nn.MaxPool2d(3, 2, 1))


def _norm(batchnorm: bool, channels_per_group: int) -> Norm:
    if batchnorm:
        return nn.BatchNorm2d
    return lambda planes: nn.GroupNorm(planes // channels_per_group, planes)


def _resnet8(channels: int, w: int, norm: Norm) -> nn.Module:
    stem = nn.Conv2d(channels, w, 3, 1, 1, bias=False)
    first = norm(w)
    blocks = [
        Block(w, w, 1, norm),
        Block(w, 2 * w, 2, norm),
        Block(2 * w, 4 * w, 2, norm),
    ]
    return ResNet(stem, first, blocks)


def _bottlenecks(norm: Norm) -> list[nn.Module]:
    """Build the sixteen blocks; each stage but the first halves the image in its first block."""
    blocks: list[nn.Module] = []
    inputs = 64
    for planes, count in RESNET50_STAGES:
        for number in range(count):
            stride = 2 if number == 0 and planes > 64 else 1
            blocks.append(Bottleneck(inputs, planes, stride, norm))
            inputs = 4 * planes
    return blocks
