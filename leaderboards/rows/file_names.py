"""Names of the files of rows, of their curves and of tracked files."""

from __future__ import annotations

import re
from pathlib import Path

from leaderboards.rows.files import content_hash, part_of

SEGMENT_NAME = re.compile(r"packed-[0-9a-f]{32}\.parquet")
ROW_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}(-[0-9a-f]+)*\.parquet")  # key, environment
HASHED_NAME = re.compile(r".*-[0-9a-f]{16}\.parquet|" + SEGMENT_NAME.pattern)
# Key, content: in the folder `tracked`.
TRACKED_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}\.(npz|safetensors)")


def shared_name(path: Path) -> str:
    """Return the name of a file of rows in other folders.

    It always has a hash, which the name here may lack.
    """
    if HASHED_NAME.fullmatch(path.name):
        return path.name
    return f"{path.stem}-{content_hash(path)[:16]}.parquet"


def curve_path(path: Path) -> Path:
    """Return the path of the curves of a file of rows.

    Raises StoreError if the folder of curves is a link.
    """
    beside = path.with_name(f"{path.stem}_curves.parquet")
    if path.parent.name != "runs" or beside.exists():  # a file that is in no result folder
        return beside
    return part_of(path.parent.parent, "curves") / path.name
