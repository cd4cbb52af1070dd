"""Words that commands share: numbers with their nouns, many values in few words, help of common options."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from leaderboards.shell_text import typed

# Help of options that several commands have.
DATA_DIR = "data sets (default $FEDKD_DATA, else fedkd-bench in the XDG data folder, ~/.local/share)"
IMPORT = "import these `module:name` if stored runs name them: it runs their code"
OUT = "results (default $FEDKD_OUT, else leaderboards)"
OUTS = "result folders, or files of rows (default $FEDKD_OUT, else leaderboards)"

KEY_SHOWN = 16  # characters of a run key, which tell it from all others of a folder

_KEYS_LISTED = 5
FOLDED_WIDTH = 28  # characters of the column of hyper-parameters


def counted(count: int, noun: str) -> str:
    """`1 run`, `2 runs`, `1,200 runs`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def duration(seconds: float) -> str:
    """`90 s`, `12 min`, `3.4 h`, `2.1 days`."""
    if math.isnan(seconds):
        return "unknown"
    for size, unit, top in ((1, "s", 120), (60, "min", 7200), (3600, "h", 172800)):
        if seconds < top:
            return f"{seconds / size:.1f} {unit}" if size == 3600 else f"{max(1, round(seconds / size))} {unit}"
    return f"{seconds / 86400:.1f} days"


def span(low: float, high: float) -> str:
    """`4 to 9 min`, `90 s to 3 min`; one duration if they print alike."""
    first, last = duration(low), duration(high)
    if first == last:
        return last
    number, _, unit = first.partition(" ")
    return f"{number if last.endswith(f' {unit}') else first} to {last}"


def text(value: Any) -> str:
    """Shorten a value of a setting or a hyper-parameter, as it is typed: `0.1`, `sgd`, `true`, `none`."""
    return f"{value:g}" if isinstance(value, float) else typed(value)


def run_keys(keys: Sequence[str]) -> str:
    """Run keys as messages name them, shortened: `3f..., 9a...`; of many the first, `and 7 more`."""
    listed = ", ".join(key[:KEY_SHOWN] for key in keys[:_KEYS_LISTED])
    return listed if len(keys) <= _KEYS_LISTED else f"{listed} and {len(keys) - _KEYS_LISTED} more"


def folded(hyperparameters: str) -> list[str]:
    """Break hyper-parameters into lines, no value cut: those that differ between columns part behind a bar."""
    lines = [""]
    for word in hyperparameters.split():
        pieces = [word] if len(word) <= FOLDED_WIDTH else [f"{value}|" for value in word.split("|")]
        pieces[-1] = pieces[-1].removesuffix("|")
        for at, piece in enumerate(pieces):
            space = " " * bool(lines[-1] and not at)
            if len(lines[-1]) + len(space) + len(piece) > FOLDED_WIDTH and lines[-1]:
                lines.append(piece)
            else:
                lines[-1] += space + piece
    return lines
