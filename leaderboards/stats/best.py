"""Which algorithms of a cell can be the best one: comparisons with the best (Hsu 1984)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from leaderboards.stats.seeds import (
    INTERVAL_FROM,
    SIGNIFICANCE,
    Interval,
    Seeds,
    finite,
    rounding_of,
)


@dataclass(frozen=True)
class FromBest:
    """An algorithm's distance from the best of the other algorithms.

    Args:
        algorithm: its name.
        difference: its mean minus the best mean of the others, each over all of its seeds, in the
            unit of the values; 0 if there are no others.
        interval: of the true difference; the intervals of all algorithms of the cell hold at once
            with 95 %. None if too few common seeds bound it.
        excluded: whether it is excluded from being the best: another one is better, at 5 % over
            the whole cell.
    """

    algorithm: str
    difference: float
    interval: Interval | None
    excluded: bool


def from_best(values: Mapping[str, Seeds], higher_is_better: bool = True) -> tuple[FromBest, ...]:
    """Compare each algorithm of a cell with the best of the others, by simultaneous intervals.

    With d_ij the mean difference of i from j on the n_ij seeds that both have, s_ij the standard
    deviation of these differences, k algorithms, and t the 1 - 0.05 / (k - 1) quantile of Student's
    t with n_ij - 1 degrees of freedom, let

        w_ij = t s_ij / √n_ij,
        upper_i = max(0, min_{j≠i} (d_ij + w_ij)),
        lower_i = min(0, min_{j∈G, j≠i} (d_ij - w_ij)),  G = {i : min_{j≠i} (d_ij + w_ij) ≥ 0}.

    The interval of i's difference from the best of the others is [lower_i, upper_i], with lower_i
    = max(0, min_{j≠i} (d_ij - w_ij)) if G is i alone (Hsu 1984, "Constrained simultaneous
    confidence intervals for multiple comparisons with the best"). What is not in G is excluded from
    being the best. All intervals hold together if the k - 1 comparisons of the truly best one do,
    which Bonferroni's inequality grants with 95 %, however the comparisons depend on each other and
    whatever mean looks best.

    Fewer than 3 common seeds bound nothing (w_ij is infinite). Neither does a constant difference
    (s_ij = 0), unless n_ij equal signs alone would be rare enough: 2^-n_ij ≤ 0.05 / (k - 1).

    Args:
        values: algorithm -> seed -> value, finite, at least one each, of one cell; bounds
            (centralized) and diverged runs left out by the caller.
        higher_is_better: whether the largest mean is the best.

    Returns:
        One for each algorithm, in the order of `values`.

    Raises:
        ValueError: a value is not finite.
    """
    oriented = np.positive if higher_is_better else np.negative
    names = list(values)
    if len(names) < 2:
        return tuple(FromBest(name, 0.0, None, False) for name in names)
    table = oriented(_by_seed(values))
    differences, widths = _pairs(table)
    np.fill_diagonal(differences, np.inf)  # no algorithm is compared with itself
    np.fill_diagonal(widths, 0.0)
    highest = (differences + widths).min(axis=1)
    candidates = highest >= 0
    if not candidates.any():  # a circle, of algorithms with other seeds in common
        candidates[:] = True
    lowest = differences - widths
    means = np.nanmean(table, axis=1)
    results = []
    for place, name in enumerate(names):
        rivals = np.delete(candidates, place)
        own = np.delete(lowest[place], place)
        low = max(0.0, own.min())
        if rivals.any():
            low = own[rivals].min()  # below 0: a rival that is worse for sure is none
        high = max(0.0, highest[place])
        interval = None
        if math.isfinite(low) and math.isfinite(high):
            ends = sorted((oriented(low), oriented(high)))
            interval = Interval(float(ends[0]), float(ends[1]))
        others = np.delete(means, place)
        difference = float(oriented(means[place] - others.max()))
        excluded = not candidates[place]
        results.append(FromBest(name, difference, interval, excluded))
    return tuple(results)


def _by_seed(values: Mapping[str, Seeds]) -> np.ndarray:
    """Return the values, (algorithms, seeds), NaN where an algorithm lacks a seed."""
    seeds = sorted(set[int]().union(*values.values()))
    columns = {seed: column for column, seed in enumerate(seeds)}
    table = np.full((len(values), len(seeds)), np.nan)
    for row, own in enumerate(values.values()):
        own_columns = [columns[seed] for seed in own]
        table[row, own_columns] = finite(own.values())
    return table


def _pairs(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean differences and half-widths of their limits, both (algorithms, algorithms).

    Half-widths are infinite where two algorithms have fewer than 3 common seeds, which tells
    nothing.
    """
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    share = SIGNIFICANCE / (len(table) - 1)
    differences = table[:, None, :] - table[None, :, :]
    common = np.isfinite(differences)
    counts = common.sum(axis=2)
    enough = counts >= INTERVAL_FROM
    degrees = np.maximum(counts, INTERVAL_FROM) - 1
    sums = np.where(common, differences, 0.0).sum(axis=2)
    means = sums / (degrees + 1)
    deviations = np.where(common, differences - means[:, :, None], 0.0)
    stds = np.sqrt(np.square(deviations).sum(axis=2) / degrees)
    widths = stdtrit(degrees, 1 - share) * stds / np.sqrt(degrees + 1)
    single = rounding_of(table[:, None, :], table[None, :, :])
    rounding = np.where(common, single, 0.0).max(axis=2, initial=0.0)
    constant = np.abs(deviations).max(axis=2) <= rounding
    rare = np.exp2(-counts) <= share
    widths[constant & rare] = 0.0
    widths[constant & ~rare] = np.inf
    widths[~enough] = np.inf
    means[np.abs(means) <= rounding] = 0.0
    return means, widths
