"""Models of other packages: a `ModelInfo` by an entry point in `fedkd_bench.models`, or as `module:name`.

Imports neither torch nor ray; the module that the entry stands in may.
"""

from __future__ import annotations

from functools import cache

from algorithms.entry_points import Kind, fingerprint
from bench.errors import UsageError
from bench.models.table import MODELS, ModelInfo
from bench.terminal.values import unknown

KIND = Kind("model", "fedkd_bench.models", UsageError)


@cache
def info(name: str) -> ModelInfo:
    """A model's entry, or that of one from outside: an entry point's name, or `module:name`; without its form.

    Raises:
        UsageError: no such model, or one from outside is not what it should be; the message says why.
    """
    if name in MODELS:
        return MODELS[name]
    path = KIND.path(name)
    if path is None:
        raise unknown("model", name, [*MODELS, *KIND.names()], importable=True)
    entry = KIND.load_entry(name, path, ModelInfo)
    if entry.batchnorm_form and entry.always_batchnorm:
        raise KIND.error(name, "batchnorm_form and always_batchnorm exclude each other: a +bn form is one of two")
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


@cache
def version(name: str) -> int | None:
    """A number that changes with the source of a model from outside, whatever its form; None for this suite's own.

    Raises:
        UsageError: one from outside is not what it should be.
    """
    base = name.partition("+")[0]
    if base in MODELS:
        return None
    paths = (KIND.path(base) or "", info(base).factory)
    return fingerprint(dict.fromkeys(path.partition(":")[0] for path in paths))
