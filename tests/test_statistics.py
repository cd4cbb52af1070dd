"""The statistics of a leaderboard: values by hand, scipy's where it has them, coverage, and what never moves."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
import time
from itertools import permutations

import numpy as np
import pytest
from rows import make_row
from scipy import stats

from leaderboards.boards import leaderboard
from leaderboards.frames import concatenate, run_table, to_pandas
from leaderboards.improvement import improvement
from leaderboards.intervals import RESAMPLES, _shares, grouped_intervals, interval, intervals
from leaderboards.pairs import Comparison, Seeds, compared, corrected, holm, paired
from leaderboards.pooled import LeftOut, iqm, iqm_interval, pooled
from leaderboards.ranks import rankable, shared_ranks

# Three algorithms, three cells, three seeds. In brackets mean and rank in the cell.
#
#              cell 1                cell 2                cell 3            over all cells
#   seeds    0  1  2               0  1  2               0  1  2             rank         win rate
#   fedavg  40 42 44  [42: 1  ]   30 30 33  [31: 1.5]   50 52 54  [52: 2.5]   5/3   (1 + 1/2 + 0) / 3 = 1/2
#   fedprox 36 38 40  [38: 2  ]   30 31 32  [31: 1.5]   56 58 60  [58: 1  ]   3/2   (0 + 1/2 + 1) / 3 = 1/2
#   fedgkd  10 20 30  [20: 3  ]   20 22 24  [22: 3  ]   52 52 52  [52: 2.5]  17/6                       0
#
#   sorted, a quarter of the 9 (2) dropped on either side              interquartile mean
#   fedavg   30 30 | 33 40 42 44 50 | 52 54                            209 / 5 = 41.8
#   fedprox  30 31 | 32 36 38 40 56 | 58 60                            202 / 5 = 40.4
#   fedgkd   10 20 | 20 22 24 30 52 | 52 52                            148 / 5 = 29.6
#
#   runs of fedavg that beat one of fedprox, of 9 pairs, ties half
#   cell 1: 40 beats 36 38 and ties 40, 42 and 44 beat 3 each = 8.5;  cell 2: 1/2 + 1/2 + 3 = 4;  cell 3: 0
VALUES = {
    "cell 1": {"fedavg": (40, 42, 44), "fedprox": (36, 38, 40), "fedgkd": (10, 20, 30)},
    "cell 2": {"fedavg": (30, 30, 33), "fedprox": (30, 31, 32), "fedgkd": (20, 22, 24)},
    "cell 3": {"fedavg": (50, 52, 54), "fedprox": (56, 58, 60), "fedgkd": (52, 52, 52)},
}
T2 = math.sqrt(2) * 0.95 / math.sqrt(1 - 0.95**2)  # the 0.975 quantile of Student's t with 2 degrees of freedom, 4.303


def by_seed(cell: dict[str, tuple[float, ...]]) -> dict[str, Seeds]:
    return {name: dict(enumerate(values)) for name, values in cell.items()}


def p_of(t: float) -> float:
    """Two-sided p-value of Student's t with 2 degrees of freedom, which has a closed form."""
    return 1 - abs(t) / math.sqrt(t * t + 2)


# Intervals of one mean


def test_an_interval_of_three_values_is_the_one_computed_by_hand() -> None:
    found = interval([40, 42, 44])
    assert found is not None
    assert (found.low, found.high) == pytest.approx((42 - T2 * 2 / math.sqrt(3), 42 + T2 * 2 / math.sqrt(3)), rel=1e-11)
    assert found.method == "t"


@pytest.mark.parametrize("n", range(3, 10))
def test_few_values_have_the_interval_of_scipy(n: int) -> None:
    values = np.random.default_rng(n).normal(0.7, 0.02, n)
    found = interval(values)
    assert found is not None
    expected = stats.t.interval(0.95, n - 1, values.mean(), stats.sem(values))
    assert (found.low, found.high) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("values", [[], [0.5], [0.5, 0.6]])
def test_fewer_than_three_values_have_no_interval(values: list[float]) -> None:
    assert interval(values) is None
    assert np.isnan(intervals(np.array([values]))[:2]).all()


