"""Draws of class shares agree with the protocols' words, tried one by one."""

from __future__ import annotations

import numpy as np
import pytest

from bench.data.dealing import LARGEST_BATCH, Wanted, batches, tries
from bench.data.dirichlet import (
    ENOUGH_SEEN,
    Pool,
    _first_accepted,
    _hopeless,
    _turns,
    propose,
)
from bench.errors import UsageError


def rng(seed=0):
    return np.random.RandomState(seed)


@pytest.mark.parametrize(("classes", "clients"), [(10, 10), (10, 3), (100, 20), (5, 1)])
def test_fedkf_clients_take_turns(classes, clients):
    shares = _turns(classes, clients, 0.1, rng())
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    favourites = shares.argmax(axis=1)
    for first in range(0, classes, clients):
        turn = favourites[first : first + clients]
        assert len(set(turn)) == len(turn)


def naive_turns(classes, clients, alpha, rng):
    """(C, M) shares as the code of FedKF draws them: again until the largest one falls to a client that is free."""
    free, rows = set(range(clients)), []
    for _ in range(classes):
        row = rng.dirichlet([alpha] * clients)
        while row.argmax() not in free:
            row = rng.dirichlet([alpha] * clients)
        free = free - {row.argmax()} or set(range(clients))
        rows.append(row)
    return np.array(rows)


@pytest.mark.parametrize("alpha", [1.0, 0.1])
def test_swapping_equals_drawing_again(alpha):
    one, other = rng(1), rng(2)
    ours = np.array([_turns(5, 4, alpha, one) for _ in range(3000)])
    naive = np.array([naive_turns(5, 4, alpha, other) for _ in range(3000)])
    for statistic in (
        lambda s: s.sum(axis=1).max(axis=1),
        lambda s: s[:, 1].max(axis=1),
        lambda s: s[:, 0, 0],
    ):
        a, b = statistic(ours), statistic(naive)
        assert abs(a.mean() - b.mean()) < 4 * np.sqrt((a.var() + b.var()) / 3000)


def naive_draw(class_sizes, num_clients, alpha, rng, balanced=True):
    """(C, K) sizes as the protocols' words have it: one try, one class after the other; None if the draw is void."""
    held, rows = [0] * num_clients, []
    for size in class_sizes:
        shares = rng.dirichlet([alpha] * num_clients)
        fair = sum(class_sizes) / num_clients if balanced else np.inf
        shares = np.array([p if h < fair else 0.0 for p, h in zip(shares, held, strict=True)])
        if not shares.sum() > 0:
            return None
        cuts = (np.cumsum(shares / shares.sum()) * size).astype(int)[:-1]
        rows.append([len(part) for part in np.split(np.arange(size), cuts)])
        held = [h + n for h, n in zip(held, rows[-1], strict=True)]
    return np.array(rows)


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("alpha", [1.0, 0.1, 0.01, 0.001])
def test_a_draw_agrees_with_a_naive_one(alpha, balanced):
    pool = Pool((230, 250, 200, 240, 260), 7, 40, balanced)
    for seed in range(60):
        counts, accepted = propose(pool, alpha, rng(seed), 1)
        expected = naive_draw(pool.class_sizes, 7, alpha, rng(seed), balanced)
        assert accepted[0] == (expected is not None and expected.sum(axis=0).min() >= 40)
        if expected is not None:
            np.testing.assert_array_equal(counts[:, 0], expected)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("alpha", [1e-3, 1e-4, 1e-5, 1e-300])
def test_void_draws_are_rejected_in_silence(alpha):
    wanted = Wanted(np.arange(200) % 2, 5, alpha, max_tries=5000)
    with pytest.raises(UsageError):
        _first_accepted("lda", Pool((100, 100), 5, 20), wanted, rng())


def test_draws_are_given_up_after_enough() -> None:
    """By hand: 10 clients, each served in 10 % of cases, and 1,000 draws: 10 ln 0.1 + ln 1000."""
    assert _hopeless(0.1, ENOUGH_SEEN, 10, 1_000)
    assert not _hopeless(0.1, ENOUGH_SEEN - 1, 10, 1_000)
    assert not _hopeless(0.1, ENOUGH_SEEN, 6, 1_000)  # -6.9
    assert _hopeless(0.1, ENOUGH_SEEN, 7, 2_000)  # -8.5
    assert not _hopeless(1.0, ENOUGH_SEEN, 10, 1)
    assert _hopeless(0.0, ENOUGH_SEEN, 3, 1_000)  # taken as 1 in 1,000: -13.8


def test_batches_of_tries_grow_to_what_memory_allows() -> None:
    numbers = LARGEST_BATCH // 3  # of one try
    sizes = list(batches(numbers, most=40))
    assert sum(sizes) == tries(numbers, 40) == 40
    assert sizes[0] == 1
    assert max(sizes) == 3
