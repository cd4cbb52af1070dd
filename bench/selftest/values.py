"""Values of a hyper-parameter other than its default, and such as it must not take."""

from __future__ import annotations

from collections.abc import Iterator

from algorithms import Field
from bench.selftest.candidate import Candidate
from search_spaces import Value


def alternatives(candidate: Candidate, item: Field) -> Iterator[dict[str, Value]]:
    """Configurations that differ from the default in this field alone and are allowed, the most telling first."""
    default = candidate.defaults()[item.name]
    for value in dict.fromkeys(_others(item, default)):
        if value != default and item.bounds.allows(value) and candidate.allows({item.name: value}):
            yield {item.name: value}


def _others(item: Field, default: Value) -> Iterator[Value]:
    if item.bounds.choices:
        yield from item.bounds.choices
    elif item.kind.startswith("bool"):
        yield from (True, False)
    elif not item.kind.startswith("str"):
        start = default or 1
        assert isinstance(start, int | float)
        half = start // 2 if item.kind.startswith("int") else start / 2
        yield from (half, start * 2, start + 1, *_ends(item))
    if item.kind.endswith("| None"):
        yield None


def _ends(item: Field) -> Iterator[Value]:
    """The ends of the range, and its middle."""
    low, high = item.bounds.low, item.bounds.high
    kind = int if item.kind.startswith("int") else float
    yield from (kind(end) for end in (low, high) if end is not None)
    if low is not None and high is not None and kind is float:
        yield (low + high) / 2


def forbidden(item: Field) -> Iterator[Value]:
    """Values outside the range or of the wrong type."""
    low, high = item.bounds.low, item.bounds.high
    if item.bounds.choices:
        yield "no_such_choice"
    elif item.kind.startswith("bool"):
        yield "perhaps"
    elif not item.kind.startswith("str"):
        yield "many"
        if low is not None:
            yield low if item.bounds.open_low else low - 1
        if high is not None:
            yield high if item.bounds.open_high else high + 1
        if item.kind.startswith("float"):
            yield float("nan")
        else:
            yield 1.5