@pytest.mark.parametrize("n", [3, 9, 10, 12])
def test_equal_values_have_a_point(n: int) -> None:
    found = interval([0.1] * n)
    assert found is not None
    assert (found.low, found.high, found.method) == (0.1, 0.1, "t")


@pytest.mark.parametrize("draw", ["normal", "exponential"])
@pytest.mark.parametrize("n", [10, 25])
def test_the_studentised_bootstrap_agrees_with_a_slow_one(n: int, draw: str) -> None:
    random = np.random.default_rng(n)
    values = getattr(random, draw)(size=n)
    found = interval(values)
    assert found is not None
    assert found.method == "bootstrap-t"
    t = []
    for _ in range(8_000):
        resample = random.choice(values, n)
        t.append((resample.mean() - values.mean()) / (resample.std(ddof=1) / math.sqrt(n)))
    low, high = values.mean() - np.quantile(t, [0.975, 0.025]) * stats.sem(values)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.1 * (high - low))


def test_the_studentised_bootstrap_is_its_formula_on_every_resample() -> None:
    values = np.sort(np.random.default_rng(3).exponential(size=10))
    counts = np.rint(_shares(10).T * 10).astype(int)
    assert counts.shape == (RESAMPLES, 10)
    resamples = np.array([np.repeat(values, count) for count in counts])
    errors = resamples.std(axis=1, ddof=1) / math.sqrt(10)
    t = np.sort((resamples.mean(axis=1) - values.mean()) / errors)
    found = interval(values)
    assert found is not None
    expected = values.mean() - np.array([t[-50], t[49]]) * stats.sem(values)
    assert (found.low, found.high) == pytest.approx(tuple(expected), rel=1e-9)


def test_the_bootstrap_reaches_farther_where_the_tail_is() -> None:
    values = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.7, 2.0, 2.5, 5.0]
    found = interval(values)
    assert found is not None
    mean = sum(values) / len(values)
    assert found.high - mean > 1.5 * (mean - found.low)


def test_values_that_resample_to_no_spread_have_students_interval() -> None:
    values = [0.9] * 9 + [0.5]  # a third of the resamples lack the 0.5
    found = interval(values)
    assert found is not None
    assert found.method == "t"
    expected = stats.t.interval(0.95, 9, np.mean(values), stats.sem(values))
    assert (found.low, found.high) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("n", [3, 10])
def test_an_interval_moves_with_the_unit_and_forgets_the_order(n: int) -> None:
    values = np.random.default_rng(n).normal(0.7, 0.1, n)
    found, turned, percent = interval(values), interval(values[::-1]), interval(100 * values - 8)
    assert found is not None
    assert turned is not None
    assert percent is not None
    assert (turned.low, turned.high) == pytest.approx((found.low, found.high), rel=1e-12)
    assert (percent.low, percent.high) == pytest.approx((100 * found.low - 8, 100 * found.high - 8), rel=1e-9)


@pytest.mark.parametrize("n", [3, 10])
def test_limits_stay_within_bounds(n: int) -> None:
    values = [1.0] * (n - 2) + [0.95, 0.9]
    free, found = interval(values), interval(values, bounds=(0.0, 1.0))
    assert free is not None
    assert found is not None
    assert free.high > 1
    assert found == dataclasses.replace(free, high=1.0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match=f"values must be finite, got {value} among .* leave out runs"):
        interval([0.5, 0.6, value])


@pytest.mark.parametrize("n", [3, 5, 10])
def test_intervals_cover_the_truth_as_often_as_they_say(n: int) -> None:
    values = np.random.default_rng(n).normal(0.7, 0.02, (10_000, n))
    low, high, resampled = intervals(values)
    assert 0.93 <= np.mean((low <= 0.7) & (high >= 0.7)) <= 0.97
    assert resampled.all() == (n >= 10)


@pytest.mark.parametrize("n", [3, 5, 10])
def test_accuracies_of_a_thousand_examples_are_covered_too(n: int) -> None:
    values = np.random.default_rng(n).binomial(1000, 0.95, (10_000, n)) / 1000
    low, high, _ = intervals(values, bounds=(0.0, 1.0))
    assert 0.93 <= np.mean((low <= 0.95) & (high >= 0.95)) <= 0.97


