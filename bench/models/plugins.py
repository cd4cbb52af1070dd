"""Models of other packages: a `ModelInfo` by an entry point in `fedkd_bench.models`, or as `module:name`.

Imports neither torch nor ray; the module that the entry stands in may.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from algorithms.fingerprint import fingerprint
from bench import plugins
from bench.models.table import ModelInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.errors import UsageError

KIND = plugins.MODELS


@cache
def find(name: str) -> ModelInfo | None:
    """The entry of a model that is not of this suite; None where no package has one of that name.

    Args:
        name: an entry point's name, or `module:name`; without `+head` or `+bn`.

    Raises:
        UsageError: its module, or what it says of the model, is not what it should be.
    """
    path = KIND.path(name)
    if path is None:
        return None
    entry = plugins.load_info(KIND, name, path, ModelInfo)
    if ":" not in entry.factory:
        raise problem(name, f"factory must be 'module:function', got {entry.factory!r}")
    if entry.batchnorm_form and entry.always_batchnorm:
        raise problem(name, "batchnorm_form and always_batchnorm exclude each other: a +bn form is one of two")
    return entry


def factory_of(name: str, entry: ModelInfo) -> Callable[..., Any]:
    """What makes the body.

    Raises:
        UsageError: it cannot be imported, or called.
    """
    factory = plugins.load(KIND, name, entry.factory)
    if not callable(factory):
        raise problem(name, f"factory {entry.factory} is no class or function, but {type(factory).__name__}")
    return factory  # type: ignore[no-any-return]


@cache
def version(name: str) -> int | None:
    """A number that changes with the source of a model from outside; None where no package has one of that name."""
    entry = find(name)
    if entry is None:
        return None
    return fingerprint(dict.fromkeys(plugins.module_of(path) for path in (KIND.path(name) or "", entry.factory)))


def problem(name: str, what: str) -> UsageError:
    """What is wrong with one, to be raised."""
    return plugins.problem(KIND, name, what)
