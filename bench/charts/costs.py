"""Accuracy against what it costs: bytes sent, local steps, or seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.charts.curves import in_percent
from bench.charts.theme import HIDDEN, SHOWN, Spec, colour, dash, legend, shape, whole

# Cost -> title of its axis, printed number = factor x stored number.
COSTS = {
    "bytes": ("sent and received since round 1, MB", 1e-6),
    "steps": ("local steps of a client since round 1", 1.0),
    "seconds": ("wall-clock time of the whole run, s", 1.0),
}


def accuracy_against(
    cost: str,
    rows: Sequence[Mapping[str, Any]],
    algorithms: Sequence[str],
    *,
    width: int | str = "container",
    height: int = 240,
    with_legend: bool = False,
) -> Spec:
    """Accuracy against a cost in one cell: a line per algorithm as it learns, or for `seconds` a point per run.

    Args:
        cost: `bytes`, `steps` or `seconds`.
        rows: `algorithm`, the cost, and `mean` (test accuracy so far reached, a fraction); `round`, or `seed` for
            `seconds`.
        algorithms: every name, in the order of the colours.
        width: in pixels, or `container`.
        height: in pixels.
        with_legend: draw one; the page has buttons instead.
    """
    title, factor = COSTS[cost]
    shown = {"title": title, "axis": {"grid": False, "format": "~s" if cost == "steps" else ",~g"}}
    mark = {"type": "line", "strokeWidth": 2, "point": False, "order": False}
    lines: Spec = {"mark": mark, "encoding": {"strokeDash": dash(algorithms, field="algorithm", **legend(with_legend))}}
    points: Spec = {
        "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0.9},
        "encoding": {"shape": shape(algorithms, field="algorithm", **legend(with_legend)), "tooltip": _tips(cost)},
    }
    if cost != "seconds":
        lines["encoding"]["order"] = {"field": "round", "type": "quantitative"}
        points["mark"] = {"type": "point", "filled": True, "size": 26, "opacity": 0.9}
    in_mark = [*in_percent("mean", "mean", "mean")[:1], {"calculate": f"{factor} * datum.{cost}", "as": "cost"}]
    return whole(
        rows,
        f"Test accuracy against {title}.",
        width=width,
        height=height,
        params=[HIDDEN],
        transform=[SHOWN, *in_mark],
        encoding={
            "x": {"field": "cost", "type": "quantitative", "scale": {"zero": cost != "seconds"}, **shown},
            "y": {
                "field": "accuracy",
                "type": "quantitative",
                "title": "best test accuracy, %" if cost == "seconds" else "test accuracy, %",
                "scale": {"zero": False},
            },
            "color": colour(algorithms, field="algorithm", **legend(with_legend)),
        },
        layer=[points] if cost == "seconds" else [lines, points],
    )


def _tips(cost: str) -> list[Spec]:
    where = "seed" if cost == "seconds" else "round"
    return [
        {"field": "algorithm", "title": "algorithm"},
        {"field": where, "title": where},
        {"field": "cost", "title": COSTS[cost][0], "format": ",.4~g"},
        {"field": "accuracy", "title": "accuracy, %", "format": ".2f"},
    ]
