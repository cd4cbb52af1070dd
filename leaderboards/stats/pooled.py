"""Methods against a reference over all cells at once.

One test compares all methods, and partitions are its independent units.

Cells of one partition (an alpha and a seed at several participations, for instance) are not
independent of each other, because they share data, splits and first weights. So a partition is one
cluster: under the hypothesis that a method equals the reference, all differences of a cluster may
change sign together. What the sign flips of clusters make of the largest of all methods' statistics
is the yardstick of each, which keeps the chance of any false finding at 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product

import numpy as np

from leaderboards.stats.seeds import SIGNIFICANCE, Interval, rounding_of

EXACT_UP_TO = 13  # clusters: all 2^12 distinct flips are taken; beyond, a sample of `FLIPS`
FLIPS = 9_999
_STREAM = 20250917  # seed of the sampled flips, the same for every board
_TIE = 1e-9  # relative: statistics closer than this are equal but for rounding
FAR = 1e4  # spreads from the difference: what is rejected nowhere nearer has no interval
HALVINGS = 40  # of the range in which an interval ends

# Cell -> method -> cluster -> value.
Values = Mapping[Hashable, Mapping[str, Mapping[Hashable, float]]]


@dataclass(frozen=True)
class PooledDifference:
    """A method's difference from the reference, over all cells that both have.

    Args:
        method: its name.
        difference: mean over cells of the mean difference in the cell, in the unit of the values.
        interval: simultaneous 95 % interval: all methods' intervals hold at once; None if no flips
            can exclude anything, with fewer than 6 clusters.
        p: of the test of no difference, corrected for all methods.
        higher: number of clusters in which the method's values are higher than the reference's.
        lower: number of clusters in which they are lower.
        clusters: number of clusters with a difference.
        cells: number of cells.
    """

    method: str
    difference: float
    interval: Interval | None
    p: float
    higher: int
    lower: int
    clusters: int
    cells: int

    @property
    def separable(self) -> bool:
        """Return whether method and reference differ at 5 %, corrected for all methods."""
        return self.p <= SIGNIFICANCE


def pooled_differences(
    values: Values, reference: str, flips: int = FLIPS
) -> tuple[PooledDifference, ...]:
    """Compare methods with a reference over cells, by sign flips of clusters.

    Source: Westfall and Young 1993, max-T.

    With d_cp the difference of a method from the reference in cell c and cluster p, n_c the number
    of clusters in cell c, and C the number of its cells, cluster k contributes

        u_k = Σ_{c with k} d_ck / (n_c C),   D = Σ_k u_k,   T = D / √(Σ_k u_k²).

    Let s_k = ±1 be independent, and T(s) = Σ_k s_k u_k / √(Σ_k u_k²). A method's p is the share of
    flips s for which the largest |T(s)| of all methods is at least its own |T|. With at most 13
    clusters all flips are taken, otherwise a sample, to which the observed flip is added. A
    method's interval has the differences δ that this test does not reject if δ is subtracted from
    its own d_cp: it excludes 0 if and only if p is at most 0.05.

    The test assumes that a cluster's differences are symmetric about their mean, not that they are
    normal or of equal spread.

    Args:
        values: cell -> method -> cluster -> value, finite. A cell counts for a method that has a
            cluster in common with the reference there.
        reference: the method whose values are subtracted.
        flips: size of the sample of sign flips.

    Returns:
        One for each method with a difference, in the order of their first appearance.

    Raises:
        ValueError: a value is not finite.
    """
    methods = dict.fromkeys(chain.from_iterable(values.values()))  # in order of appearance
    methods.pop(reference, None)
    clusters_by_cell = [cell.get(reference, {}) for cell in values.values()]
    clusters = sorted(set().union(*clusters_by_cell), key=repr)
    if not clusters:
        return ()
    signs = _signs(len(clusters), flips)
    contributions = {}
    for name in methods:
        method = _contributions(values, name, reference, clusters, signs)
        if method is not None:
            contributions[name] = method
    observed = {name: method.statistics(0.0) for name, method in contributions.items()}
    results = []
    for name, method in contributions.items():
        others = [statistics for other, statistics in observed.items() if other != name]
        largest = np.zeros(len(signs))
        if others:
            largest = np.max(others, axis=0)
        results.append(_difference(name, method, largest))
    return tuple(results)


@dataclass(frozen=True)
class _Contributions:
    """The parts of a method's difference that each cluster contributes.

    Args:
        sums: (K,) what cluster k adds to the difference, 0 for a cluster without one.
        weights: (K,) what it would add if all of its differences were 1; they sum to 1.
        flipped_sums: (F,) Σ_k s_k of the sums, under each sign flip.
        flipped_weights: (F,) Σ_k s_k of the weights.
        cells: number of cells.
    """

    sums: np.ndarray
    weights: np.ndarray
    flipped_sums: np.ndarray
    flipped_weights: np.ndarray
    cells: int

    @property
    def difference(self) -> float:
        """The method's difference from the reference."""
        return float(self.sums.sum())

    def scale(self, shift: float) -> float:
        """Return √(Σ u_k²) if `shift` were subtracted from every single difference."""
        shifted = self.sums - shift * self.weights
        return math.sqrt(float(np.square(shifted).sum()))

    def statistics(self, shift: float) -> np.ndarray:
        """Return |T(s)| of each flip, (F,), if `shift` were subtracted from every difference.

        It is 0 if nothing differs.
        """
        scale = self.scale(shift)
        if scale == 0:
            return np.zeros(len(self.flipped_sums))
        return np.abs(self.flipped_sums - shift * self.flipped_weights) / scale

    def p(self, shift: float, largest: np.ndarray) -> float:
        """Return p of the hypothesis that the difference is `shift`.

        `largest`: the largest statistic of the other methods under each flip, (F,).
        """
        own = self.statistics(shift)
        observed = own[0] * (1 - _TIE)
        as_large = np.maximum(own, largest) >= observed
        return float(np.mean(as_large))

    def rejects(self, shift: float, largest: np.ndarray) -> bool:
        """Tell whether the test rejects that the difference is `shift`; arguments as for `p`."""
        return self.p(shift, largest) <= SIGNIFICANCE