# Many groups


def test_groups_of_any_size_have_their_own_intervals() -> None:
    random = np.random.default_rng(0)
    sizes = [3, 0, 12, 1, 3, 2, 5, 10]
    groups = random.permutation(np.repeat(np.arange(len(sizes)), sizes))
    values = random.normal(size=len(groups))
    low, high = grouped_intervals(values, groups, len(sizes))
    for group in range(len(sizes)):
        expected = interval(values[groups == group])
        found = (low[group], high[group])
        limits = (math.nan, math.nan) if expected is None else (expected.low, expected.high)
        assert found == pytest.approx(limits, rel=1e-9, nan_ok=True)


def test_runs_without_a_value_count_nowhere() -> None:
    values = np.array([40, math.nan, 42, 44, 1, 2, math.nan])
    low, high = grouped_intervals(values, np.array([0, 0, 0, 0, 1, 1, 1]), 2)
    expected = interval([40, 42, 44])
    assert expected is not None
    assert (low[0], high[0]) == pytest.approx((expected.low, expected.high))
    assert np.isnan([low[1], high[1]]).all()


def test_no_group_has_no_interval() -> None:
    low, high = grouped_intervals(np.empty(0), np.empty(0, dtype=int), 0)
    assert len(low) == len(high) == 0


def test_a_leaderboard_has_these_intervals() -> None:
    accuracies = {"few": [1.0, 1.0, 0.9], "many": [0.99, *np.linspace(0.7, 0.8, 11)]}
    rows = [
        make_row(name, {}, {}, seed, best_accuracy=float(value), bytes_up=1_000_000 * (seed + 1))
        for name, values in accuracies.items()
        for seed, value in enumerate(values)
    ]
    board = leaderboard(to_pandas(concatenate([run_table(row) for row in rows]))).set_index("algorithm")
    for name, values in accuracies.items():
        for column, expected in (
            ("best_accuracy", interval(values, bounds=(0.0, 1.0))),
            ("bytes_up", interval([1e6 * (seed + 1) for seed in range(len(values))])),
        ):
            assert expected is not None
            found = board.loc[name, [f"{column}_low", f"{column}_high"]].tolist()
            assert found == pytest.approx([expected.low, expected.high], rel=1e-9)
    assert board.loc["few", "best_accuracy_high"] == 1


def test_a_large_leaderboard_takes_less_than_a_second() -> None:
    random = np.random.default_rng(0)
    values, groups = random.normal(size=99_000), random.permutation(np.arange(99_000) % 33_000)
    intervals(np.zeros((1, 3)))  # scipy imported
    begin = time.process_time()
    low, _ = grouped_intervals(values, groups, 33_000)
    assert time.process_time() - begin < 1
    assert np.isfinite(low).all()


# Over cells


def test_pooled_values_are_those_computed_by_hand() -> None:
    found = pooled(VALUES)
    assert [one.algorithm for one in found.standings] == ["fedprox", "fedavg", "fedgkd"]
    assert [one.average_rank for one in found.standings] == pytest.approx([3 / 2, 5 / 3, 17 / 6])
    assert [one.win_rate for one in found.standings] == pytest.approx([1 / 2, 1 / 2, 0])
    assert [one.iqm for one in found.standings] == pytest.approx([40.4, 41.8, 29.6])
    assert [one.n for one in found.standings] == [9, 9, 9]
    assert (found.left_out, found.cells) == ((), 3)


def test_where_less_is_better_ranks_turn_round() -> None:
    found = {one.algorithm: one for one in pooled(VALUES, higher_is_better=False).standings}
    assert {name: one.average_rank for name, one in found.items()} == pytest.approx(
        {"fedavg": 4 - 5 / 3, "fedprox": 4 - 3 / 2, "fedgkd": 4 - 17 / 6}
    )
    assert {name: one.win_rate for name, one in found.items()} == pytest.approx(
        {"fedavg": 1 / 6, "fedprox": 0, "fedgkd": 5 / 6}
    )


