"""The registry: what this suite can run, as a table. Imports neither torch nor ray.

`ALGORITHMS` maps a name to an `Entry` (the table itself is `algorithms/table.py`); `entry(name)` also finds algorithms
of other packages (`algorithms/outside.py`). `build(name, **hyperparameters)` makes the algorithm itself and is what
first imports torch. Adding an algorithm here: one file in this folder, one row of the table, one `Space` in
`search_spaces`, one equation check.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from algorithms.entry import Entry, Field, nearest
from algorithms.table import ENTRIES

if TYPE_CHECKING:
    from algorithms.base import Algorithm

ALGORITHMS: dict[str, Entry] = {entry.name: entry for entry in ENTRIES}


def entry(name: str) -> Entry:
    """The registry's entry, or that of an algorithm from outside: an entry point's name, or `module:factory`.

    Raises:
        KeyError: no such algorithm; the message lists those known and the nearest.
        ValueError: an algorithm from outside that cannot be imported, or is none; the message says why.
    """
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    from algorithms import outside  # looks into installed packages, which few commands need

    found = outside.find(name)
    if found is None:
        known = dict.fromkeys([*ALGORITHMS, *outside.names()])
        raise KeyError(f"no algorithm {name!r}; known: {', '.join(known)}{nearest(name, known)}")
    return found


def build(name: str, **hyperparameters: Any) -> Algorithm:
    """The algorithm with these hyper-parameters, all others at their defaults.

    Raises:
        KeyError: no such algorithm.
        ValueError: an unknown hyper-parameter, or a value that is not allowed.
    """
    found = entry(name)
    module, _, function = found.factory.partition(":")
    made: Algorithm = getattr(importlib.import_module(module), function)(**found.resolve(hyperparameters))
    return made


__all__ = ["ALGORITHMS", "Entry", "Field", "build", "entry"]
