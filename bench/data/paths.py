"""Where data lie on this machine: the user's folder of data sets, and our folder of prepared copies."""

from __future__ import annotations

import os
from pathlib import Path

APPLICATION = "fedkd-bench"


def data_dir(option: Path | str | None = None) -> Path:
    """The folder in which data sets are looked for and downloaded to, resolved; it need not exist.

    Args:
        option: what the user gave (`--data-dir`); without it $FEDKD_DATA counts, then $XDG_DATA_HOME/fedkd-bench,
            whose default is ~/.local/share/fedkd-bench.
    """
    chosen = option or os.environ.get("FEDKD_DATA")
    return _absolute(chosen) if chosen else _xdg("XDG_DATA_HOME", "~/.local/share")


def cache_dir() -> Path:
    """The folder for what can be made anew at any time: $XDG_CACHE_HOME/fedkd-bench, else ~/.cache/fedkd-bench."""
    return _xdg("XDG_CACHE_HOME", "~/.cache")


def _xdg(variable: str, default: str) -> Path:
    # An empty variable counts as unset (XDG Base Directory Specification).
    return _absolute(os.environ.get(variable) or default) / APPLICATION


def _absolute(path: Path | str) -> Path:
    return Path(path).expanduser().resolve()
