"""A stack's parameters in bfloat16: all of a step's at once, where autocast would start a kernel for each of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from algorithms.base import Params
from bench.engine.network import Network


def lowered(net: Network, params: Params) -> Params:
    """Copies of those parameters whose layers compute in bfloat16, by name; gradients flow. None in other precisions.

    Args:
        net: says which.
        params: of one model, or with a leading axis of all clients'.
    """
    if not net.lowered:
        return {}
    made = _Lowered.apply(*(params[name] for name in net.lowered))
    return dict(zip(net.lowered, made, strict=True))


class _Lowered(torch.autograd.Function):
    """Tensors of float32 in bfloat16: joined, cast and taken apart again, which makes views; their slopes likewise."""

    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> tuple[Tensor, ...]:
        return _cast(given, torch.bfloat16)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, ...]:
        return _cast(slopes, torch.float32)


def _cast(given: tuple[Tensor, ...], dtype: torch.dtype) -> tuple[Tensor, ...]:
    joined = torch.cat([tensor.reshape(-1) for tensor in given]).to(dtype)
    parts = torch.split(joined, [tensor.numel() for tensor in given])
    return tuple(part.view(tensor.shape) for part, tensor in zip(parts, given, strict=True))
