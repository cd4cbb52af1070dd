"""Average ranks with their critical difference, for still pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.charts.panels import WIDE_SIDE, panel
from bench.charts.theme import FAINT, Spec, colour, whole_numbers

_ROW = 20  # pixels of an algorithm


def ranks(rows: Sequence[Mapping[str, Any]], algorithms: Sequence[str], critical: float, title: str) -> Spec:
    """Draw one panel of average ranks, the best on top, each with an interval of half the critical difference.

    Two algorithms whose intervals do not overlap are told apart; a band marks the interval of the best.

    Args:
        rows: `algorithm` and `rank`, the best first.
        algorithms: every name, in the order of the colours.
        critical: difference of ranks from which two are told apart.
        title: above the panel.
    """
    half, last = critical / 2, len(rows)  # no rank is less than 1, or more than the last
    data = [{**row, "low": max(1, row["rank"] - half), "high": min(last, row["rank"] + half)} for row in rows]
    height = _ROW * last
    scale = {"domain": [1, last], "padding": 8, "nice": False}
    ticks = {"values": [1, *(at for at in whole_numbers(1, last) if at > 1)], "format": "d"}
    along = {"type": "quantitative", "title": "average rank (1 is best)", "scale": scale, "axis": ticks}
    names = {"type": "nominal", "sort": [row["algorithm"] for row in rows], "title": None, "axis": {"grid": False}}
    ends = {"x": {"field": "low", **along}, "x2": {"field": "high"}}
    band = {
        "data": {"values": data[:1]},
        "mark": {"type": "rect", "opacity": 0.12, "color": FAINT[0]},
        "encoding": {**ends, "y": {"value": 0}, "y2": {"value": height}, "color": None},
    }
    return panel(
        data,
        title,
        WIDE_SIDE,
        height,
        encoding={"y": {"field": "algorithm", **names}, "color": colour(algorithms, field="algorithm")},
        layer=[
            band,
            {"mark": {"type": "rule", "strokeWidth": 2}, "encoding": ends},
            {
                "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
                "encoding": {"x": {"field": "rank", **along}},
            },
        ],
    )
