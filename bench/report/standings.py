"""The section of winners: the best algorithm of each cell, and ranks and scores over all cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.charts.theme import Spec, colour, whole
from bench.report.charts import ChartColumn, Charts
from bench.stored.groups import Group
from bench.stored.groups import number as value_text
from bench.terminal.words import counted
from leaderboards.numbers import Number
from leaderboards.stats.seeds import INTERVAL_FROM
from leaderboards.tables import ResultTable, Sheet, TableCell
from leaderboards.tables.captions import differ_in_seeds
from leaderboards.tables.model import number_text
from leaderboards.tables.over_cells import over_cells, usual_baseline

_TABLE = (
    ChartColumn("metric", "metric"),
    ChartColumn("alpha", "alpha"),
    ChartColumn("participation", "participation"),
    ChartColumn("algorithm", "best algorithm"),
    ChartColumn("numbers", "accuracy and margin over the second"),
    ChartColumn("verdict", "can it be told from chance"),
)
_FROM_ALL = "all others excluded"
_CELL = {"width": 188, "height": 78}  # pixels


def winners_section(
    groups: Sequence[Group],
    tables: Mapping[str, ResultTable],
    metrics: Sequence[Number],
    labels: Sequence[str],
    charts: Charts,
) -> list[dict[str, Any]]:
    """Return `group`, `chart` and `sheets` of each group.

    Args:
        groups: of the page.
        tables: key of a group -> its table, with columns for all of `metrics`.
        metrics: the accuracies of the page, the primary one first.
        labels: every algorithm, in the order of the colours.
        charts: to which new ones are added.
    """
    sections = []
    for group in groups:
        table = tables[group.key]
        sheets = []
        for metric in metrics:
            sheet = over_cells([table], metric, usual_baseline([table]))
            if sheet is not None:
                sheets.append({"metric": metric.name, **lines_of(sheet)})
        chart = _add_map(group, table, metrics, labels, charts)
        sections.append({"group": group, "chart": chart, "sheets": sheets})
    return sections


def lines_of(sheet: Sheet) -> dict[str, Any]:
    """Return a table of text for the page's template: `caption`, `head`, `lines` and `notes`."""
    table = sheet.table
    lines = []
    for row in table.rows:
        lines.append([row.label, *(cell.text() for cell in row.cells)])
    return {
        "caption": f"{table.title}. {table.captions[0]}",
        "head": ["algorithm", *(head.title for head in table.heads)],
        "lines": lines,
        "notes": table.notes,
    }


def _add_map(
    group: Group,
    table: ResultTable,
    metrics: Sequence[Number],
    labels: Sequence[str],
    charts: Charts,
) -> int:
    rows = []
    for metric in metrics:
        for column, head in table.results_of(metric):
            values = map(value_text, head.place)
            place = {"metric": metric.name, **dict(zip(group.by, values, strict=True))}
            rows.append(place | _winner(table, column, metric))
    text = "; ".join(
        f"alpha {row['alpha']}, participation {row['participation']}: {row['algorithm'] or 'none'} "
        f"{row['numbers']}, {row['verdict']}"
        for row in rows[: min(12, len(group.cells))]
    )
    spec = _map_spec(rows, labels, group, metrics[0])
    return charts.add(spec, f"Best algorithm of each cell, {group.name}. {text}", _TABLE)


def _winner(table: ResultTable, column: int, metric: Number) -> dict[str, Any]:
    """Return a cell's best `algorithm`, its `numbers`, the `verdict`, and if it is `separable`.

    The algorithm is empty if none is ranked.
    """
    ranked = {}
    means = {}
    for row in table.rows:
        cell = row.cells[column]
        mean = cell.statistic("mean")
        if cell.competes and cell.rank is not None and mean is not None:
            ranked[row.label] = cell
            means[row.label] = mean
    if not ranked:
        verdict = "no finished run to rank"
        return {"algorithm": "", "numbers": "", "verdict": verdict, "separable": False}
    order = sorted(ranked, key=lambda label: (ranked[label].rank, label))
    best = order[0]
    numbers = f"{number_text(means[best], metric)} %"
    if len(order) > 1:
        margin = means[best] - means[order[1]]
        if margin > 0:
            numbers += f", {number_text(margin, metric, sign=True)} points"
        else:
            numbers += f", as {order[1]}"
    verdict = _verdict([ranked[label] for label in order])
    seeds = ""
    if differ_in_seeds([ranked[label] for label in order[:2]]):
        seeds = "; other seeds"
    return {
        "algorithm": best,
        "numbers": numbers,
        "verdict": verdict + seeds,
        "separable": verdict == _FROM_ALL,
    }


def _verdict(ranked: Sequence[TableCell]) -> str:
    """Say how many of the others a test excludes from being best; `ranked` begins with the best."""
    others = ranked[1:]
    if not others:
        return "the only one here"
    fewest = min(cell.n for cell in ranked)
    if fewest < INTERVAL_FROM:
        return f"not tested: {counted(fewest, 'seed')}"
    excluded = sum(cell.excluded for cell in others)
    if excluded == len(others):
        return _FROM_ALL
    return f"{excluded} of {len(others)} others excluded"


def _map_spec(
    rows: Sequence[Mapping[str, Any]], labels: Sequence[str], group: Group, first: Number
) -> Spec:
    """Draw a field for every cell; its edge is solid if all others are excluded from being best.

    The page shows the `rows` of the metric that the reader chooses, `first` to begin with.
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
        params=[{"name": "metric", "value": first.name}],
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
