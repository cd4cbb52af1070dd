"""What an algorithm consists of, and what the code of one from outside says of itself, checked before it is planned."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING

from algorithms.entry import nearest
from search_spaces.bounds import kind_of

if TYPE_CHECKING:
    from algorithms.base import Algorithm

KINDS = ("bool", "int", "float", "str")


def check_parameter(name: str, parameter: inspect.Parameter) -> None:
    """A factory's parameter is a hyper-parameter: with a name, a known type and a default.

    Raises:
        ValueError: it is not; the message says what to write.
    """
    where = f"algorithm {name!r}: hyper-parameter {parameter.name!r}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
        raise ValueError(f"{where} must be given by its own name: write it out in the factory's signature")
    if parameter.name == "json":
        raise ValueError(f"{where} must be called otherwise: its column would be hp_json, which holds all of them")
    if parameter.annotation is parameter.empty:
        raise ValueError(f"{where} has no annotation; allowed are {', '.join(KINDS)}, each also with `| None`")
    kind = kind_of(parameter.annotation)
    if kind.removesuffix(" | None") not in KINDS:
        raise ValueError(f"{where} is annotated {kind!r}; allowed are {', '.join(KINDS)}, each also with `| None`")
    if parameter.default is parameter.empty:
        raise ValueError(f"{where} has no default: give it one, as all have")


def check_class(name: str, made: Algorithm) -> None:
    """The classes' hooks, fields, needs and rows are what they look like.

    Raises:
        ValueError: a hook is misspelt, fields are declared outside a dataclass, a need is unknown, rows are repeated.
    """
    from algorithms.base import NEEDS

    for kind in dict.fromkeys(kind for layer in layers(made) for kind in type(layer).__mro__):
        for written, near in misspelt(kind):
            raise ValueError(f"algorithm {name!r}: {kind.__name__}.{written} is no hook: did you mean {near}?")
        _check_fields(name, kind)
    unknown = sorted(made.needs - NEEDS.keys())
    if unknown:
        raise ValueError(
            f"algorithm {name!r} needs {unknown[0]!r}, which nobody knows; known: {', '.join(NEEDS)}"
            f"{nearest(unknown[0], NEEDS)}"
        )
    if "" not in made.rows or len(set(made.rows)) < len(made.rows):
        raise ValueError(f"algorithm {name!r}: `rows` holds '' and each suffix once, got {made.rows}")


def misspelt(kind: type) -> Iterator[tuple[str, str]]:
    """The class's own methods that are nearly called like a hook, each with that hook: the engine never asks them."""
    from algorithms.base import Algorithm

    hooks = methods(Algorithm)
    for written in methods(kind):
        if written not in hooks:
            yield from ((written, near) for near in get_close_matches(written, hooks, n=1, cutoff=0.85))


def methods(kind: type) -> tuple[str, ...]:
    """The public methods that the class itself defines; those of `Algorithm` are the hooks."""
    return tuple(key for key, value in vars(kind).items() if inspect.isfunction(value) and not key.startswith("_"))


def _check_fields(name: str, kind: type) -> None:
    from algorithms.base import Algorithm

    declared = [key for key, kind_ in inspect.get_annotations(kind).items() if "ClassVar" not in str(kind_)]
    if declared and issubclass(kind, Algorithm) and "__dataclass_fields__" not in vars(kind):
        raise ValueError(
            f"algorithm {name!r}: {kind.__name__} declares {declared[0]!r} without being a dataclass: put "
            "@dataclass(frozen=True) above the class"
        )


def layers(made: Algorithm) -> Iterator[Algorithm]:
    """The algorithm, and those it wraps, inwards."""
    from algorithms.base import Algorithm

    yield made
    base = getattr(made, "base", None)
    if isinstance(base, Algorithm):
        yield from layers(base)
