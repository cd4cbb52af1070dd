"""Still pictures: panels in rows under one title, on white, with one legend for all of them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape
from typing import Any

from bench.charts.theme import BACKGROUNDS, FAINT, INKS, Spec, config
from bench.errors import EnvironmentProblem

PALE = "#F3F6FA"  # of the smallest number if colours stand for numbers
_TIED = "\u00a0"  # a space at which no line ends
# Pixels.
SIDE = 230  # of a panel beside others
WIDE_SIDE = 320  # of a panel alone
_AROUND = 76  # of a panel beside its plot: axis, its title, the gap to the next
# Average width of a character, of the wider fonts that readers have.
_CHARACTER = {"text": 7.8, "subtitle": 6.5}
_NUMBERS = 26  # least width of the numbers beside an axis
_NARROWEST = 500  # least width of titles and notes, however narrow the panels
_SCALE = 2.0  # pixels of a PNG for one of the specification's


def renderer() -> Any:
    """Import the package that draws; raises EnvironmentProblem if it is not installed."""
    try:
        import vl_convert
    except ImportError:
        raise EnvironmentProblem(
            "this needs the package vl-convert-python: "
            'pip install "fedkd-bench[report]", then the same command again'
        ) from None
    return vl_convert


def drawn(spec: Spec, form: str) -> bytes:
    """Render a specification as a file: `svg` with words as text, or `png` at twice the size."""
    if form == "svg":
        text: str = renderer().vegalite_to_svg(spec, config=print_config())
        return text.replace(">", f"><title>{escape(spec['description'])}</title>", 1).encode()
    image: bytes = renderer().vegalite_to_png(spec, config=print_config(), scale=_SCALE)
    return image


def print_config() -> Spec:
    """Return the Vega-Lite configuration of pictures: the light theme on white."""
    base = config(dark=False)
    title = {
        "anchor": "start",
        "frame": "bounds",
        "offset": 14,
        "fontWeight": 600,
        "subtitleColor": FAINT[0],
    }
    title |= {"subtitleFont": base["font"], "subtitleFontSize": 11, "subtitlePadding": 5}
    return base | {
        "background": BACKGROUNDS[0],
        "padding": 12,
        "title": base["title"] | title,
        "legend": base["legend"] | {"offset": 14},
        "concat": {"spacing": 20},
        "mark": {"aria": False},  # a description of each point would be most of a file
        "axisY": {"minExtent": _NUMBERS},  # aligns panels below each other
    }


def picture(
    title: str,
    notes: Sequence[str],
    panels: Sequence[Sequence[Spec]],
    beside: float = _AROUND,
    **parts: Any,
) -> Spec:
    """Combine rows of panels into a complete specification, under a title and small `notes`.

    `beside`: pixels that a panel takes beside its plot; `parts`: other parts of the specification.
    """
    width: float = _NARROWEST
    for row in panels:
        width = max(width, sum(panel["width"] + beside for panel in row))
    small = []
    for note in notes:
        small += _wrap(note, width, "subtitle")
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": ". ".join([title, *notes]),
        "title": {"text": _wrap(title.replace(" ", _TIED), width, "text"), "subtitle": small},
        "vconcat": [{"hconcat": list(row)} for row in panels],
        **parts,
    }


def panel(rows: Sequence[Any], title: str, width: int, height: int, **parts: Any) -> Spec:
    """Make one panel of `parts`, which include layers, with its data and a small title above.

    The title is a layer too, because Vega's own would be higher if the numbers of an axis are.
    """
    place = {"x": {"value": 0}, "y": {"value": -8}, "text": {"value": title}}
    words = {
        "type": "text",
        "align": "left",
        "baseline": "bottom",
        "fontSize": 12,
        "fontWeight": 500,
        "color": INKS[0],
    }
    head = {
        "data": {"values": [{}]},
        "mark": words,
        "encoding": place | {"color": None, "order": None},
    }
    return {
        "data": {"values": [dict(row) for row in rows]},
        "width": width,
        "height": height,
        **parts,
        "layer": [*parts["layer"], *([head] if title else [])],
    }


def _wrap(text: str, width: float, kind: str) -> list[str]:
    """Break text into lines of at most `width` pixels.

    A dot between two parts stays with the first part.
    """
    for dot in (" · ", f"{_TIED}·{_TIED}"):
        text = text.replace(dot, f"{_TIED}· ")
    return textwrap.wrap(text, round(width / _CHARACTER[kind]))
