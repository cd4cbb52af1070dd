"""A stack's parameters in bfloat16: all of a step's at once, where autocast would start a kernel for each of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from algorithms.base import Params
from bench.engine.network import Network

ALIGNED = 16  # numbers, 32 bytes in bfloat16: what the widest loads of a kernel ask of an address


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
    sizes = [-(-tensor.numel() // ALIGNED) * ALIGNED for tensor in given]
    gap = given[0].new_empty(ALIGNED)  # of what lies in it nothing is read
    pieces = [
        piece
        for tensor, size in zip(given, sizes, strict=True)
        for piece in (tensor.reshape(-1), gap[: size - tensor.numel()])
    ]
    parts = torch.split(torch.cat(pieces).to(dtype), sizes)
    return tuple(part[: tensor.numel()].view(tensor.shape) for part, tensor in zip(parts, given, strict=True))
