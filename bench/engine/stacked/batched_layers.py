"""Layers of a stack of clients, each client with its own weights, within a function that `torch.func.vmap` maps.

On a GPU: one grouped convolution for all clients, which is what `vmap` makes. Fusing the convolutions of several models
into grouped ones is what Wang et al. 2021 ("Horizontally Fused Training Array", HFTA) propose for training many small
models on one accelerator, and cuDNN has kernels for them. It was not measured here. On a CPU: one convolution a client,
channels last in memory, measured to be 1.4 times as fast; below `SMALL` multiplications grouped as well.

Besides, `vmap` hides convolutions from autocast and turns bfloat16 norms into float32. Here both keep their precision.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight
from torch.overrides import TorchFunctionMode

HIDDEN_FROM_AUTOCAST = frozenset(  # autocast does not see them, or not their biases, under vmap
    (
        *(F.linear, torch.conv1d, torch.conv2d, torch.conv3d),
        *(F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d),
        *(torch.prelu, Tensor.prelu, F.scaled_dot_product_attention),
    )
)
SMALL = 4_000_000  # multiplications of a client's convolution, below which a call for each client costs a CPU too much


class BatchedLayers(TorchFunctionMode):
    """Within it a vmapped function computes its two-dimensional convolutions and its norms as this module says.

    Convolutions of single images, and with padding given as a word, are left to `vmap`.
    """

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in HIDDEN_FROM_AUTOCAST:
            args = tuple(map(_autocast, args))
            kwargs = {name: _autocast(value) for name, value in kwargs.items()}
        replacement = REPLACEMENTS.get(func, func)
        return replacement(*args, **kwargs)


def _autocast(value: Any) -> Any:
    """A tensor as autocast would have it in a convolution."""
    if not isinstance(value, Tensor) or not value.is_floating_point():  # a mask has no precision
        return value
    if not torch.is_autocast_enabled(value.device.type):
        return value
    return value.to(torch.get_autocast_dtype(value.device.type))


def _batch_norm(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`F.batch_norm`, whose result has the input's type."""
    # On a GPU torch asks whether channels come last, which vmap does not answer.
    x = input.contiguous() if input.is_cuda else input
    # vmap would give torch's kernel bfloat16 weights beside float32 statistics, which it refuses.
    x = x.float() if x.dtype is torch.bfloat16 else x
    return F.batch_norm(x, *args, **kwargs).to(input.dtype)


def _group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """`F.group_norm`, whose result has the input's type."""
    if weight is None or bias is None:
        return F.group_norm(input, num_groups, weight, bias, eps)
    weight, bias = (value.to(input.dtype).view(-1, *[1] * (input.dim() - 2)) for value in (weight, bias))
    with torch.autocast(input.device.type, enabled=False):  # which would compute and return float32
        return torch.addcmul(bias, F.group_norm(input, num_groups, eps=eps), weight)


def _conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    if input.device.type != "cpu" or input.dim() != 4 or isinstance(padding, str):  # `vmap` groups these
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    options = _Options(_pair(stride), _pair(padding), _pair(dilation), groups)
    if _is_small(input, weight, options):
        return torch.conv2d(input, weight, bias, *options)
    out: Tensor = _OneByOne.apply(input, weight, bias, options)
    return out


REPLACEMENTS = {torch.conv2d: _conv2d, F.batch_norm: _batch_norm, F.group_norm: _group_norm}


class _Options(NamedTuple):
    """Of a convolution, along (height, width)."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


def _is_small(x: Tensor, weight: Tensor, options: _Options) -> bool:
    """Return whether one client's convolution of x (B, C, H, W) with weight (O, C, h, w) is below `SMALL`."""
    along = zip(x.shape[-2:], weight.shape[-2:], *options[:3], strict=True)
    places = math.prod(
        (size + 2 * pad - dilation * (k - 1) - 1) // stride + 1 for size, k, stride, pad, dilation in along
    )
    return len(x) * places * weight.numel() < SMALL


class _OneByOne(torch.autograd.Function):
    """A convolution that vmap makes one by one with channels last; elsewhere, and when differentiated, torch's."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, options: _Options) -> Tensor:
        return torch.conv2d(x, weight, bias, *options)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, bias, ctx.options = inputs
        ctx.save_for_backward(x, weight)
        ctx.save_for_forward(x, weight)
        ctx.biased = bias is not None

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        x, weight = ctx.saved_tensors
        (grad,) = grads
        by_input = conv2d_input(x.shape, weight, grad, *ctx.options)  # type: ignore[no-untyped-call]
        by_weight = conv2d_weight(x, weight.shape, grad, *ctx.options)  # type: ignore[no-untyped-call]
        return by_input, by_weight, grad.sum((0, 2, 3)) if ctx.biased else None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        x, weight = ctx.saved_tensors
        by_input, by_weight, by_bias, *_ = tangents
        parts = [] if by_input is None else [torch.conv2d(by_input, weight, None, *ctx.options)]
        parts += [] if by_weight is None else [torch.conv2d(x, by_weight, None, *ctx.options)]
        parts += [] if by_bias is None else [by_bias.view(1, -1, 1, 1)]
        return sum(parts[1:], parts[0])

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, weight: Tensor, bias: Any, options: _Options) -> Any:
        clients = info.batch_size
        x = _clients_first(x, in_dims[0], clients)
        if in_dims[1] is None and in_dims[2] is None:  # one model for all: one large batch
            out = torch.conv2d(x.flatten(0, 1), weight, bias, *options)
            return out.view(*x.shape[:2], *out.shape[1:]), 0
        weights = _clients_first(weight, in_dims[1], clients)
        biases = [None] * clients if bias is None else _clients_first(bias, in_dims[2], clients).unbind()
        # `unbind`, because the gradient of n single entries would be n sums of the whole.
        each = zip(x.unbind(), weights.unbind(), biases, strict=True)
        outs = [torch.conv2d(_channels_last(x), _channels_last(weight), bias, *options) for x, weight, bias in each]
        return torch.stack([out.movedim(1, 3) for out in outs]).movedim(4, 2), 0


def _channels_last(tensor: Tensor) -> Tensor:
    # Not by `memory_format`, which has no meaning when a hook vmaps once more.
    return tensor.movedim(1, 3).contiguous().movedim(3, 1)


def _clients_first(tensor: Tensor, axis: int | None, clients: int) -> Tensor:
    """With the clients' axis first; the same for each of them if there was none."""
    return tensor.expand(clients, *tensor.shape) if axis is None else tensor.movedim(axis, 0)
