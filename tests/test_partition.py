"""Partitions keep their protocols' promises, and a split depends on the setting and the seed alone."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import numpy as np
import pytest

from bench.data.dataset import content_hash
from bench.data.dirichlet import Pool, acceptance, draw, propose
from bench.data.partition import PARTITIONS, PartitionError, fedgkd_groups, iid, lda, partition
from bench.data.splits import feasible, generator, share_of, split
from bench.errors import UsageError
from search_spaces.setting import Setting

# Class sizes from 110 to 290, in no order: nothing divides evenly.
LABELS = np.random.RandomState(0).permutation(np.repeat(np.arange(10), range(110, 310, 20)))
SETTING = Setting(partition="lda", alpha=0.5, num_clients=10)


def rng(seed=0):
    return np.random.RandomState(seed)


def parts_of(name, seed=0, num_clients=13, alpha=0.5, labels=LABELS):
    return PARTITIONS[name].function(labels, num_clients, alpha, rng(seed), 100_000)


def together(arrays):
    return np.sort(np.concatenate([np.empty(0, np.int64), *arrays]))


@pytest.mark.parametrize("name", PARTITIONS)
def test_positions_are_ascending_and_in_one_part_only(name):
    parts = parts_of(name)
    assert len(parts) == 13
    assert all(part.dtype == np.int64 and (np.diff(part) > 0).all() for part in parts)
    assert len(np.unique(together(parts))) == len(together(parts))


@pytest.mark.parametrize("name", ["iid", "lda"])
def test_every_sample_is_used_once(name):
    np.testing.assert_array_equal(together(parts_of(name)), np.arange(len(LABELS)))


def test_iid_sizes_differ_by_one_at_most():
    sizes = [len(part) for part in iid(LABELS, 13, None, rng())]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("seed", range(5))
def test_lda_gives_every_client_ten(seed):
    assert min(len(part) for part in lda(LABELS, 40, 0.3, rng(seed))) >= 10


@pytest.mark.parametrize("num_clients", [1, 4, 10, 11, 20, 25])
def test_fedgkd_groups_are_equal_chunks(num_clients):
    parts = fedgkd_groups(LABELS, num_clients, 1.0, rng())
    assert {len(part) for part in parts} == {len(LABELS) // num_clients}


def test_fedgkd_groups_has_the_sizes_of_the_paper():
    labels = np.repeat(np.arange(10), 4500)
    assert {len(part) for part in fedgkd_groups(labels, 20, 0.1, rng())} == {2250}


@pytest.mark.parametrize("name", PARTITIONS)
def test_the_seed_alone_decides(name):
    again, other = parts_of(name, seed=0), parts_of(name, seed=1)
    assert content_hash(parts_of(name, seed=0)) == content_hash(again) != content_hash(other)


@pytest.mark.parametrize(
    ("name", "golden"),
    [
        ("iid", "e4fa81032d8e88d79cf90615cad2d07f590eb9d9f096844764b57f98b4f4e1eb"),
        ("lda", "df33c0d9a2d5bddbbd61f933def9ecb49610883c3b0e73736c1348705903b51a"),
        ("fedgkd_groups", "d67ef54741eeefbe8b420a0b039097dc01ece54238968ef8d8e90a4d28c1c155"),
    ],
)
def test_a_seed_means_the_same_clients_for_good(name, golden):
    assert content_hash(parts_of(name)) == golden


@pytest.mark.parametrize("name", ["lda", "fedgkd_groups"])
def test_small_alpha_is_more_skewed(name):
    def skew(alpha):
        """Mean share of a client's commonest class, over clients and seeds."""
        parts = [part for seed in range(5) for part in parts_of(name, seed, alpha=alpha)]
        return np.mean([np.bincount(LABELS[part]).max() / len(part) for part in parts])

    assert skew(0.1) > skew(1.0) + 0.05 > skew(100.0) + 0.1


def test_labels_need_not_be_consecutive():
    np.testing.assert_array_equal(together(lda(LABELS * 7 + 3, 5, 0.5, rng())), np.arange(len(LABELS)))


def naive_draw(class_sizes, num_clients, alpha, rng):
    """(C, K) sizes as the protocols' words have it: one try, one class after the other; None if the draw is void."""
    held, rows = [0] * num_clients, []
    for size in class_sizes:
        shares = rng.dirichlet([alpha] * num_clients)
        shares = np.array([p if h < sum(class_sizes) / num_clients else 0.0 for p, h in zip(shares, held, strict=True)])
        if not shares.sum() > 0:
            return None
        cuts = (np.cumsum(shares / shares.sum()) * size).astype(int)[:-1]
        rows.append([len(part) for part in np.split(np.arange(size), cuts)])
        held = [h + n for h, n in zip(held, rows[-1], strict=True)]
    return np.array(rows)


