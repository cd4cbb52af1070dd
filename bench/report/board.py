"""The leaderboard section: one row per configuration and cell, to sort and to filter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.report.standings import shown, standings
from bench.report.tuning import text_of
from bench.stored.groups import Group, hyperparameters, is_reference, label_of, number
from bench.stored.results import Record, worth_saying
from leaderboards.flags import flags_to_show
from leaderboards.numbers import Number
from leaderboards.problems import Cell, differing, sortable
from leaderboards.stats.seeds import Ranked
from leaderboards.tables import Cell as Shown
from leaderboards.tables import state_of

Row = dict[str, Any]


def board_section(groups: Sequence[Group]) -> dict[str, Any]:
    """Return the leaderboard: `common` values, `hidden` columns, `filters` and `rows`."""
    cells = [cell for group in groups for cell in group.cells]
    records = [record for cell in cells for record in cell.records]
    metrics = shown(records)
    names = _worth_showing(records)
    values = {name: {group.setting[name] for group in groups} for name in ("dataset", "model")}
    hidden = [f"one-{name}" for name, distinct in values.items() if len(distinct) == 1]
    if not any(_has_interval(record, metrics) for record in records):
        hidden.append("no-intervals")
    choices = {
        "data set": ("dataset", [group.setting["dataset"] for group in groups]),
        "model": ("model", [group.setting["model"] for group in groups]),
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
        "rows": [
            row
            for group in groups
            for cell in group.cells
            for row in _rows(group, cell, names, metrics)
        ],
    }


def _has_interval(record: Record, metrics: Sequence[Number]) -> bool:
    return any(record[f"{metric.name}_low"] is not None for metric in metrics)


def _rows(
    group: Group, cell: Cell, names: Mapping[str, Sequence[str]], metrics: Sequence[Number]
) -> Iterator[Row]:
    """Yield the rows of a cell: ranked ones by mean, then the others, references last."""
    places = {metric.name: standings(cell, metric) for metric in metrics}
    with_selection = {
        (record["algorithm"], record["model"]) for record in cell.records if record["selected"]
    }

    def order(record: Record) -> tuple[Any, ...]:
        ranked = record["selected"] and label_of(record) in places[metrics[0].name]
        mean = record[f"{metrics[0].name}_mean"] or 0.0
        return is_reference(record), not ranked, -mean, label_of(record)

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
            "scores": [_score(record, metric, places[metric.name], scale) for metric in metrics],
            "flags": flags_to_show(record),
        }
        first = first and not listed


def _score(
    record: Record, metric: Number, places: Mapping[str, Ranked], scale: tuple[float, float]
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
        **_rank(record, places),
        "value": Shown(state, metric, record).text() + f" ({record['n']})" * (state == "diverged"),
        "mean": None if mean is None else round(mean, 6),
        "interval": interval,
        "width": None if low is None else round(high - low, 6),
        "whisker": None if mean is None else _whisker(mean, low, high, scale),
    }


def _rank(record: Record, places: Mapping[str, Ranked]) -> Row:
    place = places.get(label_of(record)) if record["selected"] else None
    if place is None:
        why = (
            "not ranked: a reference to read the others against"
            if is_reference(record)
            else "not ranked"
        )
        return {"rank": "–", "place": None, "why": why, "best": False}
    shared = sum(entry.rank == place.rank for entry in places.values()) > 1
    text = f"({place.rank})" if place.untested else f"{'=' * shared}{place.rank}"
    return {
        "rank": text,
        "place": place.rank,
        "why": None,
        "best": place.rank == 1 and not place.untested,
    }


def _whisker(mean: float, low: float | None, high: float | None, scale: tuple[float, float]) -> str:
    """Return CSS properties, in percent of the width: mean, lower and upper end of the interval."""
    ends = (mean, mean if low is None else low, mean if high is None else high)
    shares = [(value - scale[0]) / (scale[1] - scale[0]) for value in ends]
    at = [round(100 * min(1.0, max(0.0, share))) for share in shares]
    return f"--m:{at[0]};--l:{at[1]};--h:{at[2]}"


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
