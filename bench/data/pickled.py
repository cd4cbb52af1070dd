"""Pickled arrays of whole numbers, read without unpickling.

Unpickling calls the names in a file with arguments of the file's choosing. Here those instructions
of the format are carried out that write a dictionary of arrays, and others are refused. Names stand
for classes of this module, which only store their arguments: numpy gets nothing but a type of whole
numbers, bytes of the right length and a shape.
"""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

MOST_INSTRUCTIONS = 2_000_000  # of a file; the labels and file names of CIFAR-100 take some 400,000
WIDEST = 16  # values in a tuple


class ForbiddenPickle(pickle.UnpicklingError):
    """An error for a pickle that names or holds what has no place in a file of numbers."""


def load_arrays(blob: bytes) -> dict[str | bytes, Any]:
    """Load the dictionary in a pickle; its arrays of whole numbers become read-only numpy arrays.

    Text of Python 2 becomes bytes. Keys are text, values arrays, numbers, text, tuples of such, or
    lists of numbers or text.

    Raises:
        ForbiddenPickle: it has anything else, or an array is not as long as its shape says.
        pickle.UnpicklingError: it is not a pickled dictionary.
    """
    try:
        content = _Reader().read(blob)
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # of almost any kind, as the documentation of pickle says
        raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from error
    if not isinstance(content, dict):
        raise pickle.UnpicklingError(f"a {type(content).__name__}, not a dictionary")
    return {
        key: value.array() if isinstance(value, _Array) else value for key, value in content.items()
    }


def with_text_keys(content: dict[str | bytes, Any]) -> dict[str, Any]:
    """Decode the keys of a dictionary that are bytes, as Python 2 wrote them."""
    decoded = {}
    for key, value in content.items():
        name = key.decode() if isinstance(key, bytes) else key
        decoded[name] = value
    return decoded


class _Reader:
    """A stack machine for those instructions of a pickle that a dictionary of arrays needs.

    A tuple holds plain values, types and flat tuples, a list plain values, and a dictionary is only
    at the top. Nothing nests deeper, so neither hashing nor printing a value takes long.
    """

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def read(self, blob: bytes) -> Any:
        """Carry out all instructions; return the last value."""
        for number, (instruction, argument, _) in enumerate(pickletools.genops(blob)):
            if number == MOST_INSTRUCTIONS:
                raise ForbiddenPickle(f"more than {MOST_INSTRUCTIONS:,} instructions")
            self._carry_out(instruction.name, argument)
        return self._stack.pop()

    def _carry_out(self, name: str, argument: Any) -> None:
        if name in _PLAIN:
            self._stack.append(argument)
        elif name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name])
        elif name in _TUPLES:
            self._stack.append(_tuple(self._last(_TUPLES[name])))
        elif name in _ACTIONS:
            _ACTIONS[name](self, argument)
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise ForbiddenPickle(f"{name} has no place in a file of numbers")

    def _push_bytes(self, text: str) -> None:
        """Put text of Python 2 on the stack."""
        self._stack.append(text.encode("latin1"))

    def _keep(self, place: int | None) -> None:
        """Keep the value on top; in order, if the instruction names no place."""
        self._memo[len(self._memo) if place is None else place] = self._stack[-1]

    def _push_kept(self, place: int) -> None:
        self._stack.append(self._memo[place])

    def _mark(self, _: None) -> None:
        self._marks.append(len(self._stack))

    def _push_tuple(self, _: None) -> None:
        self._stack.append(_tuple(self._marked()))

    def _push_list(self, _: None) -> None:
        self._stack.append([])

    def _push_filled_list(self, _: None) -> None:
        """Put a list of the marked values on the stack."""
        values = self._marked()
        self._stack.append([])
        self._extend(values)

    def _append_one(self, _: None) -> None:
        self._extend(self._last(1))

    def _append_marked(self, _: None) -> None:
        self._extend(self._marked())

    def _extend(self, values: list[Any]) -> None:
        """Append plain values to the list on top."""
        target = self._stack[-1]
        if not isinstance(target, list) or not all(
            isinstance(value, int | str | bytes) for value in values
        ):
            raise ForbiddenPickle("a list must be of numbers or text")
        target.extend(values)

    def _push_dictionary(self, _: None) -> None:
        self._stack.append({})

    def _push_filled(self, _: None) -> None:
        """Put a dictionary of the marked pairs on the stack."""
        items = self._marked()
        self._stack.append({})
        self._fill(items)

    def _set_one(self, _: None) -> None:
        self._fill(self._last(2))

    def _set_marked(self, _: None) -> None:
        self._fill(self._marked())

    def _fill(self, items: list[Any]) -> None:
        """Put pairs into the dictionary on top."""
        target = self._stack[-1]
        keys = items[::2]
        values = items[1::2]
        if not isinstance(target, dict) or not all(isinstance(key, str | bytes) for key in keys):
            raise ForbiddenPickle("keys must be text, of a dictionary")
        if any(isinstance(value, dict) for value in values):
            raise ForbiddenPickle("a dictionary holds another")
        target.update(zip(keys, values, strict=True))

    def _push_named(self, names: str | None) -> None:
        """Put what stands for a name on the stack.

        `names`: module and name; None if they are on the stack.
        """
        module, name = names.split(" ", 1) if names else self._last(2)
        if (module, name) not in _ALLOWED:
            raise ForbiddenPickle(f"{module}.{name} has no place in a file of numbers")
        self._stack.append(_ALLOWED[module, name])

    def _call(self, _: None) -> None:
        called, arguments = self._last(2)
        if called not in _ALLOWED.values():
            raise ForbiddenPickle("only a name may be called")
        self._stack.append(called(*arguments))

    def _set_state(self, _: None) -> None:
        (state,) = self._last(1)
        if not isinstance(self._stack[-1], _Array | _Kind):
            raise ForbiddenPickle("only an array and its type have a state")
        self._stack[-1].__setstate__(state)

    def _last(self, count: int) -> list[Any]:
        """Take the last values off the stack; those below the last mark stay."""
        start = len(self._stack) - count
        if start < (self._marks[-1] if self._marks else 0):
            raise ForbiddenPickle("an instruction lacks its values")
        values = self._stack[start:]
        del self._stack[start:]
        return values

    def _marked(self) -> list[Any]:
        """Take the values after the last mark, and the mark."""
        values = self._last(len(self._stack) - self._marks[-1])
        self._marks.pop()
        return values


