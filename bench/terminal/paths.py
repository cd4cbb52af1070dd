"""Paths that are typed: whether something can be there, and whether it may be written at.

Imports neither torch nor ray.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bench.errors import UsageError
from bench.execution import default_out
from bench.terminal.values import split_list

MOST_FOLDERS = 200  # in one another, on a path

# Errors about a path at which nothing can be, whatever is on the disk.
_NO_PATH = (errno.ELOOP, errno.ENAMETOOLONG)


def folders_of(words: Iterable[str] | None) -> list[Path]:
    """Return the named result folders without repeats, or the default one.

    Raises UsageError if some do not exist, or a name is empty.
    """
    names: list[str] = []
    for word in words or ():
        if not word:
            raise UsageError("--out takes a value, and got an empty one")
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


def check_path_types(given: Mapping[str, Any]) -> None:
    """Raise UsageError if `out` or `data_dir` of Python's options is no path, nor None."""
    for name in ("out", "data_dir"):
        if not isinstance(given.get(name), str | Path | None):
            raise UsageError(f"{name} must be a path, as text or a Path, got {given[name]!r}")


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
