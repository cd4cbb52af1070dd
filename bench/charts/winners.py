"""Who is best at each alpha and participation, by how much, and whether that can be told from chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.charts.theme import Spec, colour, whole

_CELL = {"width": 188, "height": 78}


def winners(
    rows: Sequence[Mapping[str, Any]],
    algorithms: Sequence[str],
    alphas: Sequence[str],
    participations: Sequence[str],
    metric: str = "best_accuracy",
) -> Spec:
    """Draw a field for every cell; its edge is solid if the winner is separable from all others, else dashed.

    Args:
        rows: `metric`, `alpha`, `participation` (as printed), `algorithm` (the winner, empty if there is none),
            `names` (of it and its equals), `numbers` and `verdict` (as printed), `separable`.
        algorithms: every name, in the order of the colours.
        alphas: as printed, from left to right.
        participations: as printed, from top to bottom.
        metric: whose rows are shown at first.
    """
    band = {"type": "ordinal", "axis": {"domain": False, "ticks": False, "labelAngle": 0, "grid": False}}
    shade = colour(algorithms, field="algorithm")
    edge = {"strokeWidth": 2, "strokeDash": {"expr": "datum.separable ? [1, 0] : [5, 4]"}}
    words: dict[str, Spec] = {
        "names": {"dy": -19, "fontWeight": 700, "fontSize": 14},
        "numbers": {"dy": 2, "fontSize": 12},
        "verdict": {"dy": 20, "fontSize": 11, "fontStyle": "italic"},
    }
    text = {"type": "text", "limit": _CELL["width"] - 16}
    return whole(
        rows,
        autosize={"type": "pad"},
        width={"step": _CELL["width"]},
        height={"step": _CELL["height"]},
        params=[{"name": "metric", "value": metric}],
        transform=[{"filter": "datum.metric === metric"}],
        encoding={
            "x": {"field": "alpha", "scale": _scale(alphas), "title": "alpha, from skewed to even", **band},
            "y": {"field": "participation", "scale": _scale(participations), "title": "participation", **band},
        },
        layer=[
            {
                "mark": {"type": "rect", "cornerRadius": 6, "fillOpacity": 0.16, **edge},
                "encoding": {
                    "fill": shade,
                    "stroke": shade,
                    "tooltip": [{"field": name, "title": name} for name in words],
                },
            },
            *({"mark": {**text, **look}, "encoding": {"text": {"field": name}}} for name, look in words.items()),
        ],
    )


def _scale(names: Sequence[str]) -> Spec:
    return {"domain": list(names), "paddingInner": 0.08, "paddingOuter": 0.04}
