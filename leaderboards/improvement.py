"""The probability that a run of one algorithm is better than a run of another, over several cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leaderboards.intervals import INTERVAL_FROM, RESAMPLES, Interval, percentile_interval
from leaderboards.pooled import STREAM, CellScores, by_cell


@dataclass(frozen=True)
class Improvement:
    """How probably a run of one algorithm is better than a run of another.

    Args:
        algorithm: X.
        reference: Y.
        probability: P(X > Y), half of ties included, mean over the cells that have values of both, in [0, 1].
        interval: of it; None where a cell has fewer than 3 values of either, or resamples have no spread.
    """

    algorithm: str
    reference: str
    probability: float
    interval: Interval | None


def improvement(
    values: CellScores, algorithm: str, reference: str, higher_is_better: bool = True
) -> Improvement | None:
    """The probability of improvement of an algorithm X over a reference Y (Agarwal et al. 2021, section 4).

    In a cell with n runs of X and m of Y it is the Mann-Whitney statistic U of X over n m,

        P(X > Y) = 1/(n m) Σ_i Σ_j S(x_i, y_j),  S = 1 if x_i > y_j, 1/2 if equal, else 0,

    and the result is the mean over cells. It says how often, not by how much, X is better. The interval is that of the
    stratified percentile bootstrap, runs of X and of Y resampled by themselves in each cell, as if seeds were not
    paired; of normal values it covers the truth in 90 to 94 % from 3 seeds and 3 cells on. Where resamples are all
    alike, as those of cells in which all runs of one are better than all of the other, there is no interval, rather
    than one that claims certainty.

    Args:
        values: cell -> algorithm -> one value per seed, finite.
        algorithm: X.
        reference: Y.
        higher_is_better: whether larger is better; else it is P(X < Y).

    Returns:
        None where no cell has values of both.

    Raises:
        ValueError: a value is not finite.
    """
    scores = by_cell(values)
    common = [cell for cell in scores.values() if algorithm in cell and reference in cell]
    if not common:
        return None
    sign = 1 if higher_is_better else -1
    pairs = [(np.sort(sign * cell[algorithm]), np.sort(sign * cell[reference])) for cell in common]
    probability = math.fsum(_wins(*pair).mean() for pair in pairs) / len(pairs)
    return Improvement(algorithm, reference, probability, _improvement_interval(pairs))


def _wins(mine: np.ndarray, its: np.ndarray) -> np.ndarray:
    """S of every pair of runs, (n, m)."""
    wins: np.ndarray = (mine[:, None] > its) + (mine[:, None] == its) / 2
    return wins


def _improvement_interval(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> Interval | None:
    if min(min(len(mine), len(its)) for mine, its in pairs) < INTERVAL_FROM:
        return None
    random = np.random.default_rng(STREAM)
    total = np.zeros(RESAMPLES)
    for mine, its in sorted(pairs, key=lambda pair: (tuple(pair[0]), tuple(pair[1]))):
        rows, columns = _shares(random, len(mine)), _shares(random, len(its))
        total += np.einsum("rn,nm,rm->r", rows, _wins(mine, its), columns, optimize=True)
    return percentile_interval(total / len(pairs)) if np.ptp(total) > 1e-9 else None


def _shares(random: np.random.Generator, size: int) -> np.ndarray:
    """What share of each resample each of `size` values has, (R, size)."""
    return random.multinomial(size, np.full(size, 1 / size), size=RESAMPLES) / size
