"""Runs federated algorithms: plans sweeps, trains, stores and compares. The root above the three other packages."""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

__version__ = "0.1.0"

ROOT = Path(__file__).resolve().parent.parent
BESIDE = ("algorithms", "search_spaces", "leaderboards")


class _Beside:
    """Finds the packages that lie beside this one, whatever else bears their names.

    Python looks into the working folder first, and many a researcher's has a package `algorithms`.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """As import asks."""
        return PathFinder.find_spec(name, [str(ROOT)]) if name in BESIDE else None


for _name in BESIDE:
    _file = getattr(sys.modules.get(_name), "__file__", None)
    if _name in sys.modules and (_file is None or Path(_file).resolve().parent != ROOT / _name):
        raise ImportError(
            f"another package {_name!r} is imported already, from {_file}, and fedkd-bench has one of that name: "
            "import bench before it, or give yours another name"
        )
sys.meta_path.insert(0, _Beside)
