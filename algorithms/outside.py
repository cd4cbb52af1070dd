"""Algorithms of other packages: an entry point in the group `fedkd_bench.algorithms`, or `package.module:factory`.

Their registry entry is read from the factory: types and defaults from its signature, ranges and meanings from the
dataclass that it makes and its docstring. A field without a range is unbounded, and never shares a program with others.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import inspect
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from algorithms.entry import Entry, Field
from search_spaces.bounds import Bounds, kind_of

if TYPE_CHECKING:
    from algorithms.base import Algorithm

GROUP = "fedkd_bench.algorithms"
KINDS = ("bool", "int", "float", "str")


def names() -> tuple[str, ...]:
    """The names that installed packages add."""
    return tuple(sorted(point.name for point in importlib.metadata.entry_points(group=GROUP)))


@cache
def find(name: str) -> Entry | None:
    """The entry of an algorithm that is not of this suite, or None where no package has one of that name.

    Args:
        name: an entry point's name, or `package.module:factory`.

    Raises:
        ValueError: the module, the factory or what it makes is not what it should be; the message says what.
    """
    for point in importlib.metadata.entry_points(group=GROUP):
        if point.name == name:
            return _entry(name, point.value.replace(" ", ""))
    return _entry(name, name) if ":" in name else None


def _entry(name: str, path: str) -> Entry:
    factory = _import(name, path)
    made = _make(name, factory)
    described = _described(factory, made)
    fields = tuple(_field(parameter, made, described) for parameter in _parameters(factory))
    summary = (inspect.getdoc(factory) or type(made).__name__).splitlines()[0]
    return Entry(
        name=name,
        factory=path,
        paper=path.partition(":")[0],
        equations="–",
        summary=summary,
        fields=fields,
        down="counted",
        up="counted",
        keeps="counted",
        needs=frozenset(made.needs),
        rows={suffix: name + suffix for suffix in made.rows},
        version=_version(factory, made),
    )


def _import(name: str, path: str) -> Callable[..., Any]:
    module, _, function = path.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:  # a console script does not look where it is started, `python -m` does
        sys.path.append(here)
    try:
        found = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"algorithm {name!r}: no module {error.name!r} in the working directory or the installed packages"
        ) from error
    except AttributeError:
        have = [key for key, value in vars(sys.modules[module]).items() if getattr(value, "__module__", "") == module]
        raise ValueError(
            f"algorithm {name!r}: module {module!r} has no {function!r}; it defines: {', '.join(have) or 'nothing'}"
        ) from None
    except Exception as error:
        raise ValueError(f"algorithm {name!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise ValueError(f"algorithm {name!r}: {path} is no class or function, but {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def _make(name: str, factory: Callable[..., Any]) -> Algorithm:
    from algorithms.base import Algorithm

    for parameter in _parameters(factory):
        _check_parameter(name, parameter)
    try:
        made = factory()
    except Exception as error:
        raise ValueError(f"algorithm {name!r} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(made, Algorithm):
        raise ValueError(
            f"algorithm {name!r}: the factory gives {type(made).__name__}, not an algorithms.base.Algorithm"
        )
    return made


def _parameters(factory: Callable[..., Any]) -> list[inspect.Parameter]:
    return [parameter for parameter in inspect.signature(factory).parameters.values() if parameter.name != "base"]


def _check_parameter(name: str, parameter: inspect.Parameter) -> None:
    kind = kind_of(parameter.annotation)
    if kind.removesuffix(" | None") not in KINDS:
        raise ValueError(
            f"algorithm {name!r}: hyper-parameter {parameter.name!r} is annotated {kind!r}; allowed are "
            f"{', '.join(KINDS)}, each also with `| None`"
        )
    if parameter.default is inspect.Parameter.empty:
        raise ValueError(f"algorithm {name!r}: give its hyper-parameter {parameter.name!r} a default, as all have")


def _field(parameter: inspect.Parameter, made: Algorithm, described: dict[str, str]) -> Field:
    metadata: dict[str, Any] = {}
    for item in _all_fields(made):
        if item.name == parameter.name:
            metadata = dict(item.metadata)
            break
    return Field(
        name=parameter.name,
        kind=kind_of(parameter.annotation),
        default=parameter.default,
        bounds=metadata.get("bounds", Bounds()),
        meaning=described.get(parameter.name, "–"),
        packable=metadata.get("packable", False),
    )


def _all_fields(made: Algorithm) -> Iterator[dataclasses.Field[Any]]:
    """The dataclass fields of an algorithm, and of those it wraps."""
    yield from dataclasses.fields(made)
    base = getattr(made, "base", None)
    if base is not None:
        yield from _all_fields(base)


def _described(factory: Callable[..., Any], made: Algorithm) -> dict[str, str]:
    """`name: text` lines of the docstrings' Args sections."""
    found: dict[str, str] = {}
    for documented in (type(made), factory):
        _, _, arguments = (inspect.getdoc(documented) or "").partition("Args:\n")
        for line in arguments.split("\n\n")[0].splitlines():
            word, colon, text = line.strip().partition(": ")
            if colon and word.isidentifier():
                found[word] = text
    return found


def _version(factory: Callable[..., Any], made: Algorithm) -> int:
    """What the class calls its `version`; else a number that changes with its source.

    So an algorithm that is being written never meets the stored results of what it was before.
    """
    stated = getattr(type(made), "version", None)
    if stated is not None:
        return int(stated)
    modules = sorted({sys.modules[thing.__module__].__file__ or "" for thing in (factory, type(made))})
    return zlib.crc32(b"".join(Path(module).read_bytes() for module in modules if module))
