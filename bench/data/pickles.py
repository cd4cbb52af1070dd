"""Reads the pickles that CIFAR and MNIST-M are published in, and nothing else that a pickle may hold.

Unpickling runs whatever a file names, so the names are limited to those that arrays of whole numbers need.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

# numpy has moved this function between modules; an array itself always says where it is.
_RECONSTRUCT = np.empty(0).__reduce__()[0]


class ForbiddenPickle(pickle.UnpicklingError):
    """A pickle names something that has no place in a file of numbers."""


def load_arrays(blob: bytes) -> dict[Any, Any]:
    """The dictionary in a pickle, made of text, numbers, lists and arrays of whole numbers only.

    Text of Python 2 comes as bytes.

    Args:
        blob: the file's content.

    Raises:
        ForbiddenPickle: it names anything else.
        pickle.UnpicklingError: it is no pickle.
    """
    content: dict[Any, Any] = _Reader(io.BytesIO(blob), encoding="bytes").load()
    return content


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise ForbiddenPickle(f"{module}.{name} has no place in a file of numbers")
        return _ALLOWED[module, name]


def _dtype(kind: bytes | str, align: int = 0, copy: int = 0) -> np.dtype[Any]:
    """numpy.dtype as old files call it: with numbers where numpy now wants booleans."""
    name = kind.decode() if isinstance(kind, bytes) else kind
    if name not in _KINDS:
        raise ForbiddenPickle(f"arrays must be of whole numbers, got {name!r}")
    return np.dtype(name, align=bool(align), copy=bool(copy))


def _encode(text: str, encoding: str) -> bytes:
    """How protocol 2 of Python 3 writes bytes."""
    if encoding not in ("latin1", b"latin1"):
        raise ForbiddenPickle(f"bytes must be written as latin1, got {encoding!r}")
    return text.encode("latin1")


_KINDS = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")
_ALLOWED = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _RECONSTRUCT for core in ("core", "_core")},
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _encode,
}
