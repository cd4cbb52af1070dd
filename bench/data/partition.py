"""Ways to give training samples to clients, by name: `partition`.

`PARTITIONS` has this suite's own; `bench.data.partition_plugins` finds those of other packages. A partition takes the
labels and gives, for each client, the ascending positions of its samples. Draws come from numpy's RandomState, whose
stream numpy keeps for good, so a seed means the same clients in years to come.
"""

from __future__ import annotations

from bench.data.dealing import Partition, PartitionError, Wanted
from bench.data.dirichlet import fedgen, fedgkd_groups, fedkf, fl_bench, lda, niid_bench, pfllib
from bench.data.without_alpha import by_source, by_writer, by_writer_2000, iid, pathological
from bench.terminal.values import unknown

__all__ = ["PARTITIONS", "Partition", "PartitionError", "Wanted", "partition", "version"]


def partition(name: str) -> Partition:
    """The table's entry for a partition, or that of one from outside: an entry point's name, or `module:name`.

    Raises UsageError if there is none of that name, or one from outside is not what it should be.
    """
    if name in PARTITIONS:
        return PARTITIONS[name]
    from bench.data import partition_plugins  # looks into installed packages, which few commands need

    entry = partition_plugins.find(name)
    if entry is None:
        raise unknown("partition", name, [*PARTITIONS, *partition_plugins.KIND.names()], importable=True)
    return entry


def version(name: str) -> int | None:
    """A number that changes with the source of a partition from outside; None for this suite's own."""
    if name in PARTITIONS:
        return None
    from bench.data import partition_plugins

    return partition_plugins.version(name)


PARTITIONS: dict[str, Partition] = {
    "iid": Partition(iid, False, "equal parts, drawn at random", "McMahan et al. 2017"),
    "lda": Partition(
        lda, True, "Dirichlet shares of each class; unequal sizes, at least 10", "Wang et al. 2020 (FedMA)"
    ),
    "fedgkd_groups": Partition(
        fedgkd_groups, True, "Dirichlet shares within groups of ten clients; equal sizes", "Yao et al. 2021 (FedGKD)"
    ),
    "fedkf": Partition(
        fedkf, True, "Dirichlet shares; clients take turns at having most of a class", "Zhou et al. 2024 (FedKF)"
    ),
    "fedgen": Partition(fedgen, True, "as lda, at least 10 samples for each class", "Zhu et al. 2021 (FedGen)"),
    "pathological": Partition(
        pathological, False, "6 classes a client, each shared equally by its owners", "Li et al. 2022 (FedDKD)"
    ),
    "by_source": Partition(by_source, False, "one client for each source", "Li et al. 2021 (FedBN)", "source"),
    "by_writer": Partition(
        by_writer, False, "all samples of an equal number of writers", "Li et al. 2022 (NIID-Bench)", "writer"
    ),
    "by_writer_2000": Partition(
        by_writer_2000, False, "as by_writer, of 2,000 writers that are drawn", "He et al. 2022 (FedCAD)", "writer"
    ),
    "niid_bench": Partition(niid_bench, True, "NIID-Bench's noniid-labeldir: as lda", "Li et al. 2022 (NIID-Bench)"),
    "pfllib": Partition(pfllib, True, "PFLlib's dir: as lda, at least 40", "Zhang et al. 2025 (PFLlib)"),
    "fl_bench": Partition(fl_bench, True, "FL-bench's Dirichlet: not balanced, at least 10", "FL-bench's code"),
}
