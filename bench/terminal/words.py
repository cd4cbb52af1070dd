"""Text of the command line: printed words and values, shared help, values parsed from text.

Imports neither torch nor ray.
"""

from __future__ import annotations

import errno
import os
import re
from argparse import ArgumentTypeError
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from algorithms.entry_points import as_module
from bench.errors import UsageError
from bench.execution import LOGS, TRACKS, default_out
from search_spaces.bounds import nearest

# Help of options that several commands have.
CHOSEN_BY = (
    "validation accuracy that configurations are chosen by: "
    "mean of the last ten evaluations, or best round"
)
SELECT_ON = (
    "whose accuracy selects and ranks: the global model's, or each client's on its own samples "
    "(default: clients where a setting has local_validation_fraction > 0)"
)
DATA_DIR = (
    "data sets (default $FEDKD_DATA, else fedkd-bench in the XDG data folder, ~/.local/share)"
)
IMPORT = "allow importing these `module:name` that a file refers to, which executes their code"
LABEL = "of csv:PATH: the column of labels"
OUT = "results (default $FEDKD_OUT, else leaderboards)"
OUTS = "result folders, or files of rows (default $FEDKD_OUT, else leaderboards)"

MOST_SEEDS = 100_000
KEY_SHOWN = 16  # characters of a run key, enough to tell it from all others of a folder

MOST_FOLDERS = 200  # in one another, on a path
_KEYS_LISTED = 5
# Errors about a path at which nothing can be, whatever is on the disk.
_NO_PATH = (errno.ELOOP, errno.ENAMETOOLONG)
FOLDED_WIDTH = 28  # characters of the column of hyper-parameters


