"""Who is best in a cell, and who cannot be told from the best: ranks shared by what no test separates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.stored.groups import Cell, is_reference, label_of
from bench.terminal.words import counted
from leaderboards.metrics import METRICS, Metric
from leaderboards.stats.intervals import INTERVAL_FROM
from leaderboards.stats.paired import Ranked, Seeds, rankable, shared_ranks

# The three accuracies of the page: which round's model is meant. All are of the global model on the test set.
SHOWN = tuple(METRICS[name] for name in ("best_accuracy", "final_accuracy", "selected_accuracy"))


_FROM_ALL = "separable from all"
_ROUNDING = 1e-12  # of equal values, their means may differ by so much of them


@dataclass(frozen=True)
class Winner:
    """The best of a cell.

    Args:
        algorithm: its label; empty where nothing can be ranked.
        mean: over its seeds, as stored.
        margin: over the second, as stored; None where there is none.
        verdict: whether that can be told from chance, in a few words.
        separable: whether it is separable from all others.
        equal: labels of the others with the same mean.
    """

    algorithm: str
    mean: float | None
    margin: float | None
    verdict: str
    separable: bool = False
    equal: tuple[str, ...] = ()

    @property
    def names(self) -> str:
        """The best, and who is equal to it, as printed: `fedavg = fedprox`."""
        if len(self.equal) < 2:
            return " = ".join([self.algorithm, *self.equal])
        return f"{self.algorithm} = {len(self.equal)} others"


def values_of(cell: Cell, metric: Metric) -> dict[str, Seeds]:
    """Label -> seed -> value of every algorithm that is ranked: selected, not diverged, no reference row."""
    found: dict[str, Seeds] = {}
    for record in cell.selected:
        values = {seed: run[metric.name] for seed, run in record["run_of_seed"].items() if run[metric.name] is not None}
        if values and not record["diverged"] and not is_reference(record):
            found[label_of(record)] = values
    return found


def standings(cell: Cell, metric: Metric) -> Mapping[str, Ranked]:
    """Label -> place, the best first; without those that have too few seeds to be ranked beside the others."""
    return _places(values_of(cell, metric), metric)


def _places(values: Mapping[str, Seeds], metric: Metric) -> dict[str, Ranked]:
    ranked = {name: values[name] for name in rankable({name: len(seeds) for name, seeds in values.items()})}
    return {one.algorithm: one for one in shared_ranks(ranked, metric.higher_is_better)}


def winner(cell: Cell, metric: Metric) -> Winner:
    """The best algorithm of a cell and how sure that is."""
    values = values_of(cell, metric)
    ranked = list(_places(values, metric).values())
    if not ranked:
        return Winner("", None, None, "no finished run to rank")
    best = max(ranked, key=lambda one: one.mean) if metric.higher_is_better else min(ranked, key=lambda one: one.mean)
    others = [one for one in ranked if one is not best]
    left = len(values) - len(ranked)  # with too few seeds to be ranked
    if not others:
        verdict = f"not tested: {counted(left, 'other')} with fewer than 3 seeds" if left else "the only one here"
        return Winner(best.algorithm, best.mean, None, verdict)
    margin = min(abs(best.mean - one.mean) for one in others)
    equal = tuple(one.algorithm for one in others if math.isclose(one.mean, best.mean, rel_tol=_ROUNDING))
    verdict = _verdict(best, others, left)
    return Winner(best.algorithm, best.mean, margin, verdict, verdict == _FROM_ALL, equal)


def _verdict(best: Ranked, others: Sequence[Ranked], left: int) -> str:
    """Whether the best of a cell can be told from the others, `left` of them not ranked."""
    sharing = [one.algorithm for one in others if one.rank == best.rank]
    untested = [one.algorithm for one in others if one.untested]
    if len(untested) == len(others):
        fewest = min(one.n for one in (best, *others))
        return f"not tested: {counted(fewest, 'seed') if fewest < INTERVAL_FROM else 'no three seeds in common'}"
    if sharing:
        return f"not separable from {sharing[0] if len(sharing) == 1 else f'{len(sharing)} others'}"
    unknown = len(untested) + left
    return f"separable; {unknown} not tested" if unknown else _FROM_ALL
