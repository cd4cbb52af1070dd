"""Allowed values of a field, with messages in the user's words, and values to try."""

from __future__ import annotations

import math
import operator
import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

Value = bool | int | float | str | None
GRID_POINTS = 5  # of a range in a grid search
DIGITS = 3  # of a value drawn from a range, enough to print


@dataclass(frozen=True)
class Bounds:
    """The allowed values of a field: an interval of numbers, or the strings `choices`.

    Either end of the interval is open or closed.
    """

    low: float | None = None
    high: float | None = None
    open_low: bool = False
    open_high: bool = False
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.low is None and self.high is None:
            return "any number"
        if self.high is None:
            return f"{'>' if self.open_low else '>='} {self.low:g}"
        if self.low is None:
            return f"{'<' if self.open_high else '<='} {self.high:g}"
        opening = "(" if self.open_low else "["
        closing = ")" if self.open_high else "]"
        return f"in {opening}{self.low:g}, {self.high:g}{closing}"

    def allows(self, value: Value) -> bool:
        """Tell whether `value` lies inside; NaN and infinities never do."""
        if self.choices:
            return value in self.choices
        if not isinstance(value, int | float):
            return True
        if isinstance(value, float) and not math.isfinite(value):
            return False
        above = self.low is None or value > self.low or (value == self.low and not self.open_low)
        below = (
            self.high is None or value < self.high or (value == self.high and not self.open_high)
        )
        return above and below


@dataclass(frozen=True, init=False)
class Grid:
    """The values to try, in the order they are printed."""

    values: tuple[Value, ...]

    def __init__(self, *values: Value) -> None:
        if not values:
            raise ValueError("a Grid needs at least one value")
        object.__setattr__(self, "values", values)

    def __contains__(self, value: Value) -> bool:
        return value in self.values

    def __str__(self) -> str:
        shown = [f"{value:g}" if isinstance(value, float) else str(value) for value in self.values]
        return "{" + ", ".join(shown) + "}"

    def draw(self, generator: random.Random) -> Value:
        """Draw one of the values."""
        return generator.choice(self.values)


@dataclass(frozen=True)
class Range:
    """An interval to try: a grid search takes evenly spaced `values`, other searches draw.

    Args:
        low: smallest value.
        high: largest value.
        log: whether values are even on a logarithmic scale.
        whole: whether values are whole numbers.

    Raises:
        ValueError: it is empty, has no finite ends, or is logarithmic and not above 0.
    """

    low: float
    high: float
    log: bool = True
    whole: bool = False

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(
                f"a range needs low < high, both finite, got {self.low} and {self.high}"
            )
        if self.log and self.low <= 0:
            raise ValueError(
                f"a logarithmic range must be above 0, got {self.low} and {self.high}: "
                "use a linear one"
            )

    def __str__(self) -> str:
        return f"[{self.low:g}, {self.high:g}] {'log' if self.log else 'linear'}"

    @property
    def values(self) -> tuple[Value, ...]:
        """The `GRID_POINTS` values of a grid, or fewer if whole numbers coincide."""
        places = [number / (GRID_POINTS - 1) for number in range(GRID_POINTS)]
        return tuple(dict.fromkeys(self._rounded(self._at(place)) for place in places))

    def draw(self, generator: random.Random) -> Value:
        """Draw a value of `DIGITS` digits."""
        return self._rounded(self._at(generator.random()))

    def _at(self, place: float) -> float:
        """Return the value at a place from 0, the lowest, to 1, the highest."""
        if self.log:
            return float(self.low * (self.high / self.low) ** place)
        return self.low + (self.high - self.low) * place

    def _rounded(self, value: float) -> Value:
        """Round a value to a whole number or to `DIGITS` digits, within the interval."""
        rounded = round(value) if self.whole else float(f"{value:.{DIGITS}g}")
        return min(max(rounded, self.low), self.high)


def kind_of(annotation: Any) -> str:
    """Return a field's annotation as text for `cast`, whether it is text or a type."""
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


_WORDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "text"}
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def cast(name: str, value: Any, kind: str) -> Value:
    """Convert `value` to the type in a field's annotation, so that 1 and 1.0 are one configuration.

    Args:
        name: the field's name, for the message.
        value: the value to convert; text is parsed, as on a command line.
        kind: `bool`, `int`, `float` or `str`, with `| None` if the field may be empty.

    Raises:
        ValueError: the value is not of that type.
    """
    base = kind.removesuffix(" | None")
    may_be_empty = base != kind
    allowed = _WORDS.get(base, f"of type {base}")
    if may_be_empty:
        allowed += ", or none"
    message = f"{name} must be {allowed}, got {value!r}"
    if value is None and not may_be_empty:
        raise ValueError(message)
    text = str(value)
    if value is None or (may_be_empty and isinstance(value, str) and text.lower() in ("none", "")):
        return None
    try:
        if base == "bool":
            return _BOOLEANS[text.lower()]
        if base == "int":
            return _whole(text)
        if base == "float" and not isinstance(value, bool):
            return float(text) + 0.0  # -0 is 0
        if base == "str":
            return text
    except (KeyError, ValueError):
        pass
    raise ValueError(message)


def _whole(text: str) -> int:
    """Parse a whole number of 64 bits, which is all that files hold.

    Raises ValueError for any other text.
    """
    number = int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
    if not -(2**63) <= number < 2**63 or number != int(number):
        raise ValueError(text)
    return int(number)


def check(name: str, value: Value, bounds: Bounds) -> None:
    """Raise ValueError, in the user's words, if `value` lies outside `bounds`.

    None stands for an empty field.
    """
    if value is None or bounds.allows(value):
        return
    raise ValueError(f"{name} must be {bounds}, got {value!r}{nearest(str(value), bounds.choices)}")


def nearest(name: str, names: Iterable[str]) -> str:
    """Return ` (did you mean X?)`, or an empty text if no known name is near."""
    by_lower = {known.lower(): known for known in names}
    near = get_close_matches(name.lower(), by_lower, n=1)
    return f" (did you mean {by_lower[near[0]]}?)" if near else ""


_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}


def names_in(relation: str) -> set[str]:
    """Return the two names of a relation such as `beta <= gamma`.

    Raises ValueError if it is not of that form.
    """
    left, _, right = _split_relation(relation)
    return {left, right}


def holds(relation: str, values: Mapping[str, Any]) -> bool:
    """Tell whether a relation `name op name` holds; raises ValueError if it is not of that form."""
    left, sign, right = _split_relation(relation)
    return _RELATIONS[sign](values[left], values[right])


def check_relation(relation: str, values: Mapping[str, Any]) -> None:
    """Raise ValueError, with both values, unless the relation holds."""
    if not holds(relation, values):
        left, _, right = _split_relation(relation)
        raise ValueError(
            f"{relation} must hold, got {left}={values[left]}, {right}={values[right]}"
        )


def _split_relation(relation: str) -> tuple[str, str, str]:
    match = re.fullmatch(r"\s*(\w+)\s*(<=|>=|==|!=|<|>)\s*(\w+)\s*", relation)
    if not match:
        raise ValueError(
            f"a relation is 'name op name' with op in {' '.join(_RELATIONS)}, got {relation!r}"
        )
    left, sign, right = match.groups()
    return left, sign, right
