"""How much of the spread between configurations each hyper-parameter explains alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.charts.theme import Spec, colour, whole


def importance(rows: Sequence[Mapping[str, Any]], names: Sequence[str], cells: Sequence[str]) -> Spec:
    """A bar per hyper-parameter and cell, and a mark where one without any effect is expected.

    Args:
        rows: `name`, `cell` (as printed), `share` and `chance`, in [0, 1].
        names: of the hyper-parameters, from top to bottom.
        cells: as printed, in the order of the colours.
    """
    title = "share of the variance that it explains alone, %"
    y = {"field": "name", "type": "nominal", "sort": list(names), "title": None, "scale": {"paddingInner": 0.3}}
    return whole(
        rows,
        "Share of the variance of mean validation accuracy that each hyper-parameter explains alone.",
        width="container",
        height=len(names) * (16 * len(cells) + 18),
        transform=[
            {"calculate": "100 * datum.share", "as": "percent"},
            {"calculate": "100 * datum.chance", "as": "expected"},
        ],
        encoding={
            "y": {**y, "axis": {"labelLimit": 160, "grid": False}},
            "yOffset": {"field": "cell", "sort": list(cells)},
            "tooltip": [
                {"field": "name", "title": "hyper-parameter"},
                {"field": "cell", "title": "cell"},
                {"field": "percent", "title": "explained alone, %", "format": ".1f"},
                {"field": "expected", "title": "expected without any effect, %", "format": ".1f"},
            ],
        },
        layer=[
            {
                "mark": {"type": "bar", "opacity": 0.85},
                "encoding": {
                    "x": {
                        "field": "percent",
                        "type": "quantitative",
                        "title": title,
                        "scale": {"domain": [0, 100]},
                        "axis": {"values": [0, 25, 50, 75, 100]},
                    },
                    "color": colour(cells, field="cell", legend=_legend(cells)),
                },
            },
            {
                "mark": {"type": "tick", "thickness": 2, "bandSize": 12},
                "encoding": {"x": {"field": "expected", "type": "quantitative"}},
            },
        ],
    )


def _legend(cells: Sequence[str]) -> Spec | None:
    return {"orient": "bottom", "title": None, "columns": 2} if len(cells) > 1 else None