def counted(count: int, noun: str) -> str:
    """Format a number with its noun: `1 run`, `2 runs`, `1,200 runs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(noun: str, numbers: Collection[int]) -> str:
    """List numbers after their noun, in ascending order: `seed 0`, `seeds 0, 1`."""
    plural = noun if len(numbers) == 1 else f"{noun}s"
    return f"{plural} {', '.join(map(str, sorted(numbers)))}"


def duration(seconds: float) -> str:
    """Format seconds: `90 s`, `12 min`, `3.4 h`, `2.1 days`."""
    for size, unit, top in ((1, "s", 120), (60, "min", 7200)):
        if seconds < top:
            return f"{max(1, round(seconds / size))} {unit}"
    if seconds < 172800:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"


def span(low: float, high: float) -> str:
    """Format a range of seconds: `4 to 9 min`, `90 s to 3 min`; one if both print alike."""
    first = duration(low)
    last = duration(high)
    if first == last:
        return last
    number, _, unit = first.partition(" ")
    return f"{number if last.endswith(f' {unit}') else first} to {last}"


def text(value: Any) -> str:
    """Format a value of a setting or a hyper-parameter as it is typed: `0.1`, `sgd`, `true`."""
    from leaderboards.shell_text import typed  # `--version` does without the leaderboards

    return f"{value:g}" if isinstance(value, float) else typed(value)


def no_effect(name: str, value: Any) -> str:
    """Write the note that a field given for a setting does nothing there; it has `value`."""
    kept = text(value) or "its default"
    return f"{name} has no effect with the other settings: it is left at {kept}"


def run_keys(keys: Sequence[str]) -> str:
    """Format run keys, shortened: `3f..., 9a...`; of many only the first, `and 7 more`."""
    listed = ", ".join(key[:KEY_SHOWN] for key in keys[:_KEYS_LISTED])
    return listed if len(keys) <= _KEYS_LISTED else f"{listed} and {len(keys) - _KEYS_LISTED} more"


def folded(hyperparameters: str) -> list[str]:
    """Break hyper-parameters into lines, without cutting a value.

    Values that differ by column break after a bar.
    """
    lines = [""]
    for word in hyperparameters.split():
        pieces = [word] if len(word) <= FOLDED_WIDTH else [f"{value}|" for value in word.split("|")]
        pieces[-1] = pieces[-1].removesuffix("|")
        for index, piece in enumerate(pieces):
            space = " " if lines[-1] and index == 0 else ""
            if len(lines[-1]) + len(space) + len(piece) > FOLDED_WIDTH and lines[-1]:
                lines.append(piece)
            else:
                lines[-1] += space + piece
    return lines


# Values parsed from text: lists, folders, and known names.


def unknown(kind: str, name: str, names: Iterable[str], importable: bool = False) -> UsageError:
    """Make the error for an unknown name, with the nearest known one.

    `kind` is a noun such as "data set"; `importable` names may be `module:name`, too, or a file
    typed by mistake.
    """
    advice = as_module(name) if importable else ""
    if advice:
        return UsageError(f"no {kind} {name!r}: {advice}")
    known = sorted(names)
    return UsageError(f"no {kind} {name!r}{nearest(name, known)}; known: {', '.join(known)}")


def flag(name: str) -> str:
    """Return an option as it is typed: `--pack` of `pack`, `--import` of `import_`."""
    return "--" + name.rstrip("_").replace("_", "-")


def split_list(words: Iterable[str] | None) -> tuple[str, ...]:
    """Split `0.1 0.5`, `0.1,0.5` and `0.1, 0.5` alike; empty if the option was not given."""
    parts = [part.strip() for part in ",".join(words or ()).split(",")]
    return tuple(part for part in parts if part)


def folders_of(words: Iterable[str] | None) -> list[Path]:
    """Return the named result folders without repeats, or the default one.

    Raises UsageError if some do not exist.
    """
    names: list[str] = []
    for word in words or ():
        # A folder may have a comma or a blank in its name, and many names are longer than one.
        names += [word] if is_folder(word) else split_list([word])
    folders = list(dict.fromkeys(map(Path, names)))
    missing = [str(folder) for folder in folders if len(folders) > 1 and not folder.exists()]
    if missing:
        raise UsageError(f"no such folder: {', '.join(missing)}")
    return [checked_path(folder) for folder in folders or [default_out()]]


def is_folder(path: str) -> bool:
    """Tell whether a path, which may be anything that was typed, is a folder."""
    try:
        return Path(path).is_dir()
    except OSError:
        return False


def checked_path(path: Path) -> Path:
    """Return a path of results.

    Raises UsageError if nothing can be there, or it is not UTF-8, which rows and tables are.
    """
    from leaderboards.shell_text import is_text  # `--version` does without the leaderboards

    if not is_text(str(path.absolute())):
        advice = "rename it; if it is right and only the locale is another, set PYTHONUTF8=1"
        raise UsageError(f"the name of the folder {path.absolute()} is not UTF-8: {advice}")
    _check_usable(path)
    return path


def whole_path(path: str | Path) -> Path:
    """Resolve a path of results, which need not exist; raises as `checked_path`."""
    return checked_path(Path(os.path.realpath(path)))  # `Path.resolve` raises for some links


def _check_usable(path: Path) -> None:
    """Raise UsageError for a path at which nothing can be.

    Such are links that lead to themselves, and overlong paths.
    """
    if len(path.parts) > MOST_FOLDERS:
        raise UsageError(
            f"{path} has {len(path.parts)} folders in one another, and at most {MOST_FOLDERS} are "
            "allowed: name another path"
        )
    try:
        path.stat()
    except OSError as error:
        if error.errno in _NO_PATH:
            raise UsageError(f"{path}: {error.strerror}; name another path") from None


def resolved(path: str) -> Path:
    """Return the whole path of one that may begin with `~`.

    Raises UsageError if that names no home folder, or nothing can be there.
    """
    try:
        whole = Path(os.path.realpath(Path(path).expanduser()))
    except RuntimeError:
        raise UsageError(
            f"{path}: there is no such user, or no home folder is known: "
            "name a path without ~, or set HOME"
        ) from None
    _check_usable(whole)
    return whole


def result_folder(path: str | Path | None, option: str = "--out or FEDKD_OUT") -> Path:
    """Resolve the named result folder, or the default one, which need not exist.

    Raises UsageError as `checked_path`, if it is no folder, or within another one's rows.
    """
    out = whole_path(path or default_out())
    if out.exists() and not out.is_dir():
        kind = "a file" if out.is_file() else "no folder"
        raise UsageError(f"{out} is {kind}, and results are a folder: name another with {option}")
    return beside_results(out, option)


def beside_results(path: Path, option: str) -> Path:
    """Return a path to write at; raises UsageError within the rows of a result folder."""
    from leaderboards.rows.files import results_around

    out = results_around(path)
    if out is not None:
        raise UsageError(
            f"{option} {path} lies among the rows of the result folder {out}, which must hold "
            "nothing else: name another place"
        )
    return path


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


def seeds_in_words(seeds: Sequence[int]) -> str:
    """Format seeds, ascending ranges shortened: `1 to 5`, `101 to 110, 200`."""
    ranges: list[list[int]] = []
    for seed in seeds:
        if ranges and seed == ranges[-1][-1] + 1:
            ranges[-1].append(seed)
        else:
            ranges.append([seed])
    texts = [f"{part[0]} to {part[-1]}" if len(part) > 1 else str(part[0]) for part in ranges]
    return ", ".join(texts)


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
