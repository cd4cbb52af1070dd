"""Partitions keep their protocols' promises, and a seed means the same clients for good."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bench.data import dirichlet
from bench.data.dataset import content_hash
from bench.data.dirichlet import propose
from bench.data.partition import PARTITIONS, Wanted
from bench.errors import UsageError

# Class sizes from 110 to 290, in no order: nothing divides evenly.
LABELS = np.random.RandomState(0).permutation(np.repeat(np.arange(10), range(110, 310, 20)))
SOURCES = np.random.RandomState(1).randint(0, 13, len(LABELS))
WRITERS = 3 * np.random.RandomState(2).randint(
    0, 2_500, 4 * len(LABELS)
)  # of four times the samples
DIRICHLET = [name for name, entry in PARTITIONS.items() if entry.needs_alpha]
LEAVING_SAMPLES = ("fedgkd_groups", "by_writer_2000", "fedproto")
RETRIED = [name for name in DIRICHLET if name not in ("fedkf", "niid_bench", "hsu")]


def parts_of(
    name,
    seed=0,
    num_clients=13,
    alpha=0.5,
    labels=LABELS,
    groups=SOURCES,
    max_tries=100_000,
    classes=2,
):
    if name == "by_writer_2000" and groups is SOURCES:
        labels, groups = np.tile(labels, 4), WRITERS
    if name == "fedproto" and len(labels) == len(LABELS):
        labels = np.tile(labels, 20)
    wanted = Wanted(labels, num_clients, alpha, groups, max_tries, classes)
    return PARTITIONS[name].function(wanted, np.random.RandomState(seed))


def sizes_of(*args, **changes):
    return np.array([len(part) for part in parts_of(*args, **changes)])


def together(arrays):
    return np.sort(np.concatenate([np.empty(0, np.int64), *arrays]))


@pytest.mark.parametrize("name", [name for name in PARTITIONS if name not in LEAVING_SAMPLES])
def test_every_sample_is_used_once(name):
    np.testing.assert_array_equal(together(parts_of(name)), np.arange(len(LABELS)))


@pytest.mark.parametrize(
    ("name", "num_clients", "least"),
    [
        ("lda", 40, 10),
        ("niid_bench", 40, 10),
        ("fl_bench", 40, 10),
        ("fedgen", 8, 100),
        ("pfllib", 13, 40),
    ],
)
def test_every_client_gets_enough_samples(name, num_clients, least):
    smallest = [sizes_of(name, seed, num_clients, 0.3).min() for seed in range(20)]
    assert least <= min(smallest) < 2 * least


@pytest.mark.parametrize("num_clients", [1, 4, 10, 11, 20, 25])
def test_fedgkd_groups_are_equal_chunks(num_clients):
    assert set(sizes_of("fedgkd_groups", 0, num_clients, 1.0)) == {len(LABELS) // num_clients}


@pytest.mark.parametrize("num_clients", [7, 10, 13, 20, 25])
def test_fedkf_shares_classes_among_groups(num_clients):
    parts = parts_of("fedkf", 0, num_clients)
    for first in range(0, num_clients, 10):
        group = parts[first : first + 10]
        held = np.bincount(LABELS[np.concatenate(group)], minlength=10)
        shares = held - np.bincount(LABELS) * len(group) / num_clients
        assert (np.abs(shares) <= 1 + num_clients // 10).all()


@pytest.mark.parametrize("num_clients", [13, 20])
def test_pathological_clients_hold_six_classes(num_clients):
    labels = np.random.RandomState(0).permutation(np.repeat(np.arange(26), 240))
    parts = parts_of("pathological", 0, num_clients, None, labels)
    counts = np.array([np.bincount(labels[part], minlength=26) for part in parts])
    assert ((counts > 0).sum(axis=1) == 6).all()
    assert all(np.ptp(column[column > 0]) <= 1 for column in counts.T)


def test_too_few_pathological_clients_are_refused():
    labels = np.repeat(np.arange(26), 50)
    with pytest.raises(UsageError, match=r"num_clients=5 .* 300 draws"):
        parts_of("pathological", 0, 5, None, labels, max_tries=300)


@pytest.mark.parametrize("classes", [1, 2, 10])
def test_k_classes_are_held_and_shared_equally(classes):
    parts = parts_of("k_classes", num_clients=20, classes=classes)
    counts = np.array([np.bincount(LABELS[part], minlength=10) for part in parts])
    assert ((counts > 0).sum(axis=1) == classes).all()
    assert all(counts[client, client % 10] for client in range(20))
    assert all(np.ptp(column[column > 0]) <= 1 for column in counts.T)


def test_classes_without_an_owner_are_unused():
    parts = parts_of("k_classes", num_clients=3, classes=2)
    owned = set().union(*(LABELS[part] for part in parts))
    assert len(owned) < 10
    np.testing.assert_array_equal(together(parts), np.flatnonzero(np.isin(LABELS, list(owned))))


@pytest.mark.parametrize(
    ("classes", "ways"),
    [(2, (2, 3, 4)), (3, (2, 3, 4, 5)), (5, (3, 4, 5, 6, 7)), (9, (7, 8, 9, 10))],
)
def test_fedproto_clients_hold_few_samples_of_their_own_number_of_classes(classes, ways):
    labels = np.random.RandomState(0).permutation(np.repeat(np.arange(10), 20 * 140))
    parts: list[np.ndarray] = []
    for seed in range(20):
        parts += parts_of("fedproto", seed, 20, None, labels, classes=classes)
    counts = np.array([np.bincount(labels[part], minlength=10) for part in parts])
    held = (counts > 0).sum(axis=1)
    assert set(held) == set(ways)
    assert np.bincount(held)[list(ways)].min() > 0.7 * len(counts) / len(ways)
    for own in counts:
        assert set(own[own > 0]) in ({139}, {140})
    assert 0.4 < np.mean(counts.max(axis=1) == 140) < 0.6
    owners = (counts > 0).mean(axis=0)
    assert np.abs(owners - owners.mean()).max() < 0.1, "four standard errors"


def test_no_two_fedproto_clients_share_a_sample():
    parts = parts_of("fedproto", num_clients=20, classes=3)
    assert len(np.unique(np.concatenate(parts))) == sum(map(len, parts))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_clients_get_equal_shards_of_sorted_samples(count):
    labels = np.random.RandomState(0).permutation(np.repeat(np.arange(10), 120))
    parts = parts_of("shards", num_clients=20, labels=labels, classes=count)
    assert {len(part) for part in parts} == {60}
    rank = np.argsort(np.argsort(labels, kind="stable"))
    for part in parts:
        held = np.unique(rank[part] // (60 // count), return_counts=True)
        assert held[1].tolist() == [60 // count] * count


def test_hsu_draws_each_clients_classes():
    labels = np.repeat(np.arange(10), 1_000)
    sizes = sizes_of("hsu", num_clients=33, labels=labels)
    assert set(sizes) == {10_000 // 33, 10_000 // 33 + 1}
    even = parts_of("hsu", num_clients=10, labels=labels, alpha=1e6)
    assert all(
        np.abs(np.bincount(labels[part]) - 100).max() < 50 for part in even[:5]
    )  # the last take what is left
    single = parts_of("hsu", num_clients=100, labels=labels, alpha=1e-9)
    assert np.mean([len(np.unique(labels[part])) for part in single[:20]]) < 1.5


def test_hsu_agrees_with_single_draws():
    def one_by_one(rng):
        """Samples (2,) of each of three classes of two clients, drawn one after another."""
        remaining, counts = np.array([4, 4, 2]), []
        for _ in range(2):
            shares, taken = rng.dirichlet(0.8 * np.array([0.4, 0.4, 0.2])), np.zeros(3, int)
            for _ in range(5):
                weights = shares * (remaining > 0)
                label = rng.choice(3, p=weights / weights.sum())
                taken[label] += 1
                remaining[label] -= 1
            counts.append(taken)
        return counts

    labels, rng = np.array([0] * 4 + [1] * 4 + [2] * 2), np.random.RandomState(1)
    ours = [parts_of("hsu", seed, 2, 0.8, labels) for seed in range(3_000)]
    found = np.array([[np.bincount(labels[part], minlength=3) for part in parts] for parts in ours])
    expected = np.array([one_by_one(rng) for _ in range(3_000)])
    for power in (1, 2):
        a, b = found.astype(float) ** power, expected.astype(float) ** power
        assert (
            np.abs(a.mean(axis=0) - b.mean(axis=0))
            <= 4 * np.sqrt((a.var(axis=0) + b.var(axis=0)) / 3_000)
        ).all()


def test_a_hopeless_request_is_refused_at_once(monkeypatch):
    made = []
    monkeypatch.setattr(dirichlet, "propose", lambda *args: made.append(args[3]) or propose(*args))
    labels = np.arange(60_000) % 10
    with pytest.raises(UsageError, match=r"lda .*hsu.*fedgkd_groups and fedkf.*k_classes"):
        parts_of("lda", 0, 1_000, 0.1, labels)
    assert sum(made) <= 5
    assert len(parts_of("hsu", 0, 1_000, 0.1, labels)) == 1_000


def test_each_source_is_a_client():
    for source, part in enumerate(parts_of("by_source")):
        np.testing.assert_array_equal(part, np.flatnonzero(source == SOURCES))


def test_clients_share_writers_equally():
    writers = 7 * np.random.RandomState(3).randint(0, 41, len(LABELS))
    held = [set(writers[part]) for part in parts_of("by_writer", groups=writers)]
    assert sum(map(len, held)) == len(set.union(*held)) == 41
    assert {len(some) for some in held} == {3, 4}


def test_two_thousand_writers_are_dealt():
    drawn = []
    for seed in (0, 1):
        parts = parts_of("by_writer_2000", seed, 10)
        held = [set(WRITERS[part]) for part in parts]
        assert [len(writers) for writers in held] == [200] * 10
        drawn.append(set.union(*held))
        np.testing.assert_array_equal(
            together(parts), np.flatnonzero(np.isin(WRITERS, list(drawn[-1])))
        )
    assert len(set(WRITERS)) > 2_300
    assert [len(writers) for writers in drawn] == [2_000] * 2
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize(
    ("name", "golden"),
    [
        ("iid", "e4fa81032d8e88d79cf90615cad2d07f590eb9d9f096844764b57f98b4f4e1eb"),
        ("lda", "df33c0d9a2d5bddbbd61f933def9ecb49610883c3b0e73736c1348705903b51a"),
        ("fedgkd_groups", "d67ef54741eeefbe8b420a0b039097dc01ece54238968ef8d8e90a4d28c1c155"),
        ("fedkf", "e93cb5b6069573c2df89c0e3298f6d35aeca9e180261c9bef9afca45ae5660a7"),
        ("fedgen", "79d1ee354288b225c5357a994c5abbaf3eea259085b0b96a4e4bcbbe912c3901"),
        ("pathological", "4b0347b03908f5a2a2f7c4ad48a4531df274a11c338627db1de5ad8e752f8b7f"),
        ("by_source", "8c878440cccb89bbb3b77ca664b5bc0fd2652b34d63323ce4ec1c4f1d1c27401"),
        ("by_writer", "13da61bc8f20e1cc9b1722b201d5c5a544c6667e5a9f8c045423163711404859"),
        ("by_writer_2000", "495ad67b739a60e24ff3ebd152f1e711b9efdba01bbaeccc6618688618925801"),
        ("shards", "f85af70cbf0a2732f45b8670961fa960a90a23639852af8243b868b2e222e3a8"),
        ("k_classes", "0457f324184d2a1d646a56da1d8a20053b029a37478124dedf70f5be3f41ff15"),
        ("fedproto", "86fabd6e8842fe9b5d3bb523316e26f4a936b68649cf90dc490b71bfd4045d92"),
        ("hsu", "0257822ceb64778c9cf2025feb1f942e1b34b57367d8db2a85e78677ab8694ca"),
        ("niid_bench", "df33c0d9a2d5bddbbd61f933def9ecb49610883c3b0e73736c1348705903b51a"),
        ("pfllib", "df33c0d9a2d5bddbbd61f933def9ecb49610883c3b0e73736c1348705903b51a"),
        ("fl_bench", "5a507c03179da53730ddf9d94bede8e5539d80b46eaf8c203dc32b36ed9477ea"),
    ],
)
def test_a_seed_always_gives_its_clients(name, golden):
    assert content_hash(parts_of(name)) == golden
    assert (content_hash(parts_of(name, seed=1)) == golden) == (name == "by_source")


@pytest.mark.parametrize("name", DIRICHLET)
def test_small_alpha_is_more_skewed(name):
    def skew(alpha):
        """Mean share of a client's commonest class, over clients and seeds."""
        parts = [part for seed in range(5) for part in parts_of(name, seed, alpha=alpha)]
        return np.mean([np.bincount(LABELS[part]).max() / len(part) for part in parts])

    assert skew(0.1) > skew(1.0) + 0.05 > skew(100.0) + 0.1


