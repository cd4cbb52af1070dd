"""Text that commands print: counts, durations, lists, and the help that several share.

Imports neither torch nor ray.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from algorithms.entry_points import as_module
from bench.errors import UsageError
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

KEY_SHOWN = 16  # characters of a run key, enough to tell it from all others of a folder

_KEYS_LISTED = 5
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