def _contributions(
    values: Values,
    method: str,
    reference: str,
    clusters: Sequence[Hashable],
    signs: np.ndarray,
) -> _Contributions | None:
    """Return what each cluster contributes to a method's difference.

    None if the method has no cell in common with the reference. `signs`: the flips, (F, K).
    """
    places = {cluster: place for place, cluster in enumerate(clusters)}
    sums = np.zeros(len(clusters))
    weights = np.zeros(len(clusters))
    cells = 0
    for cell in values.values():
        own = cell.get(method, {})
        other = cell.get(reference, {})
        common = [cluster for cluster in own if cluster in other]
        if not common:
            continue
        cells += 1
        for cluster in common:
            difference = own[cluster] - other[cluster]
            if not math.isfinite(difference):
                raise ValueError(
                    f"values must be finite, got {own[cluster]} and {other[cluster]} of {cluster!r}"
                )
            if abs(difference) <= rounding_of(own[cluster], other[cluster]):
                difference = 0.0
            sums[places[cluster]] += difference / len(common)
            weights[places[cluster]] += 1 / len(common)
    if not cells:
        return None
    sums /= cells
    weights /= cells
    return _Contributions(sums, weights, signs @ sums, signs @ weights, cells)


def _signs(clusters: int, flips: int) -> np.ndarray:
    """Return sign flips (F, K), of which the first is the observed one, all +1.

    If they are few, all are taken, otherwise a sample. A flip and its opposite have the same |T|,
    so the first cluster keeps its sign where all are taken.
    """
    if clusters <= EXACT_UP_TO:
        rows = [(1, *rest) for rest in product((1, -1), repeat=clusters - 1)]
        return np.array(rows, dtype=np.float64)
    random = np.random.default_rng(_STREAM)
    sampled = random.integers(2, size=(flips, clusters)) * 2.0 - 1.0
    return np.vstack([np.ones((1, clusters)), sampled])


def _difference(name: str, method: _Contributions, largest: np.ndarray) -> PooledDifference:
    clusters = method.weights > 0
    return PooledDifference(
        method=name,
        difference=method.difference,
        interval=_interval(method, largest),
        p=method.p(0.0, largest),
        higher=int((method.sums[clusters] > 0).sum()),
        lower=int((method.sums[clusters] < 0).sum()),
        clusters=int(clusters.sum()),
        cells=method.cells,
    )


def _interval(method: _Contributions, largest: np.ndarray) -> Interval | None:
    """Return the range of differences that are not rejected.

    None if even a difference far away is not rejected.
    """
    difference = method.difference
    spread = method.scale(difference)
    if spread == 0:  # the same difference in every cluster
        elsewhere = difference + max(1.0, abs(difference))
        excluded = method.rejects(elsewhere, largest)
        return Interval(difference, difference) if excluded else None
    far = FAR * spread
    limits = []
    for side in (-1.0, 1.0):
        inside = difference
        outside = difference + side * far
        if not method.rejects(outside, largest):
            return None
        for _ in range(HALVINGS):
            middle = (inside + outside) / 2
            if method.rejects(middle, largest):
                outside = middle
            else:
                inside = middle
        limits.append(inside)
    return Interval(limits[0], limits[1])
