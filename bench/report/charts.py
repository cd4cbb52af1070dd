"""Charts of the page: specifications and data, stored once each, for the page's script."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.charts.theme import Spec, config


@dataclass(frozen=True)
class ChartColumn:
    """A column of the table that can replace a chart."""

    field: str
    title: str
    scale: float = 1.0  # printed number = scale x the row's
    decimals: int | None = None  # after the point; None prints the value as it is


class Charts:
    """The charts of a page; equal specifications and equal data are stored once."""

    def __init__(self) -> None:
        self._specs: dict[str, int] = {}
        self._data: dict[str, int] = {}
        self._charts: list[dict[str, Any]] = []

    def add(self, spec: Spec, description: str, table: Sequence[ChartColumn]) -> int:
        """Keep a chart and return its number.

        `description` is for screen readers, `table` the columns of its data.
        """
        bare = {name: part for name, part in spec.items() if name != "data"}
        self._charts.append(
            {
                "spec": _index(self._specs, bare),
                "data": _index(self._data, packed(spec["data"]["values"])),
                "table": [
                    [column.field, column.title, column.scale, column.decimals] for column in table
                ],
                "description": description,
            }
        )
        return len(self._charts) - 1

    def embedded(self) -> dict[str, Any]:
        """Return all charts for the page's script."""
        return {
            "themes": {"light": config(dark=False), "dark": config(dark=True)},
            "specs": [json.loads(text) for text in self._specs],
            "data": [json.loads(text) for text in self._data],
            "charts": self._charts,
        }


def packed(rows: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """Return rows as columns `[name, values]`, so that each name is stored once."""
    if not rows:
        return []
    columns = []
    for name in rows[0]:
        values = [_rounded(row[name]) for row in rows]
        columns.append([name, values])
    return columns


def _rounded(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _index(numbers: dict[str, int], value: Any) -> int:
    return numbers.setdefault(json.dumps(value, separators=(",", ":")), len(numbers))
