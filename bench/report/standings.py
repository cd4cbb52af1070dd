"""The section of winners: the best algorithm of each cell, and ranks, shared by algorithms that no test separates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.charts.theme import Spec, colour, whole
from bench.report.charts import Charts, Column
from bench.stored.groups import Group, on_clients, scores_by_place, values_of
from bench.stored.groups import number as value_text
from bench.stored.results import Record
from bench.terminal.words import counted
from leaderboards.numbers import NUMBERS, Number
from leaderboards.problems import Cell
from leaderboards.stats.aggregate import pooled
from leaderboards.stats.seeds import INTERVAL_FROM, Ranked, compared, rankable, shared_ranks
from leaderboards.tables.model import number

# The accuracies that the page may show, of models of different rounds.
_ON_TEST_SET = ("best_accuracy", "final_accuracy", "selected_accuracy")
_ON_CLIENTS = ("selected_client_accuracy", "amp", "best_client_accuracy")
_TABLE = (
    Column("metric", "metric"),
    Column("alpha", "alpha"),
    Column("participation", "participation"),
    Column("algorithm", "best algorithm"),
    Column("numbers", "accuracy and margin over the second"),
    Column("verdict", "can it be told from chance"),
)
_FROM_ALL = "separable from all"
_CELL = {"width": 188, "height": 78}  # pixels


def shown(records: Sequence[Record]) -> tuple[Number, ...]:
    """Return the accuracies that a page of these records offers; it begins with the first."""
    names = list(_ON_TEST_SET)
    if any(record["amp_mean"] is not None for record in records):
        names = [*_ON_CLIENTS, *names] if on_clients(records) else [*names, *_ON_CLIENTS]
    return tuple(NUMBERS[name] for name in names)


def standings(cell: Cell, metric: Number) -> Mapping[str, Ranked]:
    """Return label -> place, the best first, without algorithms of too few seeds to be ranked beside the others."""
    values = values_of(cell, metric)
    ranked = {
        name: values[name]
        for name in rankable({name: len(seeds) for name, seeds in values.items()})
    }
    return {entry.algorithm: entry for entry in shared_ranks(ranked, metric.higher_is_better)}


def _winner(cell: Cell, metric: Number) -> dict[str, Any]:
    """Return a cell's best `algorithm` (empty if none is ranked), its `numbers`, the `verdict`, and if `separable`."""
    ranked = list(standings(cell, metric).values())
    if not ranked:
        return {
            "algorithm": "",
            "numbers": "",
            "verdict": "no finished run to rank",
            "separable": False,
        }
    best = max(ranked, key=lambda entry: entry.mean)
    others = [entry for entry in ranked if entry is not best]
    numbers = f"{number(best.mean, metric)} %"
    if others:
        second = max(others, key=lambda entry: entry.mean)
        margin = f"{number(best.mean - second.mean, metric, sign=True)} points"
        numbers += f", {margin if best.mean > second.mean else f'as {second.algorithm}'}"
    verdict = _verdict(cell, metric, best, others)
    return {
        "algorithm": best.algorithm,
        "numbers": numbers,
        "verdict": verdict,
        "separable": verdict == _FROM_ALL,
    }


def _verdict(cell: Cell, metric: Number, best: Ranked, others: Sequence[Ranked]) -> str:
    """Say whether the best can be told from the others; further algorithms have too few seeds to be ranked."""
    values = values_of(cell, metric)
    unranked = len(values) - 1 - len(others)
    if not others:
        return (
            f"not tested: {counted(unranked, 'other')} with fewer than 3 seeds"
            if unranked
            else "the only one here"
        )
    sharing = [entry.algorithm for entry in others if entry.rank == best.rank]
    tests = compared(
        {entry.algorithm: values[entry.algorithm] for entry in (best, *others)}, best.algorithm
    )
    untested = [test.algorithm for test in tests if test.p is None]
    if len(untested) == len(others):
        fewest = min(entry.n for entry in (best, *others))
        return f"not tested: {counted(fewest, 'seed') if fewest < INTERVAL_FROM else 'no three seeds in common'}"
    if sharing:
        return f"not separable from {sharing[0] if len(sharing) == 1 else f'{len(sharing)} others'}"
    not_tested = len(untested) + unranked
    return f"separable; {not_tested} not tested" if not_tested else _FROM_ALL


