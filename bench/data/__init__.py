"""Data sets by name: `info` says what they are, `load` fetches and reads them, `read` does not fetch.

`DATASETS` has this suite's own; `bench.data.plugins` finds those of other packages. The table imports neither numpy nor
torch; a data set's loader is imported when it is asked for. `bench.data.splits` gives the samples to clients.

Every function here raises UsageError if there is no data set of that name, or one from outside is not what it should
be; the message lists those that there are, or says why.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import cast

from bench.data.dataset import Dataset, MissingData, Source
from bench.data.download import data_dir
from bench.data.table import DATASETS, DatasetInfo
from bench.terminal.words import unknown

__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetInfo",
    "MissingData",
    "data_dir",
    "info",
    "load",
    "read",
]


def info(name: str) -> DatasetInfo:
    """The table's entry for a data set, or that of one from outside: an entry point's name, or `module:name`."""
    if name in DATASETS:
        return DATASETS[name]
    from bench.data import plugins  # looks into installed packages, which few commands need

    entry = plugins.find(name)
    if entry is None:
        raise unknown("data set", name, [*DATASETS, *plugins.KIND.names()], importable=True)
    return entry


def load(name: str, folder: Path | str | None = None, offline: bool = False) -> Dataset:
    """Read a data set, downloading it first if it is missing; a second call in one process costs nothing.

    Raises EnvironmentProblem if files are missing and cannot be fetched, or are not the original ones. `folder`: as
    `data_dir` takes it. `offline`: never use the network.
    """
    there = data_dir(folder)
    try:
        return _read(name, there)
    except MissingData:
        source(name).fetch(there, offline)
    return _read(name, there)


def read(name: str, folder: Path | str | None = None) -> Dataset | None:
    """Read a data set that is on this machine; None if it is not. Never downloads; raises and takes as `load` does."""
    try:
        return _read(name, data_dir(folder))
    except MissingData:
        return None


def source(name: str) -> Source:
    """Return the source of a data set."""
    entry = info(name)
    if name not in DATASETS:
        from bench.data import plugins

        return plugins.source(name)
    module, attribute = entry.loader.split(":")
    return cast(Source, getattr(import_module(module), attribute))


def version(name: str) -> str | None:
    """The part of a run key that stands for the data, of a data set from outside; None for this suite's own."""
    if name in DATASETS:
        return None
    from bench.data import plugins

    return plugins.version(name)


# Failures are not remembered, so data that arrive later in the life of a process are found.
@lru_cache(maxsize=4)
def _read(name: str, folder: Path) -> Dataset:
    return source(name).read(folder)
