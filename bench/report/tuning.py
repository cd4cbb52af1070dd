"""The section on hyper-parameters: how accuracy depends on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.charts.theme import Spec, colour, dash, whole
from bench.report.charts import ChartColumn, Charts
from bench.stored.groups import Group, hyperparameters, number
from bench.stored.results import Record
from leaderboards.numbers import is_number
from leaderboards.problems import differing, label_of, sortable
from leaderboards.selection import selecting_number

_DISCRETE = 12  # number of different values beyond which they are on a continuous scale
_RESPONSE_TABLE = (
    ChartColumn("configuration", "configuration"),
    ChartColumn("alpha", "alpha"),
    ChartColumn("participation", "participation"),
    ChartColumn("accuracy", "validation accuracy, %", 100.0, 2),
    ChartColumn("n", "seeds"),
)
# Ratio of the largest to the smallest value from which a continuous axis is logarithmic.
_LOGARITHMIC = 50.0


def tuning_section(groups: Sequence[Group], charts: Charts) -> list[dict[str, Any]]:
    """Return `heading`, `figures` and `left` of every algorithm with several configurations.

    `left` is the number of configurations without a figure. New charts are added to `charts`.
    """
    sections = []
    for group in groups:
        for label in sorted({label_of(record) for record in group.records}):
            tried = [record for record in group.records if label_of(record) == label]
            finished = [record for record in tried if record["n"] and not record["diverged"]]
            usable = [record for record in finished if _validation(record) is not None]
            figures = []
            for name in _varied(tried):
                figure = _response(group, label, name, usable, charts)
                if figure:
                    figures.append(figure)
            if figures:
                heading = f"{label}, {group.name}" if len(groups) > 1 else label
                left = len(tried) - len(usable)
                sections.append({"heading": heading, "figures": figures, "left": left})
    return sections


def _validation(record: Record) -> float | None:
    """Return the mean over seeds of the number that configurations are selected by."""
    number = selecting_number(record["chosen_by"], record["selected_on"])
    value: float | None = record[f"{number}_mean"]
    return value


def _varied(records: Sequence[Record]) -> list[str]:
    """Return the hyper-parameters that have several values in a cell."""
    in_cells = []
    for record in records:
        cell = (record["alpha"], record["participation"])
        in_cells.append((cell, hyperparameters(record)))
    return sorted(set().union(*differing(in_cells).values()))


def text_of(record: Record, names: Sequence[str]) -> str:
    """Format the values of `names`: `gamma=0.2 buffer=5`."""
    values = hyperparameters(record)
    return " ".join(f"{name}={number(values[name])}" for name in names if name in values)


def _response(
    group: Group, label: str, name: str, records: Sequence[Record], charts: Charts
) -> dict[str, Any] | None:
    values = sorted({hyperparameters(record).get(name) for record in records}, key=sortable)
    if len(values) < 2:
        return None
    continuous = len(values) > _DISCRETE and all(map(is_number, values))
    if not continuous:
        values = list(map(number, values))
    names = _varied(records)
    rows = []
    for record in records:
        value = hyperparameters(record).get(name)
        rows.append(
            {
                "value": value if continuous else number(value),
                "alpha": number(record["alpha"]),
                "participation": number(record["participation"]),
                "accuracy": _validation(record),
                "configuration": text_of(record, names),
                "n": record["n"],
            }
        )
    spec = _response_spec(name, rows, values, continuous, group)
    what = f"Validation accuracy of {label} against {name}, {group.name}."
    return {"caption": name, "chart": charts.add(spec, what, _RESPONSE_TABLE)}


def _response_spec(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    values: Sequence[Any],
    continuous: bool,
    group: Group,
) -> Spec:
    """Draw a point per configuration, and a line through the mean at each value of `name`.

    Alphas are in the order of the colours, participations in the order of the dashes. Values of a
    random search are `continuous`: they have no line, because no two of them coincide.
    """
    wide = continuous and min(values) > 0 and max(values) / min(values) >= _LOGARITHMIC
    scale = {"type": "log"} if wide else {"zero": False}
    x = (
        {"type": "quantitative", "scale": scale}
        if continuous
        else {"type": "ordinal", "sort": list(values)}
    )
    y = {
        "field": "percent",
        "type": "quantitative",
        "title": "validation accuracy, %",
        "scale": {"zero": False},
    }
    legend = {"symbolType": "stroke", "symbolSize": 420}
    shade = colour(group.alphas, field="alpha", legend={**legend, "title": "alpha"})
    dashes = dash(
        group.participations, field="participation", legend={**legend, "title": "participation"}
    )
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
        encoding={
            "x": {"field": "value", "title": name, "axis": {"labelAngle": 0, "grid": False}, **x}
        },
        layer=[points] if continuous else [line, points],
    )
