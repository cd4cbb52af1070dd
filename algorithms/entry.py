"""Facts of an algorithm: `About` on its class, and the registry's `Entry` with its `Field`s.

Imports neither torch nor ray.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from search_spaces.bounds import Bounds, Value, cast, check, nearest

ANY = Bounds()


@dataclass(frozen=True, kw_only=True)
class About:
    """Facts of an algorithm beside its hyper-parameters, stated on its class or its `Variant`.

    Sizes count floats: P the model's, C classes, D features, G a generator's, M buffer, J steps, t the round.

    Args:
        name: of the algorithm and its result row, lower snake case; empty for a class that only its variants register.
        paper: key of its own paper in `search_spaces`, or authors and year.
        equations: where the paper defines it.
        summary: one line.
        defaults_follow: the paper, or its authors' code, and in what.
        down: sent to each client in a round.
        up: sent back by each client.
        keeps: what a client keeps between rounds, and after a comma its size.
        needs: what the engine must supply (`algorithms.base.NEEDS`) beside what the class needs.
        where: relations between hyper-parameters that every configuration keeps, such as `beta <= gamma`.
        rows: suffix of each result row that one run yields -> the registry name that the row stands under.
        reference: a row to compare with, not a competitor: it is shown, and not ranked.
    """

    name: str = ""
    paper: str = ""
    equations: str = "–"
    summary: str = ""
    defaults_follow: str = "the paper"
    down: str = "P"
    up: str = "P"
    keeps: str = "nothing"
    needs: frozenset[str] = frozenset()
    where: tuple[str, ...] = ()
    rows: Mapping[str, str] = field(default_factory=dict)
    reference: bool = False


@dataclass(frozen=True)
class Field:
    """One hyper-parameter, as its class states it.

    Args:
        kind: `bool`, `int`, `float` or `str`, with `| None` where it may be empty.
        meaning: what it does, and what its limits are.
        packable: whether configurations that differ in it may train in one program.
    """

    name: str
    kind: str
    default: Value
    bounds: Bounds = ANY
    meaning: str = "–"
    packable: bool = True

    @property
    def allowed(self) -> str:
        """The range in words."""
        return "true or false" if self.kind == "bool" else str(self.bounds)


@dataclass(frozen=True, kw_only=True)
class Entry(About):
    """One algorithm in the registry: what `About` says, and what is read from the code.

    `factory` is the `module:name` of a class or function; `version` is raised when results change.
    """

    factory: str
    fields: tuple[Field, ...] = ()
    version: int = 1

    def __post_init__(self) -> None:
        if not self.rows:
            object.__setattr__(self, "rows", {"": self.name})

    def defaults(self) -> dict[str, Value]:
        """Every hyper-parameter's default."""
        return {field.name: field.default for field in self.fields}

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Value]:
        """All hyper-parameters, those given cast to their types and checked.

        Raises:
            ValueError: an unknown name, a wrong type or a value out of range.
        """
        unknown = sorted(set(given) - {field.name for field in self.fields})
        if unknown:
            raise ValueError(
                f"{self.name} has no hyper-parameter {unknown[0]!r}; known: "
                f"{', '.join(field.name for field in self.fields) or 'none'}{nearest(unknown[0], self.defaults())}"
            )
        values: dict[str, Value] = {}
        for item in self.fields:
            value = cast(f"{self.name}.{item.name}", given.get(item.name, item.default), item.kind)
            check(f"{self.name}.{item.name}", value, item.bounds)
            values[item.name] = value
        return values


def from_json(text: str) -> tuple[Entry, ...]:
    """The entries of an index."""
    entries = []
    for item in json.loads(text):
        listed = []
        for each in item.get("fields", ()):
            bounds = each.get("bounds", {})
            listed.append(
                Field(**{**each, "bounds": Bounds(**{**bounds, "choices": tuple(bounds.get("choices", ()))})})
            )
        sets = {"needs": frozenset(item.get("needs", ())), "where": tuple(item.get("where", ()))}
        entries.append(Entry(**{**item, **sets, "fields": tuple(listed)}))
    return tuple(entries)
