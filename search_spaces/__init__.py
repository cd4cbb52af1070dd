"""The papers' settings, search spaces and tables, as data with their sources: one module per paper.

`SPACES` maps (paper, data set, algorithm) to a `Space`. `SETTINGS` has the problem that a paper
used on a data set, `TABLES` the contents of each of its tables. Importing this package imports
neither torch nor ray.
"""

from __future__ import annotations

from typing import Any

from search_spaces import digits, fedcad, feddkd, feddkd_emnist, fedgkd, fedkf, fedproto
from search_spaces.bounds import Bounds, Grid, Range, Value, cast, check, holds, names_in
from search_spaces.setting import (
    Paper,
    PaperTable,
    Setting,
    Space,
    combinations,
    crossed,
    setting_defaults,
    setting_fields,
)

# If several papers have a data set, the first of them in this order is its default.
_MODULES: tuple[Any, ...] = (
    fedgkd,
    feddkd,
    fedcad,
    fedkf,
    feddkd_emnist,
    fedkf.PRINTED,
    digits,
    fedproto,
)
PAPERS: dict[str, Paper] = {module.PAPER.key: module.PAPER for module in _MODULES}
SETTINGS: dict[tuple[str, str], Setting] = {}
SPACES: dict[tuple[str, str, str], Space] = {}
TABLES: dict[tuple[str, str], PaperTable] = {}
for _module in _MODULES:
    _paper = _module.PAPER.key
    SETTINGS |= {(_paper, setting.dataset): setting for setting in _module.SETTINGS}
    SPACES |= {(_paper, space.setting.dataset, space.algorithm): space for space in _module.SPACES}
    TABLES |= {(_paper, table.name): table for table in _module.TABLES}


def own_space(algorithm: str, dataset: str, own_paper: str) -> Space | None:
    """Return the space of an algorithm in its own paper.

    It is the space on this data set, or on the first data set where the paper has one.
    """
    spaces = {
        name: space
        for (key, name, algo), space in SPACES.items()
        if (key, algo) == (own_paper, algorithm)
    }
    return spaces.get(dataset) or next(iter(spaces.values()), None)


def find_table(paper: str, name: str) -> tuple[str, PaperTable] | None:
    """Return the table `name` (`3`, `IV` or alike) of a paper, and the key of its spaces.

    None if there is no such table. `paper` is in `PAPERS`.
    """
    parts = [key for key, part in PAPERS.items() if part.part_of == paper]
    for key in (paper, *parts):
        if (key, name) in TABLES:
            return key, TABLES[key, name]
    return None


__all__ = [
    "PAPERS",
    "SETTINGS",
    "SPACES",
    "TABLES",
    "Bounds",
    "Grid",
    "Paper",
    "PaperTable",
    "Range",
    "Setting",
    "Space",
    "Value",
    "cast",
    "check",
    "combinations",
    "crossed",
    "find_table",
    "holds",
    "names_in",
    "own_space",
    "setting_defaults",
    "setting_fields",
]