def test_who_lacks_a_cell_is_left_out_also_as_a_rival() -> None:
    values = {key: {**cell, "moon": (90, 90, 90)} for key, cell in VALUES.items()}
    values["cell 2"]["moon"] = ()
    found = pooled(values)
    assert found.left_out == (LeftOut("moon", ("cell 2",), 3),)
    assert found.left_out[0].reason == "no value in 1 of 3 cells"
    assert found.standings == pooled(VALUES).standings


def test_a_lucky_seed_is_not_pooled_beside_three() -> None:
    values = {key: {**cell, "moon": (90, 90, 90)} for key, cell in VALUES.items()}
    values["cell 2"]["moon"] = (99,)
    found = pooled(values)
    assert found.left_out == (LeftOut("moon", (), 3, ("cell 2",)),)
    assert found.left_out[0].reason == "fewer than 3 seeds where others have 3, in 1 of 3 cells"
    assert found.standings == pooled(VALUES).standings
    assert "moon" in {one.algorithm for one in pooled(values, by_seed=False).standings}, "a cost is known from one seed"
    values["cell 2"]["moon"] = ()
    values["cell 1"] = {name: (1, 2) for name in values["cell 1"]} | {"moon": (5, 6, 7)}
    assert {one.algorithm for one in pooled(values).standings} == VALUES["cell 1"].keys(), "moon is out in any case"
    alone = {key: {"fedavg": (1, 2), "moon": (3,)} for key in VALUES}
    assert not pooled(alone).left_out, "where nobody has three"


def test_who_takes_part_in_ranks() -> None:
    assert rankable({"a": 3, "b": 2, "c": 5, "d": 1}) == {"a", "c"}
    assert rankable({"a": 2, "b": 1}) == {"a", "b"}
    assert rankable({}) == set()


def test_nothing_pools_to_nothing() -> None:
    assert pooled({}).standings == ()
    apart = pooled({"cell 1": {"fedavg": (1, 2, 3)}, "cell 2": {"moon": (1, 2, 3)}})
    assert apart.standings == ()
    assert [one.algorithm for one in apart.left_out] == ["fedavg", "moon"]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8, 9, 100])
def test_interquartile_means_and_ranks_are_those_of_scipy(n: int) -> None:
    values = np.random.default_rng(n).normal(size=n)
    assert iqm(values) == pytest.approx(stats.trim_mean(values, 0.25), rel=1e-12)


def test_average_ranks_are_those_of_scipy() -> None:
    means = np.random.default_rng(0).integers(0, 4, (50, 6))  # many ties
    cells = {i: {str(j): (float(mean),) for j, mean in enumerate(row)} for i, row in enumerate(means)}
    expected = stats.rankdata(-means, axis=1).mean(axis=0)
    assert {one.algorithm: one.average_rank for one in pooled(cells).standings} == pytest.approx(
        {str(j): rank for j, rank in enumerate(expected)}
    )
    assert sum(one.win_rate for one in pooled(cells).standings) == pytest.approx(1)


def test_the_interquartile_mean_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        iqm([])


def test_the_interval_of_an_interquartile_mean_agrees_with_a_slow_one() -> None:
    random = np.random.default_rng(0)
    cells = [random.normal(mean, 0.02, 5) for mean in (0.4, 0.6, 0.8)]
    found = iqm_interval(cells)
    assert found is not None
    assert found.method == "percentile"
    resamples = [np.concatenate([random.choice(cell, len(cell)) for cell in cells]) for _ in range(8_000)]
    means = stats.trim_mean(resamples, 0.25, axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.05 * (high - low))


def test_only_seeds_are_resampled_not_cells() -> None:
    found = iqm_interval([[0.2] * 3, [0.5] * 3, [0.9] * 3])
    assert found is not None
    assert found.low == found.high == pytest.approx((0.2 + 3 * 0.5 + 0.9) / 5)


def test_too_few_seeds_in_a_cell_leave_no_interval() -> None:
    assert iqm_interval([[0.2, 0.3, 0.4], [0.5, 0.6]]) is None
    assert iqm_interval([]) is None


