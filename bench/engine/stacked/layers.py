"""Layers of a stack, in the precision and the memory layout that make them as fast as they can be.

A grouped convolution holds n clients' images as (B, n * C, H, W). `vmap` by itself moves the
clients to the batch before each norm and each pooling, and back before the next convolution, by
copies of all activations. Here these layers compute on (B, n * C, H, W) as well.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._functorch import TransformType, peek_interpreter_stack
from torch.overrides import TorchFunctionMode

from bench.engine.network import Network

Layer = Callable[..., Tensor]

HIDDEN_FROM_AUTOCAST = {  # under vmap, autocast misses these, or their biases
    F.linear,
    torch.conv1d,
    torch.conv2d,
    torch.conv3d,
    F.conv_transpose1d,
    F.conv_transpose2d,
    F.conv_transpose3d,
    torch.prelu,
    Tensor.prelu,
    F.scaled_dot_product_attention,
}


class BatchedLayers(TorchFunctionMode):
    """Mode in which layers of a vmapped function have the precision of a single client's.

    That is what autocast gives them. `vmap` by itself hides convolutions from autocast, and turns
    bfloat16 norms into float32.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in HIDDEN_FROM_AUTOCAST:
            args = tuple(map(_autocast, args))
            kwargs = {name: _autocast(value) for name, value in kwargs.items()}
        return LAYERS.get(func, func)(*args, **kwargs)


def layers_of(net: Network) -> AbstractContextManager[Any]:
    """Return the mode in which a stack of this network computes; it does nothing if not needed."""
    return BatchedLayers() if net.has_batched_layers else nullcontext()


def _autocast(value: Any) -> Any:
    """Cast a value as autocast does for a convolution."""
    if not isinstance(value, Tensor) or not value.is_floating_point():  # a mask has no precision
        return value
    if not torch.is_autocast_enabled(value.device.type):
        return value
    return value.to(torch.get_autocast_dtype(value.device.type))


class _OfAllClients(torch.autograd.Function):
    """A layer of images (B, C, ...), which under `vmap` computes those of all n clients at once.

    Its first arguments are `alone(x, *values)`, the layer of one client, and
    `together(x, clients, *values)` on x (B, n, C, ...) and values (n * C), numbers of channels. It
    has no derivative of its own: `vmap` calls `together`, whose operations have theirs.
    """

    @staticmethod
    def forward(alone: Layer, together: Layer, x: Tensor, *values: Tensor | None) -> Tensor:
        return alone(x, *values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep nothing."""

    @staticmethod
    def vmap(
        info: Any,
        axes: tuple[int | None, ...],
        alone: Layer,
        together: Layer,
        x: Tensor,
        *values: Tensor | None,
    ) -> tuple[Tensor, int]:
        clients = info.batch_size
        _, _, axis_of_x, *axes_of_values = axes
        if axis_of_x is None:
            x = x.unsqueeze(1).expand(x.shape[0], clients, *x.shape[1:])
        else:
            x = x.movedim(axis_of_x, 1)
        flat: list[Tensor | None] = []
        for value, axis in zip(values, axes_of_values, strict=True):
            if value is None:
                flat.append(None)
            elif axis is None:
                flat.append(value.repeat(clients))
            else:
                flat.append(value.movedim(axis, 0).flatten())
        return together(x, clients, *flat), 1


def _of_all_clients(alone: Layer, together: Layer, x: Tensor, *values: Tensor | None) -> Tensor:
    """Apply the layer to all clients at once if that is what comes next.

    A hook that differentiates within a stack has its derivative to take first.
    """
    innermost = peek_interpreter_stack()
    if innermost is None or innermost.key() != TransformType.Vmap:
        return alone(x, *values)
    result: Tensor = _OfAllClients.apply(alone, together, x, *values)
    return result


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Apply `F.group_norm`; the result has the input's type."""

    def alone(
        x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int = num_groups
    ) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):  # which would compute float32
            return F.group_norm(x, groups, weight, bias, eps)

    def together(x: Tensor, clients: int, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        normed = alone(x.flatten(1, 2), weight, bias, groups=clients * num_groups)
        return normed.view_as(x)

    values = [None if value is None else value.to(input.dtype) for value in (weight, bias)]
    return _of_all_clients(alone, together, input, *values)


def max_pool2d(input: Tensor, *args: Any, return_indices: bool, **kwargs: Any) -> Tensor:
    """Apply `F.max_pool2d`, whose form that returns indices is another function."""

    def alone(x: Tensor) -> Tensor:
        return torch.max_pool2d(x, *args, **kwargs)

    def together(x: Tensor, clients: int) -> Tensor:
        pooled = alone(x.flatten(1, 2))
        return pooled.view(*x.shape[:3], *pooled.shape[2:])

    if input.dim() != 4:  # one image of a client
        return alone(input)
    return _of_all_clients(alone, together, input)


def batch_norm(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Apply `F.batch_norm`; the result has the input's type."""
    # On a GPU torch asks whether channels come last, which vmap cannot answer.
    x = input.contiguous() if input.is_cuda else input
    # vmap would give torch's kernel bfloat16 weights beside float32 statistics, which it refuses.
    x = x.float() if x.dtype is torch.bfloat16 else x
    return F.batch_norm(x, *args, **kwargs).to(input.dtype)


def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, *args: Any, **kwargs: Any
) -> Tensor:
    """Apply `F.embedding`; the row `padding_idx` gets no gradient, which vmap forgets."""
    rows = F.embedding(input, weight, None, *args, **kwargs)
    if padding_idx is None:
        return rows
    padding = (input == padding_idx % weight.shape[0]).unsqueeze(-1)
    return torch.where(padding, rows.detach(), rows)


LAYERS: dict[Any, Layer] = {
    F.batch_norm: batch_norm,
    F.embedding: embedding,
    F.group_norm: group_norm,
    F.max_pool2d: max_pool2d,
}
