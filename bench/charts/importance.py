"""How much of the spread between configurations each hyper-parameter explains alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.charts.theme import Spec, colour, whole


def importance(rows: Sequence[Mapping[str, Any]], names: Sequence[str], cells: Sequence[str]) -> Spec:
    """Draw a bar per hyper-parameter and cell, and a mark where one without any effect is expected.

    Args:
        rows: `name`, `cell` (as printed), `share` and `chance`, in [0, 1].
        names: of the hyper-parameters, from top to bottom.
        cells: as printed, in the order of the colours.
    """
    y = {"field": "name", "type": "nominal", "sort": list(names), "title": None, "scale": {"paddingInner": 0.3}}
    x: Spec = {"field": "percent", "type": "quantitative", "title": "share of the variance that it explains alone, %"}
    x |= {"scale": {"domain": [0, 100]}, "axis": {"values": [0, 25, 50, 75, 100]}}
    shade = colour(cells, field="cell", legend={"title": None, "columns": 2})
    tips = {"name": "hyper-parameter", "cell": "cell", "percent": "explained alone, %", "expected": "by chance, %"}
    return whole(
        rows,
        height=len(names) * (16 * len(cells) + 18),
        transform=[
            {"calculate": "100 * datum.share", "as": "percent"},
            {"calculate": "100 * datum.chance", "as": "expected"},
        ],
        encoding={
            "y": {**y, "axis": {"labelLimit": 160, "grid": False}},
            "yOffset": {"field": "cell", "sort": list(cells)},
            "tooltip": [
                {"field": field, "title": title} | ({"format": ".1f"} if field in ("percent", "expected") else {})
                for field, title in tips.items()
            ],
        },
        layer=[
            {"mark": {"type": "bar", "opacity": 0.85}, "encoding": {"x": x, "color": shade}},
            {
                "mark": {"type": "tick", "thickness": 2, "bandSize": 12},
                "encoding": {"x": {"field": "expected", "type": "quantitative"}},
            },
        ],
    )
