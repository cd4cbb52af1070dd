"""Algorithms of other packages: an entry point in the group `fedkd_bench.algorithms`, or `package.module:factory`.

Their registry entry is read from the factory: types and defaults from its signature, ranges and meanings from the
dataclass that it makes and its docstring. A field without a range is unbounded, and never shares a program with others.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from algorithms.entry import Entry, Field
from algorithms.entry_points import Kind
from algorithms.sources import fingerprint
from algorithms.statements import check_class, check_parameter, layers
from search_spaces.bounds import Bounds, kind_of

if TYPE_CHECKING:
    from algorithms.base import Algorithm

KIND = Kind("algorithm", "fedkd_bench.algorithms")


def names() -> tuple[str, ...]:
    """The names that installed packages add."""
    return KIND.names()


@cache
def find(name: str) -> Entry | None:
    """The entry of an algorithm that is not of this suite, or None where no package has one of that name.

    Args:
        name: an entry point's name, or `package.module:factory`.

    Raises:
        ValueError: the module, the factory or what it makes is not what it should be; the message says what.
    """
    path = KIND.path(name)
    return _entry(name, path) if path else None


def _entry(name: str, path: str) -> Entry:
    factory = _import(name, path)
    made = _make(name, factory)
    check_class(name, made)
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
        version=_version(name, factory, made),
    )


def _import(name: str, path: str) -> Callable[..., Any]:
    found = KIND.load(name, path)
    if not callable(found):
        raise KIND.error(name, f"{path} is no class or function, but {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def _make(name: str, factory: Callable[..., Any]) -> Algorithm:
    from algorithms.base import Algorithm

    for parameter in _parameters(factory):
        check_parameter(name, parameter)
    try:
        made = factory()
    except Exception as error:
        raise KIND.failure(name, "made", error) from error
    if not isinstance(made, Algorithm):
        raise KIND.error(name, f"the factory gives {type(made).__name__}, not an algorithms.base.Algorithm")
    return made


def _parameters(factory: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError) as error:
        raise ValueError(f"{factory!r} does not tell its hyper-parameters: {error}") from error
    return [parameter for parameter in parameters if parameter.name != "base"]


def _field(parameter: inspect.Parameter, made: Algorithm, described: dict[str, str]) -> Field:
    metadata: dict[str, Any] = {}
    for item in (item for layer in layers(made) for item in dataclasses.fields(layer)):
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


def _version(name: str, factory: Callable[..., Any], made: Algorithm) -> int:
    """What the class calls its `version`; else a number that changes with its source.

    So an algorithm that is being written never meets the stored results of what it was before. The source is that of
    its classes, of those they extend and wrap, and of what these import from beside them.
    """
    stated: Any = type(made).version
    if stated is not None:
        if not isinstance(stated, int):
            raise KIND.error(name, f"`version` must be a whole number, got {stated!r}")
        return stated
    kinds = [kind for layer in layers(made) for kind in type(layer).__mro__ if kind is not object]
    return fingerprint(dict.fromkeys([factory.__module__, *(kind.__module__ for kind in kinds)]))
