"""Layers of a stack of clients, each client with its own weights, within a function that `torch.func.vmap` maps.

`vmap` makes one grouped convolution for all clients. Fusing the convolutions of several models into grouped ones is
what Wang et al. 2021 ("Horizontally Fused Training Array", HFTA) propose for training many small models on one
accelerator. But it hides convolutions from autocast, and turns bfloat16 norms into float32. Here both keep their
precision.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

HIDDEN_FROM_AUTOCAST = frozenset(  # autocast does not see them, or not their biases, under vmap
    (
        *(F.linear, torch.conv1d, torch.conv2d, torch.conv3d),
        *(F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d),
        *(torch.prelu, Tensor.prelu, F.scaled_dot_product_attention),
    )
)


class BatchedLayers(TorchFunctionMode):
    """Within it the layers of a vmapped function have the precision that autocast gives those of a single client."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in HIDDEN_FROM_AUTOCAST:
            args = tuple(map(_autocast, args))
            kwargs = {name: _autocast(value) for name, value in kwargs.items()}
        return NORMS.get(func, func)(*args, **kwargs)


def _autocast(value: Any) -> Any:
    """A tensor as autocast would have it in a convolution."""
    if not isinstance(value, Tensor) or not value.is_floating_point():  # a mask has no precision
        return value
    if not torch.is_autocast_enabled(value.device.type):
        return value
    return value.to(torch.get_autocast_dtype(value.device.type))


def batch_norm(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`F.batch_norm`, whose result has the input's type."""
    # On a GPU torch asks whether channels come last, which vmap does not answer.
    x = input.contiguous() if input.is_cuda else input
    # vmap would give torch's kernel bfloat16 weights beside float32 statistics, which it refuses.
    x = x.float() if x.dtype is torch.bfloat16 else x
    return F.batch_norm(x, *args, **kwargs).to(input.dtype)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """`F.group_norm`, whose result has the input's type."""
    if weight is None or bias is None:
        return F.group_norm(input, num_groups, weight, bias, eps)
    weight, bias = (value.to(input.dtype).view(-1, *[1] * (input.dim() - 2)) for value in (weight, bias))
    with torch.autocast(input.device.type, enabled=False):  # which would compute and return float32
        return torch.addcmul(bias, F.group_norm(input, num_groups, eps=eps), weight)


NORMS = {F.batch_norm: batch_norm, F.group_norm: group_norm}
