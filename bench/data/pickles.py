"""Reads the pickles that CIFAR is published in, and nothing else that a pickle may hold.

Unpickling runs whatever a file names, so the names are limited to the three that those files need.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

# numpy has moved this function between modules; an array itself always says where it is.
_RECONSTRUCT = np.empty(0).__reduce__()[0]


class ForbiddenPickle(pickle.UnpicklingError):
    """A pickle names something that CIFAR's files do not hold."""


def load_arrays(blob: bytes) -> dict[bytes, Any]:
    """The dictionary in a pickle of Python 2, made of bytes, numbers, lists and uint8 arrays only.

    Args:
        blob: the file's content.

    Raises:
        ForbiddenPickle: it names anything else.
        pickle.UnpicklingError: it is no pickle.
    """
    content: dict[bytes, Any] = _Reader(io.BytesIO(blob), encoding="bytes").load()
    return content


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise ForbiddenPickle(f"{module}.{name} has no place in a file of numbers")
        return _ALLOWED[module, name]


def _dtype(kind: bytes, align: int, copy: int) -> np.dtype[np.uint8]:
    """numpy.dtype as old files call it: with numbers where numpy now wants booleans."""
    if kind != b"u1":
        raise ForbiddenPickle(f"arrays must be of type uint8, got {kind!r}")
    return np.dtype(np.uint8, align=bool(align), copy=bool(copy))


_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
}
