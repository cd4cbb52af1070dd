"""Checks of an algorithm's code before it is planned: its hyper-parameters, hooks, needs and rows."""

from __future__ import annotations

import inspect
from difflib import get_close_matches

from algorithms.base import NEEDS, Algorithm, layers
from algorithms.entry import nearest
from search_spaces.bounds import kind_of

KINDS = ("bool", "int", "float", "str")


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
