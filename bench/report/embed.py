"""Charts within the page: specifications and data packed once each, and the figure that shows one of them."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.charts import config
from bench.charts.theme import Spec
from bench.report.html import Child, Html, embedded_json, tag

_DIGITS = 4  # of fractions: 0.01 %


@dataclass(frozen=True)
class Column:
    """A column of the table that stands for a chart.

    Args:
        field: of the chart's rows.
        title: as printed.
        scale: printed number = scale x the row's.
        decimals: after the point; None prints the value as it is.
    """

    field: str
    title: str
    scale: float = 1.0
    decimals: int | None = None


class Charts:
    """The charts of a page; equal specifications and equal data are stored once."""

    def __init__(self) -> None:
        self._specs: dict[str, int] = {}
        self._data: dict[str, int] = {}
        self._charts: list[dict[str, Any]] = []

    def plot(self, spec: Spec, description: str, table: Sequence[Column], **attributes: Any) -> Html:
        """A chart's place in the page, and its data as a table, made when it is opened.

        Args:
            spec: of `bench.charts`.
            description: what a screen reader says instead.
            table: its columns.
            attributes: of the element.
        """
        rows = spec["data"]["values"]
        bare = {name: part for name, part in spec.items() if name not in ("data", "description", "$schema")}
        columns = [[one.field, one.title, one.scale, one.decimals] for one in table]
        chart = {"spec": _index(self._specs, bare), "data": _index(self._data, packed(rows)), "table": columns}
        self._charts.append(chart | {"description": description})
        place = tag("div", class_="plot", data_chart=len(self._charts) - 1)
        details = tag("details", tag("summary", "Data as a table"), tag("div", class_="scroll"), class_="data")
        return tag("div", place, details, **attributes)

    def embedded(self) -> Html:
        """All of it, for the page's script."""
        everything = {
            "themes": {"light": config(dark=False), "dark": config(dark=True)},
            "specs": [json.loads(text) for text in self._specs],
            "data": [json.loads(text) for text in self._data],
            "charts": self._charts,
        }
        return tag("script", embedded_json(everything), type="application/json", id="charts")


def figure(caption: Child, *parts: Child, **attributes: Any) -> Html:
    """A figure with its caption above."""
    return tag("figure", tag("figcaption", caption), *parts, **attributes)


def packed(rows: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """Rows as columns `[name, values]`, or `[name, distinct values, positions]` where that is shorter."""
    names = list(rows[0]) if rows else []
    return [[name, *_column([_rounded(row[name]) for row in rows])] for name in names]


def _column(values: Sequence[Hashable]) -> list[Any]:
    distinct = list(dict.fromkeys(values))
    if len(values) < 8 or len(distinct) > len(values) / 4:
        return [list(values)]
    position = {value: at for at, value in enumerate(distinct)}
    return [distinct, [position[value] for value in values]]


def _rounded(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    if value.is_integer():
        return int(value)
    return round(value, _DIGITS) if abs(value) < 1 else float(f"{value:.5g}")


def _index(known: dict[str, int], value: Any) -> int:
    return known.setdefault(json.dumps(value, separators=(",", ":")), len(known))
