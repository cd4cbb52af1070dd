"""Two algorithms on the same seeds: the difference, its interval, a paired test, and Holm's correction of many tests.

A seed fixes partition, initial weights, participants and batches whatever the algorithm, so runs of one seed are
alike in all but the algorithm, and their difference varies less than either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from leaderboards.intervals import CONFIDENCE, INTERVAL_FROM, Interval, finite, student

Seeds = Mapping[int, float]  # seed -> value
SIGNIFICANCE = 1 - CONFIDENCE

_ROUNDING = 1e-9  # relative: differences nearer to each other than this differ by rounding only


@dataclass(frozen=True)
class Comparison:
    """How an algorithm differs from a reference on the seeds that both have.

    Args:
        algorithm: what is compared.
        reference: with what.
        n: common seeds.
        unpaired: seeds that only one of the two has; they are not used.
        difference: mean of algorithm - reference, in the unit of the values; None without a common seed.
        interval: of the difference, Student's t whatever n, as the test; None below 3 common seeds.
        p: two-sided p-value, uncorrected; None below 3 common seeds: not tested.
        adjusted: `p` after Holm's correction over the family; None where not tested, or not yet corrected.
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
        """Whether the two differ at 5 % after correction; False where not tested, or not yet corrected."""
        return self.adjusted is not None and self.adjusted <= SIGNIFICANCE


def compared(values: Mapping[str, Seeds], reference: str) -> tuple[Comparison, ...]:
    """Every other algorithm compared with `reference`, corrected as one family, in the order of `values`.

    Args:
        values: algorithm -> seed -> value, finite, of one cell; diverged runs left out by the caller.
        reference: one of them.

    Raises:
        KeyError: `reference` has no values.
        ValueError: a value is not finite.
    """
    return corrected([paired(values, name, reference) for name in values if name != reference])


def paired(values: Mapping[str, Seeds], algorithm: str, reference: str) -> Comparison:
    """The paired t test (Student 1908) of two algorithms, not yet corrected for others.

    With d the differences on the n common seeds, d̄ their mean and s their standard deviation (n - 1):

        t = d̄ √n / s,  p = 2 P(T_{n-1} > |t|)

    *Fewer than 3 common seeds* are not tested. *Equal at every seed*: p = 1. *A constant difference* (s = 0) would
    have p = 0, which three runs cannot show: measured in steps of one test example, differences coincide easily. Its
    interval is a point and its p that of the exact test by sign flips (Fisher 1935, "The design of experiments",
    section 21),

        p = 2 / 2^n,

    0.25 at 3 seeds and below 5 % from 6. Costs that do not depend on the seed (exchanges, bytes) need no test.

    Few seeds separate little: at n = 3, p < 0.05 takes |d̄| > 2.5 s, and among ten comparisons |d̄| > 8.1 s.

    Args:
        values: algorithm -> seed -> value, finite.
        algorithm: what is compared.
        reference: with what.

    Raises:
        KeyError: one of the two has no values.
        ValueError: a value is not finite.
    """
    first, second = _of(values, algorithm), _of(values, reference)
    seeds = sorted(first.keys() & second.keys())
    mine, its = finite(first[seed] for seed in seeds), finite(second[seed] for seed in seeds)
    differences = _differences(mine, its)
    n = len(seeds)
    tested = n >= INTERVAL_FROM
    return Comparison(
        algorithm,
        reference,
        n,
        unpaired=tuple(sorted(first.keys() ^ second.keys())),
        difference=math.fsum(differences) / n if n else None,
        interval=_interval(differences) if tested else None,
        p=_p_value(differences) if tested else None,
    )


def corrected(family: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """The comparisons with `adjusted` after Holm's correction over those of them that were tested.

    The family is what a reader takes in at once: the algorithms of a column, or of a whole table.
    """
    adjusted = iter(holm([one.p for one in family if one.p is not None]))
    return tuple(replace(one, adjusted=None if one.p is None else next(adjusted)) for one in family)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's adjusted p-values (Holm 1979, "A simple sequentially rejective multiple test procedure").

    Of m p-values the i-th smallest becomes max_{j <= i} min(1, (m - j + 1) p_(j)). Rejecting what is at most 0.05
    keeps the chance of any false rejection at 5 %, however the tests depend on each other.

    Args:
        p_values: each in [0, 1].

    Returns:
        In the order given.

    Raises:
        ValueError: one is not in [0, 1].
    """
    p = np.array(p_values, dtype=np.float64)
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"p-values must be in [0, 1], got {p.tolist()}; leave out what was not tested")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return tuple(adjusted.tolist())


def _of(values: Mapping[str, Seeds], algorithm: str) -> Seeds:
    if not values.get(algorithm):
        raise KeyError(f"no values of {algorithm!r}; there are some of: {', '.join(sorted(values)) or 'none'}")
    return values[algorithm]


def _differences(mine: np.ndarray, its: np.ndarray) -> np.ndarray:
    """The differences by seed (n,), exactly equal where they differ by rounding only, and 0 where they are rounding."""
    differences = mine - its
    rounding = _ROUNDING * np.maximum(abs(mine), abs(its)).max(initial=0.0)
    if len(differences) and np.ptp(differences) <= rounding:
        differences = np.full_like(differences, differences.mean())
    return np.where(abs(differences) <= rounding, 0.0, differences)


def _interval(differences: np.ndarray) -> Interval:
    n = len(differences)
    low, high = student(differences.mean(), np.array(_std(differences)), np.array(n))
    return Interval(float(low), float(high), "t")


def _p_value(differences: np.ndarray) -> float:
    from scipy.special import stdtr  # scipy.stats takes seconds to import

    n = len(differences)
    if not differences.any():
        return 1.0
    if not np.ptp(differences):
        return 2.0 ** (1 - n)
    t = differences.mean() * math.sqrt(n) / _std(differences)
    return float(2 * stdtr(n - 1, -abs(t)))


def _std(differences: np.ndarray) -> float:
    """Of the sample (n - 1); of equal differences exactly 0."""
    return float(np.std(differences, ddof=1)) if np.ptp(differences) else 0.0
