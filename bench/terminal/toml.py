"""TOML files of options: `--config` and a board's `board.toml`."""

from __future__ import annotations

import re
import tomllib
from datetime import date, time
from typing import Any

# Of a file, at most: the time to read its names grows with the square of their parts.
TOML_BYTES = 2**16
# The time to match it grows with the square of the name's length.
_LONG_NAME = re.compile(r"""(?<![\w"'-])(?:[\w"'-]+[ \t]*\.[ \t]*){20}""")


def toml_values(content: bytes) -> dict[str, Any]:
    """Read the content of a TOML file.

    Raises ValueError if it is none, is too large, or has names or values that no option has.
    """
    if len(content) > TOML_BYTES:
        raise ValueError(f"it has more than {TOML_BYTES:,} bytes")
    text = content.decode("utf-8-sig")  # editors of Windows begin files with a mark
    if _LONG_NAME.search(text):
        raise ValueError("a name has more than 20 parts")
    try:
        values = tomllib.loads(text)
        _check(values)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    return values


def _check(value: Any) -> None:
    """Raise ValueError for a date, a number beyond 64 bits, and text with a zero byte."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            _check(part)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"a number has {value.bit_length():,} bits, and at most 64 are allowed")
    elif isinstance(value, str) and "\0" in value:
        raise ValueError("a text has a zero byte")
    elif isinstance(value, date | time):
        raise ValueError(f"no option takes a date or a time, got {value}: quote a text")
