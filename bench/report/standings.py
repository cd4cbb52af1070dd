"""The best algorithms of cells, ranks shared by those that no test tells apart, and the section of winners."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.charts.page import winners
from bench.report.charts import Charts, Column
from bench.stored.groups import Cell, Group, values_of
from bench.terminal.words import counted
from leaderboards.metrics import METRICS, Metric
from leaderboards.stats.aggregate import pooled
from leaderboards.stats.intervals import INTERVAL_FROM
from leaderboards.stats.paired import Ranked, rankable, shared_ranks

# The three accuracies of the page: which round's model is meant. All are of the global model on the test set.
SHOWN = tuple(METRICS[name] for name in ("best_accuracy", "final_accuracy", "selected_accuracy"))
_TABLE = (
    Column("metric", "metric"),
    Column("alpha", "alpha"),
    Column("participation", "participation"),
    Column("names", "best algorithm"),
    Column("numbers", "accuracy and margin over the second"),
    Column("verdict", "can it be told from chance"),
)
_FROM_ALL = "separable from all"
_ROUNDING = 1e-12  # relative difference of means of equal values


@dataclass(frozen=True)
class Winner:
    """The best of a cell."""

    algorithm: str  # its label; empty if nothing can be ranked
    mean: float | None
    margin: float | None  # over the second, as stored; None if there is none
    verdict: str  # whether that can be told from chance, in a few words
    separable: bool = False
    equal: tuple[str, ...] = ()

    @property
    def names(self) -> str:
        """The best, and its equals, as printed: `fedavg = fedprox`."""
        if len(self.equal) < 2:
            return " = ".join([self.algorithm, *self.equal])
        return f"{self.algorithm} = {len(self.equal)} others"

    def numbers(self, metric: Metric) -> str:
        """Print mean and margin over the second: `88.58 %, +0.19 points`."""
        if self.mean is None:
            return ""
        text = f"{self.mean * metric.scale:.{metric.decimals}f} %"
        if self.margin is None:
            return text
        if self.equal:
            return f"{text}, equal means"
        margin, least = self.margin * metric.scale, 10.0**-metric.decimals
        more = f"under {least:g} points" if margin < least / 2 else f"{margin:+.{metric.decimals}f} points"
        return f"{text}, {more}"


def standings(cell: Cell, metric: Metric) -> Mapping[str, Ranked]:
    """Return label -> place, the best first; without those that have too few seeds to be ranked beside the others."""
    values = values_of(cell, metric)
    ranked = {name: values[name] for name in rankable({name: len(seeds) for name, seeds in values.items()})}
    return {one.algorithm: one for one in shared_ranks(ranked, metric.higher_is_better)}


def winner(cell: Cell, metric: Metric) -> Winner:
    """Return the best algorithm of a cell and how sure that is."""
    ranked = list(standings(cell, metric).values())
    if not ranked:
        return Winner("", None, None, "no finished run to rank")
    best = max(ranked, key=lambda one: one.mean) if metric.higher_is_better else min(ranked, key=lambda one: one.mean)
    others = [one for one in ranked if one is not best]
    left = len(values_of(cell, metric)) - len(ranked)  # with too few seeds to be ranked
    if not others:
        verdict = f"not tested: {counted(left, 'other')} with fewer than 3 seeds" if left else "the only one here"
        return Winner(best.algorithm, best.mean, None, verdict)
    margin = min(abs(best.mean - one.mean) for one in others)
    equal = tuple(one.algorithm for one in others if math.isclose(one.mean, best.mean, rel_tol=_ROUNDING))
    verdict = _verdict(best, others, left)
    return Winner(best.algorithm, best.mean, margin, verdict, verdict == _FROM_ALL, equal)


def _verdict(best: Ranked, others: Sequence[Ranked], left: int) -> str:
    """Say whether the best can be told from the others; `left` algorithms are not ranked."""
    sharing = [one.algorithm for one in others if one.rank == best.rank]
    untested = [one.algorithm for one in others if one.untested]
    if len(untested) == len(others):
        fewest = min(one.n for one in (best, *others))
        return f"not tested: {counted(fewest, 'seed') if fewest < INTERVAL_FROM else 'no three seeds in common'}"
    if sharing:
        return f"not separable from {sharing[0] if len(sharing) == 1 else f'{len(sharing)} others'}"
    unknown = len(untested) + left
    return f"separable; {unknown} not tested" if unknown else _FROM_ALL


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


def _pooled(group: Group, metric: Metric) -> dict[str, Any] | None:
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
