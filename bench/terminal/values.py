"""Values parsed from the text of a command line.

Imports neither torch nor ray.
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path

from bench.execution import LOGS, TRACKS
from bench.terminal.words import unknown

MOST_SEEDS = 100_000


def split_list(words: Iterable[str] | None) -> tuple[str, ...]:
    """Split `0.1 0.5`, `0.1,0.5` and `0.1, 0.5` alike; empty if the option was not given."""
    parts = [part.strip() for part in ",".join(words or ()).split(",")]
    return tuple(part for part in parts if part)


def nonempty_text(text: str) -> str:
    """Return a text of the command line; raises ArgumentTypeError if it is empty.

    An empty path would be the current folder, and comes from a variable that is not set.
    """
    if not text:
        raise ArgumentTypeError("it takes a value, and got an empty one")
    return text


def nonempty_path(text: str) -> Path:
    """Return a path of the command line; raises as `nonempty_text`."""
    return Path(nonempty_text(text))


def plain_text(text: str) -> str:
    """Return a text of the command line; raises ArgumentTypeError if it is not UTF-8."""
    from leaderboards.shell_text import is_text

    if not is_text(text):
        raise ArgumentTypeError(f"{text!r} is not UTF-8: type it anew, or set PYTHONUTF8=1")
    return text


def pack_size(text: str) -> int | str:
    """Parse `--pack`: `auto`, or a number of runs; raises ArgumentTypeError."""
    return text if text == "auto" else whole_number(text, "auto, or a whole number")


def whole_number(text: str, allowed: str = "a whole number") -> int:
    """Parse a whole number; raises ArgumentTypeError, which says what is `allowed`."""
    try:
        return int(text)
    except ValueError:
        raise ArgumentTypeError(f"give {allowed}, got {text!r}") from None


def number(text: str) -> float:
    """Parse a number; raises ArgumentTypeError."""
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"give a number, got {text!r}") from None


def number_of_seeds(text: str) -> int:
    """Parse `--seeds`; raises ArgumentTypeError."""
    return whole_number(text, "how many seeds, such as 3 for seeds 0 to 2")


def seeds_to_confirm(text: str) -> tuple[int, ...]:
    """Parse `--confirm`: `5` is seeds 1 to 5; `101-150` or `101-110,200` are these seeds.

    Raises:
        ArgumentTypeError: it is neither, or names seed 0, on which configurations are chosen.
    """
    seeds: list[int] = []
    parts = text.split(",")
    for part in parts:
        match = re.fullmatch(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?", part)
        if not match:
            raise ArgumentTypeError(
                f"give a number of seeds, or seeds such as 101-150,200; got {text!r}"
            )
        low = int(match[1])
        high = int(match[2] or match[1])
        if len(parts) == 1 and match[2] is None:  # a number of seeds
            low = 1
        if not 1 <= low <= high < low + MOST_SEEDS:
            raise ArgumentTypeError(
                f"seeds are from 1 on, in ascending order, at most {MOST_SEEDS:,}, "
                f"because configurations are chosen on seed 0; got {text!r}"
            )
        seeds += range(low, high + 1)
    return tuple(dict.fromkeys(seeds))


def some_of(words: Iterable[str], allowed: Collection[str], kind: str) -> tuple[str, ...]:
    """Parse names among `allowed`, each once and in that order.

    Raises UsageError for an unknown name of this `kind`.
    """
    names = split_list(words)
    for name in names:
        if name not in allowed:
            raise unknown(kind, name, allowed)
    return tuple(name for name in allowed if name in names)


tracks_of = partial(some_of, allowed=TRACKS, kind="way to --track")


logs_of = partial(some_of, allowed=LOGS, kind="tool for --log")