@pytest.mark.parametrize("alpha", [1.0, 0.1, 0.01, 0.001])
def test_a_draw_agrees_with_a_naive_one(alpha):
    pool = Pool((230, 250, 200, 240, 260), num_clients=7, min_size=40)
    for seed in range(150):
        counts, accepted = propose(pool, alpha, rng(seed), 1)
        expected = naive_draw(pool.class_sizes, 7, alpha, rng(seed))
        assert accepted[0] == (expected is not None and expected.sum(axis=0).min() >= 40)
        if expected is not None:
            np.testing.assert_array_equal(counts[:, 0], expected)


@pytest.mark.parametrize("alpha", [0.5, 0.1])
def test_many_draws_are_accepted_as_often_as_naive_ones(alpha):
    pool = Pool((2250,) * 10, num_clients=10, min_size=1125)
    drawn = [naive_draw(pool.class_sizes, 10, alpha, generator) for generator in [rng(1)] for _ in range(2500)]
    naive = np.mean([sizes.sum(axis=0).min() >= 1125 for sizes in drawn])
    rate = acceptance(pool, alpha, rng(2), 20_000)
    assert abs(rate - naive) < 4 * np.sqrt(rate * (1 - rate) * (1 / 2500 + 1 / 20_000))


@pytest.mark.parametrize(
    ("alpha", "rate"), [(1.0, 0.91), (0.5, 0.63), (0.1, 0.069), (0.01, 0.009)], ids=lambda value: str(value)
)
def test_fedgkd_groups_accept_as_often_as_was_simulated(alpha, rate):
    # A group of ten clients of CIFAR-10's 45,000 samples; 50 shuffles, because a group's classes are not quite equal.
    pools = [
        Pool(tuple(np.bincount(rng(seed).permutation(np.repeat(np.arange(10), 4500))[:22_500])), 10, 1125)
        for seed in range(50)
    ]
    found = np.mean([acceptance(pool, alpha, rng(seed), 1000) for seed, pool in enumerate(pools)])
    assert found == pytest.approx(rate, rel=0.15)


def test_three_draws_in_ten_thousand_are_found():
    # AG News at alpha 0.1.
    assert draw(Pool((7510, 7480, 7520, 7490), 10, 1500), 0.1, rng()) is not None


def test_first_accepted_draw_of_a_hundred_clients_is_quick():
    labels = np.repeat(np.arange(10), 5000)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        lda(labels, 100, 0.5, rng())
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.2


@pytest.mark.parametrize("name", ["lda", "fedgkd_groups"])
def test_a_request_that_no_draw_meets_says_what_would_be_met(name):
    function = PARTITIONS[name].function
    labels = np.repeat(np.arange(3), 400)
    with pytest.raises(PartitionError, match=rf"partition {name} with alpha=0\.01 and num_clients=40") as caught:
        function(labels, 40, 0.01, rng(), 500)
    message = str(caught.value)
    assert re.search(r"none of 500 draws gave every client at least \d+ samples", message)
    assert "acceptance rate is below 0.006" in message
    function(labels, 40, float(re.search(r"try alpha=(\S+)", message)[1]), rng(), 5000)
    fewer = re.search(r"num_clients=(\d+)$", message)
    if fewer:
        function(labels, int(fewer[1]), 0.01, rng(), 5000)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("alpha", [1e-3, 1e-4, 1e-5, 1e-300])
def test_void_draws_are_rejected_in_silence(alpha):
    assert draw(Pool((100, 100), 5, 20), alpha, rng(), 5000) is None


@pytest.mark.parametrize("name", PARTITIONS)
def test_more_clients_than_samples_is_refused(name):
    with pytest.raises(UsageError, match=r"num_clients must be in \[1, 30\].* got 31"):
        PARTITIONS[name].function(LABELS[:30], 31, 0.5, rng(), 100)


def test_lda_refuses_at_once_what_ten_samples_each_rule_out():
    with pytest.raises(PartitionError, match=r"num_clients must be <= 200 .* got 201"):
        lda(LABELS, 201, 0.5, rng())


@pytest.mark.parametrize("alpha", [None, 0.0, -1.0, float("inf"), float("nan")])
def test_a_dirichlet_needs_an_alpha(alpha):
    with pytest.raises(UsageError, match="alpha must be a number > 0"):
        lda(LABELS, 5, alpha, rng())


def test_an_unknown_partition_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match=r"no partition 'ldaa'; known: .*\(did you mean lda\?\)"):
        partition("ldaa")


FULL = replace(SETTING, fraction=0.8, auxiliary_per_class=5, validation_fraction=0.1, local_test_fraction=0.2)


@pytest.mark.parametrize("rule", ["last", "random"])
@pytest.mark.parametrize("name", PARTITIONS)
def test_parts_of_a_split_are_disjoint_and_ascending(name, rule):
    found = split(replace(FULL, partition=name, validation_rule=rule), LABELS, 0)
    arrays = [*found.clients, *found.local_tests, found.auxiliary, found.validation]
    assert all(array.dtype == np.int64 and (np.diff(array) > 0).all() for array in arrays)
    assert len(np.unique(together(arrays))) == len(together(arrays))
    if name != "fedgkd_groups":
        assert len(together(arrays)) == sum(share_of(0.8, n) for n in np.bincount(LABELS))


