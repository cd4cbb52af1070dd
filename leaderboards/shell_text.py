"""Text for terminals: shell commands, values as a user types them, no control characters."""

from __future__ import annotations

import re
import shlex
from typing import Any

# Control characters, which can move a terminal's cursor or set its title, and bidirectional marks,
# which can disguise a name. Line feeds and tabs are allowed. Both `re` and pyarrow accept the
# pattern.
CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
REPLACED = "\ufffd"


def printable(text: str) -> str:
    """Replace each control character in text from a file, so that a terminal can show it."""
    return re.sub(CONTROL, REPLACED, text)


def is_text(name: str) -> bool:
    """Return whether a name can be written as UTF-8.

    The name of a file may have other bytes, which Python escapes.
    """
    return not any("\ud800" <= character <= "\udfff" for character in name)


def shell_command(module: str, *words: object) -> str:
    """Return `python -m MODULE WORDS...`, quoting each word that a shell would split."""
    return shlex.join(["python", "-m", module, *map(str, words)])


def typed(value: Any) -> str:
    """Format a field's value as a user types it, with all its digits: `0.1`, `true`, `none`."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, float):
        return str(value)
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))
