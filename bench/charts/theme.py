"""The look of charts: colours that the colour-blind can tell apart, dashes, shapes and fonts.

There is a light and a dark theme.

A name has one of eight colours and one of five dashes, so that forty are distinct, and five even
without colour. In a still picture up to eight have a colour of their own (`bench.charts.lines`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

Spec = dict[str, Any]

# Contrast with the background is 3 or more; any two of a set differ by 0.1 or more in Oklab, also
# for protanopes and deuteranopes (Machado et al. 2009). Both are tested.
LIGHT = ("#004EB7", "#C4861C", "#2E8360", "#D12D10", "#411B88", "#6E84EA", "#724A77", "#8C81A7")
DARK = ("#2F7AA6", "#DEDC31", "#00AF98", "#FF6B15", "#C74BFF", "#E8DAFF", "#E498FF", "#FFFFC0")
BACKGROUNDS = ("#FFFFFF", "#15181D")
INKS = ("#1B1F24", "#E8EAED")
FAINT = ("#5B636E", "#A3ABB6")
GRIDS = ("#E3E6EA", "#2E343C")

DASHES = ((1, 0), (7, 3), (2, 2), (9, 3, 2, 3), (4, 4))
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
TICKS = 5  # of an axis, at most one more
# Steps between the numbers of an axis: 1, 2, 5, 10, 20, ...
ROUND = tuple(size * 10**power for power, size in product(range(9), (1, 2, 5)))


def config(dark: bool = False) -> Spec:
    """Return the Vega-Lite configuration of one theme; the background stays transparent."""
    ink = INKS[dark]
    faint = FAINT[dark]
    words = {
        "labelFont": FONT,
        "titleFont": FONT,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": 500,
    }
    return {
        "background": None,
        "font": FONT,
        "view": {"stroke": None},
        "range": {
            "category": list(DARK if dark else LIGHT),
            "ordinal": list(DARK if dark else LIGHT),
        },
        "axis": {
            **words,
            "labelColor": faint,
            "titleColor": ink,
            "gridColor": GRIDS[dark],
            "domainColor": faint,
            "tickColor": faint,
            "titlePadding": 8,
        },
        "legend": {
            **words,
            "labelColor": ink,
            "titleColor": ink,
            "symbolStrokeWidth": 2,
            "labelLimit": 260,
            "symbolLimit": 0,
            "orient": "bottom",
            "titleAnchor": "start",
            "symbolOpacity": 1,
        },
        "title": {"color": ink, "font": FONT, "fontSize": 13},
        "text": {"color": ink, "font": FONT},
    }


def colour(names: Sequence[str], **more: Any) -> Spec:
    """Return the colour channel of `names`, in that order; `more` are properties of the channel."""
    return {"scale": {"domain": list(names)}, "type": "nominal", "legend": None, **more}


def dash(names: Sequence[str], places: Sequence[int] | None = None, **more: Any) -> Spec:
    """Return the dash channel of `names`.

    `places` are their positions in the order of dashes; None is for 0, 1, ...
    """
    return _chosen([list(steps) for steps in DASHES], names, places, more)


def shape(names: Sequence[str], places: Sequence[int] | None = None, **more: Any) -> Spec:
    """Return the shape channel of `names`; `places` as for `dash`."""
    return _chosen(SHAPES, names, places, more)


def _chosen(
    looks: Sequence[Any], names: Sequence[str], places: Sequence[int] | None, more: Spec
) -> Spec:
    """Return the channel in which each name has the look at its place, counted from the start."""
    chosen = [looks[place % len(looks)] for place in places or range(len(names))]
    scale = {"domain": list(names), "range": chosen}
    return {"scale": scale, "type": "nominal", "legend": None, **more}


def whole_numbers(first: int, last: int) -> list[int]:
    """Return some round numbers between two, for the ticks of an axis.

    In a short range Vega's own ticks would include halves.
    """
    spaced = -(-(last - first) // TICKS)  # of a range that is longer than any run
    step = next((size for size in ROUND if size >= spaced), spaced)
    return [at for at in range(first // step * step, last + 1, step) if at >= first]


def whole(rows: Sequence[Any], **parts: Any) -> Spec:
    """Return a specification for the page: data, the width of its container, and `parts`."""
    fit = {"type": "fit-x", "contains": "padding"}
    return {
        "data": {"values": [dict(row) for row in rows]},
        "width": "container",
        "autosize": fit,
        **parts,
    }


# Algorithms that the reader has switched off; the page sets it.
HIDDEN: Spec = {"name": "hidden", "value": []}
SHOWN: Spec = {"filter": "indexof(hidden, datum.algorithm) < 0"}
