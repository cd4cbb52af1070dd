"""The section of hyper-parameters: how accuracy answers to each, and how much each explains alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.charts.page import importance, response
from bench.report.charts import Charts, Column
from bench.stored.groups import Group, hyperparameters, label_of, number
from bench.stored.results import Record
from bench.terminal.words import in_order

Cells = Mapping[str, list[Record]]  # label of a cell -> records of one algorithm

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


def tuning_section(groups: Sequence[Group], charts: Charts) -> list[dict[str, Any]]:
    """Return every algorithm with several configurations: its `figures`, their `qualities`, how many are `left` out.

    `charts` get the new ones.
    """
    sections = []
    for group in groups:
        for label in sorted({label_of(record) for cell in group.cells for record in cell.records}):
            cells = {cell.label: [r for r in cell.records if label_of(r) == label] for cell in group.cells}
            names = varied([record for own in cells.values() for record in own])
            usable = {name: [r for r in own if _usable(r)] for name, own in cells.items()}
            effects = {}
            for cell, own in usable.items():
                scores = [record["best_val_accuracy_mean"] for record in own]
                if effect := main_effects([hyperparameters(record) for record in own], scores, names):
                    effects[cell] = effect
            figures = [one for name in names if (one := _response(group, label, name, usable, charts))]
            figures += [_importance(group, label, effects, charts)] if effects else []
            if figures:
                sections.append(
                    {
                        "heading": f"{label}, {group.name}" if len(groups) > 1 else label,
                        "figures": figures,
                        "qualities": [(cell, *_quality(one, usable[cell])) for cell, one in effects.items()],
                        "left": sum(map(len, cells.values())) - sum(map(len, usable.values())),
                    }
                )
    return sections


def varied(records: Sequence[Record]) -> list[str]:
    """Return the hyper-parameters that have several values."""
    values: dict[str, set[str]] = {}
    for record in records:
        for name, value in hyperparameters(record).items():
            values.setdefault(name, set()).add(repr(value))
    return [name for name, own in values.items() if len(own) > 1]


def text_of(record: Record, names: Sequence[str]) -> str:
    """Print the values of `names`: `gamma=0.2 buffer=5`."""
    values = hyperparameters(record)
    return " ".join(f"{name}={number(values[name])}" for name in names if name in values)


def _usable(record: Record) -> bool:
    return bool(record["n"]) and not record["diverged"] and record["best_val_accuracy_mean"] is not None


def _response(group: Group, label: str, name: str, cells: Cells, charts: Charts) -> dict[str, Any] | None:
    records = [record for own in cells.values() for record in own]
    values = sorted({hyperparameters(record).get(name) for record in records}, key=in_order)
    if len(values) < 2:
        return None
    continuous = len(values) > _DISCRETE and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )
    names = varied(records)
    rows = [
        {
            "value": value if continuous else number(value),
            "alpha": number(record["alpha"]),
            "participation": number(record["participation"]),
            "accuracy": record["best_val_accuracy_mean"],
            "configuration": text_of(record, names),
            "n": record["n"],
        }
        for record in records
        for value in [hyperparameters(record).get(name)]
    ]
    shown = values if continuous else [number(value) for value in values]
    spec = response(name, rows, group.alphas, group.participations, values=shown, continuous=continuous)
    what = f"Validation accuracy of {label} against {name}, {group.name}."
    return {"caption": name, "chart": charts.add(spec, what, _RESPONSE_TABLE)}


def _importance(group: Group, label: str, effects: Mapping[str, Effects], charts: Charts) -> dict[str, Any]:
    rows: list[dict[str, Any]] = [
        {"name": one.name, "cell": cell, "share": one.share, "chance": one.chance}
        for cell, own in effects.items()
        for one in own.each
    ]
    order = list(dict.fromkeys(row["name"] for row in sorted(rows, key=lambda row: -row["share"])))
    words = "; ".join(f"{row['cell']}: {row['name']} {100 * row['share']:.0f} %" for row in rows[:12])
    what = f"Importance of the hyper-parameters of {label}, {group.name}. {words}"
    chart = charts.add(importance(rows, order, list(effects)), what, _IMPORTANCE_TABLE)
    return {"caption": "importance: share of the spread explained alone", "chart": chart}


def _quality(effects: Effects, records: Sequence[Record]) -> Iterator[str]:
    """Print the spread between configurations, the share of it that is chance, and the share of interactions."""
    yield f"{100 * effects.spread:.2f}"
    noise = [r["best_val_accuracy_std"] ** 2 / r["n"] for r in records if r["best_val_accuracy_std"] is not None]
    several = len(noise) == len(records)
    yield (
        f"{100 * min(1.0, math.fsum(noise) / len(noise) / effects.spread**2):.0f} %" if several else "unknown: one seed"
    )
    rest = max(0.0, 1 - math.fsum(effect.share for effect in effects.each))
    yield f"{100 * rest:.0f} %" if effects.complete else "unknown: combinations are missing, shares may overlap"


@dataclass(frozen=True)
class Effect:
    """The main effect of one hyper-parameter."""

    name: str
    share: float  # of the variance between configurations, in [0, 1]
    chance: float  # the share expected of one without any effect


@dataclass(frozen=True)
class Effects:
    """The main effects of an algorithm's hyper-parameters.

    `complete`: every combination of the values occurs once; then what is left to 1 are interactions, else shares may
    overlap.
    """

    each: tuple[Effect, ...]  # by share, the largest first
    complete: bool
    spread: float  # standard deviation of the scores (n - 1), in their unit


def main_effects(
    configurations: Sequence[Mapping[str, Any]], scores: Sequence[float], names: Sequence[str]
) -> Effects | None:
    """Compute the share of variance that each hyper-parameter in `names` explains alone.

    With m the mean of all N scores y, one per configuration, and m_v the mean of those n_v whose hyper-parameter has
    the value v, share = Σ_v n_v (m_v - m)² / Σ_i (y_i - m)².

    On a complete grid it is the main effect of a functional ANOVA (Hutter, Hoos and Leyton-Brown 2014, "An efficient
    approach for assessing hyperparameter importance", section 3), taken over the grid as it is, without a model in
    between. Of a hyper-parameter with k values and no effect (k - 1) / (N - 1) is expected.

    Returns:
        None where there is nothing to explain or to tell apart: fewer than two names with several values, fewer
        than four configurations, equal scores, or a name whose values are nearly all different (those of a random
        search).
    """

    def between(column: Sequence[str]) -> float:
        by_value: dict[str, list[float]] = {}
        for value, score in zip(column, scores, strict=True):
            by_value.setdefault(value, []).append(score)
        return math.fsum(len(own) * (math.fsum(own) / len(own) - mean) ** 2 for own in by_value.values())

    columns = {name: [repr(one.get(name)) for one in configurations] for name in names}
    levels = {name: len(set(column)) for name, column in columns.items() if len(set(column)) > 1}
    size = len(scores)
    if len(levels) < 2 or size < 4 or max(levels.values()) > size / 2:
        return None
    mean = math.fsum(scores) / size
    total = math.fsum((score - mean) ** 2 for score in scores)
    if total <= 1e-24 * size * mean**2:
        return None
    each = [
        Effect(name, min(1.0, between(columns[name]) / total), (count - 1) / (size - 1))
        for name, count in levels.items()
    ]
    distinct = len(set(zip(*(columns[name] for name in levels), strict=True)))
    complete = size == distinct == math.prod(levels.values())
    return Effects(tuple(sorted(each, key=lambda one: -one.share)), complete, math.sqrt(total / (size - 1)))
