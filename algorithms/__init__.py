"""The registry of the algorithms that this suite can run. Imports neither torch nor ray.

`ALGORITHMS` maps a name to its `Entry` in `index.json`, which `python docs/make.py` writes from the
classes; `entry(name)` also finds algorithms of other packages (`plugins.py`). `build(name,
**hyperparameters)` makes the algorithm itself, and only then is torch imported.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from algorithms.entry import Entry, Field, from_json
from search_spaces.bounds import nearest

if TYPE_CHECKING:
    from algorithms.base import Algorithm

INDEX = Path(__file__).with_name("index.json")
ALGORITHMS: dict[str, Entry] = {
    entry.name: entry for entry in from_json(INDEX.read_text(encoding="utf-8"))
}


def entry(name: str) -> Entry:
    """Return the registry's entry, or that of an algorithm from outside.

    The latter is named by an entry point, or as `module:factory`.

    Raises:
        KeyError: no such algorithm; the message lists all names and the nearest.
        ValueError: an algorithm from outside cannot be imported, or is not an algorithm; the
            message says why.
    """
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    from algorithms import plugins  # looks into installed packages, which few commands need

    if name in plugins.given:
        return plugins.given[name][0]
    plugin = plugins.find(name)
    if plugin is None:
        all_names = dict.fromkeys([*ALGORITHMS, *plugins.names()])
        raise KeyError(
            f"no algorithm {name!r}{nearest(name, all_names)}; known: {', '.join(all_names)}"
        )
    return plugin


def algorithm_of(row: str) -> str:
    """Return the algorithm whose runs have rows of this name, or the name itself.

    `fedproto_proto` is a row of `fedproto`.
    """
    if row in ALGORITHMS:
        return row
    own = (each.name for each in ALGORITHMS.values() if row in each.rows.values())
    return next(own, row)


def build(name: str, **hyperparameters: Any) -> Algorithm:
    """Build the algorithm with these hyper-parameters, all others at their defaults.

    Raises:
        KeyError: no such algorithm.
        ValueError: an unknown hyper-parameter, or a value that is not allowed.
    """
    from algorithms import plugins

    registered = entry(name)
    algorithm: Algorithm = plugins.factory_of(registered)(**registered.resolve(hyperparameters))
    return algorithm


__all__ = ["ALGORITHMS", "Entry", "Field", "algorithm_of", "build", "entry"]
