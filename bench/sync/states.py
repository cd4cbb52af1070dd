"""States of unfinished runs in a mirror, so that another machine can go on from them.

    URL/state/RUN_KEY/WRITER/<file>.<16 hex of its SHA-256>     a file that the state's manifest names
    URL/state/RUN_KEY/WRITER/manifest.json                      written last: which of these files are one round

A writer is one result folder on one machine, and changes only its own files. Files are named by their content, so that
none is ever overwritten; those that a new manifest does not name are removed after it is written.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.sync.place import Place
from leaderboards import Store
from leaderboards.rows.files import atomic_file, content_hash

MANIFEST = "manifest.json"
_KEY = re.compile("[0-9a-f]{64}")


class States:
    """The states of a result folder and those of its mirror."""

    def __init__(self, out: Path, place: Place) -> None:
        self._folder, self._place, self._store = out / "state", place, Store(out)
        self._writer = hashlib.sha256(f"{platform.node()}:{out}".encode()).hexdigest()[:12]
        self._written: dict[str, bytes] = {}  # run key -> the last manifest that was pushed

    def pull(self, keys: Collection[str] | None = None) -> tuple[int, list[str]]:
        """Fetch the states of unfinished runs without a local state, of `keys` or of all.

        Returns:
            The number of states, and sentences on those that cannot be used.
        """
        from filelock import FileLock, Timeout

        remote = self._remote_files()
        wanted = [key for key in remote if keys is None or key in keys]
        finished = self._store.finished(wanted) if wanted else set()
        count, problems = 0, []
        for key in sorted({*wanted} - finished - {*self._local_keys()}):
            self._folder.mkdir(parents=True, exist_ok=True)
            with suppress(Timeout), FileLock(self._folder / f"{key}.lock", timeout=0):  # else the run is at work here
                if not (self._folder / key / MANIFEST).exists():
                    usable = self._fetch_furthest(key, remote[key])
                    count += usable
                    if not usable and self._place.files(f"state/{key}"):
                        problems.append(f"the state of run {key[:16]} in the mirror is damaged: it begins anew")
        return count, problems

    def push(self, stored: Collection[str]) -> int:
        """Write the current states, and remove those of runs that are over; return how many were written.

        `stored` are the keys of the finished rows that the mirror has. The state of a run that has ended since is its
        only copy in the mirror, and stays.
        """
        from filelock import FileLock, Timeout

        pushed = 0
        with suppress(Timeout), FileLock(self._folder.with_name("mirror.lock"), timeout=0):  # else another sweep pushes
            remote = self._remote_files()
            pushed = sum(self._push(key, remote.get(key, {})) for key in self._local_keys() if key not in stored)
            for key in remote.keys() & set(stored):
                self._remove(key, remote[key])
        return pushed

    def _local_keys(self) -> list[str]:
        keys = sorted(path.parent.name for path in self._folder.glob(f"*/{MANIFEST}"))
        return [key for key in keys if _KEY.fullmatch(key)]

    def _remote_files(self) -> dict[str, dict[str, int]]:
        """List the files of the mirror's states: run key -> name below its folder -> bytes."""
        states: dict[str, dict[str, int]] = {}
        for name, size in self._place.files("state").items():
            key, _, rest = name.partition("/")
            if _KEY.fullmatch(key) and rest.count("/") == 1:
                states.setdefault(key, {})[rest] = size
        return states

    def _push(self, key: str, remote: dict[str, int]) -> bool:
        """Write one state; return False if the mirror has it, or it cannot be read: damaged, or just saved anew."""
        target = f"{self._writer}/{MANIFEST}"
        try:
            manifest = (self._folder / key / MANIFEST).read_bytes()
            if self._written.get(key) == manifest and target in remote:
                return False
            files = {}
            for name, digest in json.loads(manifest)["sha256"].items():
                with (self._folder / key / name).open("rb") as file:  # an open file stays as it was if it is replaced
                    size, blob = os.fstat(file.fileno()).st_size, f"{name}.{digest[:16]}"
                    files[name] = {"blob": blob, "sha256": digest, "bytes": size}
                    if remote.get(f"{self._writer}/{blob}") != size:
                        self._place.put(f"state/{key}/{self._writer}/{blob}", file)
        except (FileNotFoundError, ValueError, LookupError, TypeError, AttributeError):
            return False  # the others are pushed all the same
        content = {"manifest": json.loads(manifest), "files": files}
        self._place.put(f"state/{key}/{target}", json.dumps(content).encode())
        self._written[key] = manifest
        current = {target, *(f"{self._writer}/{entry['blob']}" for entry in files.values())}
        self._remove(key, {name for name in remote if name.startswith(f"{self._writer}/")} - current)
        return True

    def _remove(self, key: str, names: Iterable[str]) -> None:
        """Remove files, manifests first, so that every state with a manifest is complete."""
        for name in sorted(names, key=lambda name: not name.endswith(MANIFEST)):
            self._place.remove(f"state/{key}/{name}")

    def _fetch_furthest(self, key: str, names: Iterable[str]) -> bool:
        """Fetch the usable state of the highest round; return whether there is one. `names`: the files of the run."""
        manifests = {}
        for name in names:
            writer, _, rest = name.partition("/")
            if rest == MANIFEST:
                with suppress(FileNotFoundError):
                    manifests[writer] = self._place.read(f"state/{key}/{name}")
        furthest_first = sorted(manifests, key=lambda writer: _round(manifests[writer]), reverse=True)
        return any(self._fetch(key, writer, manifests[writer]) for writer in furthest_first)

    def _fetch(self, key: str, writer: str, text: bytes) -> bool:
        """Fetch one state, its manifest last; return False if a file is missing or its hash is not the manifest's."""
        folder = self._folder / key
        try:
            content: dict[str, Any] = json.loads(text)
            for name, entry in content["files"].items():
                target = folder / Path(name).name
                self._place.fetch(f"state/{key}/{writer}/{entry['blob']}", target)
                if content_hash(target) != entry["sha256"]:
                    raise FileNotFoundError(name)
            folder.mkdir(parents=True, exist_ok=True)
            with atomic_file(folder / MANIFEST) as manifest:
                manifest.write(json.dumps(content["manifest"]).encode())
        except (FileNotFoundError, ValueError, LookupError, TypeError, AttributeError):
            shutil.rmtree(folder, ignore_errors=True)
            return False
        return True


def _round(text: bytes) -> int:
    """Return the round of a manifest in a mirror; -1 if it cannot be read."""
    try:
        return int(json.loads(text)["manifest"]["round"])
    except (ValueError, LookupError, TypeError):
        return -1
