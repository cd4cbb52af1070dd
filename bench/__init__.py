"""Planning, training, storage and comparison of federated runs. The root above the three other packages."""

from importlib.util import find_spec
from pathlib import Path

__version__ = "0.1.0"

ROOT = Path(__file__).resolve().parent.parent

for _name in ("algorithms", "search_spaces", "leaderboards"):
    _spec = find_spec(_name)
    _file = _spec.origin if _spec else None
    if _file is None or Path(_file).resolve().parent != ROOT / _name:
        raise ImportError(f"another package {_name!r}, {_file}, hides fedkd-bench's: run the command in another folder")
