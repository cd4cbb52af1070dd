"""Values of options from text: lists, folders, and known names. Imports neither torch nor ray."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path

from algorithms.entry_points import as_module
from bench.errors import UsageError
from bench.execution import LOGS, TRACKS, default_out


def unknown(kind: str, name: str, known: Iterable[str], importable: bool = False) -> UsageError:
    """Make the error for a name that is not among the known ones, with the nearest that is.

    `kind` is a noun such as "data set"; `importable` names may be `module:name`, too, for which some users type a file.
    """
    from difflib import get_close_matches

    meant = as_module(name) if importable else ""
    if meant:
        return UsageError(f"no {kind} {name!r}: {meant}")
    names = sorted(known)
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return UsageError(f"no {kind} {name!r}; known: {', '.join(names)}{hint}")


def split_list(words: Iterable[str] | None) -> tuple[str, ...]:
    """Split `0.1 0.5`, `0.1,0.5` and `0.1, 0.5` alike; empty if the option was not given."""
    return tuple(part.strip() for word in words or () for part in word.split(",") if part.strip())


def folders_of(words: Iterable[str] | None) -> list[Path]:
    """Find result folders, each once, else the usual one; raises UsageError if one of several does not exist."""
    # A folder may have a comma or a blank in its name.
    names = [name for word in words or () for name in ([word] if Path(word).is_dir() else split_list([word]))]
    found = list(dict.fromkeys(map(Path, names)))
    missing = [str(folder) for folder in found if len(found) > 1 and not folder.exists()]
    if missing:
        raise UsageError(f"no such folder: {', '.join(missing)}")
    return found or [default_out()]


def result_folder(given: str | Path | None, option: str = "--out or FEDKD_OUT") -> Path:
    """Resolve the named result folder, or the usual one, there or not; raises UsageError if it is a file."""
    out = Path(given or default_out()).resolve()
    if out.is_file():
        raise UsageError(f"{out} is a file, and results are a folder: name another with {option}")
    return out


def pack_size(text: str) -> int | str:
    """Parse `--pack`: `auto`, or a number of runs."""
    return text if text == "auto" else int(text)


def some_of(words: Iterable[str], known: Collection[str], kind: str) -> tuple[str, ...]:
    """Parse names of `known`, each once and in their order. Raises UsageError for an unknown name, of a `kind`."""
    asked = split_list(words)
    for name in asked:
        if name not in known:
            raise unknown(kind, name, known)
    return tuple(name for name in known if name in asked)


tracks_of = partial(some_of, known=TRACKS, kind="way to --track")
logs_of = partial(some_of, known=LOGS, kind="tool for --log")
