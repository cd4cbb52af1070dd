"""ResNet-8 for 32x32 images: He et al. 2016, section 4.2, with n = 1, in the widths of FedGKD and FedKF."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

Norm = Callable[[int], nn.Module]


class Block(nn.Module):
    """conv3x3-norm-ReLU-conv3x3-norm beside a shortcut, then ReLU."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = norm(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) to (B, outputs, H / stride, W / stride)."""
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(h)) + self.shortcut(x))


class ResNet8(nn.Module):
    """Stem and three blocks of w, 2w and 4w channels, then the mean over positions: (B, 4w) features."""

    def __init__(self, channels: int, width: int, norm: Norm) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, width, 3, 1, 1, bias=False)
        self.norm = norm(width)
        self.blocks = nn.Sequential(
            Block(width, width, 1, norm),
            Block(width, 2 * width, 2, norm),
            Block(2 * width, 4 * width, 2, norm),
        )
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                fan_out = part.kernel_size[0] * part.kernel_size[1] * part.out_channels
                nn.init.normal_(part.weight, 0.0, math.sqrt(2 / fan_out))

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, H, W) to (B, 4w)."""
        h: Tensor = self.blocks(F.relu(self.norm(self.conv(x))))
        return h.mean((2, 3))


def resnet8(channels: int, batchnorm: bool) -> nn.Module:
    """16/32/64 channels, GroupNorm with 16 channels a group (FedGKD, section 5.1 and its code)."""
    return ResNet8(channels, 16, nn.BatchNorm2d if batchnorm else lambda planes: nn.GroupNorm(planes // 16, planes))


def resnet8_wide(channels: int, batchnorm: bool) -> nn.Module:
    """64/128/256 channels, GroupNorm with one channel a group (FedKF's code)."""
    return ResNet8(channels, 64, nn.BatchNorm2d if batchnorm else lambda planes: nn.GroupNorm(planes, planes))
