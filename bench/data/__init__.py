"""Data sets by name: `info` describes, `load` fetches and reads, `read` reads without fetching.

`DATASETS` lists the built-in data sets; `bench.data.outside` finds those of other packages, and
`bench.data.own` reads a user's own files. The registry imports neither numpy nor torch; the loader
of a data set is imported on first use. `bench.data.splits` gives the samples to clients.

`info`, `load`, `read` and `loader` raise UsageError if no data set has that name, or if a data set
of another package is invalid; the message lists the data sets available, or gives the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, cast

from bench.data.dataset import Dataset, Loader, MissingData
from bench.data.download import data_dir
from bench.data.registry import DATASETS, DatasetInfo
from bench.errors import EnvironmentProblem, UsageError

if TYPE_CHECKING:
    from search_spaces.setting import Setting

__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetInfo",
    "MissingData",
    "data_dir",
    "hashes",
    "info",
    "info_of",
    "is_own",
    "is_path",
    "load",
    "named",
    "read",
]

CSV = "csv:"
PATHS = ("folder:", CSV)  # before a path that a user types
OWN = ("folder@", "csv@")  # before the hash of what lies there


def info(name: str) -> DatasetInfo:
    """Return the entry of a data set, built in or from outside.

    `name` may be that of an entry point, `module:name`, or the name of a user's own files
    (`is_own`).
    """
    if name in DATASETS:
        return DATASETS[name]
    if is_own(name):
        from bench.data import own

        return own.find(name)
    from bench.data import outside  # looks into installed packages, which few commands need

    return outside.find(name)


def info_of(setting: Setting) -> DatasetInfo:
    """Return the entry of a setting's data set, with images of the setting's size."""
    return info(setting.dataset).sized(setting.image_size)


def is_own(name: str) -> bool:
    """Tell whether a name is of a user's own files, as typed or by their content."""
    return name.startswith(OWN) or is_path(name)


def is_path(name: str) -> bool:
    """Tell whether a name of a data set says where it is: `folder:PATH` or `csv:PATH`."""
    return name.startswith(PATHS)


def named(name: str, label: str = "") -> str:
    """Return the name by which runs know a data set.

    A user's own files are read, and named by their content. `label`: the column of labels of
    `csv:PATH`. Raises UsageError as `bench.data.own.define`.
    """
    if is_path(name):
        from bench.data import own

        return own.define(name, label).name
    if label:
        raise UsageError(f"label={label} names a column of csv:PATH, and the data set is {name}")
    return name


def load(name: str, folder: Path | str | None = None, offline: bool = False) -> Dataset:
    """Read a data set, downloading it first if it is missing.

    A second call in one process costs nothing. `folder`: as for `data_dir`. `offline`: never use
    the network.

    Raises:
        EnvironmentProblem: files are missing and cannot be fetched, or are not the original ones.
    """
    name = named(name)
    data_folder = data_dir(folder)
    try:
        return _read(name, data_folder)
    except MissingData:
        loader(name).fetch(data_folder, offline)
    return _read(name, data_folder)


def read(name: str, folder: Path | str | None = None) -> Dataset | None:
    """Read a data set as `load` does, but never download it; None if it is not on this machine."""
    try:
        return _read(named(name), data_dir(folder))
    except MissingData:
        return None


def hashes(names: Iterable[str], folder: Path | str | None = None) -> dict[str, str]:
    """Return data set -> hash, for the data sets on this machine; nothing is downloaded.

    Data that cannot be read are left out: whoever trains on them gets the error.
    """
    hash_of: dict[str, str] = {}
    for name in dict.fromkeys(names):
        with suppress(EnvironmentProblem):
            hash_of[name] = _read(name, data_dir(folder)).hash
    return hash_of


def loader(name: str) -> Loader:
    """Return the loader of a data set."""
    entry = info(name)
    if is_own(name):
        from bench.data import own

        return own.loader(name)
    if name not in DATASETS:
        from bench.data import outside

        return outside.loader(name)
    return cast(Loader, resolve_name(entry.loader))


def version(name: str) -> str | None:
    """Return the part of a run key that identifies the data of a data set from outside.

    None for a built-in data set, and for a user's own files, whose name identifies the data.
    """
    if name in DATASETS or is_own(name):
        return None
    from bench.data import outside

    return outside.version(name)


# Errors are not cached, so data that arrive later in the life of a process are found.
@lru_cache(maxsize=4)
def _read(name: str, folder: Path) -> Dataset:
    return loader(name).read(folder)
