"""Strips of fields, one above the other: a number for each row and class, as a colour and in print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.charts.panels import PALE, panel
from bench.charts.theme import BACKGROUNDS, FAINT, INKS, LIGHT, Spec

# Pixels.
_FIELD, _NARROW, _ROOM = 34, 3, 1000  # width of a field, the least, and of all that have their number
_HEIGHT = 26
_EVERY = 10  # class has its number below where fields are too narrow for their own
_CHARACTER = 6.4
_WHITE = 0.65  # share of the largest value from which a field's number is white
DARK = FAINT[0]  # for what is no result


@dataclass(frozen=True)
class Strips:
    """The names, the quantity and the colours of a panel's strips.

    Args:
        quantity: what a colour stands for, in the legend; there is none where the numbers are printed.
        most: the value of the darkest colour; the lightest is 0.
        dark: that colour.
    """

    names: Sequence[str]
    quantity: str
    most: float
    dark: str = LIGHT[0]
    numbered: bool = True


def strips(rows: Sequence[Mapping[str, Any]], look: Strips, classes: int, *, label_width: float = 0.0) -> Spec:
    """Draw one panel. `rows` have `name`, `class`, `value` (None if there is none) and `print`.

    `label_width`, as the function gives it, lets panels below each other begin at one place.
    """
    printed = classes * _FIELD <= _ROOM
    wide = _FIELD if printed else max(_NARROW, _ROOM // classes)
    axis = {"ticks": False, "domain": False, "grid": False, "labelAngle": 0, "labelOverlap": "greedy"}
    across: Spec = {"field": "class", "type": "ordinal", "scale": {"domain": list(range(classes)), "padding": 0.04}}
    across |= {"title": "class" if look.numbered else None, "axis": axis | {"labels": look.numbered}}
    across["axis"]["values"] = list(range(0, classes, 1 if printed else _EVERY))
    down: Spec = {"field": "name", "type": "nominal", "scale": {"domain": list(look.names), "padding": 0.06}}
    down |= {"title": None, "axis": axis | {"labelLimit": 400, "minExtent": label_width}}
    shade: Spec = {"field": "value", "type": "quantitative"}
    shade["scale"] = {"domain": [0, look.most], "range": [PALE, look.dark]}
    shade["legend"] = None if printed else {"title": look.quantity, "gradientLength": 140, "tickCount": 3}
    layers: list[Spec] = [{"mark": "rect", "encoding": {"color": shade}}]
    if printed:
        ink = {"condition": {"test": f"datum.value > {_WHITE * look.most}", "value": BACKGROUNDS[0]}, "value": INKS[0]}
        layers.append(
            {"mark": {"type": "text", "fontSize": 11}, "encoding": {"text": {"field": "print"}, "color": ink}}
        )
    filled = {"filter": "isValid(datum.value)"}
    size = (wide * classes, _HEIGHT * len(look.names))
    return panel(rows, "", *size, transform=[filled], encoding={"x": across, "y": down}, layer=layers)


def label_width(names: Sequence[str]) -> float:
    """Return the pixels that the longest of some names takes."""
    return _CHARACTER * max(map(len, names))
