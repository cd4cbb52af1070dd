"""Data sets, models and partitions of other packages: an entry point's name, or `package.module:name`.

Algorithms come the same way (`algorithms/plugins.py`). Imports neither torch nor ray, nor numpy; what it loads may.
"""

from __future__ import annotations

from typing import Any, TypeVar

from algorithms.entry_points import Kind
from bench.errors import UsageError

DATASETS = Kind("data set", "fedkd_bench.datasets")
MODELS = Kind("model", "fedkd_bench.models")
PARTITIONS = Kind("partition", "fedkd_bench.partitions")

T = TypeVar("T")


def load(kind: Kind, name: str, path: str) -> Any:
    """Import `module:name`, which the user asked for as `name`; raises UsageError if that fails."""
    try:
        return kind.load(name, path)
    except ValueError as error:
        raise UsageError(str(error)) from error


def load_info(kind: Kind, name: str, path: str, wanted: type[T]) -> T:
    """The entry of a data set or a model, of class `wanted`: it stands at `path`, or the function there gives it.

    Raises UsageError if there is none. `name`: as the user typed it.
    """
    asked = f"it must be a {wanted.__module__}.{wanted.__name__}, or a function without arguments that gives one"
    entry = load(kind, name, path)
    if callable(entry) and not isinstance(entry, wanted):
        try:
            entry = entry()
        except Exception as error:
            raise problem(kind, name, f"{path}() raises {type(error).__name__}: {error}; {asked}") from error
    if not isinstance(entry, wanted):
        raise problem(kind, name, f"{path} is or gives {type(entry).__name__}; {asked}")
    return entry


def problem(kind: Kind, name: str, what: str) -> UsageError:
    """The error that says what is wrong with one of a kind."""
    return UsageError(str(kind.error(name, what)))


def module_of(path: str) -> str:
    """The module of `module:name`."""
    return path.partition(":")[0]
