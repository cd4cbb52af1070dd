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
    """What stands at `module:name`; the user typed `name`.

    Raises:
        UsageError: nothing does, or its module cannot be imported.
    """
    try:
        return kind.load(name, path)
    except ValueError as error:
        raise UsageError(str(error)) from error


def load_info(kind: Kind, name: str, path: str, wanted: type[T]) -> T:
    """The entry of a data set or a model: it stands at `path`, or what stands there gives it when called.

    Args:
        kind: of which of them.
        name: what the user typed, for messages.
        path: `module:name`.
        wanted: the entry's class.

    Raises:
        UsageError: there is no such entry.
    """
    found = load(kind, name, path)
    if callable(found) and not isinstance(found, wanted):
        try:
            found = found()
        except Exception as error:
            raise problem(kind, name, f"{path}() raises {type(error).__name__}: {error}; {_asked(wanted)}") from error
    if not isinstance(found, wanted):
        raise problem(kind, name, f"{path} is or gives {type(found).__name__}; {_asked(wanted)}")
    return found


def problem(kind: Kind, name: str, what: str) -> UsageError:
    """What is wrong with one, to be raised."""
    return UsageError(str(kind.error(name, what)))


def module_of(path: str) -> str:
    """The module of `module:name`."""
    return path.partition(":")[0]


def _asked(wanted: type[T]) -> str:
    return f"it must be a {wanted.__module__}.{wanted.__name__}, or a function without arguments that gives one"
