"""What the papers fixed and what they tried, as data beside their source.

`SPACES` maps (paper, data set, algorithm) to a `Space`; `find` looks one up, and `setting_for` gives the problem that a
paper used on a data set. Importing this package imports neither torch nor ray.
"""

from __future__ import annotations

from search_spaces import digits, fedcad, fedgkd
from search_spaces.base import Grid, Paper, Range, Space, combinations, holds
from search_spaces.bounds import Bounds, Value, cast, check
from search_spaces.setting import Setting, setting_fields

PAPERS: dict[str, Paper] = {module.PAPER.key: module.PAPER for module in (fedgkd, fedcad, digits)}
SPACES: dict[tuple[str, str, str], Space] = {
    (module.PAPER.key, space.setting.dataset, space.algorithm): space
    for module in (fedgkd, fedcad, digits)
    for space in module.SPACES
}
SETTINGS: dict[tuple[str, str], Setting] = {
    (module.PAPER.key, setting.dataset): setting for module in (fedgkd, fedcad, digits) for setting in module.SETTINGS
}


def find(algorithm: str, dataset: str, paper: str | None = None) -> Space | None:
    """The space of an algorithm on a data set: that paper's, or the first that any paper has; None if there is none."""
    for (key, name, algo), space in SPACES.items():
        if (name, algo) == (dataset, algorithm) and paper in (None, key):
            return space
    return None


def own_space(algorithm: str, dataset: str, own_paper: str) -> Space | None:
    """The space of an algorithm in its own paper: on this data set, else on the first data set that it has there."""
    exact = find(algorithm, dataset, own_paper)
    if exact:
        return exact
    return next((s for (key, _, algo), s in SPACES.items() if key == own_paper and algo == algorithm), None)


__all__ = [
    "PAPERS",
    "SETTINGS",
    "SPACES",
    "Bounds",
    "Grid",
    "Paper",
    "Range",
    "Setting",
    "Space",
    "Value",
    "cast",
    "check",
    "combinations",
    "find",
    "holds",
    "own_space",
    "setting_fields",
]