@pytest.mark.parametrize("n", [5, 10])
def test_intervals_of_interquartile_means_cover_the_truth_nearly_as_often(n: int) -> None:
    random = np.random.default_rng(n)
    means = np.array([[0.4], [0.6], [0.8]])
    truth = iqm(random.normal(means, 0.02, (3, 100_000)).ravel())
    found = [iqm_interval(list(random.normal(means, 0.02, (3, n)))) for _ in range(400)]
    assert 0.85 <= np.mean([one is not None and one.low <= truth <= one.high for one in found]) <= 0.97


# How often one beats the other


def test_the_probability_of_improvement_is_the_one_computed_by_hand() -> None:
    found = improvement(VALUES, "fedavg", "fedprox")
    assert found is not None
    assert found.probability == pytest.approx((8.5 + 4 + 0) / 27)
    assert found.interval is not None
    assert found.interval.low < found.probability < found.interval.high


def test_in_one_cell_it_is_mann_whitneys_u() -> None:
    random = np.random.default_rng(0)
    first, second = random.integers(0, 6, 8), random.integers(1, 7, 5)
    found = improvement({"cell": {"a": first, "b": second}}, "a", "b")
    assert found is not None
    assert found.probability == pytest.approx(stats.mannwhitneyu(first, second).statistic / 40)


def test_it_and_its_reverse_sum_to_one() -> None:
    for first, second in permutations(("fedavg", "fedprox", "fedgkd"), 2):
        there, back = improvement(VALUES, first, second), improvement(VALUES, second, first)
        less = improvement(VALUES, first, second, higher_is_better=False)
        assert there is not None
        assert back is not None
        assert less is not None
        assert there.probability + back.probability == pytest.approx(1)
        assert less.probability == pytest.approx(back.probability)


def test_its_interval_agrees_with_a_slow_one() -> None:
    random = np.random.default_rng(1)
    cells = [(random.normal(0.1, 1, 5), random.normal(0, 1, 4)) for _ in range(2)]
    found = improvement({i: {"a": first, "b": second} for i, (first, second) in enumerate(cells)}, "a", "b")
    assert found is not None
    assert found.interval is not None
    shares = []
    for _ in range(10_000):
        pairs = [(random.choice(first, 5), random.choice(second, 4)) for first, second in cells]
        shares.append(np.mean([(first[:, None] > second).mean() for first, second in pairs]))
    low, high = np.quantile(shares, [0.025, 0.975])
    assert (found.interval.low, found.interval.high) == pytest.approx((low, high), abs=0.03)


def test_complete_separation_claims_no_certainty() -> None:
    found = improvement({"cell": VALUES["cell 1"]}, "fedavg", "fedgkd")
    assert found is not None
    assert (found.probability, found.interval) == (1.0, None)


def test_cells_without_both_do_not_count() -> None:
    values = {**VALUES, "cell 4": {"fedavg": (1, 2, 3)}}
    assert improvement(values, "fedavg", "fedprox") == improvement(VALUES, "fedavg", "fedprox")
    assert improvement(values, "fedavg", "moon") is None


# Differences from a reference


def test_a_comparison_is_the_one_computed_by_hand() -> None:
    # fedgkd - fedavg in cell 1: -30 -22 -14, mean -22, standard deviation 8; fedprox - fedavg: -4 -4 -4
    prox, gkd = compared(by_seed(VALUES["cell 1"]), "fedavg")
    t = 22 * math.sqrt(3) / 8
    assert (gkd.algorithm, gkd.reference, gkd.n, gkd.unpaired) == ("fedgkd", "fedavg", 3, ())
    assert gkd.difference == -22
    assert gkd.p == pytest.approx(p_of(t)) == pytest.approx(0.0414, abs=1e-4)
    assert gkd.adjusted == pytest.approx(2 * p_of(t))
    assert not gkd.separable  # it would be, without correction
    assert gkd.interval is not None
    assert (gkd.interval.low, gkd.interval.high) == pytest.approx(
        (-22 - T2 * 8 / math.sqrt(3), -22 + T2 * 8 / math.sqrt(3))
    )
    assert (prox.difference, prox.p, prox.adjusted) == (-4, 0.25, 0.25)


