"""The statistics of a leaderboard, pure functions of values by seed and cell, with their sources.

| asked | answered by |
|---|---|
| how sure is a mean over seeds | `interval`; `intervals`, `grouped_intervals` for many at once |
| does an algorithm differ from a reference on the same seeds | `compared`; `paired`, then `corrected` over a family |
| who is best in a cell, and who cannot be told from the best | `shared_ranks`; `plain_ranks` for what has no spread |
| who is best over all cells | `pooled`: interquartile mean, average rank, win rate |
| how often one beats another, over all cells | `improvement` |

Rules for all of them: values are finite (a run without one, or a diverged one, is left out by the caller, and what
that leaves incomplete is named in the result); below 3 seeds nothing is said about spread, None instead; chance is
fixed, so the same values give the same result in any order; the level is 95 %.
"""

from __future__ import annotations

from leaderboards.improvement import Improvement, improvement
from leaderboards.intervals import (
    BOOTSTRAP_FROM,
    CONFIDENCE,
    INTERVAL_FROM,
    RESAMPLES,
    Interval,
    grouped_intervals,
    interval,
    intervals,
)
from leaderboards.pairs import SIGNIFICANCE, Comparison, Seeds, compared, corrected, holm, paired
from leaderboards.pooled import (
    CellScores,
    LeftOut,
    Pooled,
    Standing,
    average_ranks,
    iqm,
    iqm_interval,
    pooled,
    win_rates,
)
from leaderboards.ranks import Ranked, plain_ranks, rankable, shared_ranks

__all__ = [
    "BOOTSTRAP_FROM",
    "CONFIDENCE",
    "INTERVAL_FROM",
    "RESAMPLES",
    "SIGNIFICANCE",
    "CellScores",
    "Comparison",
    "Improvement",
    "Interval",
    "LeftOut",
    "Pooled",
    "Ranked",
    "Seeds",
    "Standing",
    "average_ranks",
    "compared",
    "corrected",
    "grouped_intervals",
    "holm",
    "improvement",
    "interval",
    "intervals",
    "iqm",
    "iqm_interval",
    "paired",
    "plain_ranks",
    "pooled",
    "rankable",
    "shared_ranks",
    "win_rates",
]
