"""Dropout whose masks are a function of a key.

They are the same in every backend, on every device, and after a resume.

A mask is a hash of (key, number of the application within the step, element) in integer arithmetic.
There is no generator state to save or to race for, and a vmapped key gives every client of a stack
its own masks. Because elements are counted row by row, a sample's mask does not depend on the rows
that follow it. Texts are counted as if all had the greatest length, so a token's mask does not
depend on the padding of its batch either.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

WORD = 2**32 - 1
KINDS: dict[type[nn.Module], bool] = {
    nn.Dropout: False,
    nn.Dropout1d: True,
    nn.Dropout2d: True,
    nn.Dropout3d: True,
}

Whole = TypeVar("Whole", int, Tensor)


def mix(x: Whole) -> Whole:
    """Map 32-bit numbers one to one, so that each bit of the input affects each bit of the output.

    The hash is lowbias32 (https://nullprogram.com/blog/2018/07/31/). Its second factor has 2**32
    subtracted, which leaves the lower 32 bits as they are and keeps every product within int64; `x`
    is a Python int or an int64 tensor.
    """
    x = x ^ (x >> 16)  # a new tensor; from here on in place, which saves half of the time
    x *= 0x7FEB352D
    x &= WORD
    x ^= x >> 15
    x *= 0x846CA68B - 2**32
    x &= WORD
    x ^= x >> 16
    return x


def step_keys(generator: torch.Generator, steps: int) -> Tensor:
    """Draw a key for each step, (steps, 2) int64: 32 bits, and an odd number of 31 bits."""
    keys = torch.randint(2**32, (steps, 2), generator=generator)
    keys[:, 1] = keys[:, 1] >> 1 | 1
    return keys


class Masks:
    """The masks of one network's dropout layers under the current key.

    Args:
        length: the greatest length of inputs whose length differs from batch to batch; 0 if all
            have one length.

    Attributes:
        key: (2,) of `step_keys`, perhaps vmapped; None while nothing is dropped.
    """

    def __init__(self, length: int = 0) -> None:
        self.key: Tensor | None = None
        self._length = length
        self._applied = 0

    @contextmanager
    def under(self, key: Tensor | None) -> Iterator[None]:
        """Drop by `key` during one step's loss."""
        key_before = self.key
        applied_before = self._applied
        self.key = key
        self._applied = 0
        try:
            yield
        finally:
            self.key = key_before
            self._applied = applied_before

    def kept(self, shape: tuple[int, ...], share: float, device: torch.device) -> Tensor:
        """Make the next mask of the step: bool of `shape`, True with probability `share`."""
        assert self.key is not None, "without a key nothing is dropped"
        self._applied += 1
        words = mix(element_numbers(shape, self._length, device)) * self.key[1]
        words &= WORD
        words ^= self.key[0] ^ mix(self._applied)
        return mix(words) < round(share * 2**32)


def element_numbers(shape: tuple[int, ...], length: int, device: torch.device) -> Tensor:
    """Number the elements, modulo 2**32.

    They are counted as if all axes except the first had at least `length` places.
    """
    numbers = torch.zeros((), dtype=torch.int64, device=device)
    stride = 1
    for axis, size in reversed(list(enumerate(shape))):
        places = torch.arange(size, device=device) * stride
        numbers = numbers + places.view(-1, *[1] * (len(shape) - 1 - axis))
        stride *= max(size, length)
    return numbers & WORD


class Dropout(nn.Module):
    """`nn.Dropout` or a variant with masks of `Masks`: x * kept / (1 - p).

    Each element is kept with probability 1 - p. In evaluation mode, and in training mode while no
    key is set, it is the identity.

    With `channels` whole channels (b, c) of (B, C, ...) are dropped; `masks` are shared by the
    layers of a network.
    """

    def __init__(self, p: float, channels: bool, masks: Masks) -> None:
        super().__init__()
        self.p = p
        self.channels = channels
        self._masks = masks

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements, or channels, of x (B, ...)."""
        if not self.training or not self.p or self._masks.key is None:
            return x
        shape = tuple(x.shape)
        if self.channels:
            shape = (*x.shape[:2], *[1] * (x.dim() - 2))
        share = 1 - self.p
        return x * self._masks.kept(shape, share, x.device).to(x.dtype) / (share or 1)


def replace_dropout(module: nn.Module, length: int = 0) -> Masks | None:
    """Replace the dropout layers of `KINDS` in `module` by their keyed form, in place.

    Others, such as `nn.AlphaDropout`, stay: they draw by themselves (`bench.engine.own_draws`).

    Returns:
        Their masks, or None if there is no such layer.
    """
    masks = Masks(length)
    replaced = False
    for part in list(module.modules()):
        for name, layer in list(part._modules.items()):  # `named_children` lists each layer once
            if layer is None or type(layer) not in KINDS:
                continue
            share: float = layer.p  # type: ignore[assignment]
            keyed = Dropout(share, KINDS[type(layer)], masks)
            setattr(part, name, keyed.train(layer.training))
            replaced = True
    return masks if replaced else None
