"""The section of winners: a field for each alpha and participation, and the standing over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.charts import winners
from bench.report.embed import Charts, Column, figure
from bench.report.html import Html, join, tag
from bench.report.standings import SHOWN, Winner, values_of, winner
from bench.stored.groups import Cell, Group
from leaderboards.metrics import Metric
from leaderboards.stats.aggregate import Pooled, pooled

_TABLE = (
    Column("metric", "metric"),
    Column("alpha", "alpha"),
    Column("participation", "participation"),
    Column("names", "best algorithm"),
    Column("numbers", "accuracy and margin over the second"),
    Column("verdict", "can it be told from chance"),
)


def winners_section(groups: Sequence[Group], labels: Sequence[str], charts: Charts) -> Html:
    """The maps of all groups.

    Args:
        groups: of the page.
        labels: every algorithm, in the order of the colours.
        charts: the page's; the new ones are added.
    """
    return join(*(_of_group(group, labels, charts, len(groups)) for group in groups))


def _of_group(group: Group, labels: Sequence[str], charts: Charts, groups: int) -> Html:
    rows = list(_rows(group))
    found = [row for row in rows if row["metric"] == SHOWN[0].name]
    words = "; ".join(
        f"alpha {row['alpha']}, participation {row['participation']}: {row['names'] or 'none'} "
        f"{row['numbers']}, {row['verdict']}"
        for row in found[:12]
    )
    spec = winners(rows, labels, group.alphas, group.participations, SHOWN[0].name)
    what, height = f"Best algorithm of each cell, {group.name}. {words}", f"--rows:{len(group.participations)}"
    map_ = charts.plot(spec, what, _TABLE, class_="wide", style=height)
    tables = [_pooled(group, metric) for metric in SHOWN] if len(group.cells) > 1 else []
    return join(
        tag("h3", group.name) if groups > 1 else None, figure(tag("span", group.title, class_="note"), map_), *tables
    )


def _rows(group: Group) -> Iterator[dict[str, Any]]:
    for metric in SHOWN:
        for cell in group.cells:
            best = winner(cell, metric)
            yield {
                "metric": metric.name,
                "alpha": cell.alpha_text,
                "participation": cell.participation_text,
                "algorithm": best.algorithm,
                "names": best.names,
                "numbers": _numbers(best, metric),
                "verdict": best.verdict,
                "separable": best.separable,
            }


def _numbers(best: Winner, metric: Metric) -> str:
    """`88.58 %, +0.19 points`, the margin over the second."""
    if best.mean is None:
        return ""
    text = f"{best.mean * metric.scale:.{metric.decimals}f} %"
    if best.margin is None:
        return text
    if best.equal:
        return f"{text}, equal means"
    margin, least = best.margin * metric.scale, 10.0**-metric.decimals
    return f"{text}, under {least:g} points" if margin < least / 2 else f"{text}, {margin:+.{metric.decimals}f} points"


def _pooled(group: Group, metric: Metric) -> Html | None:
    """Average rank, share of cells won and interquartile mean of those that were run in every cell."""
    cells = {_key(cell): values_of(cell, metric) for cell in group.cells}
    found = pooled(
        {key: {name: own.values() for name, own in cell.items()} for key, cell in cells.items() if len(cell) > 1}
    )
    if len(found.standings) < 2 or found.cells < 2:
        return None
    head = ("algorithm", "mean rank", "cells won", f"interquartile mean, {metric.unit}", "95 % interval", "runs")
    body = [tag("tr", *(tag("td", text) for text in line)) for line in _lines(found, metric)]
    table = tag(
        "table",
        tag("caption", f"Over all {found.cells} cells, {metric.of}"),
        tag("thead", tag("tr", *(tag("th", text, scope="col") for text in head))),
        tag("tbody", *body),
    )
    return join(
        tag(
            "div", table, class_=f"scroll metric {metric.name}", tabindex=0, role="region", aria_label="Over all cells"
        ),
        _remarks(found, metric),
    )


def _lines(found: Pooled, metric: Metric) -> Iterator[tuple[str, ...]]:
    for one in found.standings:
        interval = one.interval
        limits = "–" if interval is None else f"{100 * interval.low:.2f} – {100 * interval.high:.2f}"
        iqm = f"{one.iqm * metric.scale:.{metric.decimals}f}"
        yield one.algorithm, f"{one.average_rank:.2f}", f"{100 * one.win_rate:.0f} %", iqm, limits, str(one.n)


def _remarks(found: Pooled, metric: Metric) -> Html | None:
    if not found.remarks:
        return None
    text = "; ".join(found.remarks)
    return tag("p", f"{text[0].upper()}{text[1:]}.", class_=f"note metric {metric.name}")


def _key(cell: Cell) -> tuple[float | None, float]:
    return cell.alpha, cell.participation
