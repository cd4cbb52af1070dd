"""Still panels by class: points in the plane, strips of fields, and samples of each client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.charts.panels import PALE, SIDE, panel
from bench.charts.theme import BACKGROUNDS, FAINT, GRIDS, INKS, LIGHT, ROUND, Spec

# Colours of classes, not of algorithms: Tableau's, with which points of ten classes can be told
# apart.
_TEN = (
    "#4E79A7",
    "#F28E2B",
    "#E15759",
    "#76B7B2",
    "#59A14F",
    "#EDC948",
    "#B07AA1",
    "#FF9DA7",
    "#9C755F",
    "#8A8580",
)
_SIDE = 210  # pixels of a panel of points
_LIGHTER = 0.62  # how far towards white the colour of a region is from that of its points
# Pixels of strips.
_FIELD = 34  # width of a field with its number
_NARROW = 3  # least width of a field
_ROOM = 1000  # width of all fields
_HEIGHT = 26
_CHARACTER = 6.4
_EVERY = 10  # each tenth class is numbered below where fields are too narrow for their numbers
_WHITE = 0.65  # share of the largest value from which a field's number is white
DARK = FAINT[0]  # for fields that are not results
# Pixels of the side of a field of holdings.
_LARGEST = 28
_SMALLEST = 4
_APART = 20  # between two numbers of an axis


def points(
    rows: Sequence[Mapping[str, Any]],
    classes: int,
    *,
    title: str = "",
    regions: Sequence[Mapping[str, Any]] = (),
) -> Spec:
    """Draw one panel of points `x`, `y` and `class`, 0 to `classes` - 1, each class in its colour.

    `regions` are rectangles `x`, `x2`, `y`, `y2` and `class` below the points; then there is no
    legend. Without them the axes have no numbers: only distances mean anything, as in an embedding.
    """
    scale = {"zero": False, "nice": False, "padding": 0 if regions else 6}
    axis = {"grid": False, "tickCount": 5, "labelFlush": False} if regions else None
    place = {
        name: {"field": name, "type": "quantitative", "scale": scale, "title": None, "axis": axis}
        for name in ("x", "y")
    }
    corners = {"x": {"value": 0}, "x2": {"value": _SIDE}, "y": {"value": 0}, "y2": {"value": _SIDE}}
    rim = {"type": "rect", "fill": None, "stroke": GRIDS[0]}
    frame = {"mark": rim, "encoding": corners, "data": {"values": [{}]}}
    around = {"stroke": INKS[0], "strokeWidth": 0.4} if regions else {}
    dots = {
        "mark": {
            "type": "circle",
            "size": 14 if regions else 9,
            "opacity": 1 if regions else 0.75,
            **around,
        },
        "encoding": {**place, "color": _class_colours(classes, with_legend=not regions)},
    }
    # Regions have edges of their own colour, because hairlines would show between the rectangles.
    fill = {
        "field": "class",
        "type": "nominal",
        "legend": None,
        "scale": _class_scale(classes, lighter=True),
    }
    below = {
        "data": {"values": [dict(region) for region in regions]},
        "mark": {"type": "rect", "strokeWidth": 0.7},
        "encoding": {
            **place,
            "x2": {"field": "x2"},
            "y2": {"field": "y2"},
            "fill": fill,
            "stroke": fill,
        },
    }
    layers = [below, dots, frame] if regions else [dots, frame]
    return panel(rows, title, _SIDE, _SIDE, layer=layers)


def _class_colours(classes: int, with_legend: bool) -> Spec:
    if classes > len(_TEN):
        ramp = {"scheme": "turbo", "domain": [0, classes - 1]}
        legend = {"title": "class", "gradientLength": 160} if with_legend else None
        return {"field": "class", "type": "quantitative", "scale": ramp, "legend": legend}
    legend = {"title": "class", "columns": len(_TEN), "symbolSize": 60} if with_legend else None
    return {"field": "class", "type": "nominal", "scale": _class_scale(classes), "legend": legend}


def _class_scale(classes: int, lighter: bool = False) -> Spec:
    if classes > len(_TEN):
        return {"scheme": "turbo", "domain": list(range(classes))}
    colours = [_towards_white(colour) if lighter else colour for colour in _TEN[:classes]]
    return {"domain": list(range(classes)), "range": colours}


def _towards_white(colour: str) -> str:
    channels = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    white = int(BACKGROUNDS[0][1:3], 16)
    return "#" + "".join(f"{round(value + _LIGHTER * (white - value)):02X}" for value in channels)


def strips(
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    classes: int,
    quantity: str,
    most: float,
    *,
    dark: str = LIGHT[0],
    numbered: bool = True,
    label_width: float = 0.0,
) -> Spec:
    """Draw one panel of strips, from top to bottom.

    Args:
        rows: with `name` of the strip, `class`, `value` (None if there is none) and `print`.
        names: of the strips.
        classes: number of classes.
        quantity: what a colour stands for, in the legend; printed numbers need no legend.
        most: the value of the colour `dark`; the lightest colour stands for 0.
        dark: the darkest colour.
        numbered: whether classes have their numbers below.
        label_width: as the function of that name returns it; aligns panels below each other.
    """
    printed = classes * _FIELD <= _ROOM
    field_width = _FIELD if printed else max(_NARROW, _ROOM // classes)
    axis = {
        "ticks": False,
        "domain": False,
        "grid": False,
        "labelAngle": 0,
        "labelOverlap": "greedy",
    }
    across: Spec = {
        "field": "class",
        "type": "ordinal",
        "scale": {"domain": list(range(classes)), "padding": 0.04},
    }
    across |= {"title": "class" if numbered else None, "axis": axis | {"labels": numbered}}
    across["axis"]["values"] = list(range(0, classes, 1 if printed else _EVERY))
    down: Spec = {
        "field": "name",
        "type": "nominal",
        "scale": {"domain": list(names), "padding": 0.06},
    }
    down |= {"title": None, "axis": axis | {"labelLimit": 400, "minExtent": label_width}}
    shade: Spec = {"field": "value", "type": "quantitative"}
    shade["scale"] = {"domain": [0, most], "range": [PALE, dark]}
    shade["legend"] = (
        None if printed else {"title": quantity, "gradientLength": 140, "tickCount": 3}
    )
    layers: list[Spec] = [{"mark": "rect", "encoding": {"color": shade}}]
    if printed:
        ink = {
            "condition": {"test": f"datum.value > {_WHITE * most}", "value": BACKGROUNDS[0]},
            "value": INKS[0],
        }
        layers.append(
            {
                "mark": {"type": "text", "fontSize": 11},
                "encoding": {"text": {"field": "print"}, "color": ink},
            }
        )
    filled = {"filter": "isValid(datum.value)"}
    size = (field_width * classes, _HEIGHT * len(names))
    return panel(
        rows, "", *size, transform=[filled], encoding={"x": across, "y": down}, layer=layers
    )


def label_width(names: Sequence[str]) -> float:
    """Return the pixels that the longest of some names takes."""
    return _CHARACTER * max(map(len, names))


def holdings(
    counts: Sequence[Sequence[int]],
    *,
    most: int,
    title: str = "",
    shaded: bool = False,
    side: int = SIDE,
) -> Spec:
    """Draw one panel of (K, C) samples, clients from left to right and classes upwards, as bubbles.

    Args:
        counts: samples of each client, by class.
        most: the largest count of all panels of the picture.
        title: of the panel.
        shaded: draw fields whose colour tells the count, instead of bubbles whose area tells it.
        side: of the panel in pixels; the sizes of fields are whole numbers within bounds.
    """
    rows = []
    for client, counts_of_client in enumerate(counts):
        for label, count in enumerate(counts_of_client):
            if count:
                rows.append({"client": client, "class": label, "samples": count})
    clients = len(counts)
    classes = len(counts[0])
    across = max(_SMALLEST, min(_LARGEST, side // clients))
    up = max(_SMALLEST, min(_LARGEST, side // classes))
    x = _axis("client", clients, across, not shaded)
    y = _axis("class", classes, up, not shaded)
    y["scale"]["domain"].reverse()
    largest = max(size for size in ROUND if size <= max(most, 1))
    round_numbers = sorted({max(1, largest // 5), max(1, largest // 2), largest})
    legend = {"title": "samples", "values": round_numbers, "format": ",d"}
    samples = {"field": "samples", "type": "quantitative"}
    if shaded:
        scale = {"domain": [0, most], "range": [PALE, LIGHT[0]]}
        channel = {
            "color": {**samples, "scale": scale, "legend": {**legend, "gradientLength": 160}}
        }
        layer = {"mark": "rect", "encoding": channel}
    else:
        scale = {"domain": [0, most], "range": [0, 0.95 * min(across, up) ** 2]}
        channel = {
            "size": {**samples, "scale": scale, "legend": {**legend, "symbolFillColor": LIGHT[0]}}
        }
        layer = {"mark": {"type": "circle", "opacity": 1, "color": LIGHT[0]}, "encoding": channel}
    return panel(
        rows, title, across * clients, up * classes, encoding={"x": x, "y": y}, layer=[layer]
    )


def _axis(name: str, count: int, step: int, grid: bool) -> Spec:
    """Return an axis of `count` bands, with as many numbers as there is room for."""
    every = next(size for size in ROUND if size * step >= _APART or size >= count)
    look = {"grid": grid, "bandPosition": 0.5, "ticks": False, "domain": False, "labelAngle": 0}
    scale = {"type": "band", "domain": list(range(count)), "padding": 0}
    axis = {"values": list(range(0, count, every)), **look}
    return {"field": name, "type": "ordinal", "title": name, "axis": axis, "scale": scale}
