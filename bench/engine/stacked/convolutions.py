"""How a stack's convolutions are computed, each client's with its own weights. Which way is fastest is measured.

`vmap` makes one grouped convolution of them. Libraries have few fast kernels for those, so there are other ways; all
compute the same sums, and differ in their order alone. Besides, `vmap` passes autocast by: under it a convolution of
bfloat16 runs in float32. Here it does not.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight
from torch.overrides import TorchFunctionMode

from bench.engine.stacked.between import clients_at, layers

WAYS = {
    "grouped": "one grouped convolution",
    "separate": "one convolution a client",
    "channels_last": "one convolution a client, channels last in memory; on a CPU small ones grouped",
    "matmul": "the patches of all clients' images, and one batched matrix product",
}
ONE_BY_ONE = ("separate", "channels_last")
AUTOCAST = frozenset(  # functions that take tensors of one type, and that autocast passes by under vmap
    (
        *(torch.conv1d, torch.conv2d, torch.conv3d),
        *(F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d),
        *(torch.prelu, Tensor.prelu, F.scaled_dot_product_attention),
    )
)
LOWERED = AUTOCAST | {F.linear, F.group_norm}  # compute in bfloat16, of what they are given in float32, too
SMALL = 4_000_000  # multiplications of a client's convolution on a CPU, below which one call a client costs too much


def usual(device: torch.device) -> str:
    """The way that is taken where none is measured."""
    # On a CPU 1.4 times as fast as a grouped one for CNN and ResNet-8; on a GPU it would launch more kernels.
    return "channels_last" if device.type == "cpu" else "grouped"


class Shape(NamedTuple):
    """Strides, zeros around the image and spacing of a kernel along (height, width); groups of channels."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int

    def sizes(self, image: tuple[int, ...], kernel: tuple[int, ...]) -> list[int]:
        """Height and width of what comes out."""
        along = zip(image, kernel, self.stride, self.padding, self.dilation, strict=True)
        return [(n + 2 * around - apart * (k - 1) - 1) // step + 1 for n, k, step, around, apart in along]


class computed(TorchFunctionMode):
    """Within it, the two-dimensional convolutions of a vmapped function are computed in one of `WAYS`.

    Those of single images, or with padding stated in a word, are vmap's own.

    Raises:
        ValueError: an unknown way.

    Attributes:
        idle: whether everything so far would have been the same without it, which is faster for small models.
    """

    def __init__(self, way: str) -> None:
        super().__init__()
        if way not in WAYS:
            raise ValueError(f"convolutions of a stack are computed in one of {', '.join(WAYS)}; got {way!r}")
        self._way = way
        self._between = layers(side_by_side=way == "grouped")
        self._low: dict[int, Tensor] = {}
        self.idle = True

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._low and func in LOWERED and _is_low(func, args, kwargs):
            args = tuple(map(self._lowered, args))
            kwargs = {name: self._lowered(value) for name, value in kwargs.items()}
        if func in AUTOCAST:
            cast = tuple(map(_autocast, args)), {name: _autocast(value) for name, value in kwargs.items()}
            self.idle &= all(map(operator.is_, [*args, *kwargs.values()], [*cast[0], *cast[1].values()]))
            args, kwargs = cast
            return self._conv2d(*args, **kwargs) if func is torch.conv2d else func(*args, **kwargs)
        made = self._between[func](*args, **kwargs) if func in self._between else None
        self.idle &= made is None
        return func(*args, **kwargs) if made is None else made

    @contextmanager
    def lowering(self, params: Mapping[str, Tensor], low: Mapping[str, Tensor]) -> Iterator[None]:
        """Where layers that would cast tensors of `params` to bfloat16 take what is cast already, `low`, by name.

        Each once: what a layer that is used again takes is cast for that use, for slopes are added up in float32.
        """
        self._low = {id(params[name]): value for name, value in low.items()}
        try:
            yield
        finally:
            self._low = {}

    def _lowered(self, value: Any) -> Any:
        return self._low.pop(id(value), value)

    def _conv2d(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        if input.dim() != 4 or isinstance(padding, str):
            return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
        shape = Shape(_pair(stride), _pair(padding), _pair(dilation), groups)
        if self._way == "grouped" or (self._way == "channels_last" and _is_small(input, weight, shape)):
            return torch.conv2d(input, weight, bias, *shape)
        self.idle = False
        made: Tensor = _Convolution.apply(input, weight, bias, shape, self._way)
        return made


def _is_low(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a layer computes in bfloat16: under autocast, and a norm where its input is."""
    given = args[0] if args else kwargs["input"]
    low = func is not F.group_norm or given.dtype is torch.bfloat16
    return low and torch.is_autocast_enabled(given.device.type)


def _autocast(value: Any) -> Any:
    """A tensor as autocast would have it in a convolution."""
    if not isinstance(value, Tensor) or not value.is_floating_point():  # a mask has no precision
        return value
    if not torch.is_autocast_enabled(value.device.type):
        return value
    return value.to(torch.get_autocast_dtype(value.device.type))


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    return (value[0], value[-1])


class _Convolution(torch.autograd.Function):
    """A convolution that says itself how it is vmapped. Outside of a stack, and when differentiated, it is torch's."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape, way: str) -> Tensor:
        return torch.conv2d(x, weight, bias, *shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, bias, ctx.shape, _ = inputs
        ctx.save_for_backward(x, weight)
        ctx.save_for_forward(x, weight)
        ctx.biased = bias is not None

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> tuple[Any, ...]:
        x, weight = ctx.saved_tensors
        (slope,) = slopes
        by_input = conv2d_input(x.shape, weight, slope, *ctx.shape)  # type: ignore[no-untyped-call]
        by_weight = conv2d_weight(x, weight.shape, slope, *ctx.shape)  # type: ignore[no-untyped-call]
        return by_input, by_weight, slope.sum((0, 2, 3)) if ctx.biased else None, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        x, weight = ctx.saved_tensors
        by_input, by_weight, by_bias, *_ = tangents
        parts = [] if by_input is None else [torch.conv2d(by_input, weight, None, *ctx.shape)]
        parts += [] if by_weight is None else [torch.conv2d(x, by_weight, None, *ctx.shape)]
        parts += [] if by_bias is None else [by_bias.view(1, -1, 1, 1)]
        return sum(parts[1:], parts[0])

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, weight: Tensor, bias: Any, shape: Shape, way: str) -> Any:
        clients = info.batch_size
        x = clients_at(0, x, in_dims[0], clients)
        if in_dims[1] is None and in_dims[2] is None:  # one model for all: one large batch
            made = torch.conv2d(x.flatten(0, 1), weight, bias, *shape)
            return made.view(*x.shape[:2], *made.shape[1:]), 0
        weight = clients_at(0, weight, in_dims[1], clients)
        bias = None if bias is None else clients_at(0, bias, in_dims[2], clients)
        if way == "matmul" and shape.groups == 1:
            return _as_product(x, weight, bias, shape), 0
        return _one_by_one(x, weight, bias, shape, last=way == "channels_last"), 0


def _is_small(x: Tensor, weight: Tensor, shape: Shape) -> bool:
    """Of x (B, C, H, W) and weight (O, C, h, w) of one client."""
    places = math.prod(shape.sizes(x.shape[-2:], weight.shape[-2:]))
    return x.device.type == "cpu" and len(x) * places * weight.numel() < SMALL


def _one_by_one(x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape, last: bool) -> Tensor:
    """(n, B, O, H', W') of x (n, B, C, H, W) and weight (n, O, C, h, w)."""
    biases = [None] * len(weight) if bias is None else bias.unbind()
    laid = _channels_last if last else Tensor.contiguous
    # `unbind`, for the gradient of n single entries would be n sums of the whole.
    entries = zip(x.unbind(), weight.unbind(), biases, strict=True)
    made = [torch.conv2d(laid(own), laid(kernel), add, *shape) for own, kernel, add in entries]
    if not last:
        return torch.stack(made)
    return torch.stack([one.movedim(1, 3) for one in made]).movedim(4, 2)


def _channels_last(tensor: Tensor) -> Tensor:
    # Not by `memory_format`, which has no meaning where a hook vmaps once more.
    return tensor.movedim(1, 3).contiguous().movedim(3, 1)


def _as_product(x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape) -> Tensor:
    """As `_one_by_one`; nine times the memory of x for a 3x3 kernel."""
    clients, batch = x.shape[:2]
    kernel = weight.shape[-2:]
    patches = _patches(x.flatten(0, 1), tuple(kernel), shape)
    made = weight.flatten(2).unsqueeze(1) @ patches.view(clients, batch, *patches.shape[1:])
    made = made.view(clients, batch, -1, *shape.sizes(x.shape[-2:], kernel))
    return made if bias is None else made + bias[:, None, :, None, None]


def _patches(x: Tensor, kernel: tuple[int, ...], shape: Shape) -> Tensor:
    """(N, C * h * w, places) of x (N, C, H, W)."""
    if x.device.type == "cpu":
        return F.unfold(x, kernel, shape.dilation, shape.padding, shape.stride)
    return copied_patches(x, kernel, shape)  # torch's own starts a kernel an image on a GPU


def copied_patches(x: Tensor, kernel: tuple[int, ...], shape: Shape) -> Tensor:
    """As `F.unfold`, by a single copy."""
    above, beside = shape.padding
    seen = F.pad(x, (beside, beside, above, above)) if above or beside else x
    for axis, size, apart, step in zip((2, 3), kernel, shape.dilation, shape.stride, strict=True):
        seen = seen.unfold(axis, apart * (size - 1) + 1, step)[..., ::apart]
    return seen.permute(0, 1, 4, 5, 2, 3).flatten(4).flatten(1, 3)
