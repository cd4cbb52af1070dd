"""Partitions, which give training samples to clients, by name.

`PARTITIONS` lists the built-in partitions. Another package provides a partition at an entry point
in `fedkd_bench.partitions`, or at `module:name`. It is a function like the built-in ones, or a
`Partition` of such a function. Its result is checked.

Axes: N samples, K clients.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from algorithms.entry_points import Kind, fingerprint
from bench.data.dealing import (
    FEWEST_SHOTS,
    MOST_SHOTS,
    Partition,
    Positions,
    Wanted,
    by_source,
    by_writer,
    by_writer_2000,
    fedproto,
    iid,
    k_classes,
    pathological,
    shards,
)
from bench.data.dirichlet import fedgen, fedgkd_groups, fedkf, fl_bench, hsu, lda, pfllib
from bench.data.registry import GROUPS
from bench.errors import UsageError
from bench.terminal.words import unknown

__all__ = ["PARTITIONS", "Partition", "Wanted", "partition", "version"]

KIND = Kind("partition", "fedkd_bench.partitions", UsageError)
SIGNATURE = "(wanted: Wanted, rng: numpy.random.RandomState)"

PARTITIONS: dict[str, Partition] = {
    "iid": Partition(iid, False, "equal parts, drawn at random"),
    "lda": Partition(lda, True, "Dirichlet shares of each class; unequal sizes, at least 10"),
    "fedgkd_groups": Partition(
        fedgkd_groups, True, "Dirichlet shares within groups of ten clients; equal sizes"
    ),
    "fedkf": Partition(
        fedkf, True, "Dirichlet shares; clients take turns at having most of a class"
    ),
    "fedgen": Partition(fedgen, True, "as lda, at least 10 samples for each class"),
    "pathological": Partition(
        pathological, False, "6 classes a client, each shared equally by its owners"
    ),
    "shards": Partition(
        shards,
        False,
        "McMahan's: sorted by class, classes_per_client equal shards a client",
        needs_classes=True,
    ),
    "k_classes": Partition(
        k_classes,
        False,
        "classes_per_client classes a client, each shared equally by its owners",
        needs_classes=True,
    ),
    "fedproto": Partition(
        fedproto,
        False,
        "classes_per_client classes a client, give or take 2, with 139 or 140 samples of each",
        needs_classes=True,
        per_class=(FEWEST_SHOTS + MOST_SHOTS) / 2,
    ),
    "hsu": Partition(
        hsu, True, "Hsu's (FedAvgM): each client's own Dirichlet shares of the classes; equal sizes"
    ),
    "by_source": Partition(by_source, False, "one client for each source", "source"),
    "by_writer": Partition(by_writer, False, "all samples of an equal number of writers", "writer"),
    "by_writer_2000": Partition(
        by_writer_2000, False, "as by_writer, of 2,000 writers that are drawn", "writer"
    ),
    "niid_bench": Partition(lda, True, "NIID-Bench's noniid-labeldir: as lda"),
    "pfllib": Partition(pfllib, True, "PFLlib's dir: as lda, at least 40"),
    "fl_bench": Partition(fl_bench, True, "FL-bench's Dirichlet: not balanced, at least 10"),
}


@cache
def partition(name: str) -> Partition:
    """Return the entry of a partition, built in or from outside.

    `name` is built in, that of an entry point, or `module:name`. Raises UsageError if there is no
    partition of that name, or if a partition from outside is invalid.
    """
    if name in PARTITIONS:
        return PARTITIONS[name]
    path = KIND.path(name)
    if path is None:
        raise unknown("partition", name, [*PARTITIONS, *KIND.names()], importable=True)
    entry = KIND.load(name, path)
    if not isinstance(entry, Partition):
        if not callable(entry) or isinstance(entry, type):
            requirement = f"it must be a function {SIGNATURE} or a Partition of one"
            raise KIND.error(name, f"{path} is {type(entry).__name__}; {requirement}")
        summary = (inspect.getdoc(entry) or path).splitlines()[0]
        entry = Partition(entry, needs_alpha=False, summary=summary)
    if entry.groups not in GROUPS:
        raise KIND.error(
            name, f"groups must be one of {', '.join(map(repr, GROUPS))}, got {entry.groups!r}"
        )
    return replace(entry, function=CheckedPartition(name, entry.function, entry.needs_alpha))


@cache
def version(name: str) -> int | None:
    """Return a number that changes with the source code of a partition from outside.

    None for a built-in partition.
    """
    function = partition(name).function
    if not isinstance(function, CheckedPartition):
        return None
    modules = [
        (KIND.path(name) or "").partition(":")[0],
        getattr(function.function, "__module__", None),
    ]
    return fingerprint(dict.fromkeys(module for module in modules if module))


@dataclass(frozen=True)
class CheckedPartition:
    """A partition's function, whose result is checked against the request."""

    name: str
    function: Callable[[Wanted, np.random.RandomState], Any]
    needs_alpha: bool

    def __call__(self, wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
        """Return K ascending arrays of positions, int64, with no sample in two of them.

        Raises:
            UsageError: the function fails, returns something else, or returns other clients when
                called again.
        """
        same_rng = np.random.RandomState()
        same_rng.set_state(rng.get_state())
        clients = self._check_clients(wanted, rng)
        if not all(map(np.array_equal, clients, self._check_clients(wanted, same_rng))):
            raise self._error(
                "gives other clients when asked again: "
                "all draws must come from the rng that it is given"
            )
        return clients

    def _check_clients(self, wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
        try:
            result = self.function(wanted, rng)
        except Exception as error:
            kind = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
            hint = "; alpha is given only to a Partition with needs_alpha=True"
            if self.needs_alpha:
                hint = ""
            raise KIND.error(self.name, f"its function raises {kind}{error}{hint}") from error
        if not isinstance(result, list | tuple) or len(result) != wanted.num_clients:
            raise self._error(
                f"must give a list of {wanted.num_clients} arrays, one for each client"
            )
        clients = [
            self._check_client(number, positions, len(wanted.labels))
            for number, positions in enumerate(result)
        ]
        all_positions = np.concatenate(clients)
        if len(np.unique(all_positions)) < len(all_positions):
            raise self._error("gives a position twice: a sample has one owner")
        return clients

    def _check_client(self, number: int, values: Any, count: int) -> Positions:
        positions = np.asarray(values)
        are_whole = np.issubdtype(positions.dtype, np.integer)
        if positions.ndim != 1 or not positions.size or not are_whole:
            got = f"{positions.dtype} of shape {positions.shape}"
            raise self._error(
                f"must give each client whole numbers in one axis, got {got} for client {number}"
            )
        if positions.min() < 0 or positions.max() >= count:
            raise self._error(
                f"must give positions in [0, {count - 1}], and does not for client {number}"
            )
        return np.sort(positions).astype(np.int64)

    def _error(self, what: str) -> ValueError:
        return KIND.error(self.name, what)