@pytest.mark.parametrize("n", [3, 4, 10, 50])
def test_p_values_are_those_of_scipy(n: int) -> None:
    random = np.random.default_rng(n)
    first, second = random.normal(0.7, 0.02, n), random.normal(0.71, 0.02, n)
    found = paired({"a": dict(enumerate(first)), "b": dict(enumerate(second))}, "a", "b")
    expected = stats.ttest_rel(first, second)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-10)
    assert found.interval is not None
    limits = expected.confidence_interval(0.95)
    assert (found.interval.low, found.interval.high) == pytest.approx((limits.low, limits.high), rel=1e-9)
    assert found.interval.method == "t"


def test_only_common_seeds_count() -> None:
    values = {"a": {0: 1.0, 1: 2.0, 2: 4.0, 7: 90.0}, "b": {9: 80.0, 2: 2.0, 1: 1.0, 0: 1.5}}
    found = paired(values, "a", "b")
    assert (found.n, found.unpaired) == (3, (7, 9))
    assert found.difference == pytest.approx((-0.5 + 1 + 2) / 3)
    assert found.p == pytest.approx(stats.ttest_rel([1, 2, 4], [1.5, 1, 2]).pvalue)


@pytest.mark.parametrize("common", [0, 1, 2])
def test_fewer_than_three_common_seeds_are_not_tested(common: int) -> None:
    first = {seed: float(seed) for seed in range(3)}
    second = {seed + 3 - common: 10.0 + seed**2 for seed in range(3)}
    (found,) = compared({"a": first, "b": second}, "b")
    assert (found.n, found.interval, found.p, found.adjusted) == (common, None, None, None)
    assert (found.difference is None) == (common == 0)
    assert not found.separable


def test_equal_values_are_no_difference() -> None:
    found = paired({"a": {0: 0.1, 1: 0.2, 2: 0.4}, "b": {0: 0.1, 1: 0.2, 2: 0.4}}, "a", "b")
    assert (found.difference, found.p) == (0, 1)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == (0, 0)


@pytest.mark.parametrize(("n", "separable"), [(3, False), (5, False), (6, True), (10, True)])
def test_a_constant_difference_has_the_p_value_of_sign_flips(n: int, separable: bool) -> None:
    first = {seed: 0.1 + seed / 7 for seed in range(n)}
    values = {"a": first, "b": {seed: value - 0.01 for seed, value in first.items()}}  # constant up to rounding
    (found,) = compared(values, "b")
    differences = [first[seed] - values["b"][seed] for seed in first]
    assert len(set(differences)) > 1
    flips = np.array(np.meshgrid(*[[-1, 1]] * n)).reshape(n, -1).T  # every choice of signs
    sums = abs(flips.sum(axis=1))
    assert found.p == pytest.approx(np.mean(sums >= n))
    assert found.separable == separable
    assert found.difference == pytest.approx(0.01)
    assert found.interval is not None
    assert found.interval.low == found.interval.high == pytest.approx(0.01)


def test_a_reference_without_values_is_an_error() -> None:
    with pytest.raises(KeyError, match="no values of 'moon'; there are some of: fedavg, fedgkd, fedprox"):
        compared(by_seed(VALUES["cell 1"]), "moon")


def test_holm_on_a_worked_example() -> None:
    # m = 4, sorted: 0.005 x 4 = 0.02, 0.01 x 3 = 0.03, 0.03 x 2 = 0.06, 0.04 x 1 = 0.04 -> the 0.06 before it
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert holm([0.5, 0.9]) == (1.0, 1.0)
    assert holm([0.6, 0.9]) == (1.0, 1.0), "never above 1"
    assert holm([0.04]) == (0.04,)
    assert holm([]) == ()


def test_holm_refuses_what_is_no_p_value() -> None:
    for wrong in (math.nan, -0.1, 1.1):
        with pytest.raises(ValueError, match=r"p-values must be in \[0, 1\]"):
            holm([0.5, wrong])


