"""A reader of pickled arrays of whole numbers that runs nothing a file names, for MNIST-M, which has no checksum.

Unpickling calls the names in a file with arguments of the file's choosing. Here the names stand for classes of this
module, which only keep what they are given: numpy sees a type of whole numbers, bytes of the right length and a shape.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from math import prod
from typing import Any

import numpy as np


class ForbiddenPickle(pickle.UnpicklingError):
    """A pickle names or holds something that has no place in a file of numbers."""


def load_arrays(blob: bytes) -> dict[Any, Any]:
    """The dictionary in a pickle; of its values, arrays of whole numbers become read-only numpy arrays.

    Text of Python 2 comes as bytes.

    Raises:
        ForbiddenPickle: it names anything but arrays of whole numbers, or an array is not as long as its shape says.
        pickle.UnpicklingError: it is no pickle of a dictionary.
    """
    try:
        for opcode, argument, _ in pickletools.genops(blob):  # raises if a string is longer than the file
            if opcode.name in ("PUT", "LONG_BINPUT") and (argument or 0) > len(blob):
                raise ForbiddenPickle(f"{len(blob):,} bytes cannot hold {argument:,} objects")
        content = _Reader(io.BytesIO(blob), encoding="bytes").load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # of almost any kind, as the documentation of pickle says
        raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from error
    if not isinstance(content, dict):
        raise pickle.UnpicklingError(f"a {type(content).__name__}, not a dictionary")
    return {key: value.array() if isinstance(value, _Array) else value for key, value in content.items()}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise ForbiddenPickle(f"{module}.{name} has no place in a file of numbers")
        return _ALLOWED[module, name]


class _Kind:
    """A numpy.dtype of whole numbers, as a pickle describes it."""

    def __init__(self, name: bytes | str, align: int = 0, copy: int = 0) -> None:
        self.name = name.decode() if isinstance(name, bytes) else name
        if self.name not in _KINDS:
            raise ForbiddenPickle(f"arrays must be of whole numbers, got {self.name!r}")

    def __setstate__(self, state: Any) -> None:
        """(version, order of bytes, subtype, names, fields, ...): the last three are None of a plain type."""
        match state:
            case (_, ("<" | ">" | "|" | b"<" | b">" | b"|") as order, None, None, None, *_):
                text = order.decode() if isinstance(order, bytes) else order
                self.name = text + self.name.lstrip("<>|")
            case _:
                raise ForbiddenPickle("arrays must be of plain whole numbers")


class _Array:
    """An array, as a pickle describes it: empty at first, then by its state."""

    def __init__(self, subtype: Any, shape: Any, name: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        """(version, shape, type, whether columns come first, content)."""
        self.state = state

    def array(self) -> np.ndarray[Any, Any]:
        """The array, once its shape, type and content are known to fit."""
        match getattr(self, "state", None):
            case (_, tuple() as shape, _Kind() as kind, bool() as columns_first, bytes() as content):
                dtype = np.dtype(kind.name)
            case _:
                raise ForbiddenPickle("an array must have a shape, a type and bytes")
        if len(shape) > 4 or not all(type(size) is int and size > 0 for size in shape):
            raise ForbiddenPickle("an array's shape must be up to four whole numbers >= 1")
        if prod(shape) * dtype.itemsize != len(content):
            raise ForbiddenPickle(f"an array's shape and type ask for other than its {len(content):,} bytes")
        return np.frombuffer(content, dtype).reshape(shape, order="F" if columns_first else "C")


def _ndarray(*_: Any) -> None:
    raise ForbiddenPickle("numpy.ndarray may be named as the class of an array, not called")


def _encode(text: str, encoding: str) -> bytes:
    """How protocol 2 of Python 3 writes bytes."""
    if encoding not in ("latin1", b"latin1"):
        raise ForbiddenPickle(f"bytes must be written as latin1, got {encoding!r}")
    return text.encode("latin1")


_KINDS = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")
_ALLOWED = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")},
    ("numpy", "ndarray"): _ndarray,
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): _encode,
}