def winners_section(
    groups: Sequence[Group], metrics: Sequence[Number], labels: Sequence[str], charts: Charts
) -> list[dict[str, Any]]:
    """Return `group`, `chart` and `tables` of each group.

    `metrics`: as `shown` returns them. `labels`: every algorithm, in the order of the colours.
    """
    return [
        {
            "group": group,
            "chart": _add_map(group, metrics, labels, charts),
            "tables": [table for metric in metrics if (table := _pooled(group, metric))],
        }
        for group in groups
    ]


def _add_map(group: Group, metrics: Sequence[Number], labels: Sequence[str], charts: Charts) -> int:
    rows = []
    for metric in metrics:
        for cell in group.cells:
            place = {
                "metric": metric.name,
                **dict(zip(group.by, map(value_text, cell.place), strict=True)),
            }
            rows.append(place | _winner(cell, metric))
    text = "; ".join(
        f"alpha {row['alpha']}, participation {row['participation']}: {row['algorithm'] or 'none'} "
        f"{row['numbers']}, {row['verdict']}"
        for row in rows[: min(12, len(group.cells))]
    )
    return charts.add(
        _spec(rows, labels, group), f"Best algorithm of each cell, {group.name}. {text}", _TABLE
    )


def _pooled(group: Group, metric: Number) -> dict[str, Any] | None:
    """Return the standings of the algorithms that were run in every cell: rank, share of cells won, mean."""
    standing = pooled(scores_by_place(group.cells, metric))
    if len(standing.standings) < 2 or standing.cells < 2:
        return None
    lines = []
    for entry in standing.standings:
        ends = (entry.interval.low, entry.interval.high) if entry.interval else ()
        interval = " – ".join(number(end, metric) for end in ends) or "–"
        rates = (f"{entry.average_rank:.2f}", f"{100 * entry.win_rate:.0f} %")
        lines.append((entry.algorithm, *rates, number(entry.iqm, metric), interval, str(entry.n)))
    remarks = "; ".join(standing.remarks)
    return {
        "metric": metric.name,
        "caption": f"Over all {standing.cells} cells, {metric.of}",
        "head": (
            "algorithm",
            "mean rank",
            "cells won",
            f"interquartile mean, {metric.unit.shown}",
            "95 % interval",
            "runs",
        ),
        "lines": lines,
        "remarks": f"{remarks[0].upper()}{remarks[1:]}." if remarks else "",
    }


def _spec(rows: Sequence[Mapping[str, Any]], labels: Sequence[str], group: Group) -> Spec:
    """Draw a field for every cell; its edge is solid if the winner is separable from all others, else dashed.

    The page shows the `rows` of the metric that the reader chooses, the first one to begin with.
    Alphas are from left to right, participations from top to bottom.
    """
    band = {
        "type": "ordinal",
        "axis": {"domain": False, "ticks": False, "labelAngle": 0, "grid": False},
    }
    space = {"paddingInner": 0.08, "paddingOuter": 0.04}
    shade = colour(labels, field="algorithm")
    edge = {"strokeWidth": 2, "strokeDash": {"expr": "datum.separable ? [1, 0] : [5, 4]"}}
    words: dict[str, Spec] = {
        "algorithm": {"dy": -19, "fontWeight": 700, "fontSize": 14},
        "numbers": {"dy": 2, "fontSize": 12},
        "verdict": {"dy": 20, "fontSize": 11, "fontStyle": "italic"},
    }
    text = {"type": "text", "limit": _CELL["width"] - 16}
    return whole(
        rows,
        autosize={"type": "pad"},
        width={"step": _CELL["width"]},
        height={"step": _CELL["height"]},
        params=[{"name": "metric", "value": rows[0]["metric"]}],
        transform=[{"filter": "datum.metric === metric"}],
        encoding={
            "x": {
                "field": "alpha",
                "scale": {"domain": group.alphas, **space},
                "title": "alpha, from skewed to even",
                **band,
            },
            "y": {
                "field": "participation",
                "scale": {"domain": group.participations, **space},
                "title": "participation",
                **band,
            },
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
            *(
                {"mark": {**text, **look}, "encoding": {"text": {"field": name}}}
                for name, look in words.items()
            ),
        ],
    )
