"""The leaderboard section: differences from FedAvg, algorithms by cells, all configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.report.tuning import text_of
from bench.stored.groups import Group, hyperparameters, is_reference, label_of, number
from bench.stored.results import Record, worth_saying
from leaderboards.flags import flags_to_show
from leaderboards.numbers import Number
from leaderboards.problems import REFERENCES, Cell, differing, sortable
from leaderboards.tables import ResultTable, TableCell, state_of
from leaderboards.tables.model import EXCLUDED
from leaderboards.tables.model import number as number_text
from leaderboards.tables.over_cells import (
    BASELINE,
    Gain,
    difference_text,
    diverged_text,
    gains,
    ratio_text,
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
    cells = [cell for group in groups for cell in group.cells]
    records = [record for cell in cells for record in cell.records]
    names = _worth_showing(records)
    values = {
        "dataset": {group.setting["dataset"] for group in groups},
        "model": {group.models for group in groups},
    }
    hidden = [f"one-{name}" for name, distinct in values.items() if len(distinct) == 1]
    lows = [f"{metric.name}_low" for metric in metrics]
    if not any(_has_value(record, lows) for record in records):
        hidden.append("no-intervals")
    choices = {
        "data set": ("dataset", [group.setting["dataset"] for group in groups]),
        "model": ("model", [group.models for group in groups]),
        "α": (
            "alpha",
            [number(alpha) for alpha in sorted({cell.place[0] for cell in cells}, key=sortable)],
        ),
        "participation": (
            "c",
            [number(share) for share in sorted({cell.place[1] for cell in cells})],
        ),
        "algorithm": ("algorithm", sorted({label_of(record) for record in records})),
        "setting": ("set", [group.key for group in groups]),
    }
    return {
        "common": "".join(
            f"; {' / '.join(distinct)}" for distinct in values.values() if len(distinct) == 1
        ),
        "hidden": hidden,
        "filters": [
            {"title": title, "field": field, "values": list(dict.fromkeys(texts))}
            for title, (field, texts) in choices.items()
            if len(set(texts)) > 1
        ],
        "rows": list(_all_rows(groups, tables, metrics, names)),
    }


def _has_value(record: Record, columns: Sequence[str]) -> bool:
    return any(record[column] is not None for column in columns)


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
    columns = [column for column, head in table.results if head.metric.name == metric.name]
    lines: list[Row] = []
    excluded = False
    for row in table.rows:
        cells = [row.cells[column] for column in columns]
        excluded = excluded or any(cell.excluded for cell in cells)
        if any(cell.n for cell in cells):
            lines.append({"label": row.label, "reference": row.reference, "cells": cells})
    return {
        "metric": metric,
        "places": [table.heads[column].place for column in columns],
        "lines": lines,
        "excluded": excluded,
    }


def short_text(cell: TableCell) -> str:
    """Format a cell of a matrix: its mean, or the word for its state."""
    if cell.state != "value":
        return cell.text()
    return number_text(cell.statistic("mean"), cell.metric) + (EXCLUDED if cell.excluded else "")


def difference_sections(
    groups: Sequence[Group], tables: Mapping[str, ResultTable], metrics: Sequence[Number]
) -> list[dict[str, Any]]:
    """Return `group` and `plots`, one for each metric, of groups with others than `fedavg`."""
    sections = []
    for group in groups:
        plots = []
        for metric in metrics:
            found = gains([tables[group.key]], metric, BASELINE)
            drawn = [gain for gain in found if gain.pooled.method not in REFERENCES]
            if drawn:
                bounded = any(gain.pooled.interval for gain in drawn)
                lines = _forest(drawn, metric)
                plots.append({"metric": metric, "lines": lines, "bounded": bounded})
        if plots:
            sections.append({"group": group, "plots": plots})
    return sections


def _forest(found: Sequence[Gain], metric: Number) -> list[Row]:
    """Return the lines of a forest plot; the places of whiskers are in percent of the width."""
    ends = [0.0]
    for gain in found:
        interval = gain.pooled.interval
        ends.append(gain.pooled.difference)
        if interval is not None:
            ends += [interval.low, interval.high]
    scale = (min(ends), max(max(ends), min(ends) + 1e-9))
    zero = _share(0.0, scale)
    lines = []
    for gain in found:
        entry = gain.pooled
        low, high = (
            (None, None) if entry.interval is None else (entry.interval.low, entry.interval.high)
        )
        lines.append(
            {
                "label": entry.method,
                "whisker": f"{_whisker(entry.difference, low, high, scale)};--z:{zero}",
                "told": entry.separable,
                "difference": difference_text(gain, metric),
                "traffic": ratio_text(gain.traffic),
                "time": ratio_text(gain.time),
                "diverged": diverged_text(gain),
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
        shown = places.get(_key(record, first_metric))
        rank = None if shown is None else shown.rank
        mean = record[f"{first_metric.name}_mean"] or 0.0
        return is_reference(record), rank is None, rank or 0, -mean, label_of(record)

    scale = _limits(cell, metrics)
    first = True
    for record in sorted(cell.records, key=order):
        listed = record["selected"] or (record["algorithm"], record["model"]) not in with_selection
        yield {
            "group": group,
            "cell": cell,
            "record": record,
            "algorithm": label_of(record),
            "class": ("first" if first else "") if listed else "other",
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
    record: Record, metric: Number, place: TableCell | None, scale: tuple[float, float]
) -> Row:
    """Return one metric of a row: `rank`, `value` and `interval` as printed, the numbers to sort by, a whisker."""
    mean, low, high = (
        None if record["diverged"] else record[f"{metric.name}_{part}"]
        for part in ("mean", "low", "high")
    )
    state = state_of(record, metric)
    interval = "–"
    if low is not None and high is not None:
        interval = " – ".join(
            f"{limit * metric.unit.scale:.{metric.unit.decimals}f}" for limit in (low, high)
        )
    return {
        "metric": metric.name,
        **_rank(record, place),
        "value": (place or TableCell(state, metric, record)).text(),
        "mean": None if mean is None else round(mean, 6),
        "interval": interval,
        "width": None if low is None else round(high - low, 6),
        "whisker": None if mean is None else _whisker(mean, low, high, scale),
    }


def _rank(record: Record, place: TableCell | None) -> Row:
    if place is None or place.rank is None:
        why = (
            "not ranked: a reference to read the others against"
            if is_reference(record)
            else "not ranked"
        )
        return {"rank": "–", "place": None, "why": why, "best": False}
    return {"rank": str(place.rank), "place": place.rank, "why": None, "best": place.best}


def _whisker(mean: float, low: float | None, high: float | None, scale: tuple[float, float]) -> str:
    """Return CSS properties, in percent of the width: mean, lower and upper end of the interval."""
    ends = (mean, mean if low is None else low, mean if high is None else high)
    at = [_share(value, scale) for value in ends]
    return f"--m:{at[0]};--l:{at[1]};--h:{at[2]}"


def _share(value: float, scale: tuple[float, float]) -> float:
    """Return where a value lies in a range, in percent with one digit after the point."""
    share = (value - scale[0]) / (scale[1] - scale[0])
    return round(100 * min(1.0, max(0.0, share)), 1)


def _limits(cell: Cell, metrics: Sequence[Number]) -> tuple[float, float]:
    """Return the range of a cell's whiskers, that of all ranked values; references beyond are drawn at its ends."""
    values = [
        record[f"{metric.name}_{part}"]
        for record in cell.selected
        for metric in metrics
        for part in ("mean", "low", "high")
        if not record["diverged"] and not is_reference(record)
    ]
    numbers = [value for value in values if value is not None] or [0.0]
    return min(numbers), max(max(numbers), min(numbers) + 1e-9)


def _choice(record: Record) -> str | None:
    """Describe how a confirmed configuration was chosen, and the gap from its validation to its test accuracy."""
    if not record.get("chosen_on"):
        return None
    gap = record["validation_gap"]
    difference = "" if gap is None else f"; validation minus test accuracy {100 * gap:.2f} points"
    return f"one of {record['configurations']}, chosen on {record['chosen_on']}{difference}"


def _worth_showing(records: Sequence[Record]) -> dict[str, list[str]]:
    """Return algorithm -> hyper-parameters that have several values, or one other than the default."""
    values = [(record["algorithm"], hyperparameters(record)) for record in records]
    several, first = differing(values), dict(reversed(values))
    return {
        name: [key for key in hps if key in worth_saying(name, hps, several)]
        for name, hps in first.items()
    }
