"""ReLU of a value that nobody reads again, as the models here have it throughout."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function_unary


def rectify(x: Tensor) -> Tensor:
    """max(x, 0) in the place of x; where clients are stacked, wherever that is faster."""
    if has_torch_function_unary(x):
        made: Tensor = handle_torch_function(rectify, (x,), x)
        return made
    return F.relu(x, inplace=True)


class ReLU(nn.ReLU):
    """`rectify` as a layer."""

    def __init__(self) -> None:
        super().__init__(inplace=True)

    def forward(self, input: Tensor) -> Tensor:
        """Of any shape."""
        return rectify(input)
