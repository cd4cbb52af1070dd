"""The section of hyper-parameters: how accuracy answers to each, and how much each explains alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from bench.charts import importance, response
from bench.report.embed import Charts, Column, figure
from bench.report.html import Html, join, tag
from bench.report.importance import Effects, main_effects
from bench.stored.groups import Group, hyperparameters, label_of, number
from bench.stored.results import Record
from bench.terminal.words import counted, in_order

_DISCRETE = 12  # different values from which those of a search are on a scale

_RESPONSE_TABLE = (
    Column("configuration", "configuration"),
    Column("alpha", "alpha"),
    Column("participation", "participation"),
    Column("accuracy", "validation accuracy, %", 100.0, 2),
    Column("n", "seeds"),
)
_IMPORTANCE_TABLE = (
    Column("name", "hyper-parameter"),
    Column("cell", "cell"),
    Column("share", "explained alone, %", 100.0, 1),
    Column("chance", "expected without any effect, %", 100.0, 1),
)


def tuning_section(groups: Sequence[Group], charts: Charts) -> Html:
    """Every algorithm with several configurations, group by group.

    Args:
        groups: of the page.
        charts: the page's; the new ones are added.
    """
    parts = [part for group in groups for part in _of_group(group, charts, len(groups))]
    if not parts:
        return tag("p", "Every algorithm was run with one configuration only: there is nothing to compare.")
    return join(*parts)


def _of_group(group: Group, charts: Charts, groups: int) -> Iterator[Html]:
    labels = sorted({label_of(record) for cell in group.cells for record in cell.records})
    for label in labels:
        cells = {cell.label: [r for r in cell.records if label_of(r) == label] for cell in group.cells}
        names = varied([record for records in cells.values() for record in records])
        if not names:
            continue
        usable = {name: [r for r in records if _usable(r)] for name, records in cells.items()}
        effects = {cell: found for cell, own in usable.items() if (found := _effects(own, names))}
        figures = [one for name in names if (one := _response(group, label, name, usable, charts))]
        figures += [_importance(group, label, effects, charts)] if effects else []
        heading = f"{label}, {group.name}" if groups > 1 else label
        if figures:
            grid = tag("div", *figures, class_="grid", style="--columns:3")
            yield join(tag("h3", heading), grid, _qualities(effects, usable), _remarks(cells, usable))


def varied(records: Sequence[Record]) -> list[str]:
    """The hyper-parameters that have several values."""
    values: dict[str, set[str]] = {}
    for record in records:
        for name, value in hyperparameters(record).items():
            values.setdefault(name, set()).add(repr(value))
    return [name for name, found in values.items() if len(found) > 1]


def _usable(record: Record) -> bool:
    return bool(record["n"]) and not record["diverged"] and record["best_val_accuracy_mean"] is not None


def _response(group: Group, label: str, name: str, cells: dict[str, list[Record]], charts: Charts) -> Html | None:
    records = [record for own in cells.values() for record in own]
    values = sorted({hyperparameters(record).get(name) for record in records}, key=in_order)
    if len(values) < 2:
        return None
    continuous = len(values) > _DISCRETE and all(_is_number(value) for value in values)
    rows = [
        {
            "value": value if continuous else number(value),
            "alpha": number(record["alpha"]),
            "participation": number(record["participation"]),
            "accuracy": record["best_val_accuracy_mean"],
            "configuration": text_of(record, varied(records)),
            "n": record["n"],
        }
        for record in records
        for value in [hyperparameters(record).get(name)]
    ]
    shown = values if continuous else [number(value) for value in values]
    spec = response(name, rows, group.alphas, group.participations, values=shown, continuous=continuous)
    what = f"Validation accuracy of {label} against {name}, {group.name}."
    return figure(name, charts.plot(spec, what, _RESPONSE_TABLE))


def _importance(group: Group, label: str, found: dict[str, Effects], charts: Charts) -> Html:
    rows: list[dict[str, Any]] = [
        {"name": one.name, "cell": cell, "share": one.share, "chance": one.chance}
        for cell, effects in found.items()
        for one in effects.each
    ]
    order = list(dict.fromkeys(row["name"] for row in sorted(rows, key=lambda row: -row["share"])))
    what = f"Importance of the hyper-parameters of {label}, {group.name}. {_in_words(rows)}"
    plot = charts.plot(importance(rows, order, list(found)), what, _IMPORTANCE_TABLE)
    return figure("importance: share of the spread explained alone", plot)


def _effects(records: Sequence[Record], names: Sequence[str]) -> Effects | None:
    scores = [record["best_val_accuracy_mean"] for record in records]
    return main_effects([hyperparameters(record) for record in records], scores, names)


def _qualities(found: dict[str, Effects], cells: dict[str, list[Record]]) -> Html | None:
    """What the shares are shares of, how much of that is chance, and what is left over."""
    if not found:
        return None
    head = ("cell", "spread of configurations, points", "of its variance, seeds alone give", "interactions explain")
    rows = [
        tag(
            "tr",
            tag("th", cell, scope="row"),
            *(tag("td", text, class_="number") for text in _quality(one, cells[cell])),
        )
        for cell, one in found.items()
    ]
    body = [tag("thead", tag("tr", *(tag("th", text, scope="col") for text in head))), tag("tbody", *rows)]
    table = tag("div", tag("table", *body), class_="scroll", tabindex=0, role="region", aria_label="What is explained")
    return tag("details", tag("summary", "How much there is to explain"), table, class_="data")


def _quality(effects: Effects, records: Sequence[Record]) -> Iterator[str]:
    yield f"{100 * effects.spread:.2f}"
    noise = [r["best_val_accuracy_std"] ** 2 / r["n"] for r in records if r["best_val_accuracy_std"] is not None]
    known = len(noise) == len(records)
    yield f"{100 * min(1.0, math.fsum(noise) / len(noise) / effects.spread**2):.0f} %" if known else "unknown: one seed"
    rest = max(0.0, 1 - math.fsum(one.share for one in effects.each))
    yield f"{100 * rest:.0f} %" if effects.complete else "unknown: combinations are missing, shares may overlap"


def _remarks(cells: dict[str, list[Record]], usable: dict[str, list[Record]]) -> Html | None:
    left = sum(len(records) - len(usable[name]) for name, records in cells.items())
    if not left:
        return None
    said = f"Left out: {counted(left, 'configuration')} without a finished run, or DIVERGED."
    return tag("p", said, class_="note")


def _in_words(rows: Sequence[dict[str, Any]]) -> str:
    return "; ".join(f"{row['cell']}: {row['name']} {100 * row['share']:.0f} %" for row in rows[:12])


def text_of(record: Record, names: Sequence[str]) -> str:
    """The values of `names`, as printed: `gamma=0.2 buffer=5`."""
    values = hyperparameters(record)
    return " ".join(f"{name}={number(values[name])}" for name in names if name in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
