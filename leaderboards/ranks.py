"""Ranks in one cell, shared by what cannot be told apart."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from leaderboards.intervals import INTERVAL_FROM, finite
from leaderboards.pairs import Comparison, Seeds, compared

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Ranked:
    """An algorithm's place.

    Args:
        algorithm: its name.
        rank: from 1, the best; shared.
        mean: over all its seeds, in the unit of the values.
        n: its seeds.
        untested: whether the place rests on the plain order of means, in part at least.
    """

    algorithm: str
    rank: int
    mean: float
    n: int
    untested: bool = False


def rankable(seeds: Mapping[K, int]) -> set[K]:
    """Those of a cell that take part in ranks: with 3 seeds, where any has so many, else all.

    What one lucky seed reached, or two, no test can hold against three.

    Args:
        seeds: how many each has.
    """
    enough = {name for name, count in seeds.items() if count >= INTERVAL_FROM}
    return enough or set(seeds)


def shared_ranks(values: Mapping[str, Seeds], higher_is_better: bool = True) -> tuple[Ranked, ...]:
    """The algorithms of a cell in groups, each of its best and what is not separable from that best.

    The best mean opens the first group. All others are compared with it by the paired t test, corrected by Holm as
    one family; those that are not separably worse share its rank. The best of the rest opens the next group, with a
    family of its own; its rank is 1 + the number of algorithms placed before.

    *Not transitive*: C may share rank 1 for its wide spread although B, of better mean and narrow spread, is
    separable and comes after it. What the ranks say is only "cannot be told from the best of its group".

    *Fewer than 3 common seeds* with the best of the group separate nothing; such an algorithm keeps its place in the
    plain order of means, sharing a rank only if its mean is no worse than that of every other in the group, and is
    marked `untested`, as is a best none of whose comparisons was a test. Where all have one or two seeds, ranks are
    those of the means, equal means sharing the smaller one, and all are marked.

    *Unlike seeds*: means are over all seeds of each, tests over the common ones. Where the two disagree about which
    of a pair is better, it is not separably worse.

    The best is chosen by the same values that it is compared with, for which Holm's correction does not allow:
    with few seeds read a separation as this order of evidence, not as an exact 5 %.

    Args:
        values: algorithm -> seed -> value, finite, of one cell; bounds (centralized) and diverged runs left out by
            the caller.
        higher_is_better: whether the largest mean is the best.

    Returns:
        By rank, within a rank by mean, then by name.

    Raises:
        ValueError: a value is not finite, or an algorithm has none.
    """
    means = {name: _mean(name, seeds) for name, seeds in values.items()}
    sign = 1 if higher_is_better else -1
    order = sorted(means, key=lambda name: (-sign * means[name], name))
    untested: set[str] = set()
    ranked: list[Ranked] = []
    while order:
        best, rest = order[0], order[1:]
        family = {one.algorithm: one for one in compared({name: values[name] for name in order}, best)}
        untested |= _not_tested(best, family)
        group = [best, *_sharing(best, rest, family, means, sign)]
        rank = len(ranked) + 1
        for name in group:
            ranked.append(Ranked(name, rank, means[name], len(values[name]), name in untested))
        order = [name for name in rest if name not in group]
    return tuple(ranked)


def _mean(algorithm: str, seeds: Seeds) -> float:
    if not seeds:
        raise ValueError(f"{algorithm!r} has no values; leave it out")
    return math.fsum(finite(seeds.values())) / len(seeds)


def _not_tested(best: str, family: Mapping[str, Comparison]) -> set[str]:
    """Those of a family whose comparison is not a test; the best too if none is."""
    without = {name for name, one in family.items() if one.p is None}
    return without | {best} if without and len(without) == len(family) else without


def _sharing(
    best: str, rest: Sequence[str], family: Mapping[str, Comparison], means: Mapping[str, float], sign: int
) -> list[str]:
    """Those that share the rank of the best, in the order of `rest`."""
    together = {name for name in rest if family[name].p is not None and not _worse(family[name], sign)}
    lowest = min(sign * means[name] for name in (best, *together))
    return [name for name in rest if name in together or (family[name].p is None and sign * means[name] >= lowest)]


def _worse(comparison: Comparison, sign: int) -> bool:
    """Whether the algorithm is separably worse than the reference, on the seeds of both."""
    return comparison.separable and sign * (comparison.difference or 0.0) < 0