def test_what_was_not_tested_is_not_in_the_family() -> None:
    values = by_seed({"a": (1, 2, 3), "b": (2, 4, 5), "c": (9, 12, 16)}) | {"d": {0: 5.0}}
    b, c, d = compared(values, "a")
    assert d.adjusted is None
    assert (b.adjusted, c.adjusted) == pytest.approx(holm([b.p or 0, c.p or 0]))
    assert corrected([b])[0].adjusted == b.p


def test_families_that_differ_in_nothing_are_seldom_separated() -> None:
    random = np.random.default_rng(0)
    false = 0
    for _ in range(1000):
        values = {str(i): dict(enumerate(random.normal(size=5))) for i in range(6)}
        false += any(one.separable for one in compared(values, "0"))
    assert 0.01 <= false / 1000 <= 0.07


# Shared ranks

# Five algorithms, three seeds. Differences by seed, their mean, standard deviation and p (2 degrees of freedom):
#
#            0    1    2    mean    - a: mean, std, p                  - c: mean, std, p
#   a       60   60   60    60      best of the first group
#   b       59   61   57    59      -1     2     0.478  shares it
#   c       40   40.5 39.5  40      -20    0.5   2e-4   not            best of the second group
#   d       39.5 39.5 40    39.67   -20.3  0.289 7e-5   not            -0.33  0.764  0.529  shares it
#   e       10   10   11    10.33   -49.7  0.577 5e-5   not            -29.7  1.041  4e-4   not: a group of its own
GROUPS = {"a": (60, 60, 60), "b": (59, 61, 57), "c": (40, 40.5, 39.5), "d": (39.5, 39.5, 40), "e": (10, 10, 11)}
GROUP_RANKS = {"a": 1, "b": 1, "c": 3, "d": 3, "e": 5}


def ranks(values: dict[str, Seeds], higher_is_better: bool = True) -> dict[str, int]:
    return {one.algorithm: one.rank for one in shared_ranks(values, higher_is_better)}


def test_shared_ranks_are_those_computed_by_hand() -> None:
    found = shared_ranks(by_seed(GROUPS))
    assert {one.algorithm: one.rank for one in found} == GROUP_RANKS
    assert [one.algorithm for one in found] == ["a", "b", "c", "d", "e"]
    assert not any(one.untested for one in found)


def test_shared_ranks_depend_on_neither_order_nor_unit() -> None:
    values = by_seed(GROUPS)
    for order in permutations(values):
        turned = {name: dict(reversed(list(values[name].items()))) for name in order}
        assert shared_ranks(turned) == shared_ranks(values)
    moved = {name: tuple(value / 128 + 3 for value in own) for name, own in GROUPS.items()}
    assert ranks(by_seed(moved)) == GROUP_RANKS
    less = {name: tuple(-value for value in own) for name, own in GROUPS.items()}
    assert ranks(by_seed(less), higher_is_better=False) == GROUP_RANKS


def test_an_algorithm_more_never_separates_those_that_share_the_first_rank() -> None:
    first = {name for name, rank in GROUP_RANKS.items() if rank == 1}
    more = by_seed({**GROUPS, "f": (20, 21, 23), "g": (5, 30, 50)})
    assert first <= {one.algorithm for one in shared_ranks(more) if one.rank == 1}


def test_wide_spread_shares_a_rank_that_a_better_mean_does_not() -> None:
    found = shared_ranks(by_seed({"a": (60, 60, 60), "b": (58, 58, 58.125), "c": (40, 55, 65)}))
    assert [(one.algorithm, one.rank) for one in found] == [("a", 1), ("c", 1), ("b", 3)]


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_seeds_are_ranked_by_their_means_and_marked(n: int) -> None:
    values = by_seed({"a": (3,) * n, "b": (2,) * n, "c": (2,) * n, "d": (1,) * n})
    found = shared_ranks(values)
    assert {one.algorithm: one.rank for one in found} == {"a": 1, "b": 2, "c": 2, "d": 4}
    assert all(one.untested for one in found)


