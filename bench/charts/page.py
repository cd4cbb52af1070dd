"""Charts of the report's page: the winners of cells, the response to a hyper-parameter, and what each explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.charts.theme import Spec, colour, dash, whole

LOGARITHMIC = 50.0  # ratio of the largest to the smallest value from which a continuous axis is logarithmic
_CELL = {"width": 188, "height": 78}


def winners(
    rows: Sequence[Mapping[str, Any]],
    algorithms: Sequence[str],
    alphas: Sequence[str],
    participations: Sequence[str],
    metric: str = "best_accuracy",
) -> Spec:
    """Draw a field for every cell; its edge is solid if the winner is separable from all others, else dashed.

    `rows` have `metric`, `alpha`, `participation` (as printed), `algorithm` (the winner, empty if there is none),
    `names` (of it and its equals), `numbers` and `verdict` (as printed), `separable`; those of `metric` are shown at
    first. Algorithms are in the order of the colours, alphas from left to right, participations from top to bottom.
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


def response(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    alphas: Sequence[str],
    participations: Sequence[str],
    *,
    values: Sequence[Any],
    continuous: bool = False,
) -> Spec:
    """Draw a point per configuration, and a line through the mean at each value of the hyper-parameter `name`.

    `rows` have `value` (a number if `continuous`, else as printed), `alpha`, `participation`, `accuracy` (validation,
    mean over seeds, a fraction), `configuration` (as printed), `n`. Alphas are in the order of the colours,
    participations in that of the dashes, both as printed. Values that are `continuous` are on a scale, without a line:
    those of a random search never meet.
    """
    wide = continuous and min(values) > 0 and max(values) / min(values) >= LOGARITHMIC
    scale = {"type": "log"} if wide else {"zero": False}
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


def importance(rows: Sequence[Mapping[str, Any]], names: Sequence[str], cells: Sequence[str]) -> Spec:
    """Draw a bar per hyper-parameter and cell, and a mark where one without any effect is expected.

    `rows` have `name`, `cell` (as printed), `share` and `chance`, in [0, 1]; names are from top to bottom, cells in the
    order of the colours.
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
