"""What the registry says of an algorithm, without importing it: `Entry` and its `Field`s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as _field
from difflib import get_close_matches
from typing import Any

from search_spaces.bounds import Bounds, Value, cast, check


@dataclass(frozen=True)
class Field:
    """One hyper-parameter, as the registry knows it.

    Args:
        name: as in the dataclass.
        kind: `bool`, `int`, `float` or `str`, with `| None` where it may be empty.
        default: as in the dataclass.
        bounds: what is allowed.
        meaning: what it does, and what its limits are.
        packable: whether configurations that differ in it may train in one program.
    """

    name: str
    kind: str
    default: Value
    bounds: Bounds
    meaning: str
    packable: bool = True

    @property
    def allowed(self) -> str:
        """The range in words."""
        return "true or false" if self.kind == "bool" else str(self.bounds)


@dataclass(frozen=True)
class Entry:
    """One registered algorithm.

    Args:
        name: lower snake case; also the name of its result row.
        factory: `module:function`, called with the hyper-parameters.
        paper: key of its own paper in `search_spaces`, or authors and year.
        equations: where the paper defines it.
        summary: one line.
        fields: hyper-parameters.
        down: floats sent to each client in a round, P being the model's size and C the classes.
        up: floats each client sends back.
        keeps: what a client keeps between rounds.
        needs: what the engine must supply (`algorithms.base.NEEDS`).
        where: relations between hyper-parameters that every configuration keeps.
        rows: suffix of each result row that one run yields -> the registry name that the row stands under.
        reference: a row to compare with, not a competitor: it is shown, and not ranked.
        version: raised when results change.
    """

    name: str
    factory: str
    paper: str
    equations: str
    summary: str
    fields: tuple[Field, ...] = ()
    down: str = "P"
    up: str = "P"
    keeps: str = "nothing"
    needs: frozenset[str] = frozenset()
    where: tuple[str, ...] = ()
    rows: Mapping[str, str] = _field(default_factory=dict)
    reference: bool = False
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
        for field in self.fields:
            value = cast(f"{self.name}.{field.name}", given.get(field.name, field.default), field.kind)
            check(f"{self.name}.{field.name}", value, field.bounds)
            values[field.name] = value
        return values


def nearest(name: str, known: Mapping[str, Any]) -> str:
    """` (did you mean X?)`, or nothing if no known name is near."""
    near = get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""
