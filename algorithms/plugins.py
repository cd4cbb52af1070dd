"""Algorithms of other packages: an entry point in the group `fedkd_bench.algorithms`, or `package.module:factory`.

Their registry entry is read from the factory: types and defaults from its signature, ranges from the dataclass that it
makes, meanings from the docstrings' Args. A field without a range is unbounded, and never shares a program with others.
What is read is checked: hyper-parameters, hooks, needs and rows.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any

from algorithms.entry import About, Entry, Field
from algorithms.entry_points import Kind, fingerprint
from search_spaces.bounds import Bounds, kind_of, nearest

if TYPE_CHECKING:
    from algorithms.base import Algorithm

KIND = Kind("algorithm", "fedkd_bench.algorithms")
Factory = Callable[..., Any]
names = KIND.names
KINDS = ("bool", "int", "float", "str")  # of hyper-parameters


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


def check_parameter(name: str, parameter: inspect.Parameter) -> None:
    """Check that a factory's parameter is a hyper-parameter: with a name, a known type and a default.

    Raises:
        ValueError: it is not; the message says what to write.
    """
    where = f"algorithm {name!r}: hyper-parameter {parameter.name!r}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        raise ValueError(f"{where} must be given by its own name: write it out in the factory's signature")
    if parameter.name == "json":
        raise ValueError(f"{where} must be called otherwise: its column would be hp_json, which holds all of them")
    kind = "" if parameter.annotation is parameter.empty else kind_of(parameter.annotation)
    if kind.removesuffix(" | None") not in KINDS:
        annotated = f"is annotated {kind!r}" if kind else "has no annotation"
        raise ValueError(f"{where} {annotated}; allowed are {', '.join(KINDS)}, each also with `| None`")
    if parameter.default is parameter.empty:
        raise ValueError(f"{where} has no default: give it one, as all have")


def check_class(name: str, algorithm: Algorithm) -> None:
    """Check the hooks, fields, needs and rows of the algorithm's classes.

    Raises:
        ValueError: a hook is misspelt, fields are declared outside a dataclass, a need is unknown, rows are repeated.
    """
    from algorithms.base import NEEDS, Algorithm, layers

    hooks = methods(Algorithm)
    for kind in dict.fromkeys(kind for layer in layers(algorithm) for kind in type(layer).__mro__):
        for written in methods(kind):
            near = get_close_matches(written, hooks, n=1, cutoff=0.85)
            if near and written not in hooks:  # the engine would never ask it
                raise ValueError(f"algorithm {name!r}: {kind.__name__}.{written} is no hook: did you mean {near[0]}?")
        declared = [key for key, text in inspect.get_annotations(kind).items() if "ClassVar" not in str(text)]
        if declared and issubclass(kind, Algorithm) and "__dataclass_fields__" not in vars(kind):
            raise ValueError(
                f"algorithm {name!r}: {kind.__name__} declares {declared[0]!r} without being a dataclass: put "
                "@dataclass(frozen=True) above the class"
            )
    unknown = sorted(algorithm.needs - NEEDS.keys())
    if unknown:
        raise ValueError(
            f"algorithm {name!r} needs {unknown[0]!r}, which nobody knows; known: {', '.join(NEEDS)}"
            f"{nearest(unknown[0], NEEDS)}"
        )
    if "" not in algorithm.rows or len(set(algorithm.rows)) < len(algorithm.rows):
        raise ValueError(f"algorithm {name!r}: `rows` holds '' and each suffix once, got {algorithm.rows}")


def methods(kind: type) -> tuple[str, ...]:
    """The public methods that the class itself defines; those of `Algorithm` are the hooks."""
    return tuple(key for key, value in vars(kind).items() if inspect.isfunction(value) and not key.startswith("_"))
