"""Statistics of values by seed: intervals of means, tested differences, Holm's correction.

A seed fixes partition, initial weights, participants and batches for all algorithms alike, so runs
of one seed differ only in the algorithm, and their difference varies less than either result.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

Seeds = Mapping[int, float]  # seed -> value
K = TypeVar("K", bound=Hashable)
CONFIDENCE = 0.95
SIGNIFICANCE = 1 - CONFIDENCE
# Values; with fewer, an interval would say more about the formula than about the runs.
INTERVAL_FROM = 3

ROUNDING = 1e-9  # relative: differences closer to each other than this differ only by rounding


@dataclass(frozen=True)
class Interval:
    """The range that holds the true value with 95 % confidence, in the unit of the values."""

    low: float
    high: float


def to_compare(mean: float) -> float:
    """Return a mean to 12 digits, so that means that differ by rounding alone are equal."""
    return float(f"{mean:.12g}")


def t_limits(mean: ArrayLike, std: ArrayLike, n: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Compute the lower and upper limits of Student's t interval.

    Source: Student 1908, "The probable error of a mean". With t_q the quantile of n - 1 degrees of
    freedom:

        mean ± t_0.975 std / √n

    How often the interval covers the true mean, in % of 100,000 simulated samples:

        values                                             n = 3     5    10    20
        normal                                              95.1  95.0  95.0  94.9
        binomial, 10,000 test examples, accuracy 0.7        95.1  94.9  95.1  95.0
        binomial, 1,000 test examples, accuracy 0.99        95.2  94.9  94.8  95.0
        Beta(18, 2): skewed like accuracies near a ceiling  92.5  92.3  93.1  93.8
        exponential                                         88.4  88.3  90.0  91.9
        log-normal (1), for contrast                        83.8  82.0  83.9  86.8

    Args:
        mean: mean of each group's values, in an array of any shape.
        std: their standard deviations (n - 1), likewise.
        n: number of values in each group; limits are NaN below 3.
    """
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    centre = np.asarray(mean)
    counts = np.asarray(n)
    enough = counts >= INTERVAL_FROM
    degrees = np.maximum(counts, INTERVAL_FROM) - 1
    quantile = stdtrit(degrees, (1 + CONFIDENCE) / 2)
    half = np.where(enough, quantile * np.asarray(std) / np.sqrt(degrees + 1), np.nan)
    return centre - half, centre + half


