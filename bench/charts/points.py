"""Points in the plane by class, on nothing or on the regions that a classifier gives to each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.charts.panels import panel
from bench.charts.theme import BACKGROUNDS, GRIDS, INKS, Spec

# Of classes, not of algorithms: Tableau's, on which points of ten classes can be told apart.
_TEN = ("#4E79A7", "#F28E2B", "#E15759", "#76B7B2", "#59A14F", "#EDC948", "#B07AA1", "#FF9DA7", "#9C755F", "#8A8580")
_LIGHTER = 0.62  # how far towards white the colour of a region is from that of its points


def points(
    rows: Sequence[Mapping[str, Any]],
    classes: int,
    *,
    title: str = "",
    size: float = 9.0,
    side: int = 210,
    regions: Sequence[Mapping[str, Any]] = (),
    axes: bool = False,
) -> Spec:
    """Draw one panel of `x`, `y` and `class`, of `classes` colours.

    Args:
        rows: the points.
        classes: C; colours are for 0 to C - 1.
        title: above the panel.
        size: of a point, in square pixels.
        side: of the panel, in pixels.
        regions: rectangles `x`, `x2`, `y`, `y2` and `class` below the points; then there is no legend.
        axes: show numbers; without them only distances mean anything, as in an embedding.
    """
    scale = {"zero": False, "nice": False, "padding": 0 if regions else 6}
    axis = {"grid": False, "tickCount": 5, "labelFlush": False} if axes else None
    place = {
        name: {"field": name, "type": "quantitative", "scale": scale, "title": None, "axis": axis}
        for name in ("x", "y")
    }
    corners = {"x": {"value": 0}, "x2": {"value": side}, "y": {"value": 0}, "y2": {"value": side}}
    rim = {"type": "rect", "fill": None, "stroke": GRIDS[0]}
    frame = {"mark": rim, "encoding": corners, "data": {"values": [{}]}}
    around = {"stroke": INKS[0], "strokeWidth": 0.4} if regions else {}
    dots = {
        "mark": {"type": "circle", "size": size, "opacity": 1 if regions else 0.75, **around},
        "encoding": {**place, "color": _colours(classes, with_legend=not regions)},
    }
    # The edges of regions in their own colour, or hairlines would be seen between the rectangles.
    fill = {"field": "class", "type": "nominal", "legend": None, "scale": _scale(classes, lighter=True)}
    below = {
        "data": {"values": [dict(region) for region in regions]},
        "mark": {"type": "rect", "strokeWidth": 0.7},
        "encoding": {**place, "x2": {"field": "x2"}, "y2": {"field": "y2"}, "fill": fill, "stroke": fill},
    }
    return panel(rows, title, side, side, layer=[*([below] if regions else []), dots, frame])


def _colours(classes: int, with_legend: bool) -> Spec:
    if classes > len(_TEN):
        ramp = {"scheme": "turbo", "domain": [0, classes - 1]}
        legend = {"title": "class", "gradientLength": 160} if with_legend else None
        return {"field": "class", "type": "quantitative", "scale": ramp, "legend": legend}
    legend = {"title": "class", "columns": len(_TEN), "symbolSize": 60} if with_legend else None
    return {"field": "class", "type": "nominal", "scale": _scale(classes), "legend": legend}


def _scale(classes: int, lighter: bool = False) -> Spec:
    if classes > len(_TEN):
        return {"scheme": "turbo", "domain": list(range(classes))}
    colours = [_towards_white(one) if lighter else one for one in _TEN[:classes]]
    return {"domain": list(range(classes)), "range": colours}


def _towards_white(colour: str) -> str:
    channels = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    white = int(BACKGROUNDS[0][1:3], 16)
    return "#" + "".join(f"{round(value + _LIGHTER * (white - value)):02X}" for value in channels)
