"""The files of saved states, `OUT/state/RUN_KEY/`: their names, manifests and removal.

Imports neither torch nor ray.

A state may be somebody else's. Only files with these names are read, copied and deleted, and none
through a link.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from leaderboards.rows.files import TEMPORARY, part_of, read_regular

STATE_VERSION = 2  # of saved states that this suite can go on from
FOLDER = "state"
MANIFEST = "manifest.json"
KEY = re.compile("[0-9a-f]{64}")
FILE = re.compile(r"server-\d+\.pt|memory-\d+-\d+\.pt")  # round; client, round
_SHA256 = re.compile("[0-9a-f]{64}")
MANIFEST_BYTES = 2**28  # of a million clients


def folders(out: Path) -> list[Path]:
    """List the folders in `OUT/state`, sorted, without hidden ones; links count as folders."""
    paths = part_of(out, FOLDER).glob("[!.]*")
    return sorted(path for path in paths if path.is_symlink() or path.is_dir())


def manifest_of(folder: Path) -> dict[str, Any] | None:
    """Read the manifest of a state in `folder`; None if there is no state.

    Raises:
        OSError: it cannot be read.
        ValueError: the folder is a link, or the manifest is no regular file, or no object.
        RecursionError: its JSON is nested too deep.
    """
    try:
        state = part_of(folder.parent, folder.name)
        text = read_regular(state / MANIFEST, MANIFEST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    manifest = json.loads(text)
    if not isinstance(manifest, dict):
        raise ValueError(f"a {type(manifest).__name__}, not an object")
    return manifest


def saved_runs(out: Path) -> dict[str, Any]:
    """Return run key -> manifest of its saved state; an unreadable manifest is empty."""
    manifests: dict[str, Any] = {}
    for folder in folders(out):
        try:
            manifest = manifest_of(folder)
        except (OSError, ValueError, RecursionError):
            manifest = {}
        if manifest is not None:
            manifests[folder.name] = manifest
    return manifests


def files_of(manifest: Any) -> dict[str, str]:
    """Return the files that a manifest names, each with its SHA-256.

    Raises ValueError for other names or values.
    """
    fields = manifest if isinstance(manifest, dict) else {}
    sums = fields.get("sha256")
    memories = fields.get("memories")
    if not isinstance(sums, dict) or not isinstance(memories, dict):
        raise ValueError("it does not list its files")
    for name, digest in sums.items():
        is_digest = isinstance(digest, str) and _SHA256.fullmatch(digest)
        if not FILE.fullmatch(name) or not is_digest:
            raise ValueError(f"it names {name!r}, which is no file of a state")
    for name in (manifest.get("server"), *filter(None, memories.values())):
        if not isinstance(name, str) or name not in sums:
            raise ValueError(f"it has no checksum of {name!r}")
    if not all(client.isascii() and client.isdigit() for client in memories):
        raise ValueError("it names clients that are no numbers")
    return sums


def _is_of_state(name: str) -> bool:
    return name == MANIFEST or bool(FILE.fullmatch(name) or TEMPORARY.fullmatch(name))


def remove(folder: Path, kept: Collection[str] = ()) -> None:
    """Delete the files of a state except `kept`, the manifest first, and the folder if it is empty.

    Nothing is deleted through a link, and no file that a state does not have.

    Raises:
        StoreError: the folder is a link.
        OSError: a file cannot be deleted.
    """
    folder = part_of(folder.parent, folder.name)
    with suppress(FileNotFoundError, NotADirectoryError):
        for path in sorted(folder.iterdir(), key=lambda path: path.name != MANIFEST):
            if path.name not in kept and _is_of_state(path.name):
                path.unlink(missing_ok=True)
    if not kept:
        with suppress(OSError):  # it has other files
            folder.rmdir()
