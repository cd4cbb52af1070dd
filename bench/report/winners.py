"""The section of winners: a field for each alpha and participation, and the standing over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.charts.page import winners
from bench.report.charts import Charts, Column
from bench.report.standings import SHOWN, values_of, winner
from bench.stored.groups import Group
from leaderboards.metrics import Metric
from leaderboards.stats.aggregate import pooled

Table = dict[str, Any]

_TABLE = (
    Column("metric", "metric"),
    Column("alpha", "alpha"),
    Column("participation", "participation"),
    Column("names", "best algorithm"),
    Column("numbers", "accuracy and margin over the second"),
    Column("verdict", "can it be told from chance"),
)


def winners_section(groups: Sequence[Group], labels: Sequence[str], charts: Charts) -> list[dict[str, Any]]:
    """Return `group`, `chart` and `tables` of each group. `labels`: every algorithm, in the order of the colours."""
    return [
        {
            "group": group,
            "chart": _map(group, labels, charts),
            "tables": [table for metric in SHOWN if (table := _pooled(group, metric))],
        }
        for group in groups
    ]


def _map(group: Group, labels: Sequence[str], charts: Charts) -> int:
    rows = []
    for metric in SHOWN:
        for cell in group.cells:
            best = winner(cell, metric)
            place = {"metric": metric.name, "alpha": cell.alpha_text, "participation": cell.participation_text}
            words = {"names": best.names, "numbers": best.numbers(metric), "verdict": best.verdict}
            rows.append({**place, "algorithm": best.algorithm, **words, "separable": best.separable})
    text = "; ".join(
        f"alpha {row['alpha']}, participation {row['participation']}: {row['names'] or 'none'} "
        f"{row['numbers']}, {row['verdict']}"
        for row in rows[: min(12, len(group.cells))]
    )
    spec = winners(rows, labels, group.alphas, group.participations, SHOWN[0].name)
    return charts.add(spec, f"Best algorithm of each cell, {group.name}. {text}", _TABLE)


def _pooled(group: Group, metric: Metric) -> Table | None:
    """Return the standing of the algorithms that were run in every cell: rank, share of cells won, mean."""
    cells = {(cell.alpha, cell.participation): values_of(cell, metric) for cell in group.cells}
    standing = pooled(
        {key: {name: own.values() for name, own in cell.items()} for key, cell in cells.items() if len(cell) > 1}
    )
    if len(standing.standings) < 2 or standing.cells < 2:
        return None
    lines = []
    for one in standing.standings:
        interval = one.interval
        limits = "–" if interval is None else f"{100 * interval.low:.2f} – {100 * interval.high:.2f}"
        iqm = f"{one.iqm * metric.scale:.{metric.decimals}f}"
        rates = (f"{one.average_rank:.2f}", f"{100 * one.win_rate:.0f} %")
        lines.append((one.algorithm, *rates, iqm, limits, str(one.n)))
    remarks = "; ".join(standing.remarks)
    return {
        "metric": metric.name,
        "caption": f"Over all {standing.cells} cells, {metric.of}",
        "head": ("algorithm", "mean rank", "cells won", f"interquartile mean, {metric.unit}", "95 % interval", "runs"),
        "lines": lines,
        "remarks": f"{remarks[0].upper()}{remarks[1:]}." if remarks else "",
    }
