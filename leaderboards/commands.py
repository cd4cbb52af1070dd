"""Commands and values as messages suggest them: pasted into a shell, they do what they say, or mean what they meant."""

from __future__ import annotations

import shlex
from typing import Any


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
