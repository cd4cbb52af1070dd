"""What a module keeps beside its parameters and floating-point buffers.

These are numbers and texts, also in lists, dicts and objects, the states of its own generators, and
buffers of whole numbers. Tensors and arrays that are no buffers are left out: most are notes, such
as the last features.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

_OF_TORCH = frozenset(vars(nn.Module()))  # what torch itself keeps in a layer


def state_of(module: nn.Module) -> dict[str, object]:
    """Return what the layers of a module keep, by name as Python writes it."""
    state: dict[str, object] = {}
    seen: set[int] = set()
    for prefix, part in module.named_modules():
        for name, value in vars(part).items():
            if name not in _OF_TORCH:
                _add_state(state, ".".join(filter(None, (prefix, name))), value, seen)
        for name, value in part.named_buffers(prefix, recurse=False):
            if not value.is_floating_point():
                state[name] = value.tolist()
    return state


def _add_state(state: dict[str, object], name: str, value: object, seen: set[int]) -> None:
    """Add a value, or the values that it holds; `seen` has the ids of objects that were added."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, np.generic)):
        state[name] = value
    elif isinstance(value, torch.Generator):
        state[name] = value.get_state().tolist()
    elif isinstance(value, np.random.Generator):
        state[name] = repr(value.bit_generator.state)
    elif isinstance(value, np.random.RandomState):
        state[name] = repr(value.get_state(legacy=False))
    elif isinstance(value, random.Random):
        state[name] = value.getstate()
    elif id(value) not in seen and not isinstance(value, (Tensor, nn.Module, type)):
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
