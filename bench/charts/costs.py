"""Accuracy against what it costs: bytes sent, local steps, or seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.charts.curves import in_percent
from bench.charts.theme import HIDDEN, SHOWN, Spec, colour, dash, shape, whole

# What accuracy is shown against.
COSTS = {
    "bytes": "sent and received since round 1",
    "steps": "local steps of a client since round 1",
    "seconds": "wall-clock time of the whole run, s",
}
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_EXACT = ",.9~g"  # left to itself Vega rounds ticks to the digits that differ: 100 to 1e+2


@dataclass(frozen=True)
class Scale:
    """How a cost is printed.

    Args:
        title: of its axis, with the unit.
        factor: printed number = factor x stored number.
    """

    title: str
    factor: float = 1.0


def scale_of(cost: str, rows: Sequence[Mapping[str, Any]]) -> Scale:
    """The scale of these rows' costs: bytes in the largest unit that leaves the dearest row a number of 1 or more."""
    if cost != "bytes":
        return Scale(COSTS[cost])
    most = max((row[cost] for row in rows), default=0.0)
    size, unit = next((known for known in _SIZES if most >= known[0]), _SIZES[-1])
    return Scale(f"{COSTS[cost]}, {unit}", 1 / size)


def accuracy_against(
    cost: str,
    rows: Sequence[Mapping[str, Any]],
    algorithms: Sequence[str],
) -> Spec:
    """Accuracy against a cost in one cell: a line per algorithm as it learns, or for `seconds` a point per run.

    Args:
        cost: `bytes`, `steps` or `seconds`.
        rows: `algorithm`, the cost, and `mean` (test accuracy so far reached, a fraction); `round`, or `seed` for
            `seconds`.
        algorithms: every name, in the order of the colours.
    """
    scale = scale_of(cost, rows)
    shown = {
        "title": scale.title,
        "axis": {"grid": False, "tickCount": 6, "format": "~s" if cost == "steps" else _EXACT},
    }
    mark = {"type": "line", "strokeWidth": 2, "point": False, "order": False}
    lines: Spec = {"mark": mark, "encoding": {"strokeDash": dash(algorithms, field="algorithm")}}
    points: Spec = {
        "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0.9},
        "encoding": {
            "shape": shape(algorithms, field="algorithm"),
            "tooltip": _tips(cost, scale),
        },
    }
    if cost != "seconds":
        lines["encoding"]["order"] = {"field": "round", "type": "quantitative"}
        points["mark"] = {"type": "point", "filled": True, "size": 26, "opacity": 0.9}
    in_mark = [*in_percent("mean", "mean", "mean")[:1], {"calculate": f"{scale.factor} * datum.{cost}", "as": "cost"}]
    return whole(
        rows,
        f"Test accuracy against {scale.title}.",
        width="container",
        height=240,
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
            "color": colour(algorithms, field="algorithm"),
        },
        layer=[points] if cost == "seconds" else [lines, points],
    )


def _tips(cost: str, scale: Scale) -> list[Spec]:
    where = "seed" if cost == "seconds" else "round"
    return [
        {"field": "algorithm", "title": "algorithm"},
        {"field": where, "title": where},
        {"field": "cost", "title": scale.title, "format": ",.3~f"},
        {"field": "accuracy", "title": "accuracy, %", "format": ".2f"},
    ]
