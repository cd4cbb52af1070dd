"""The statistics of a leaderboard: values by hand, scipy's where it has them, coverage, and what never moves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import permutations

import numpy as np
import pytest
from rows import make_row, table_of
from scipy import stats

from leaderboards.board import leaderboard
from leaderboards.rows.frames import to_pandas
from leaderboards.stats.aggregate import (
    Improvement,
    improvement,
    iqm_interval,
    standings_of,
)
from leaderboards.stats.best import FromBest, from_best
from leaderboards.stats.pooled import pooled_differences
from leaderboards.stats.seeds import (
    Comparison,
    Interval,
    Seeds,
    corrected,
    finite,
    holm,
    paired,
    rankable,
    t_limits,
)

# Three algorithms, three cells, three seeds. In brackets mean and rank in the cell.
#
#              cell 1                cell 2                cell 3            over all cells
#   seeds    0  1  2               0  1  2               0  1  2             rank         win rate
#   fedavg  40 42 44  [42: 1  ]   30 30 33  [31: 1.5]   50 52 54  [52: 2.5]   5/3   (1 + 1/2 + 0) / 3 = 1/2
#   fedprox 36 38 40  [38: 2  ]   30 31 32  [31: 1.5]   56 58 60  [58: 1  ]   3/2   (0 + 1/2 + 1) / 3 = 1/2
#   fedgkd  10 20 30  [20: 3  ]   20 22 24  [22: 3  ]   52 52 52  [52: 2.5]  17/6                       0
#
#   with 20 and 60, 30 and 40, 50 and 60 as 0 and 1 of the cells; a quarter of the 9 (2) dropped on
#   either side                                                       interquartile mean
#   fedavg   0 0 | 0 .2 .3 .4 .5 | .55 .6                             1.4 / 5 = 0.28
#   fedprox  0 .1 | .2 .4 .45 .5 .6 | .8 1                            2.15 / 5 = 0.43
#   fedgkd   -1 -.8 | -.6 -.25 0 .2 .2 | .2 .25                       -0.45 / 5 = -0.09
#
#   runs of fedavg that beat one of fedprox, of 9 pairs, ties half cell 1: 40 beats 36 38 and ties
#   40, 42 and 44 beat 3 each = 8.5;  cell 2: 1/2 + 1/2 + 3 = 4;  cell 3: 0
VALUES = {
    "cell 1": {"fedavg": (40, 42, 44), "fedprox": (36, 38, 40), "fedgkd": (10, 20, 30)},
    "cell 2": {"fedavg": (30, 30, 33), "fedprox": (30, 31, 32), "fedgkd": (20, 22, 24)},
    "cell 3": {"fedavg": (50, 52, 54), "fedprox": (56, 58, 60), "fedgkd": (52, 52, 52)},
}
SCALES = {"cell 1": (20, 60), "cell 2": (30, 40), "cell 3": (50, 60)}
T2 = (
    math.sqrt(2) * 0.95 / math.sqrt(1 - 0.95**2)
)  # the 0.975 quantile of Student's t with 2 degrees of freedom, 4.303


def by_seed(cell: dict[str, tuple[float, ...]]) -> dict[str, Seeds]:
    return {name: dict(enumerate(values)) for name, values in cell.items()}


def compared(values: Mapping[str, Seeds], reference: str) -> tuple[Comparison, ...]:
    """Every other algorithm beside a reference, corrected as one family."""
    return corrected([paired(values, name, reference) for name in values if name != reference])


def limits(interval: Interval | None) -> tuple[float, float]:
    assert interval is not None
    return interval.low, interval.high


# Intervals of one mean


@pytest.mark.parametrize("n", [3, 9, 12])
def test_intervals_are_those_of_scipy(n: int) -> None:
    values = np.random.default_rng(n).normal(0.7, 0.02, n)
    expected = stats.t.interval(0.95, n - 1, values.mean(), stats.sem(values))
    assert t_limits(values.mean(), values.std(ddof=1), n) == pytest.approx(expected, rel=1e-12)


def test_fewer_than_three_values_have_no_interval() -> None:
    assert np.isnan(t_limits([0.5, 0.6, math.nan], [math.nan, 0.1, math.nan], [1, 2, 0])).all()


def test_values_that_are_not_finite_are_refused() -> None:
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="finite"):
            finite([0.5, 0.6, value])


def test_a_leaderboard_has_these_intervals() -> None:
    accuracies = {
        "few": [1.0, 1.0, 0.9],
        "many": [0.99, *np.linspace(0.7, 0.8, 11)],
        "two": [0.5, 0.6],
    }
    rows = [
        make_row(
            name,
            {},
            {},
            seed,
            best_accuracy=float(value),
            bytes_up=1_000_000 * (seed + 1),
            amp=None,
        )
        for name, values in accuracies.items()
        for seed, value in enumerate(values)
    ]
    board = leaderboard(to_pandas(table_of(rows))).set_index("algorithm")
    for name, values in accuracies.items():
        costs = [1e6 * (seed + 1) for seed in range(len(values))]
        for column, own, most in (("best_accuracy", values, 1.0), ("bytes_up", costs, math.inf)):
            low, high = t_limits(np.mean(own), np.std(own, ddof=1), len(own))
            shown = board.loc[name, [f"{column}_low", f"{column}_high"]].tolist()
            assert shown == pytest.approx([max(low, 0.0), min(high, most)], rel=1e-9, nan_ok=True)
    assert board.loc["few", "best_accuracy_high"] == 1, "no accuracy is above 1"
    assert board.loc["few", "bytes_up_low"] == 0, "no cost is below 0"
    assert board["amp_low"].isna().all()


# Over cells


def test_pooled_values_are_those_computed_by_hand() -> None:
    result = standings_of(VALUES)
    assert [one.algorithm for one in result.ranked] == ["fedprox", "fedavg", "fedgkd"]
    assert [one.average_rank for one in result.ranked] == pytest.approx([3 / 2, 5 / 3, 17 / 6])
    assert [one.win_rate for one in result.ranked] == pytest.approx([1 / 2, 1 / 2, 0])
    assert [one.n for one in result.ranked] == [9, 9, 9]
    assert (result.left_out, result.cells) == ({}, 3)
    assert [(one.iqm, one.interval) for one in result.ranked] == [(None, None)] * 3


def test_scores_are_normalised_by_cell() -> None:
    scores = {one.algorithm: one.iqm for one in standings_of(VALUES, scales=SCALES).ranked}
    assert scores == pytest.approx({"fedavg": 0.28, "fedprox": 0.43, "fedgkd": -0.09})
    lacking = {key: SCALES[key] for key in ("cell 1", "cell 2")}
    assert standings_of(VALUES, scales=lacking).ranked == standings_of(VALUES).ranked
    moved = {
        key: {name: tuple(7 * value - 3 for value in own) for name, own in cell.items()}
        for key, cell in VALUES.items()
    }
    ends = {key: (7 * zero - 3, 7 * one - 3) for key, (zero, one) in SCALES.items()}
    again = {one.algorithm: one.iqm for one in standings_of(moved, scales=ends).ranked}
    assert again == pytest.approx(scores)


def test_a_diverged_algorithm_is_last() -> None:
    result = standings_of(VALUES, diverged={"cell 1": {"fedavg"}, "cell 3": {"fedprox", "fedgkd"}})
    ranks = {one.algorithm: one.average_rank for one in result.ranked}
    assert ranks == pytest.approx(
        {"fedavg": (3 + 1.5 + 1) / 3, "fedprox": (1 + 1.5 + 2.5) / 3, "fedgkd": (2 + 3 + 2.5) / 3}
    )
    wins = {one.algorithm: one.win_rate for one in result.ranked}
    assert wins == pytest.approx({"fedavg": 1.5 / 3, "fedprox": 1.5 / 3, "fedgkd": 0})
    assert not result.left_out
    nobody = standings_of(VALUES, diverged={key: set(cell) for key, cell in VALUES.items()})
    assert [(one.average_rank, one.win_rate) for one in nobody.ranked] == [(2, 0)] * 3


def test_where_less_is_better_ranks_turn_round() -> None:
    turned = {one.algorithm: one for one in standings_of(VALUES, higher_is_better=False).ranked}
    assert {name: one.average_rank for name, one in turned.items()} == pytest.approx(
        {"fedavg": 4 - 5 / 3, "fedprox": 4 - 3 / 2, "fedgkd": 4 - 17 / 6}
    )
    assert {name: one.win_rate for name, one in turned.items()} == pytest.approx(
        {"fedavg": 1 / 6, "fedprox": 0, "fedgkd": 5 / 6}
    )


def test_incomplete_algorithms_are_left_out() -> None:
    for lacking, by_cost in (((), False), ((99,), True)):
        values = {key: {**cell, "moon": (90, 90, 90)} for key, cell in VALUES.items()}
        values["cell 2"]["moon"] = lacking
        assert standings_of(values).left_out.keys() == {"moon"}
        assert standings_of(values).ranked == standings_of(VALUES).ranked
        costs = {one.algorithm for one in standings_of(values, by_seed=False).ranked}
        assert ("moon" in costs) == by_cost, "a cost is known from one seed"
    values["cell 2"]["moon"] = ()
    values["cell 1"] = {name: (1, 2) for name in values["cell 1"]} | {"moon": (5, 6, 7)}
    assert {one.algorithm for one in standings_of(values).ranked} == VALUES["cell 1"].keys(), (
        "moon is out in any case"
    )
    alone = {key: {"fedavg": (1, 2), "moon": (3,)} for key in VALUES}
    assert not standings_of(alone).left_out, "where nobody has three"


def test_who_takes_part_in_ranks() -> None:
    assert rankable({"a": 3, "b": 2, "c": 5, "d": 1}) == {"a", "c"}
    assert rankable({"a": 2, "b": 1}) == {"a", "b"}
    assert rankable({}) == set()


def test_nothing_pools_to_nothing() -> None:
    assert standings_of({}).ranked == ()
    apart = standings_of({"cell 1": {"fedavg": (1, 2, 3)}, "cell 2": {"moon": (1, 2, 3)}})
    assert (apart.ranked, list(apart.left_out)) == ((), ["fedavg", "moon"])


def test_only_seeds_are_resampled_not_cells() -> None:
    low, high = limits(iqm_interval([np.full(3, value) for value in (0.2, 0.5, 0.9)]))
    assert low == high == pytest.approx((0.2 + 3 * 0.5 + 0.9) / 5)


def test_too_few_seeds_leave_no_interval() -> None:
    assert iqm_interval([np.array([0.2, 0.3, 0.4]), np.array([0.5, 0.6])]) is None
    assert iqm_interval([]) is None


# How often one beats the other


def test_the_improvement_is_computed_by_hand() -> None:
    better = improvement(VALUES, "fedavg", "fedprox")
    low, high = limits(better.interval)
    assert better.probability == pytest.approx((8.5 + 4 + 0) / 27)
    assert low < better.probability < high


def test_one_cell_gives_mann_whitneys_u() -> None:
    random = np.random.default_rng(0)
    first, second = random.integers(0, 6, 8), random.integers(1, 7, 5)
    better = improvement({"cell": {"a": first, "b": second}}, "a", "b")
    assert better.probability == pytest.approx(stats.mannwhitneyu(first, second).statistic / 40)


def test_one_huge_value_leaves_the_other_tests_alone() -> None:
    values = {
        "a": {0: 1.0, 1: 1.1, 2: 1.2, 3: 1.1},
        "b": {0: 2.0, 1: 2.1, 2: 2.3, 3: 2.1},
    }
    usual = {one.algorithm: one.excluded for one in from_best(values, higher_is_better=False)}
    assert usual == {"a": False, "b": True}
    values["d"] = {0: 1e28, 1: 2.5, 2: 2.0, 3: 3.0}
    beside = {one.algorithm: one.excluded for one in from_best(values, higher_is_better=False)}
    assert (beside["a"], beside["b"]) == (False, True)


def test_values_that_differ_by_rounding_are_equal() -> None:
    values = {"cell": {"a": [0.1 + 0.2, 0.5], "b": [0.3, 0.6]}}
    assert improvement(values, "a", "b").probability == pytest.approx((0.5 + 0 + 1 + 0) / 4)


@pytest.mark.parametrize(("value", "other"), [(0.0, 0.0), (1e9, 1e9 - 1)])
def test_the_largest_rounding_is_no_difference(value: float, other: float) -> None:
    """It is 1e-9 of the larger value, and none of 0."""
    cell = by_seed({"a": (value,) * 6, "b": (other,) * 6})
    test = paired(cell, "a", "b")
    assert (test.difference, test.p) == (0.0, 1.0)
    (pooled,) = pooled_differences({"cell": cell}, "b")
    assert (pooled.difference, pooled.higher) == (0.0, 0)
    values = {"cell": {"a": (value,), "b": (other,)}}
    assert improvement(values, "a", "b").probability == 0.5
    assert [entry.excluded for entry in from_best(cell)] == [False, False]


def test_differences_within_rounding_are_constant() -> None:
    above = (1e9,) * 3
    by_one = by_seed({"a": above, "b": (1e9 - 3, 1e9 - 3, 1e9 - 2)})
    assert paired(by_one, "a", "b").p == 0.25
    around = by_seed({"a": above, "b": (1e9 - 2, 1e9 - 4, 1e9 - 3)})
    assert [entry.interval for entry in from_best(around)] == [None, None]


def test_less_may_be_better() -> None:
    low = {"cell": {"a": [1.0, 2.0, 3.0], "b": [2.0, 3.0, 5.0]}}
    fewer = improvement(low, "a", "b", higher_is_better=False)
    more = improvement(low, "a", "b")
    assert fewer.probability == pytest.approx((3 + 2.5 + 1.5) / 9)
    assert more.probability == pytest.approx(1 - fewer.probability)
    interval = limits(fewer.interval)
    assert interval == pytest.approx([1 - limit for limit in reversed(limits(more.interval))])


def test_complete_separation_claims_no_certainty() -> None:
    assert improvement({"cell": VALUES["cell 1"]}, "fedavg", "fedgkd") == Improvement(1.0, None)


# Differences from a reference


def test_a_comparison_is_computed_by_hand() -> None:
    # fedgkd - fedavg in cell 1: -30 -22 -14, mean -22, standard deviation 8; fedprox - fedavg: -4
    # -4 -4
    prox, gkd = compared(by_seed(VALUES["cell 1"]), "fedavg")
    t = 22 * math.sqrt(3) / 8
    p = 1 - t / math.sqrt(t * t + 2)  # with 2 degrees of freedom it has a closed form
    assert (gkd.algorithm, gkd.reference, gkd.n, gkd.unpaired) == ("fedgkd", "fedavg", 3, ())
    assert gkd.difference == -22
    assert gkd.p == pytest.approx(p) == pytest.approx(0.0414, abs=1e-4)
    assert gkd.adjusted == pytest.approx(2 * p)
    assert not gkd.separable  # it would be, without correction
    assert limits(gkd.interval) == pytest.approx(
        (-22 - T2 * 8 / math.sqrt(3), -22 + T2 * 8 / math.sqrt(3))
    )
    assert (prox.difference, prox.p, prox.adjusted) == (-4, 0.25, 0.25)


@pytest.mark.parametrize("n", [3, 10])
def test_p_values_are_those_of_scipy(n: int) -> None:
    random = np.random.default_rng(n)
    first, second = random.normal(0.7, 0.02, n), random.normal(0.71, 0.02, n)
    comparison = paired({"a": dict(enumerate(first)), "b": dict(enumerate(second))}, "a", "b")
    expected = stats.ttest_rel(first, second)
    assert comparison.p == pytest.approx(expected.pvalue, rel=1e-10)
    assert limits(comparison.interval) == pytest.approx(
        tuple(expected.confidence_interval(0.95)), rel=1e-9
    )


def test_only_common_seeds_count() -> None:
    values = {"a": {0: 1.0, 1: 2.0, 2: 4.0, 7: 90.0}, "b": {9: 80.0, 2: 2.0, 1: 1.0, 0: 1.5}}
    comparison = paired(values, "a", "b")
    assert (comparison.n, comparison.unpaired) == (3, (7, 9))
    assert comparison.difference == pytest.approx((-0.5 + 1 + 2) / 3)
    assert comparison.p == pytest.approx(stats.ttest_rel([1, 2, 4], [1.5, 1, 2]).pvalue)


@pytest.mark.parametrize("common", [0, 1, 2])
def test_two_common_seeds_are_not_tested(common: int) -> None:
    first = {seed: float(seed) for seed in range(3)}
    second = {seed + 3 - common: 10.0 + seed**2 for seed in range(3)}
    (comparison,) = compared({"a": first, "b": second}, "b")
    assert (comparison.n, comparison.interval, comparison.p, comparison.adjusted) == (
        common,
        None,
        None,
        None,
    )
    assert (comparison.difference is None) == (common == 0)
    assert not comparison.separable


@pytest.mark.parametrize(("n", "separable"), [(3, False), (5, False), (6, True), (10, True)])
def test_a_constant_difference_has_sign_flips(n: int, separable: bool) -> None:
    first = {seed: 0.1 + seed / 7 for seed in range(n)}
    values = {
        "a": first,
        "b": {seed: value - 0.01 for seed, value in first.items()},
        "c": dict(first),
    }
    constant, equal = compared({"b": values["b"], "a": first}, "b")[0], paired(values, "a", "c")
    assert len({first[seed] - values["b"][seed] for seed in first}) > 1, "constant up to rounding"
    flips = np.array(np.meshgrid(*[[-1, 1]] * n)).reshape(n, -1).T  # every choice of signs
    assert constant.p == pytest.approx(np.mean(abs(flips.sum(axis=1)) >= n))
    assert constant.separable == separable
    assert (constant.difference, *limits(constant.interval)) == pytest.approx((0.01, 0.01, 0.01))
    assert (equal.difference, equal.p, *limits(equal.interval)) == (0, 1, 0, 0)


def test_a_reference_without_values_is_an_error() -> None:
    with pytest.raises(KeyError, match="moon"):
        compared(by_seed(VALUES["cell 1"]), "moon")


def test_holm_on_a_worked_example() -> None:
    # m = 4, sorted: 0.005 x 4 = 0.02, 0.01 x 3 = 0.03, 0.03 x 2 = 0.06, 0.04 x 1 = 0.04 -> the 0.06
    # before it
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert holm([0.6, 0.9]) == (1.0, 1.0), "never above 1"
    assert holm([]) == ()


def test_untested_pairs_enter_no_family() -> None:
    values = by_seed({"a": (1, 2, 3), "b": (2, 4, 5), "c": (9, 12, 16)}) | {"d": {0: 5.0}}
    b, c, d = compared(values, "a")
    assert d.adjusted is None
    assert (b.adjusted, c.adjusted) == pytest.approx(holm([b.p or 0, c.p or 0]))
    assert corrected([b])[0].adjusted == b.p


# Who can be the best


def by_pairs(values: dict[str, tuple[float, ...]]) -> dict[str, tuple[float, float, bool]]:
    """Each algorithm's interval, and whether it is excluded, by scipy's intervals of every pair."""

    def limit(first: str, second: str, side: int) -> float:
        test = stats.ttest_rel(values[first], values[second])
        level = 1 - 2 * 0.05 / (len(values) - 1)
        return float(test.confidence_interval(level)[side])

    highest = {
        name: min(limit(name, other, 1) for other in values if other != name) for name in values
    }
    candidates = [name for name in values if highest[name] >= 0]
    assert len(candidates) > 1
    found = {}
    for name in values:
        low = min(limit(name, other, 0) for other in candidates if other != name)
        found[name] = (min(0.0, low), max(0.0, highest[name]), name not in candidates)
    return found


def told(results: tuple[FromBest, ...]) -> dict[str, tuple[float, float, bool]]:
    return {one.algorithm: (*limits(one.interval), one.excluded) for one in results}


@pytest.mark.parametrize("n", [3, 5, 20])
def test_intervals_from_the_best_use_pairs(n: int) -> None:
    random = np.random.default_rng(n)
    partition = random.normal(size=n)
    means = {"a": 0.0, "b": 0.5, "c": -9.0, "d": 0.4, "e": -30.0}
    values = {name: tuple(mean + partition + random.normal(size=n)) for name, mean in means.items()}
    expected = by_pairs(values)
    found = told(from_best(by_seed(values)))
    for name, (low, high, excluded) in expected.items():
        assert found[name][:2] == pytest.approx((low, high))
        assert found[name][2] == excluded
    assert found["e"][2], "far below"
    less = {name: tuple(-value for value in own) for name, own in values.items()}
    turned = told(from_best(by_seed(less), higher_is_better=False))
    for name, (low, high, excluded) in turned.items():
        assert (-high, -low) == pytest.approx(found[name][:2])
        assert excluded == found[name][2]


def test_differences_are_from_the_best_mean() -> None:
    found = {one.algorithm: one for one in from_best(by_seed(VALUES["cell 1"]))}
    differences = {name: one.difference for name, one in found.items()}
    assert differences == pytest.approx({"fedavg": 4, "fedprox": -4, "fedgkd": -22})


def test_few_seeds_and_constant_differences_exclude_nobody() -> None:
    few = from_best(by_seed({"a": (60, 61), "b": (10, 11)}))
    assert [(one.interval, one.excluded) for one in few] == [(None, False)] * 2
    for n, excluded in ((4, False), (5, True)):  # two algorithms: 2^-5 is below 5 %, 2^-4 is not
        constant = from_best(by_seed({"a": (3,) * n, "b": (2,) * n}))
        assert [one.excluded for one in constant] == [False, excluded]
    apart = from_best({"a": {0: 9.0, 1: 9.1, 2: 9.3}, "b": {3: 1.0, 4: 1.1, 5: 1.3}})
    assert not any(one.excluded for one in apart), "no common seed"
    equal = from_best(by_seed({"a": (1, 2, 3), "b": (1, 2, 3)}))
    assert [one.excluded for one in equal] == [False, False]


def test_a_lone_candidate_is_ahead_of_all() -> None:
    first, second = from_best(by_seed({"a": (60, 61, 62), "b": (10, 11.1, 12)}))
    assert limits(first.interval)[0] > 40
    small, _ = from_best(by_seed({"a": (0.6, 0.61, 0.62), "b": (0.1, 0.111, 0.12)}))
    assert limits(small.interval)[0] == pytest.approx(limits(first.interval)[0] / 100)
    assert limits(second.interval)[1] == 0
    assert (first.excluded, second.excluded) == (False, True)


def test_a_lone_algorithm_can_be_best() -> None:
    assert from_best({"a": {0: 1.0}}) == (FromBest("a", 0.0, None, False),)
    assert from_best({}) == ()


def test_order_does_not_change_the_best() -> None:
    values = by_seed(VALUES["cell 2"])
    for names in permutations(values):
        turned = {name: dict(reversed(list(values[name].items()))) for name in names}
        assert sorted(from_best(turned), key=str) == sorted(from_best(values), key=str)


@pytest.mark.slow
def test_the_best_is_rarely_excluded() -> None:
    """Means that tie and means that do not; each table's intervals cover all differences at once."""
    missed, excluded, tables = 0, 0, 2000
    means = np.array([0.0, 0.0, 0.0, -0.5, -2.0, -6.0])
    for number in range(tables):
        random = np.random.default_rng(number)
        partition = 2 * random.normal(size=5)
        values = {
            f"m{place}": dict(enumerate(mean + partition + random.normal(size=5)))
            for place, mean in enumerate(means)
        }
        for place, one in enumerate(from_best(values)):
            low, high = limits(one.interval)
            truth = means[place] - np.delete(means, place).max()
            if not low - 1e-9 <= truth <= high + 1e-9:
                missed += 1
                break
        excluded += from_best(values)[5].excluded
    assert missed / tables <= 0.05
    assert excluded / tables >= 0.9, "six standard deviations below"


# What never moves


def test_resampling_is_fixed_and_without_order() -> None:
    random = np.random.default_rng(0)
    cells = {key: {name: random.normal(size=4) for name in "abc"} for key in ("x", "y", "z")}
    turned = {key: {name: cells[key][name][::-1] for name in "cba"} for key in ("z", "x", "y")}
    scales = {key: (-2.0, 2.0) for key in cells}
    given = standings_of(cells, scales=scales)
    again = standings_of(turned, scales=scales)
    for first, second in zip(given.ranked, again.ranked, strict=True):
        assert first.interval is not None
        assert first.interval == second.interval
        assert first.average_rank == pytest.approx(second.average_rank)
    assert improvement(cells, "a", "b").interval == improvement(turned, "a", "b").interval