def test_a_lucky_single_seed_separates_nothing() -> None:
    found = {one.algorithm: one for one in shared_ranks(by_seed(GROUPS) | {"lucky": {0: 61.0}})}
    assert (found["lucky"].rank, found["lucky"].n, found["lucky"].untested) == (1, 1, True)
    assert {name: found[name].rank - 1 for name in GROUPS} == GROUP_RANKS
    assert all(found[name].untested for name in GROUPS)  # one place down by the plain order of means


def test_who_lacks_seeds_keeps_to_the_order_of_means() -> None:
    inside = {one.algorithm: one for one in shared_ranks(by_seed(GROUPS) | {"short": {0: 59.5, 1: 59.5}})}
    assert (inside["short"].rank, inside["a"].rank, inside["b"].rank, inside["c"].rank) == (1, 1, 1, 4)
    below = {one.algorithm: one for one in shared_ranks(by_seed(GROUPS) | {"short": {0: 50.0, 1: 50.0}})}
    assert (below["short"].rank, below["b"].rank, below["c"].rank) == (3, 1, 4)
    assert (below["short"].untested, below["a"].untested, below["b"].untested) == (True, False, False)


def test_who_is_better_on_the_common_seeds_is_not_separably_worse() -> None:
    values = {"a": {0: 10.0, 1: 10.5, 2: 11.0, 3: 90.0}, "b": {0: 20.0, 1: 20.5, 2: 21.125}}
    (comparison,) = compared(values, "a")
    assert comparison.separable
    assert ranks(values) == {"a": 1, "b": 1}


def test_a_lone_algorithm_is_first_and_nothing_is_ranked_to_nothing() -> None:
    (found,) = shared_ranks({"a": {0: 1.0}})
    assert (found.rank, found.untested) == (1, False)
    assert shared_ranks({}) == ()
    with pytest.raises(ValueError, match="'a' has no values; leave it out"):
        shared_ranks({"a": {}})


# What never moves


def test_chance_is_fixed_and_order_does_not_matter() -> None:
    random = np.random.default_rng(0)
    cells = {key: {name: random.normal(size=4) for name in "abc"} for key in ("x", "y", "z")}
    turned = {key: {name: cells[key][name][::-1] for name in "cba"} for key in ("z", "x", "y")}
    first, second = pooled(cells), pooled(turned)
    assert [one.interval for one in first.standings] == [one.interval for one in second.standings]
    assert [one.average_rank for one in first.standings] == pytest.approx([o.average_rank for o in second.standings])
    there, back = improvement(cells, "a", "b"), improvement(turned, "a", "b")
    assert there is not None
    assert back is not None
    assert there.interval == back.interval
    assert interval(cells["x"]["a"]) == interval(cells["x"]["a"])


@pytest.mark.parametrize("shift", [0.25, -3.0])
def test_a_constant_added_moves_the_pooled_mean_and_nothing_else(shift: float) -> None:
    moved = {
        key: {name: tuple(value + shift for value in own) for name, own in cell.items()} for key, cell in VALUES.items()
    }
    for before, after in zip(pooled(VALUES).standings, pooled(moved).standings, strict=True):
        assert (after.algorithm, after.average_rank, after.win_rate) == (
            before.algorithm,
            before.average_rank,
            before.win_rate,
        )
        assert before.interval is not None
        assert after.interval is not None
        assert (after.iqm, after.interval.low, after.interval.high) == pytest.approx(
            (before.iqm + shift, before.interval.low + shift, before.interval.high + shift)
        )
    before, after = (improvement(values, "fedavg", "fedprox") for values in (VALUES, moved))
    assert before == after


def test_results_are_data() -> None:
    found = pooled(VALUES).standings[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.iqm = 1.0  # type: ignore[misc]
    assert Comparison("a", "b", 0, (), None, None, None).separable is False
    assert (RESAMPLES + 1) % 40 == 0  # 2.5 % outside on either side: the limits are resamples themselves


def test_statistics_need_no_pandas_and_import_scipy_late() -> None:
    code = (
        "import sys, leaderboards.improvement, leaderboards.ranks\n"
        "assert not {'pandas', 'scipy', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
