"""What a module keeps beside its parameters and floating-point buffers.

These are numbers, texts, tensors and arrays, also in lists, dicts, sets and objects, the states of
its own generators, and buffers of whole numbers. Numbers and texts of its classes count as well.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn

_PLAIN = (bool, int, float, complex, str, bytes, np.generic, type(None))
_OF_TORCH = frozenset(vars(nn.Module()))  # what torch itself keeps in a layer


def of_tensor(value: Tensor) -> object:
    """Return shape and checksum of a dense tensor; None of others."""
    if value.layout != torch.strided or value.is_quantized:
        return None
    numbers = value.detach().cpu().contiguous().view(-1).view(torch.uint8)
    return tuple(value.shape), crc32(numbers.numpy().tobytes())


def _of_array(value: np.ndarray) -> object:
    return value.shape, crc32(np.ascontiguousarray(value).tobytes())


# How values of these types are compared.
_FORMS: tuple[tuple[Any, Callable[[Any], object]], ...] = (
    (_PLAIN, lambda value: value),
    (Tensor, of_tensor),
    (np.ndarray, _of_array),
    (itertools.count, repr),
    ((set, frozenset), lambda value: sorted(map(repr, value))),
    (torch.Generator, lambda value: value.get_state().tolist()),
    (np.random.Generator, lambda value: repr(value.bit_generator.state)),
    (np.random.RandomState, lambda value: repr(value.get_state(legacy=False))),
    (random.Random, random.Random.getstate),
)


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a module, by name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def state_of(module: nn.Module) -> dict[str, object]:
    """Return what the layers of a module keep, by name as Python writes it."""
    state: dict[str, object] = {}
    seen: set[int] = set()
    for prefix, part in module.named_modules():
        for name, value in vars(part).items():
            if name not in _OF_TORCH:
                _add_state(state, ".".join(filter(None, (prefix, name))), value, seen)
        for name, value in _of_classes(type(part)):
            state[f"{type(part).__name__}.{name}"] = value
        for name, value in part.named_buffers(prefix, recurse=False):
            if not value.is_floating_point():
                state[name] = value.tolist()
    return state


def checksum(state: Mapping[str, object], start: int = 0) -> int:
    """Return the CRC-32 of what `state_of` returns, or of a part; `start` is that of other data."""
    return crc32(repr(sorted(state.items())).encode(), start)


def _of_classes(kind: type) -> Iterator[tuple[str, object]]:
    """Yield the numbers and texts that a class and those above it keep, but for torch's own."""
    for above in kind.__mro__:
        if not above.__module__.startswith("torch"):
            for name, value in vars(above).items():
                if not name.startswith("__") and isinstance(value, _PLAIN):
                    yield name, value


def _add_state(state: dict[str, object], name: str, value: object, seen: set[int]) -> None:
    """Add a value, or the values that it holds; `seen` has the ids of objects that were added."""
    for kinds, describe in _FORMS:
        if isinstance(value, kinds):
            state[name] = describe(value)
            return
    if id(value) not in seen and not isinstance(value, (nn.Module, type)):
        seen.add(id(value))
        for key, part in _parts_of(value):
            _add_state(state, f"{name}{key}", part, seen)


def _parts_of(value: object) -> list[tuple[str, object]]:
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", part) for key, part in value.items()]
    if isinstance(value, (list, tuple, deque)):
        parts: list[tuple[str, object]] = [("", len(value))]
        for number, part in enumerate(value):
            parts.append((f"[{number}]", part))
        return parts
    own = getattr(value, "__dict__", {})
    return [(f".{key}", part) for key, part in own.items()]
