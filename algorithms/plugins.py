"""Algorithms of other packages: an entry point in the group `fedkd_bench.algorithms`, or `package.module:factory`.

Their registry entry is read from the factory: types and defaults from its signature, ranges from the dataclass that it
makes, meanings from the docstrings' Args. A field without a range is unbounded, and never shares a program with others.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from algorithms.entry import About, Entry, Field
from algorithms.entry_points import Kind
from algorithms.fingerprint import fingerprint
from search_spaces.bounds import Bounds, kind_of

if TYPE_CHECKING:
    from algorithms.base import Algorithm

KIND = Kind("algorithm", "fedkd_bench.algorithms")
Factory = Callable[..., Any]
names = KIND.names


@cache
def find(name: str) -> Entry | None:
    """The entry of an algorithm that is not of this suite, or None if no package has one of that name.

    Raises:
        ValueError: the module, the factory or what it makes is not what it should be; the message says what.
    """
    path = KIND.path(name)
    return read_entry(name, path) if path else None


def read_entry(name: str, path: str) -> Entry:
    """The entry of an algorithm, read from its code at `path`, a `module:factory`.

    `name` is what the user typed, or the name in `About` of one of this suite.

    Raises:
        ValueError: as of `find`.
    """
    from algorithms.base import layers
    from algorithms.contract_checks import check_class

    factory = KIND.load(name, path)
    if not callable(factory):
        raise KIND.error(name, f"{path} is no class or function, but {type(factory).__name__}")
    algorithm = _make(name, factory)
    check_class(name, algorithm)
    about = _about(factory)
    if about is None:
        summary = (inspect.getdoc(factory) or type(algorithm).__name__).splitlines()[0]
        about = About(paper=path.partition(":")[0], summary=summary, down="counted", up="counted", keeps="counted")
    inwards = list(layers(algorithm))
    stated: dict[str, Any] = {
        item.name: item.metadata for layer in reversed(inwards) for item in dataclasses.fields(layer)
    }
    documented = [*(type(layer) for layer in reversed(inwards)), factory]
    meanings = {key: text for each in documented for key, text in _arguments(each).items()}
    fields = [
        Field(
            parameter.name,
            kind_of(parameter.annotation),
            parameter.default,
            stated.get(parameter.name, {}).get("bounds", Bounds()),
            meanings.get(parameter.name, "–"),
            stated.get(parameter.name, {}).get("packable", False),
        )
        for parameter in _parameters(factory)
    ]
    return Entry(
        **vars(about)
        | {
            "name": name,
            "factory": path,
            "fields": tuple(fields),
            "needs": algorithm.needs | about.needs,
            "rows": about.rows or {suffix: name + suffix for suffix in algorithm.rows},
            "version": _version(name, factory, algorithm),
        }
    )


def _make(name: str, factory: Factory) -> Algorithm:
    from algorithms.base import Algorithm
    from algorithms.contract_checks import check_parameter

    for parameter in _parameters(factory):
        check_parameter(name, parameter)
    try:
        algorithm = factory()
    except Exception as error:
        raise KIND.failure(name, "made", error) from error
    if not isinstance(algorithm, Algorithm):
        raise KIND.error(name, f"the factory gives {type(algorithm).__name__}, not an algorithms.base.Algorithm")
    return algorithm


def _about(factory: Factory) -> About | None:
    """The facts that a class or a `Variant` states of itself, not those that a class inherits."""
    about = getattr(factory, "__dict__", {}).get("about")
    return about if isinstance(about, About) else None


def _parameters(factory: Factory) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError) as error:
        raise ValueError(f"{factory!r} does not tell its hyper-parameters: {error}") from error
    return [parameter for parameter in parameters if parameter.name != "base"]


def _arguments(documented: object) -> dict[str, str]:
    """Each argument's text in a docstring's Args section, on one line and without its full stop."""
    _, _, section = (inspect.getdoc(documented) or "").partition("Args:\n")
    section = textwrap.dedent(section.split("\n\n")[0])
    items = re.findall(r"^(\w+): (.*(?:\n +.*)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()).removesuffix(".") for name, text in items}


def _version(name: str, factory: Factory, algorithm: Algorithm) -> int:
    """The version that the class states, else 1 in this suite; elsewhere a number that changes with the source.

    So an algorithm that is being written never meets the stored results of what it was before. The source is that of
    its classes, of those they extend and wrap, and of what these import from beside them.
    """
    from algorithms.base import layers

    stated: Any = type(algorithm).version
    if stated is not None:
        if not isinstance(stated, int):
            raise KIND.error(name, f"`version` must be a whole number, got {stated!r}")
        return stated
    if name == getattr(_about(factory), "name", ""):
        return 1
    classes = [each for layer in layers(algorithm) for each in type(layer).__mro__ if each is not object]
    return fingerprint(dict.fromkeys([factory.__module__, *(each.__module__ for each in classes)]))
