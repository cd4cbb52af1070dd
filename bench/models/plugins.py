"""Models of other packages: a `ModelInfo` by an entry point in `fedkd_bench.models`, or as `module:name`.

Imports neither torch nor ray; the module that the entry stands in may.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from algorithms.entry_points import fingerprint
from bench import plugins
from bench.errors import UsageError
from bench.models.table import MODELS, ModelInfo
from bench.terminal.values import unknown

if TYPE_CHECKING:
    from collections.abc import Callable

KIND = plugins.MODELS


@cache
def find(name: str) -> ModelInfo | None:
    """The entry of a model that is not of this suite, by name or `module:name`; None if no package has it.

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


def info(name: str) -> ModelInfo:
    """A model's entry, or that of one from outside: an entry point's name, or `module:name`; without its form.

    Raises:
        UsageError: no such model, or one from outside is not what it should be; the message says why.
    """
    if name in MODELS:
        return MODELS[name]
    entry = find(name)
    if entry is None:
        raise unknown("model", name, [*MODELS, *KIND.names()], importable=True)
    return entry


def parse(name: str) -> tuple[ModelInfo, bool, bool]:
    """A model's entry, whether it has a projection head, and whether it is the BatchNorm form.

    Raises:
        UsageError: no such model, or no such form of it.
    """
    base, *forms = name.split("+")
    entry = info(base)
    other = sorted(set(forms) - {"head", "bn"})
    if other or len(set(forms)) != len(forms):
        raise UsageError(f"model {name!r}: a form is +head or +bn, each once, got {'+'.join(forms)!r}")
    if "bn" in forms and entry.always_batchnorm:
        raise UsageError(f"model {base!r} has BatchNorm as it is: leave out +bn")
    if "bn" in forms and not entry.batchnorm_form:
        having = ", ".join(key for key, value in MODELS.items() if value.batchnorm_form)
        always = ", ".join(key for key, value in MODELS.items() if value.always_batchnorm)
        raise UsageError(
            f"model {base!r} has no +bn form; models that have one: {having}; with BatchNorm as they are: {always}"
        )
    return entry, "head" in forms, "bn" in forms


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
    """Make the error of a plug-in, to be raised."""
    return plugins.problem(KIND, name, what)
