"""The leaderboard section: differences from a baseline, algorithms by cells, configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
from math import inf
from typing import Any

from bench.report.tuning import text_of
from bench.stored.groups import Group, groups_of, hyperparameters, is_reference, number
from bench.stored.results import Record, worth_saying
from leaderboards.flags import flags_to_show
from leaderboards.numbers import Number
from leaderboards.problems import BY, REFERENCES, Cell, differing, label_of, sortable
from leaderboards.tables import ResultTable, TableCell, state_of, tables_of
from leaderboards.tables.build import in_order
from leaderboards.tables.model import EXCLUDED, number_text
from leaderboards.tables.over_cells import (
    Gain,
    description_of,
    gains,
    remarks_on,
    texts_of,
    usual_baseline,
)

Row = dict[str, Any]
Key = tuple[str, str, str, str]  # algorithm, hyper-parameters, setting, metric


def board_section(
    groups: Sequence[Group], tables: Mapping[str, ResultTable], metrics: Sequence[Number]
) -> dict[str, Any]:
    """Return the leaderboard: `common` values, `hidden` columns, `filters` and `rows`.

    Args:
        groups: of the page.
        tables: key of a group -> its table, with columns for all of `metrics`.
        metrics: the accuracies of the page, the primary one first.
    """
    records = list(chain.from_iterable(group.records for group in groups))
    values = {
        "dataset": {group.setting["dataset"] for group in groups},
        "model": {group.models for group in groups},
    }
    hidden = []
    common = ""  # what a column would repeat in every row
    for name, distinct in values.items():
        if len(distinct) == 1:
            hidden.append(f"one-{name}")
            common += f"; {next(iter(distinct))}"
    if not any(_has_interval(record, metrics) for record in records):
        hidden.append("no-intervals")
    return {
        "common": common,
        "hidden": hidden,
        "filters": list(_filters(groups, records)),
        "rows": list(_all_rows(groups, tables, metrics, _worth_showing(records))),
    }


def _has_interval(record: Record, metrics: Sequence[Number]) -> bool:
    return any(record[f"{metric.name}_low"] is not None for metric in metrics)


def _filters(groups: Sequence[Group], records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """Yield `title`, `field` and `values` of each filter that has several values."""
    places = list(chain.from_iterable(group.places for group in groups))
    alphas = {alpha for alpha, _ in places}
    participations = {participation for _, participation in places}
    choices = {
        "data set": ("dataset", [group.setting["dataset"] for group in groups]),
        "model": ("model", [group.models for group in groups]),
        "α": ("alpha", map(number, sorted(alphas, key=sortable))),
        "participation": ("c", map(number, sorted(participations))),
        "algorithm": ("algorithm", sorted({label_of(record) for record in records})),
        "setting": ("set", [group.key for group in groups]),
    }
    for title, (field, texts) in choices.items():
        values = list(dict.fromkeys(texts))
        if len(values) > 1:
            yield {"title": title, "field": field, "values": values}


def matrix_sections(
    groups: Sequence[Group], tables: Mapping[str, ResultTable], metrics: Sequence[Number]
) -> list[dict[str, Any]]:
    """Return `group` and `matrices`: for each metric `places`, the columns, and `lines`."""
    sections = []
    for group in groups:
        table = tables[group.key]
        matrices = [_matrix(table, metric) for metric in metrics]
        sections.append({"group": group, "matrices": matrices})
    return sections


def _matrix(table: ResultTable, metric: Number) -> dict[str, Any]:
    """Return the table of one metric, whose rows are in the order of this metric."""
    columns = [column for column, _ in table.results_of(metric)]
    lines = []
    excluded = False
    for row in table.rows:
        cells = tuple(row.cells[column] for column in columns)
        excluded = excluded or any(cell.excluded for cell in cells)
        if any(cell.n for cell in cells):
            lines.append(replace(row, cells=cells))
    return {
        "metric": metric,
        "places": [table.heads[column].place for column in columns],
        "lines": in_order(lines),
        "excluded": excluded,
    }


def short_text(cell: TableCell) -> str:
    """Format a cell of a matrix without marks: its mean, or the word for its state."""
    if cell.state != "value":
        return replace(cell, marks=()).text()
    mark = EXCLUDED if cell.excluded else ""
    return number_text(cell.statistic("mean"), cell.metric) + mark


def difference_sections(
    records: Sequence[Record], metrics: Sequence[Number]
) -> list[dict[str, Any]]:
    """Return `group`, `baseline` and `plots` (one a metric) of groups with others than it.

    A group has all kinds of partition.
    """
    sections = []
    for group in groups_of(records, (*BY, "partition")):
        plots = []
        tables = tables_of(group.records, metrics)
        label = usual_baseline(tables)
        for metric in metrics:
            drawn = [
                gain
                for gain in gains(tables, metric, label)
                if gain.pooled.method not in REFERENCES
            ]
            if drawn:
                bounded = any(gain.pooled.interval for gain in drawn)
                lines = _forest(drawn, metric)
                plots.append(
                    {
                        "metric": metric,
                        "measured": description_of(metric, tables, {label}),
                        "lines": lines,
                        "bounded": bounded,
                        "notes": remarks_on(tables, metric, label, drawn),
                    }
                )
        if plots:
            sections.append({"group": group, "baseline": label, "plots": plots})
    return sections


def _forest(drawn: Sequence[Gain], metric: Number) -> list[Row]:
    """Return the lines of a forest plot; the places of whiskers are in percent of the width."""
    ends = [0.0]
    for gain in drawn:
        interval = gain.pooled.interval
        ends.append(gain.pooled.difference)
        if interval is not None:
            ends += [interval.low, interval.high]
    scale = _range_of(ends)
    zero = _share(0.0, scale)
    lines = []
    for gain in drawn:
        entry = gain.pooled
        interval = entry.interval
        low = None if interval is None else interval.low
        high = None if interval is None else interval.high
        lines.append(
            {
                "label": entry.method,
                "whisker": f"{_whisker(entry.difference, low, high, scale)};--z:{zero}",
                "told": entry.separable,
                **texts_of(gain, metric),
                "cells": entry.cells,
            }
        )
    return lines


def _all_rows(
    groups: Sequence[Group],
    tables: Mapping[str, ResultTable],
    metrics: Sequence[Number],
    names: Mapping[str, Sequence[str]],
) -> Iterator[Row]:
    for group in groups:
        places = _cells_by_record(tables[group.key])
        for cell in group.cells:
            yield from _rows(group, cell, names, places, metrics)


def _cells_by_record(table: ResultTable) -> dict[Key, TableCell]:
    """Return the cells of a table by algorithm, configuration, setting and metric."""
    places = {}
    for row in table.rows:
        for cell in row.cells:
            if cell.record is not None:
                places[_key(cell.record, cell.metric)] = cell
    return places


def _key(record: Record, metric: Number) -> Key:
    return record["algorithm"], record["hp_json"], record["setting_json"], metric.name


def _rows(
    group: Group,
    cell: Cell,
    names: Mapping[str, Sequence[str]],
    places: Mapping[Key, TableCell],
    metrics: Sequence[Number],
) -> Iterator[Row]:
    """Yield the rows of a cell: by rank in the primary metric, then the others, references last."""
    first_metric = metrics[0]
    with_selection = {
        (record["algorithm"], record["model"]) for record in cell.records if record["selected"]
    }

    def order(record: Record) -> tuple[Any, ...]:
        rank = record[f"{first_metric.name}_rank"]
        mean = record[f"{first_metric.name}_mean"] or 0.0
        place = inf if rank is None else rank
        return is_reference(record), place, -mean, label_of(record)

    scale = _limits(cell, metrics)
    first = True
    for record in sorted(cell.records, key=order):
        method = (record["algorithm"], record["model"])
        listed = record["selected"] or method not in with_selection
        kind = "other"
        if listed:
            kind = "first" if first else ""
        yield {
            "group": group,
            "cell": cell,
            "record": record,
            "algorithm": label_of(record),
            "class": kind,
            "configuration": text_of(record, names[record["algorithm"]]) or "defaults",
            "choice": _choice(record),
            "scores": [
                _score(record, metric, places.get(_key(record, metric)), scale)
                for metric in metrics
            ],
            "flags": flags_to_show(record),
        }
        first = first and not listed


def _score(
    record: Record, metric: Number, cell: TableCell | None, scale: tuple[float, float]
) -> Row:
    """Return one metric of a row, as printed and as numbers to sort by, and its whisker."""
    mean = _statistic(record, metric, "mean")
    low = _statistic(record, metric, "low")
    high = _statistic(record, metric, "high")
    interval = "–"
    if low is not None and high is not None:
        interval = f"{number_text(low, metric)} – {number_text(high, metric)}"
    if cell is None:
        cell = TableCell(state_of(record, metric), metric, record)
    return {
        "metric": metric.name,
        **_rank(record, cell),
        "value": cell.text(),
        "mean": None if mean is None else round(mean, 6),
        "interval": interval,
        "width": None if low is None else round(high - low, 6),
        "whisker": None if mean is None else _whisker(mean, low, high, scale),
    }


def _statistic(record: Record, metric: Number, part: str) -> Any:
    """Return `mean`, `low` or `high` of a metric; None for a configuration that diverged."""
    return None if record["diverged"] else record[f"{metric.name}_{part}"]


def _rank(record: Record, cell: TableCell) -> Row:
    if cell.rank is None:
        why = "not ranked"
        if is_reference(record):
            why += ": a reference to read the others against"
        return {"rank": "–", "place": None, "why": why, "best": False}
    return {"rank": str(cell.rank), "place": cell.rank, "why": None, "best": cell.best}


def _whisker(mean: float, low: float | None, high: float | None, scale: tuple[float, float]) -> str:
    """Return CSS properties, in percent of the width: mean, lower and upper end of the interval."""
    middle = _share(mean, scale)
    left = middle if low is None else _share(low, scale)
    right = middle if high is None else _share(high, scale)
    return f"--m:{middle};--l:{left};--h:{right}"


def _share(value: float, scale: tuple[float, float]) -> float:
    """Return where a value lies in a range, in percent with one digit after the point."""
    share = (value - scale[0]) / (scale[1] - scale[0])
    return round(100 * min(1.0, max(0.0, share)), 1)


def _limits(cell: Cell, metrics: Sequence[Number]) -> tuple[float, float]:
    """Return the range of a cell's whiskers: the least and the largest ranked value.

    References beyond it are drawn at its ends.
    """
    columns = [
        f"{metric.name}_{part}" for metric, part in product(metrics, ("mean", "low", "high"))
    ]
    values = []
    for record in cell.selected:
        if not record["diverged"] and not is_reference(record):
            values += [record[column] for column in columns if record[column] is not None]
    return _range_of(values)


def _range_of(values: Sequence[float]) -> tuple[float, float]:
    """Return the least and the largest value, a little apart if they are equal."""
    least = min(values, default=0.0)
    largest = max(values, default=0.0)
    return least, max(largest, least + 1e-9)


def _choice(record: Record) -> str | None:
    """Describe how a confirmed configuration was chosen; None for one that was not.

    The gap between its validation and its test accuracy is part of the description.
    """
    if not record.get("chosen_on"):
        return None
    gap = record["validation_gap"]
    difference = "" if gap is None else f"; validation minus test accuracy {100 * gap:.2f} points"
    return f"one of {record['configurations']}, chosen on {record['chosen_on']}{difference}"


def _worth_showing(records: Sequence[Record]) -> dict[str, list[str]]:
    """Return algorithm -> hyper-parameters that have several values, or one off the default."""
    several = differing((record["algorithm"], hyperparameters(record)) for record in records)
    shown: dict[str, list[str]] = {}
    for record in records:
        algorithm = record["algorithm"]
        if algorithm not in shown:
            values = hyperparameters(record)
            worth = worth_saying(algorithm, values, several)
            shown[algorithm] = [name for name in values if name in worth]
    return shown
