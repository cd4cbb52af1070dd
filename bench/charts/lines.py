"""Lines and points with their spread over seeds, for pictures and for the page.

They show any quantity against any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.charts.panels import SIDE, panel
from bench.charts.theme import (
    FAINT,
    HIDDEN,
    LIGHT,
    SHOWN,
    TICKS,
    Spec,
    colour,
    dash,
    shape,
    whole,
    whole_numbers,
)

BANDED = 8  # algorithms of a picture up to which each has a band; more bands hide the lines
MARKED = 24  # points of a line up to which each has a sign
_SHADE = 0.12  # opacity of a band
_EXACT = ".6~g"  # left to itself Vega rounds single numbers: 9.6 to 10
_HEIGHT = 170  # of the plot of a still picture, in pixels
_LONG = 10_000  # from which numbers are shown in thousands

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Axis:
    """One axis of a chart."""

    field: str  # metric or counter
    title: str  # as printed, with the unit
    factor: float = 1.0  # printed number = factor x stored number
    ticks: tuple[float, ...] = ()  # the numbers below it; empty for some round numbers
    log: bool = False  # a logarithmic scale


@dataclass(frozen=True)
class Keys:
    """Algorithms and their signs in a picture, so that one legend serves all panels.

    `algorithms` has every name in the order of the colours, also names of other pictures.
    """

    algorithms: Sequence[str]
    shown: Collection[str]  # the names in the legend
    signs: bool = True
    columns: int = 6
    # The place of each name in the order of dashes and shapes; None: 0, 1, ...
    places: Sequence[int] | None = None

    @property
    def legend(self) -> Spec:
        """The legend of every channel: the same, so that Vega-Lite merges them."""
        look = {"symbolSize": 60} if self.signs else {"symbolType": "stroke", "symbolSize": 420}
        return {
            "legend": {
                "title": None,
                "values": [name for name in self.algorithms if name in self.shown],
                "columns": self.columns,
                **look,
            }
        }


def own_colours(labels: Sequence[str], shown: Collection[str], signs: bool = True) -> Keys:
    """Return the keys of a still picture: up to eight algorithms have a colour of their own.

    An algorithm keeps the colour that it has in the order of `labels` unless another one of the
    picture has it already; it always keeps its dash and its shape.

    Args:
        labels: every algorithm of the folders, in the order of the colours.
        shown: the algorithms of the picture.
        signs: whether points have signs.
    """
    drawn = [name for name in labels if name in shown]
    count = len(LIGHT)
    if len(drawn) > count:
        return Keys(labels, shown, signs)
    usual = {name: labels.index(name) % count for name in drawn}
    by_colour: dict[int, str] = {}
    for name in drawn:
        colour_place = usual[name]
        if colour_place in by_colour:
            taken = {*usual.values(), *by_colour}
            colour_place = min(set(range(count)) - taken)
        by_colour[colour_place] = name
    domain = []
    places = []
    for place in range(count):
        name = by_colour.get(place, " " * (place + 1))  # blanks stand for unused colours
        domain.append(name)
        places.append(labels.index(name) if name in usual else 0)
    return Keys(domain, shown, signs, places=places)


def mean_and_spread(values: Sequence[float]) -> dict[str, Any]:
    """Return `mean`, `low`, `high` and `n` of one algorithm's seeds, as charts take them.

    One seed has no spread: `low` and `high` are None.
    """
    count = len(values)
    return {
        "mean": math.fsum(values) / count,
        "low": min(values) if count > 1 else None,
        "high": max(values) if count > 1 else None,
        "n": count,
    }


def lines(rows: Rows, keys: Keys, x: Axis, y: Axis, *, title: str = "", width: int = SIDE) -> Spec:
    """Draw one panel of a still picture: a line and a band per algorithm.

    The line is through the means; the band is from the lowest to the highest seed. A picture of
    more than `BANDED` algorithms has no bands.

    `rows` have `algorithm`, `x`, and `mean`, `low`, `high` (as stored; the last two None if there
    is one seed). The width is that of the plot, in pixels.
    """
    bands = _band(rows, y) if len(keys.shown) <= BANDED else []
    layers = [*bands, _line(keys, y, "x")]
    if keys.signs:
        layers.append(_signs(keys, y, {"size": 34, "opacity": 1}))
    along = _across([row["x"] for row in rows], x)
    encoding = {"x": {"field": "x", **along}, "color": _colours(keys)}
    return panel(rows, title, width, _HEIGHT, transform=_scaled(y), encoding=encoding, layer=layers)


def fronts(rows: Rows, keys: Keys, x: Axis, y: Axis, *, title: str = "") -> Spec:
    """Draw one panel of a still picture: a sign per algorithm, its spread, and the front.

    `rows` are as for `lines`, one for each algorithm; a row is on the front if no row with less `x`
    has a higher `mean`.
    """
    front: list[Mapping[str, Any]] = []
    for row in sorted(rows, key=lambda row: (row["x"], -row["mean"])):
        if not front or row["mean"] > front[-1]["mean"]:
            front.append(row)
    # The best remains the best at any higher cost.
    end = {**front[-1], "x": max(row["x"] for row in rows)}
    along = {"x": {"field": "x", **_across([row["x"] for row in rows], x)}}
    steps = {
        "data": {"values": [*map(dict, front), end]},
        "transform": _scaled(y),
        "mark": {"type": "line", "interpolate": "step-after", "color": FAINT[0], "opacity": 0.5},
        "encoding": {"y": _up(y), "color": None, "order": {"field": "x", "type": "quantitative"}},
    }
    spread = {
        "transform": [{"filter": "isValid(datum.low)"}],
        "mark": {"type": "rule", "opacity": 0.35},
        "encoding": {"y": _up(y, "lowest"), "y2": {"field": "highest"}},
    }
    layers = [steps, spread, _signs(keys, y, {"size": 60, "opacity": 1})]
    encoding = {**along, "color": _colours(keys)}
    return panel(rows, title, SIDE, _HEIGHT, transform=_scaled(y), encoding=encoding, layer=layers)


def live_lines(rows: Rows, keys: Keys, x: Axis, y: Axis) -> Spec:
    """Draw a panel of the page.

    It reacts to the pointer, and hides the algorithms that the reader switched off. While more than
    `BANDED` are left, bands are hidden, too.

    `rows` have `algorithm`, `x.field`, `mean`, `low`, `high` and `n`.
    """
    tips = [
        {"field": "algorithm", "title": "algorithm"},
        {"field": "along", "title": x.title, "format": ",.9~g"},
        {"field": "middle", "title": y.title, "format": ".2f"},
        {"field": "lowest", "title": "lowest seed, %", "format": ".2f"},
        {"field": "highest", "title": "highest seed, %", "format": ".2f"},
        {"field": "n", "title": "seeds"},
    ]
    pointed = {"param": "pointed", "empty": False}
    select = {"type": "point", "nearest": True, "on": "pointerover", "clear": "pointerout"}
    signs = _signs(keys, y, {"size": 42})
    signs["params"] = [{"name": "pointed", "select": select}]
    signs["encoding"] |= {
        "opacity": {"condition": {**pointed, "value": 1}, "value": 0.9 if keys.signs else 0},
        "size": {"condition": {**pointed, "value": 110}, "value": 42},
        "tooltip": tips,
    }
    along = _across([x.factor * row[x.field] for row in rows], x)
    shade = f"length(hidden) + {BANDED} < {len(keys.algorithms)} ? 0 : {_SHADE}"
    return whole(
        rows,
        height=240,
        params=[HIDDEN],
        transform=[
            SHOWN,
            *_scaled(y),
            {"calculate": f"{x.factor} * datum.{x.field}", "as": "along"},
        ],
        encoding={"x": {"field": "along", **along}, "color": _colours(keys)},
        layer=[*_band(rows, y, {"expr": shade}), _line(keys, y, "along"), signs],
    )


def _colours(keys: Keys) -> Spec:
    """Return the colour channel, with the legend."""
    return colour(keys.algorithms, field="algorithm", **keys.legend)


def _looks(channel: Callable[..., Spec], keys: Keys, in_legend: bool) -> Spec:
    """Return the channel `dash` or `shape`.

    If it is not in the legend, it has another domain than the channels that are.
    """
    if in_legend:
        return channel(keys.algorithms, keys.places, field="algorithm", **keys.legend)
    places = None if keys.places is None else [*keys.places, 0]
    return channel([*keys.algorithms, ""], places, field="algorithm")


def _up(y: Axis, field: str = "middle") -> Spec:
    axis = {"format": _EXACT}
    return {
        "field": field,
        "type": "quantitative",
        "title": y.title,
        "scale": {"zero": False},
        "axis": axis,
    }


def _line(keys: Keys, y: Axis, along: str) -> Spec:
    # With signs, a legend has no dashes, which would break up the outlines of the signs. Vega-Lite
    # merges the legends of all channels with one domain, also hidden legends; so this channel then
    # has a domain of its own.
    dashes = _looks(dash, keys, in_legend=not keys.signs)
    order = {"field": along, "type": "quantitative"}
    return {
        "mark": {"type": "line", "strokeWidth": 2},
        "encoding": {"y": _up(y), "strokeDash": dashes, "order": order},
    }


def _signs(keys: Keys, y: Axis, mark: Spec) -> Spec:
    shapes = _looks(shape, keys, in_legend=keys.signs)
    return {
        "mark": {"type": "point", "filled": True, **mark},
        "encoding": {"y": _up(y), "shape": shapes},
    }


def _band(rows: Rows, y: Axis, opacity: Any = _SHADE) -> list[Spec]:
    """Shade from the lowest to the highest seed.

    There is no layer if all algorithms have one seed, because Vega warns of empty layers.
    """
    if all(row.get("low") is None for row in rows):
        return []
    ends = {"y": _up(y, "lowest"), "y2": {"field": "highest"}}
    here = [{"filter": "isValid(datum.low)"}]
    return [{"transform": here, "mark": {"type": "area", "opacity": opacity}, "encoding": ends}]


def _across(values: Sequence[float], x: Axis) -> Spec:
    ticks: Spec = {
        "grid": False,
        "labelOverlap": "greedy",
        "labelSeparation": 6,
        "labelFlush": False,
    }
    if x.ticks:
        ticks |= {"values": list(x.ticks), "format": _EXACT}
    elif all(float(value).is_integer() for value in values):
        ticks |= {"values": whole_numbers(round(min(values)), round(max(values))), "format": ",d"}
    else:
        # Only here: a count would thin out explicit values.
        ticks |= {"tickCount": TICKS, "format": _EXACT}
    if max(values) >= _LONG:
        ticks["format"] = "~s"
    scale: Spec = {"type": "log"} if x.log else {"zero": False}
    low = min(values)
    high = max(values)
    if x.log and high < 2 * low:
        # Without room at both ends, 0.1 % more would look like ten times as much.
        pad = math.sqrt(2 * low / high)
        scale["domain"] = [low / pad, high * pad]
    return {
        "type": "quantitative",
        "title": x.title,
        "axis": ticks,
        "scale": {**scale, "nice": False, "padding": 8},
    }


def _scaled(y: Axis) -> list[Spec]:
    names = {"middle": "mean", "lowest": "low", "highest": "high"}
    return [
        {"calculate": f"isValid(datum.{field}) ? {y.factor} * datum.{field} : null", "as": name}
        for name, field in names.items()
    ]
