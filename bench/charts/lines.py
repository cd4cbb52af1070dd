"""Lines with a band over seeds, for still pictures: whatever is measured, against whatever it is measured over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.charts.panels import SIDE, panel
from bench.charts.theme import TICKS, Spec, colour, dash, shape, whole_numbers

MARKED = 24  # points of a line up to which each has its sign
_EXACT = ".6~g"  # left to itself Vega rounds single numbers: 9.6 to 10
_LONG = 10_000  # from which numbers are said in thousands


@dataclass(frozen=True)
class Axis:
    """What an axis shows.

    Args:
        field: metric or counter.
        title: as printed, with the unit.
        factor: printed number = factor x stored number.
        ticks: the numbers below it; none for some round ones.
        log: a logarithmic scale.
    """

    field: str
    title: str
    factor: float = 1.0
    ticks: tuple[float, ...] = ()
    log: bool = False


@dataclass(frozen=True)
class Keys:
    """What the panels of a picture have in common, so that one legend serves them all.

    Args:
        algorithms: every name, in the order of the colours; those of other pictures beside this one included.
        shown: those that the legend has.
        signs: whether each point has its sign.
    """

    algorithms: Sequence[str]
    shown: Sequence[str]
    signs: bool = True

    @property
    def legend(self) -> Spec:
        """Of every channel: the same, so that they become one."""
        look = {"symbolSize": 60} if self.signs else {"symbolType": "stroke", "symbolSize": 420}
        return {"legend": {"title": None, "values": list(self.shown), "columns": 6, **look}}


def lines(
    rows: Sequence[Mapping[str, Any]],
    keys: Keys,
    x: Axis,
    y: Axis,
    *,
    title: str = "",
    width: int = SIDE,
    height: int = 170,
) -> Spec:
    """One panel: a line per algorithm through its means, and from the lowest to the highest seed a band.

    Args:
        rows: `algorithm`, `x`, and `mean`, `low`, `high` (as stored; the last two None where there is one seed).
        keys: of the picture.
        x: the axis below.
        y: the axis on the left.
        title: above the panel.
        width: of the plot, in pixels.
        height: likewise.
    """
    name = {"field": "algorithm", **keys.legend}
    up = {"field": "middle", "type": "quantitative", "title": y.title, "scale": {"zero": False}}
    up["axis"] = {"format": _EXACT}
    along = {"field": "x", "type": "quantitative"}
    look = {"strokeDash": _dashes(keys, name), "order": along}
    layers = [{"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"y": up, **look}}]
    if any(row["low"] is not None for row in rows):
        layers.insert(0, _band(up))
    if keys.signs:
        signs = {"y": up, "shape": shape(keys.algorithms, **name)}
        layers.append({"mark": {"type": "point", "filled": True, "size": 34, "opacity": 1}, "encoding": signs})
    return panel(
        rows,
        title,
        width,
        height,
        transform=[_scaled("middle", "mean", y), _scaled("lowest", "low", y), _scaled("highest", "high", y)],
        encoding={"x": {**along, **_across(rows, x)}, "color": colour(keys.algorithms, **name)},
        layer=layers,
    )


def _dashes(keys: Keys, name: Spec) -> Spec:
    """In the legend only where it shows lines: around a sign they would fray it."""
    if not keys.signs:
        return dash(keys.algorithms, **name)
    # Vega-Lite makes one legend of all channels of one domain, the hidden ones included; so this has one of its own.
    return dash([*keys.algorithms, ""], **name | {"legend": None})


def _across(rows: Sequence[Mapping[str, Any]], x: Axis) -> Spec:
    ticks: Spec = {"grid": False, "labelOverlap": "greedy", "labelSeparation": 6, "labelFlush": False}
    values = [row["x"] for row in rows]
    if x.ticks:
        ticks |= {"values": list(x.ticks), "format": _EXACT}
    elif all(float(value).is_integer() for value in values):
        ticks |= {"values": whole_numbers(round(min(values)), round(max(values))), "format": ",d"}
    else:
        ticks["tickCount"] = TICKS  # beside values it would thin them
    if max(values) >= _LONG:
        ticks["format"] = "~s"
    scale = {"type": "log"} if x.log else {"zero": False}
    return {"title": x.title, "axis": ticks, "scale": {**scale, "nice": False, "padding": 8}}


def _band(up: Spec) -> Spec:
    return {
        "transform": [{"filter": "isValid(datum.low)"}],
        "mark": {"type": "area", "opacity": 0.12},
        "encoding": {"y": {**up, "field": "lowest"}, "y2": {"field": "highest"}},
    }


def _scaled(name: str, field: str, y: Axis) -> Spec:
    return {"calculate": f"isValid(datum.{field}) ? {y.factor} * datum.{field} : null", "as": name}
