"""What one alpha means in other benchmarks: the Dirichlet partitions of NIID-Bench, PFLlib and FL-bench.

The same alpha gives other data in each, because they disagree on the smallest client and on balancing. Each stands here
under its own name, so that a figure from there can be set against one from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.data.dealing import Wanted, deal_dirichlet
from bench.data.dirichlet import Pool
from bench.data.skewed import lda_pool

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Positions = NDArray[np.int64]

FL_BENCH_MIN_SIZE = 10
# One test batch of ten out of a quarter of a client's samples.
PFLLIB_MIN_SIZE = 40


def niid_bench(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """NIID-Bench's `noniid-labeldir`: balanced, at least 10 samples a client, the same rule as `lda`.

    Source: Li et al., NIID-Bench (2022), and its code.

    Args:
        wanted: what is asked for; needs alpha (there `beta`).
        rng: source of the draws.

    Raises:
        PartitionError: there are fewer than 10 samples a client, or no draw gave every client 10.
        UsageError: fewer samples than clients, or no usable alpha.
    """
    return deal_dirichlet("niid_bench", lda_pool, wanted, rng)


def pfllib(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """PFLlib's `dir`: balanced, at least 40 samples a client, or half of its fair part where that is fewer.

    PFLlib merges the training and the test set before, and has each client test on a quarter of its samples
    (`local_test_fraction=0.25`). Its earlier versions ask for one sample a client.

    Source: Zhang et al., PFLlib (2025), and its code.

    Args:
        wanted: what is asked for; needs alpha.
        rng: source of the draws.

    Raises:
        PartitionError: no draw gave every client enough.
        UsageError: fewer samples than clients, or no usable alpha.
    """
    return deal_dirichlet("pfllib", _pfllib_pool, wanted, rng)


def fl_bench(wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
    """FL-bench's Dirichlet: NOT balanced, at least 10 samples a client (the default of its argument).

    A client that has much goes on getting more, so sizes differ far more than under `lda`. FL-bench merges the training
    and the test set before, and has each client test on a quarter of its samples (`local_test_fraction=0.25`). Its
    earlier versions are balanced and ask for 40.

    Source: code of FL-bench.

    Args:
        wanted: what is asked for; needs alpha.
        rng: source of the draws.

    Raises:
        PartitionError: there are fewer than 10 samples a client, or no draw gave every client 10.
        UsageError: fewer samples than clients, or no usable alpha.
    """
    return deal_dirichlet("fl_bench", _fl_bench_pool, wanted, rng)


def _pfllib_pool(sizes: tuple[int, ...], num_clients: int) -> Pool:
    # PFLlib would leave a client without samples where there are hardly more of them than of clients.
    return Pool(sizes, num_clients, max(1, min(PFLLIB_MIN_SIZE, sum(sizes) // (2 * num_clients))))


def _fl_bench_pool(sizes: tuple[int, ...], num_clients: int) -> Pool:
    return Pool(sizes, num_clients, FL_BENCH_MIN_SIZE, balanced=False)