def _tuple(values: list[Any]) -> tuple[Any, ...]:
    """Make a tuple of plain values, types and flat tuples."""
    if len(values) > WIDEST or not all(map(_is_flat, values)):
        raise ForbiddenPickle(
            f"a tuple must be of at most {WIDEST} plain values or tuples of plain values"
        )
    return tuple(values)


def _is_flat(value: Any) -> bool:
    """Return whether a value is a plain value, a type, or a tuple without tuples in it."""
    if isinstance(value, tuple):
        return not any(isinstance(part, tuple) for part in value)
    return not isinstance(value, dict | list)


class _Kind:
    """A numpy.dtype of whole numbers, as a pickle describes it."""

    def __init__(self, name: bytes | str, align: int = 0, copy: int = 0) -> None:
        self.name = name.decode() if isinstance(name, bytes) else name
        if self.name not in _KINDS:
            raise ForbiddenPickle(f"arrays must be of whole numbers, got {self.name!r}")

    def __setstate__(self, state: Any) -> None:
        """Take (version, byte order, subtype, names, fields, ...): three times None if plain."""
        match state:
            case (_, ("<" | ">" | "|" | b"<" | b">" | b"|") as order, None, None, None, *_):
                text = order.decode() if isinstance(order, bytes) else order
                self.name = text + self.name.lstrip("<>|")
            case _:
                raise ForbiddenPickle("arrays must be of plain whole numbers")


class _Array:
    """An array, as a pickle describes it: created empty, then filled by its state."""

    def __init__(self, subtype: Any, shape: Any, name: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        """Take (version, shape, type, whether columns come first, content)."""
        self.state = state

    def array(self) -> np.ndarray[Any, Any]:
        """Return the array, after checking that its shape, type and content fit."""
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
                raise ForbiddenPickle("an array must have a shape, a type and bytes")
        if len(shape) > 4 or not all(type(size) is int and size > 0 for size in shape):
            raise ForbiddenPickle("an array's shape must be up to four whole numbers >= 1")
        if prod(shape) * dtype.itemsize != len(content):
            raise ForbiddenPickle(
                f"an array's shape and type ask for other than its {len(content):,} bytes"
            )
        return np.frombuffer(content, dtype).reshape(shape, order="F" if columns_first else "C")


def _ndarray(*_: Any) -> None:
    raise ForbiddenPickle("numpy.ndarray may be named as the class of an array, not called")


def _encode(text: str, encoding: str) -> bytes:
    """Encode text; protocol 2 of Python 3 writes bytes as a call of this function."""
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

# Instructions of the format, by the names that `pickletools` gives them.
_PLAIN = {
    "INT",
    "LONG",
    "LONG1",
    "LONG4",
    "BININT",
    "BININT1",
    "BININT2",
    "UNICODE",
    "BINUNICODE",
    "SHORT_BINUNICODE",
}
_PLAIN |= {"BINUNICODE8", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_ACTIONS: dict[str, Callable[[_Reader, Any], None]] = {
    "BINSTRING": _Reader._push_bytes,
    "SHORT_BINSTRING": _Reader._push_bytes,
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), _Reader._keep),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Reader._push_kept),
    "MARK": _Reader._mark,
    "TUPLE": _Reader._push_tuple,
    "EMPTY_LIST": _Reader._push_list,
    "LIST": _Reader._push_filled_list,
    "APPEND": _Reader._append_one,
    "APPENDS": _Reader._append_marked,
    "EMPTY_DICT": _Reader._push_dictionary,
    "DICT": _Reader._push_filled,
    "SETITEM": _Reader._set_one,
    "SETITEMS": _Reader._set_marked,
    "GLOBAL": _Reader._push_named,
    "STACK_GLOBAL": _Reader._push_named,
    "REDUCE": _Reader._call,
    "BUILD": _Reader._set_state,
}