def finite(values: Iterable[float]) -> np.ndarray:
    """Convert the values to an array, (n,); raises ValueError if a value is not finite."""
    array = np.array(list(values), dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(
            f"values must be finite, got {array.tolist()}; leave out runs without a value"
        )
    return array


@dataclass(frozen=True)
class Comparison:
    """The difference of an algorithm from a reference on the seeds that both have.

    Args:
        algorithm: compared with `reference`.
        reference: its values are subtracted.
        n: number of common seeds.
        unpaired: seeds that only one of the two has; they are not used.
        difference: mean of algorithm - reference, in the unit of the values; None without a common
            seed.
        interval: of the difference, Student's t; None below 3 common seeds.
        p: two-sided p-value, uncorrected; None below 3 common seeds: not tested.
        adjusted: `p` after Holm's correction over the family; None if not tested, or not yet
            corrected.
    """

    algorithm: str
    reference: str
    n: int
    unpaired: tuple[int, ...]
    difference: float | None
    interval: Interval | None
    p: float | None
    adjusted: float | None = None

    @property
    def separable(self) -> bool:
        """Return whether the two differ at 5 % after correction.

        False if they were not tested, or if `p` is not corrected yet.
        """
        return self.adjusted is not None and self.adjusted <= SIGNIFICANCE


def paired(values: Mapping[str, Seeds], algorithm: str, reference: str) -> Comparison:
    """Test two algorithms by the paired t test (Student 1908), not yet corrected for others.

    With d the differences on the n common seeds, d̄ their mean and s their standard deviation (n -
    1):

        t = d̄ √n / s,  p = 2 P(T_{n-1} > |t|)

    *Fewer than 3 common seeds* are not tested. *Equal at every seed*: p = 1. *A constant
    difference* (s = 0) would have p = 0, which three runs cannot show: in steps of one test
    example, differences easily coincide. Its interval is a point, and its p is that of the exact
    test by sign flips (Fisher 1935, "The design of experiments", section 21),

        p = 2 / 2^n,

    0.25 at 3 seeds and below 5 % from 6. Costs that do not depend on the seed (exchanges, bytes)
    need no test.

    Few seeds separate little: at n = 3, p < 0.05 takes |d̄| > 2.5 s, and among ten comparisons
    |d̄| > 8.1 s.

    Args:
        values: algorithm -> seed -> value, finite.
        algorithm: compared with `reference`.
        reference: its values are subtracted.

    Raises:
        KeyError: `values` lacks one of the two.
        ValueError: a value is not finite.
    """
    first = values[algorithm]
    second = values[reference]
    common = sorted(first.keys() & second.keys())
    unpaired = tuple(sorted(first.keys() ^ second.keys()))
    of_algorithm = finite(first[seed] for seed in common)
    of_reference = finite(second[seed] for seed in common)
    differences = _differences(of_algorithm, of_reference)
    n = len(common)
    mean = math.fsum(differences) / n if n else None
    if n < INTERVAL_FROM:
        return Comparison(algorithm, reference, n, unpaired, mean, interval=None, p=None)
    std = differences.std(ddof=1) if np.ptp(differences) else 0.0
    low, high = t_limits(differences.mean(), std, n)
    interval = Interval(float(low), float(high))
    p = _p_value(differences)
    return Comparison(algorithm, reference, n, unpaired, mean, interval, p)


def corrected(family: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """Fill in `adjusted` by Holm's correction over the comparisons that were tested.

    The family is all that a reader compares at once: the algorithms of a column, or of a whole
    table.
    """
    tested = [test.p for test in family if test.p is not None]
    adjusted = iter(holm(tested))
    comparisons = []
    for test in family:
        own = None if test.p is None else next(adjusted)
        comparisons.append(replace(test, adjusted=own))
    return tuple(comparisons)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Adjust p-values by Holm's procedure.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure". Of m p-values, the
    i-th smallest becomes max_{j <= i} min(1, (m - j + 1) p_(j)). Rejecting those of at most 0.05
    keeps the chance of any false rejection at 5 %, however the tests depend on each other. All are
    in [0, 1]; the adjusted ones are in the order of `p_values`.
    """
    p = np.array(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    still_tested = np.arange(len(p), 0, -1)  # m, m - 1, ..., 1
    raised = np.maximum.accumulate(p[order] * still_tested)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, raised)
    return tuple(adjusted.tolist())


def rounding_of(first: ArrayLike, second: ArrayLike) -> np.ndarray:
    """Return the largest difference of two values, or of arrays, that may be rounding."""
    return np.asarray(ROUNDING * np.maximum(np.abs(first), np.abs(second)))


def _differences(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Compute the differences by seed, (n,).

    They are made equal if they differ only by rounding, and 0 if they are rounding.
    """
    differences = first - second
    rounding = rounding_of(first, second).max(initial=0.0)
    if len(differences) and np.ptp(differences) <= rounding:
        differences = np.full_like(differences, differences.mean())
    return np.where(abs(differences) <= rounding, 0.0, differences)


def _p_value(differences: np.ndarray) -> float:
    # `scipy.stats.ttest_rel` takes a second to import, and a millisecond a call.
    from scipy.special import stdtr

    n = len(differences)
    if not differences.any():
        return 1.0
    if not np.ptp(differences):
        return 2.0 ** (1 - n)
    t = differences.mean() * math.sqrt(n) / differences.std(ddof=1)
    return float(2 * stdtr(n - 1, -abs(t)))


def rankable(seeds: Mapping[K, int]) -> set[K]:
    """Select the algorithms of a cell that are ranked.

    These have at least 3 seeds; if no algorithm has so many, all are ranked. No test can weigh one
    or two lucky seeds against three. `seeds` has the number of seeds of each.
    """
    enough = {name for name, count in seeds.items() if count >= INTERVAL_FROM}
    return enough or set(seeds)
