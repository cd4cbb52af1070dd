"""Facts about an algorithm: `About` on its class, and the registry's `Entry` with its `Field`s.

Imports neither torch nor ray.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from search_spaces.bounds import Bounds, Grid, Range, Value, cast, check, nearest

ANY = Bounds()


@dataclass(frozen=True, kw_only=True)
class About:
    """Facts about an algorithm other than its hyper-parameters.

    They are stated on its class or its `Variant`. Sizes count floats: P the model's, C classes, D
    features, G a generator's, M buffer, J steps, S public samples of a round, t the round.

    Args:
        name: of the algorithm and its result row, lower snake case; empty for a class that only its
            variants register.
        paper: key of its own paper in `search_spaces`, or authors and year.
        equations: place in the paper that defines it.
        summary: one line.
        defaults_follow: source of the defaults: the paper or its authors' code, and for which
            values.
        down: size of the message to each client in a round, without public samples, which a client
            is sent once; `at most` a size, if it depends on the data.
        up: size of each client's upload.
        keeps: a client's memory between rounds, and after a comma its size.
        needs: keys of `algorithms.base.NEEDS`, in addition to the needs of the class.
        where: relations between hyper-parameters that every configuration keeps, such as `beta <=
            gamma`.
        rows: suffix of each result row that one run yields -> registry name of that row; by
            default the algorithm's name and the suffix.
        reference: whether its row is only for comparison: shown, but not ranked.
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
    """A hyper-parameter, as declared in its class.

    Args:
        kind: `bool`, `int`, `float` or `str`, with `| None` if it may be empty.
        meaning: its effect, and its limits.
        packable: whether configurations that differ in it may train in one program.
        optional: whether run keys leave it out at its default.
        search: values to try where no paper's space has any; None for the default alone.
    """

    name: str
    kind: str
    default: Value
    bounds: Bounds = ANY
    meaning: str = "–"
    packable: bool = True
    optional: bool = False
    search: Grid | Range | None = None

    @property
    def allowed(self) -> str:
        """The range in words."""
        return "true or false" if self.kind == "bool" else str(self.bounds)


@dataclass(frozen=True, kw_only=True)
class Entry(About):
    """An algorithm in the registry: the facts of `About`, and those read from its code.

    Args:
        factory: the `module:name` of a class or function.
        fields: the hyper-parameters.
        version: raised when results change.
        unlike_models: whether clients may have models of their own, as the class states.
        personal: whether what is evaluated is each client's own model, as the class states.
        server_steps: the hyper-parameter that the class names so.
    """

    factory: str
    fields: tuple[Field, ...] = ()
    version: int = 1
    unlike_models: bool = False
    personal: bool = False
    server_steps: str = ""

    def __post_init__(self) -> None:
        if not self.rows:
            object.__setattr__(self, "rows", {"": self.name})

    def defaults(self) -> dict[str, Value]:
        """Return every hyper-parameter's default."""
        return {field.name: field.default for field in self.fields}

    def identifying(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return the hyper-parameters that enter a run key.

        Optional hyper-parameters at their default do not enter it.
        """
        identifying = {}
        for parameter in self.fields:
            value = values[parameter.name]
            if not parameter.optional or value != parameter.default:
                identifying[parameter.name] = value
        return identifying

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Value]:
        """Return all hyper-parameters, with the given values cast to their types and checked.

        Raises:
            ValueError: an unknown name, a wrong type or a value out of range.
        """
        unknown = sorted(set(given) - {field.name for field in self.fields})
        if unknown:
            names = ", ".join(field.name for field in self.fields) or "none"
            raise ValueError(
                f"{self.name} has no hyper-parameter {unknown[0]!r}; known: {names}"
                f"{nearest(unknown[0], self.defaults())}"
            )
        values: dict[str, Value] = {}
        for parameter in self.fields:
            name = f"{self.name}.{parameter.name}"
            value = cast(name, given.get(parameter.name, parameter.default), parameter.kind)
            check(name, value, parameter.bounds)
            values[parameter.name] = value
        return values


def from_json(text: str) -> tuple[Entry, ...]:
    """Read the entries of an index."""
    entries = []
    for item in json.loads(text):
        fields = []
        for values in item.get("fields", ()):
            stated = dict(values.get("bounds", {}))
            stated["choices"] = tuple(stated.get("choices", ()))
            search = _tried(values.get("search"))
            fields.append(Field(**{**values, "bounds": Bounds(**stated), "search": search}))
        collections = {
            "needs": frozenset(item.get("needs", ())),
            "where": tuple(item.get("where", ())),
        }
        entries.append(Entry(**{**item, **collections, "fields": tuple(fields)}))
    return tuple(entries)


def _tried(stated: Mapping[str, Any] | None) -> Grid | Range | None:
    """Read the values to try of an index."""
    if stated is None:
        return None
    return Grid(*stated["values"]) if "values" in stated else Range(**stated)
