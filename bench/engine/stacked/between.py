"""What stands between a stack's convolutions: norms, each client's with its own weights, and ReLU.

`vmap` normalises without weights, then multiplies by them and adds them: of one pass over memory it makes three, and
of bfloat16 float32. A small model's step is little else than passes over memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bench.models.rectify import rectify


def layers(side_by_side: bool) -> dict[Callable[..., Any], Callable[..., Tensor | None]]:
    """What takes the place of torch's functions within a vmapped one; None of these means torch's own.

    Args:
        side_by_side: whether the clients' channels lie side by side in memory, as a grouped convolution has them.
    """
    if side_by_side:
        return {F.batch_norm: batch_norm, F.group_norm: merged_group_norm, rectify: elsewhere}
    return {F.batch_norm: batch_norm, F.group_norm: group_norm}


def elsewhere(input: Tensor) -> Tensor:
    """`rectify`, never in its place.

    vmap would change a view of its argument, the clients' axis first, and autograd then copies the whole four times.
    """
    return torch.relu(input)


def batch_norm(input: Tensor, *args: Any, **kwargs: Any) -> Tensor | None:
    """`F.batch_norm`; what it gives is of the input's type."""
    # On a GPU torch asks whether channels come last, which vmap does not answer.
    laid = input.contiguous() if input.is_cuda else input
    # vmap would give torch's kernel weights of bfloat16 beside statistics of float32, which it refuses.
    laid = laid.float() if laid.dtype is torch.bfloat16 else laid
    return None if laid is input else F.batch_norm(laid, *args, **kwargs).to(input.dtype)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """`F.group_norm`; what it gives is of the input's type."""
    if weight is None or bias is None:
        return F.group_norm(input, num_groups, weight, bias, eps)
    weight, bias = (value.to(input.dtype).view(-1, *[1] * (input.dim() - 2)) for value in (weight, bias))
    with _as_it_is(input):
        return torch.addcmul(bias, F.group_norm(input, num_groups, eps=eps), weight)


def merged_group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """As `group_norm`, all clients' groups as those of one norm: their channels lie side by side in memory.

    So a grouped convolution has them, too, and nothing is copied between the two.
    """
    if weight is None or bias is None:
        return F.group_norm(input, num_groups, weight, bias, eps)
    made: Tensor = _Merged.apply(input, weight.to(input.dtype), bias.to(input.dtype), num_groups, eps)
    return made


class _Merged(torch.autograd.Function):
    """A group norm that says itself how it is vmapped. Outside of a stack, and when differentiated, it is torch's."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> Tensor:
        return _torchs(groups, eps, x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, bias, groups, eps = inputs
        ctx.save_for_backward(x, weight, bias)
        ctx.save_for_forward(x, weight, bias)
        ctx.norm = partial(_torchs, groups, eps)

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> tuple[Any, ...]:
        pull = torch.func.vjp(ctx.norm, *ctx.saved_tensors)[1]
        return *pull(*slopes), None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        given = ctx.saved_tensors
        pairs = zip(given, tangents[:3], strict=True)
        known = tuple(torch.zeros_like(value) if tangent is None else tangent for value, tangent in pairs)
        return torch.func.jvp(ctx.norm, given, known)[1]

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> Any:
        clients = info.batch_size
        x = clients_at(1, x, in_dims[0], clients)
        weight, bias = (
            clients_at(0, value, axis, clients).flatten()
            for value, axis in zip((weight, bias), in_dims[1:3], strict=True)
        )
        return _torchs(clients * groups, eps, x.flatten(1, 2), weight, bias).view(x.shape), 1


def _torchs(groups: int, eps: float, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    with _as_it_is(x):
        return torch.group_norm(x, groups, weight, bias, eps)


def _as_it_is(x: Tensor) -> torch.autocast:
    """Autocast would have norms in float32, but the kernels add up in it as it is."""
    return torch.autocast(x.device.type, enabled=False)


def clients_at(place: int, tensor: Tensor, axis: int | None, clients: int) -> Tensor:
    """With the clients' axis at a place; the same for each of them, where there was none."""
    if axis is not None:
        return tensor.movedim(axis, place)
    return tensor.unsqueeze(place).expand(*tensor.shape[:place], clients, *tensor.shape[place:])
