"""Pickled arrays of whole numbers, read without running what a file names.

Unpickling calls the names in a file with arguments of the file's choosing. Here only the names that
a pickled array needs are known, and they stand for classes of this module, which store their
arguments: numpy gets nothing but a type of whole numbers, bytes of the right length and a shape.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np


def load_arrays(blob: bytes) -> dict[str, Any]:
    """Load the dictionary in a pickle; its arrays of whole numbers become read-only numpy arrays.

    Text of Python 2 becomes bytes, but for keys.

    Raises:
        pickle.UnpicklingError: it names anything else, or is no dictionary. A damaged file may
            raise any other error.
    """
    content = _Unpickler(io.BytesIO(blob), encoding="bytes").load()
    if not isinstance(content, dict):
        raise pickle.UnpicklingError(f"a {type(content).__name__}, not a dictionary")
    arrays = {}
    for key, value in content.items():
        name = key.decode() if isinstance(key, bytes) else key
        arrays[name] = value.array() if isinstance(value, _Array) else value
    return arrays


class _Unpickler(pickle.Unpickler):
    """An unpickler that knows the names of `_ALLOWED` alone."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a file of numbers")
        return _ALLOWED[module, name]


class _Kind:
    """A numpy.dtype of whole numbers, as a pickle describes it."""

    def __init__(self, name: bytes | str, align: int = 0, copy: int = 0) -> None:
        self.name = name.decode() if isinstance(name, bytes) else name
        if self.name not in _KINDS:
            raise pickle.UnpicklingError(f"arrays must be of whole numbers, got {self.name!r}")

    def __setstate__(self, state: Any) -> None:
        """Take (version, byte order, subtype, names, fields, ...): three times None if plain."""
        match state:
            case (_, ("<" | ">" | "|" | b"<" | b">" | b"|") as order, None, None, None, *_):
                text = order.decode() if isinstance(order, bytes) else order
                self.name = text + self.name.lstrip("<>|")
            case _:
                raise pickle.UnpicklingError("arrays must be of plain whole numbers")


class _Array:
    """An array, as a pickle describes it: created empty, then filled by its state."""

    def __init__(self, subtype: Any, shape: Any, name: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        """Take (version, shape, type, whether columns come first, content)."""
        self.state = state

    def array(self) -> np.ndarray[Any, Any]:
        """Return the array; numpy raises ValueError unless shape, type and content fit."""
        match getattr(self, "state", None):
            case (
                _,
                tuple() as shape,
                _Kind() as kind,
                bool() as columns_first,
                bytes() as content,
            ):
                dtype = np.dtype(kind.name)
            case _:
                raise pickle.UnpicklingError("an array must have a shape, a type and bytes")
        return np.frombuffer(content, dtype).reshape(shape, order="F" if columns_first else "C")


def _ndarray(*_: Any) -> None:
    raise pickle.UnpicklingError("numpy.ndarray may be named as the class of an array, not called")


def _encode(text: str, encoding: str) -> bytes:
    """Encode text; protocol 2 of Python 3 writes bytes as a call of this function."""
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"bytes must be written as latin1, got {encoding!r}")
    return text.encode("latin1")


_KINDS = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")
_ALLOWED = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")},
    ("numpy", "ndarray"): _ndarray,
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): _encode,
}
