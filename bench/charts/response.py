"""Validation accuracy against one hyper-parameter."""

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
) -> Spec:
    """Draw a point per configuration, and a line through the mean at each value.

    Args:
        name: of the hyper-parameter.
        rows: `value` (a number if `continuous`, else as printed), `alpha`, `participation`, `accuracy` (validation,
            mean over seeds, a fraction), `configuration` (as printed), `n`.
        alphas: as printed, in the order of the colours.
        participations: as printed, in the order of the dashes.
        values: of `rows`, in order.
        continuous: values on a scale, no line: those of a random search never meet.
    """
    scale = {"type": "log"} if continuous and _spread(values) >= LOGARITHMIC else {"zero": False}
    x = {"type": "quantitative", "scale": scale} if continuous else {"type": "ordinal", "sort": list(values)}
    y = {"field": "percent", "type": "quantitative", "title": "validation accuracy, %", "scale": {"zero": False}}
    legend = {"symbolType": "stroke", "symbolSize": 420}
    shade = colour(alphas, field="alpha", legend={**legend, "title": "alpha"})
    dashes = dash(participations, field="participation", legend={**legend, "title": "participation"})
    tips = [{"field": field} for field in ("configuration", "alpha", "participation", "n")]
    tips.append({"field": "percent", "title": "%", "format": ".2f"})
    points = {
        "mark": {"type": "point", "size": 40, "opacity": 0.75, "strokeDash": [1, 0]},
        "encoding": {"y": y, "color": shade, "tooltip": tips},
    }
    through = {"y": {**y, "aggregate": "mean"}, "color": shade, "strokeDash": dashes}
    line = {"mark": {"type": "line", "strokeWidth": 2}, "encoding": through}
    return whole(
        rows,
        height=200,
        transform=[{"calculate": "100 * datum.accuracy", "as": "percent"}],
        encoding={"x": {"field": "value", "title": name, "axis": {"labelAngle": 0, "grid": False}, **x}},
        layer=[points] if continuous else [line, points],
    )


def _spread(values: Sequence[float]) -> float:
    return max(values) / min(values) if values and min(values) > 0 else 1.0
