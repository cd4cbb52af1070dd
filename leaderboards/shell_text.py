"""Commands and values as messages suggest them: pasted into a shell, they do what they say, or mean what they meant."""

from __future__ import annotations

import re
import shlex
from typing import Any

# Escape sequences move a terminal's cursor, set its title and more; directions of writing hide what a name is. Line
# feeds and tabs are text. Both `re` and pyarrow read it.
CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
REPLACED = "\ufffd"


def printable(text: str) -> str:
    """Text of a file as a terminal or a chart may show it: each control character is the sign of replacement."""
    return re.sub(CONTROL, REPLACED, text)


def shell_command(module: str, *words: object) -> str:
    """`python -m MODULE WORDS...`, each word quoted where a shell would take it apart: `--out 'my results'`."""
    return shlex.join(["python", "-m", module, *map(str, words)])


def typed(value: Any) -> str:
    """A value of a field as it is typed, with all digits that it has: `0.1`, `true`, `none`."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    short = f"{value:g}" if isinstance(value, float) else str(value)
    return repr(float(value)) if isinstance(value, float) and float(short) != value else short
