"""Forest plots: differences with intervals, one line an algorithm, and words beside each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.charts.panels import panel
from bench.charts.theme import FAINT, LIGHT, TICKS, Spec

_ROW = 19  # pixels of a line
_SIDE = 380  # pixels of the plot
_WORDS = 62  # pixels of a column of words beside it
_CHARACTER = 7.4  # pixels of a character of a name
_TOLD = LIGHT[0]  # of an interval without 0
_OPEN = FAINT[0]  # of an interval with 0, or of a difference without an interval

Rows = Sequence[Mapping[str, Any]]


def forest(rows: Rows, title: str, columns: Sequence[str]) -> list[Spec]:
    """Draw the panels of a forest plot, to stand beside each other.

    Args:
        rows: from top to bottom, with `algorithm`, `difference`, `low` and `high` (as printed; the
            last two None without an interval), `told` (whether the interval excludes 0), and the
            texts of `columns`.
        title: of the horizontal axis.
        columns: fields of texts, which are their headings.
    """
    order = [row["algorithm"] for row in rows]
    names = {
        "field": "algorithm",
        "type": "nominal",
        "sort": order,
        "title": None,
        "axis": {
            "grid": False,
            "ticks": False,
            "domain": False,
            "labelLimit": 200,
            "minExtent": _CHARACTER * max(map(len, order)),  # a reader's font may be wider
        },
    }
    height = _ROW * len(order)
    panels = [_intervals(rows, title, height, names)]
    for field in columns:
        text = {
            "mark": {"type": "text", "align": "right", "fontSize": 11},
            "encoding": {
                "x": {"value": _WORDS},
                "text": {"field": field},
                "color": _colour(),
            },
        }
        unlabelled = {"y": {**names, "axis": None}}
        above = _heading(field)
        panels.append(panel(rows, "", _WORDS, height, encoding=unlabelled, layer=[text, above]))
    return panels


def _heading(text: str) -> Spec:
    """Put a heading above a column of words, at their right."""
    mark = {"type": "text", "align": "right", "baseline": "bottom", "fontSize": 12}
    encoding = {
        "x": {"value": _WORDS},
        "y": {"value": -6},
        "text": {"value": text},
        "color": None,
    }
    return {"data": {"values": [{}]}, "mark": mark, "encoding": encoding}


def _intervals(rows: Rows, title: str, height: int, names: Spec) -> Spec:
    along = {
        "type": "quantitative",
        "title": title,
        "scale": {"zero": True, "nice": False, "padding": 8},
        "axis": {
            "format": "+~r",
            "tickCount": TICKS,
            "labelExpr": "datum.value === 0 ? '0' : datum.label",
            "gridOpacity": 0.6,
        },
    }
    zero = {
        "data": {"values": [{"at": 0}]},
        "mark": {"type": "rule", "color": FAINT[0]},
        "encoding": {"x": {"field": "at", **along}, "y": None, "color": None},
    }
    interval = {
        "transform": [{"filter": "isValid(datum.low)"}],
        "mark": {"type": "rule", "strokeWidth": 2.5},
        "encoding": {
            "x": {"field": "low", **along},
            "x2": {"field": "high"},
            "color": _colour(),
        },
    }
    point = {
        "mark": {"type": "point", "filled": True, "size": 55, "opacity": 1},
        "encoding": {"x": {"field": "difference", **along}, "color": _colour()},
    }
    layers: list[Spec] = [zero, point]
    if any(row["low"] is not None for row in rows):  # Vega warns of a layer without data
        layers.insert(1, interval)
    return panel(rows, "", _SIDE, height, encoding={"y": names}, layer=layers)


def _colour() -> Spec:
    """Return the colour of a line: strong if its interval excludes 0."""
    return {"condition": {"test": "datum.told", "value": _TOLD}, "value": _OPEN}
