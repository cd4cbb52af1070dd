"""Planning, training, storage and comparison of federated runs.

The root above the three other packages.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

__version__ = "0.2.0"

ROOT = Path(__file__).resolve().parent.parent


def is_ours(name: str, file: str | None) -> bool:
    """Return whether the file that a package is imported from is this suite's of that name."""
    return file is not None and Path(file).resolve().parent == ROOT / name


def _check_packages() -> None:
    """End a command with status 2, any other import with ImportError, if a package is hidden."""
    for name in ("algorithms", "search_spaces", "leaderboards"):
        spec = find_spec(name)
        file = spec.origin if spec else None
        if not is_ours(name, file):
            message = (
                f"another package {name!r}, {file}, hides fedkd-bench's: "
                "run the command in another folder"
            )
            if sys.argv[:1] == ["-m"]:  # as it is while `python -m` looks for the command
                sys.stderr.write(f"error: {message}\n")
                raise SystemExit(2)
            raise ImportError(message)


_check_packages()
