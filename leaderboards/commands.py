"""Commands as messages suggest them and rows keep them: pasted into a shell, they do what they say."""

from __future__ import annotations

import shlex


def shell_command(module: str, *words: object) -> str:
    """`python -m MODULE WORDS...`, each word quoted where a shell would take it apart: `--out 'my results'`."""
    return shlex.join(["python", "-m", module, *map(str, words)])