def test_labels_need_not_be_consecutive():
    for name in [name for name in PARTITIONS if name != "by_source"]:
        assert content_hash(parts_of(name, labels=LABELS * 7 + 3)) == content_hash(parts_of(name))


@pytest.mark.parametrize("name", RETRIED)
def test_an_impossible_request_is_refused(name):
    labels, num_clients = np.repeat(np.arange(3), 400), 20 if name == "fedgen" else 40
    with pytest.raises(
        UsageError, match=rf"{name} with alpha=0\.01 and num_clients={num_clients} .* 500 draws"
    ):
        parts_of(name, 0, num_clients, 0.01, labels, max_tries=500)


FEW = np.repeat(np.arange(10), 5)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        *(
            (name, {"num_clients": 31, "labels": LABELS[:30], "groups": SOURCES[:30]}, "30")
            for name in PARTITIONS
        ),
        *((name, {"alpha": alpha}, "alpha") for name in DIRICHLET for alpha in (None, 0.0, np.nan)),
        ("by_source", {"num_clients": 12}, "num_clients=13"),
        ("by_writer", {"num_clients": 14}, "<= 13"),
        ("by_writer_2000", {"num_clients": 2_001}, "<= 2,000"),
        (
            "by_writer_2000",
            {"labels": np.zeros(4_000, int), "groups": np.arange(4_000) % 1_999},
            "1,999",
        ),
        ("pathological", {"labels": LABELS % 5}, "lda"),
        (
            "pathological",
            {"num_clients": 59, "labels": np.repeat(np.arange(6), 10)},
            "num_clients=59",
        ),
        ("shards", {"num_clients": 1001}, "2,002"),
        ("k_classes", {"classes": 11}, "<= 10"),
        ("fedproto", {"num_clients": 20, "classes": 10, "labels": np.arange(10_000) % 10}, "1,000"),
        ("fedproto", {"classes": 13}, "at least 11"),
        ("lda", {"num_clients": 201}, "<= 200"),
        ("fedgen", {"num_clients": 21}, "<= 20"),
        ("fedgen", {"num_clients": 2, "labels": FEW}, "100"),
    ],
)
def test_what_a_partition_cannot_give_is_refused(name, changes, words):
    with pytest.raises(UsageError, match=re.escape(words)):
        parts_of(name, **changes)
