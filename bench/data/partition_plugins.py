"""Partitions of other packages: an entry point in `fedkd_bench.partitions`, or `module:name`.

There stands a function like those of this suite, or a `Partition` of one. The clients that it gives are looked at.

Axes: N samples, K clients.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from algorithms.entry_points import fingerprint
from bench import plugins
from bench.data.dealing import Partition, PartitionError, Positions, Wanted
from bench.data.table import GROUPS
from bench.errors import UsageError

KIND = plugins.PARTITIONS
SIGNATURE = "(wanted: Wanted, rng: numpy.random.RandomState)"


@cache
def find(name: str) -> Partition | None:
    """A partition that is not of this suite, its function checked; None if no package has one of that name.

    Raises UsageError if its module, or the thing that stands there, is not what it should be.
    """
    path = KIND.path(name)
    if path is None:
        return None
    entry = plugins.load(KIND, name, path)
    if not isinstance(entry, Partition):
        if not callable(entry) or isinstance(entry, type):
            wanted = f"it must be a function {SIGNATURE} or a Partition of one"
            raise plugins.problem(KIND, name, f"{path} is {type(entry).__name__}; {wanted}")
        summary = (inspect.getdoc(entry) or path).splitlines()[0]
        entry = Partition(entry, needs_alpha=False, summary=summary, source=plugins.module_of(path))
    if entry.groups not in GROUPS:
        raise plugins.problem(KIND, name, f"groups must be one of {', '.join(map(repr, GROUPS))}, got {entry.groups!r}")
    try:
        inspect.signature(entry.function).bind(None, None)
    except (TypeError, ValueError) as error:
        raise plugins.problem(KIND, name, f"its function must take {SIGNATURE}: {error}") from None
    return replace(entry, function=Checked(name, entry.function, entry.needs_alpha))


@cache
def version(name: str) -> int | None:
    """A number that changes with the source of a partition from outside; None if no package has one of that name."""
    entry = find(name)
    if entry is None:
        return None
    assert isinstance(entry.function, Checked), "as `find` has made it"
    modules = [plugins.module_of(KIND.path(name) or ""), getattr(entry.function.function, "__module__", None)]
    return fingerprint(dict.fromkeys(module for module in modules if module))


@dataclass(frozen=True)
class Checked:
    """A partition's function whose result is compared with the request."""

    name: str
    function: Callable[[Wanted, np.random.RandomState], Any]
    needs_alpha: bool

    def __call__(self, wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
        """K ascending arrays of positions, int64, no sample in two of them.

        Raises:
            PartitionError: the function gives something else, or other clients when asked again.
            UsageError: the function fails, or there are fewer samples than clients.
        """
        wanted.check_clients()
        again = np.random.RandomState()
        again.set_state(rng.get_state())
        clients = self._clients(wanted, rng)
        if not all(map(np.array_equal, clients, self._clients(wanted, again))):
            raise self._wrong("gives other clients when asked again: all draws must come from the rng that it is given")
        return clients

    def _clients(self, wanted: Wanted, rng: np.random.RandomState) -> list[Positions]:
        try:
            given = self.function(wanted, rng)
        except Exception as error:
            kind = "" if isinstance(error, UsageError) else f"{type(error).__name__}: "
            hint = "" if self.needs_alpha else "; alpha is given only to a Partition with needs_alpha=True"
            raise plugins.problem(KIND, self.name, f"its function raises {kind}{error}{hint}") from error
        if not isinstance(given, list | tuple) or len(given) != wanted.num_clients:
            raise self._wrong(f"must give a list of {wanted.num_clients} arrays, one for each client")
        clients = [self._client(number, positions, len(wanted.labels)) for number, positions in enumerate(given)]
        together, counts = np.unique(np.concatenate(clients), return_counts=True)
        if counts.max() > 1:
            most = counts.argmax()
            raise self._wrong(f"gives position {together[most]} {counts[most]} times: a sample has one owner")
        return clients

    def _client(self, number: int, given: Any, count: int) -> Positions:
        positions = np.asarray(given)
        if positions.ndim != 1 or not positions.size or not np.issubdtype(positions.dtype, np.integer):
            got = f"{positions.dtype} of shape {positions.shape}"
            raise self._wrong(f"must give each client whole numbers in one axis, got {got} for client {number}")
        if positions.min() < 0 or positions.max() >= count:
            raise self._wrong(f"must give positions in [0, {count - 1}], and does not for client {number}")
        return np.sort(positions).astype(np.int64)

    def _wrong(self, what: str) -> PartitionError:
        return PartitionError(str(plugins.problem(KIND, self.name, what)))