def test_sizes_of_a_split_are_those_asked_for():
    found = split(FULL, LABELS, 0)
    kept = sum(share_of(0.8, n) for n in np.bincount(LABELS))
    assert np.bincount(LABELS[found.auxiliary]).tolist() == [5] * 10
    assert len(found.validation) == share_of(0.1, kept)
    for trained, tested in zip(found.clients, found.local_tests, strict=True):
        assert len(tested) == share_of(0.2, len(trained) + len(tested))


def test_a_bare_setting_gives_everything_to_clients():
    found = split(SETTING, LABELS, 0)
    assert not len(together([found.auxiliary, found.validation, *found.local_tests]))
    np.testing.assert_array_equal(together(found.clients), np.arange(len(LABELS)))


def test_fedgkd_validates_on_the_last_tenth_of_the_file():
    labels = np.repeat(np.arange(10), 5000)
    setting = Setting(partition="fedgkd_groups", num_clients=20, validation_fraction=0.1, validation_rule="last")
    found = split(setting, labels[rng().permutation(50_000)], 0)
    np.testing.assert_array_equal(found.validation, np.arange(45_000, 50_000))
    assert {len(part) for part in found.clients} == {2250}


@pytest.mark.parametrize(
    "change", [{"validation_fraction": 0.3}, {"alpha": 0.1}, {"num_clients": 4}, {"local_test_fraction": 0.0}]
)
def test_the_auxiliary_draw_stays_when_later_parts_change(change):
    np.testing.assert_array_equal(split(FULL, LABELS, 0).auxiliary, split(replace(FULL, **change), LABELS, 0).auxiliary)


@pytest.mark.parametrize(
    ("field", "less", "more", "part"),
    [("auxiliary_per_class", 3, 9, "auxiliary"), ("validation_fraction", 0.1, 0.2, "validation")],
)
def test_a_larger_share_contains_the_smaller(field, less, more, part):
    small, large = (split(replace(SETTING, **{field: value}), LABELS, 0) for value in (less, more))
    assert set(getattr(small, part)) < set(getattr(large, part))


def test_fields_of_training_do_not_move_the_split():
    other = replace(
        FULL, model="cnn_digits", lr=0.5, rounds=3, participation=0.2, optimizer="adam", normalization="none"
    )
    assert split(other, LABELS, 0).hash == split(FULL, LABELS, 0).hash


def test_the_hash_tells_seeds_and_parts_apart():
    settings = [SETTING, FULL, replace(FULL, auxiliary_per_class=4), replace(FULL, validation_rule="last")]
    hashes = [split(setting, LABELS, seed).hash for setting in settings for seed in (0, 1)]
    assert len(set(hashes)) == len(hashes)


def test_a_setting_and_a_seed_mean_the_same_split_for_good():
    assert split(FULL, LABELS, 3).hash == "c29ef64e0d76f93f3a81b455f17e23d3d316a1a6020df5c016c86ae8d75eac6a"


def test_generators_of_two_purposes_or_seeds_are_unrelated():
    draws = [generator(seed, purpose).randint(2**31) for seed in (0, 1, -1) for purpose in ("auxiliary", "partition")]
    assert len(set(draws)) == len(draws)


@pytest.mark.parametrize(
    ("share", "count", "expected"), [(0.29, 50, 15), (0.5, 1, 1), (0.1, 45_000, 4500), (0.0, 9, 0)]
)
def test_shares_are_rounded_half_up(share, count, expected):
    assert share_of(share, count) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"auxiliary_per_class": 110}, r"auxiliary_per_class must be < 110, the samples of class 0 .* got 110"),
        ({"fraction": 0.001}, r"fraction must keep at least one sample .* got 0\.001.* use fraction="),
        ({"validation_fraction": 0.99, "auxiliary_per_class": 50}, r"validation_fraction must leave .* got 0\.99"),
        ({"alpha": None}, r"alpha must be a number > 0 for partition lda, got None"),
        ({"partition": "fedgkd_group"}, r"no partition 'fedgkd_group'.*did you mean fedgkd_groups"),
        ({"num_clients": 3000}, r"num_clients must be in \[1, 2000\]"),
    ],
)
def test_what_a_split_cannot_give_is_said_in_the_users_words(change, message):
    setting = replace(SETTING, **change)
    with pytest.raises(UsageError, match=message) as caught:
        split(setting, LABELS, 0)
    assert feasible(setting, LABELS, 0) == str(caught.value)


def test_a_setting_that_can_be_split_is_feasible():
    assert feasible(FULL, LABELS, 0) is None
