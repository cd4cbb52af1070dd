"""Learning curves: test accuracy by round, a line per algorithm and a band over its seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.charts.theme import HIDDEN, SHOWN, Spec, colour, dash, shape, whole, whole_numbers

_ROUNDS = {"grid": False, "labelOverlap": "greedy", "labelSeparation": 6}
_MARKED = 24  # points of a line up to which each has its sign


def learning_curves(
    rows: Sequence[Mapping[str, Any]],
    algorithms: Sequence[str],
) -> Spec:
    """The curves of one cell.

    Args:
        rows: `algorithm`, `round`, `mean`, `low`, `high` (fractions; the band, None without one), `n`.
        algorithms: every name, in the order of the colours; those of other charts beside this one included.
    """
    rounds = [row["round"] for row in rows]
    ticks = {**_ROUNDS, "values": whole_numbers(min(rounds), max(rounds)), "format": ",d"}
    line = {
        "x": {"field": "round", "type": "quantitative", "title": "round", "axis": ticks},
        "color": colour(algorithms, field="algorithm"),
    }
    mean = {"field": "accuracy", "type": "quantitative", "title": "test accuracy, %", "scale": {"zero": False}}
    return whole(
        rows,
        "Test accuracy of the global model by round: mean over seeds, band from the lowest to the highest seed.",
        width="container",
        height=240,
        params=[HIDDEN],
        transform=[SHOWN, *in_percent("mean", "low", "high")],
        encoding=line,
        layer=[
            *_band(rows, mean),
            {
                "mark": {"type": "line", "strokeWidth": 2, "invalid": "break-paths-show-domains"},
                "encoding": {"y": mean, "strokeDash": dash(algorithms, field="algorithm")},
            },
            _points(rows, algorithms, mean),
        ],
    )


def _band(rows: Sequence[Mapping[str, Any]], mean: Spec) -> list[Spec]:
    """From the lowest to the highest seed; no layer where nothing has two, since Vega warns of empty ones."""
    if all(row["low"] is None for row in rows):
        return []
    shape = {"y": {**mean, "field": "lowest"}, "y2": {"field": "highest"}}
    return [
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "area", "opacity": 0.14},
            "encoding": shape,
        }
    ]


def _points(rows: Sequence[Mapping[str, Any]], algorithms: Sequence[str], mean: Spec) -> Spec:
    """Signs on the line, all of them where there is room, else only the one that is pointed at."""
    few = len({row["round"] for row in rows}) <= _MARKED
    tips = [
        {"field": "algorithm", "title": "algorithm"},
        {"field": "round", "title": "round"},
        {"field": "accuracy", "title": "mean, %", "format": ".2f"},
        {"field": "lowest", "title": "lowest seed, %", "format": ".2f"},
        {"field": "highest", "title": "highest seed, %", "format": ".2f"},
        {"field": "n", "title": "seeds"},
    ]
    pointed = {"param": "pointed", "empty": False}
    return {
        "params": [
            {
                "name": "pointed",
                "select": {"type": "point", "nearest": True, "on": "pointerover", "clear": "pointerout"},
            }
        ],
        "mark": {"type": "point", "filled": True, "size": 42},
        "encoding": {
            "y": mean,
            "shape": shape(algorithms, field="algorithm"),
            "opacity": {"condition": {**pointed, "value": 1}, "value": 0.9 if few else 0},
            "size": {"condition": {**pointed, "value": 110}, "value": 42},
            "tooltip": tips,
        },
    }


def in_percent(mean: str, low: str, high: str) -> list[Spec]:
    """Transforms that add `accuracy`, `lowest` and `highest`, in %."""
    names = {"accuracy": mean, "lowest": low, "highest": high}
    return [
        {"calculate": f"isValid(datum.{field}) ? 100 * datum.{field} : null", "as": name}
        for name, field in names.items()
    ]
