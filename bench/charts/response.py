"""How the validation accuracy answers to one hyper-parameter, whatever the others are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.charts.theme import Spec, colour, dash, whole

LOGARITHMIC = 50.0  # ratio of the largest to the smallest value from which a continuous axis is logarithmic


def response(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    alphas: Sequence[str],
    participations: Sequence[str],
    *,
    values: Sequence[Any],
    continuous: bool = False,
    height: int = 200,
) -> Spec:
    """A point per configuration, and a line through the mean at each value.

    Args:
        name: of the hyper-parameter.
        rows: `value` (a number if `continuous`, else as printed), `alpha`, `participation`, `accuracy` (validation,
            mean over seeds, a fraction), `configuration` (as printed, what is pointed at says it), `n`.
        alphas: as printed, in the order of the colours.
        participations: as printed, in the order of the dashes.
        values: of `rows`, in order.
        continuous: values on a scale, no line: those of a random search never meet.
        height: in pixels.
    """
    scale = {"type": "log"} if continuous and _spread(values) >= LOGARITHMIC else {"zero": False}
    x = {"type": "quantitative", "scale": scale} if continuous else {"type": "ordinal", "sort": list(values)}
    y = {"type": "quantitative", "title": "validation accuracy, %", "scale": {"zero": False}}
    words = {"orient": "bottom", "titleAnchor": "start", "symbolType": "stroke", "symbolSize": 420}
    look = {
        "color": colour(alphas, field="alpha", legend={**words, "title": "alpha"} if len(alphas) > 1 else None),
        "strokeDash": dash(
            participations,
            field="participation",
            legend={**words, "title": "participation"} if len(participations) > 1 else None,
        ),
    }
    tips = ["configuration", "alpha", "participation", "n"]
    points = {
        "mark": {"type": "point", "size": 40, "opacity": 0.75, "strokeDash": [1, 0]},
        "encoding": {
            "y": {**y, "field": "percent"},
            "color": look["color"],
            "tooltip": [*({"field": tip} for tip in tips), {"field": "percent", "title": "%", "format": ".2f"}],
        },
    }
    through = {"y": {**y, "field": "percent", "aggregate": "mean"}, **look}
    line = {"mark": {"type": "line", "strokeWidth": 2}, "encoding": through}
    return whole(
        rows,
        f"Validation accuracy against {name}: a point per configuration, lines through the means.",
        width="container",
        height=height,
        transform=[{"calculate": "100 * datum.accuracy", "as": "percent"}],
        encoding={"x": {"field": "value", "title": name, "axis": {"labelAngle": 0, "grid": False}, **x}},
        layer=[points] if continuous else [line, points],
    )


def _spread(values: Sequence[float]) -> float:
    return max(values) / min(values) if values and min(values) > 0 else 1.0
