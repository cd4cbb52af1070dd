"""States of unfinished runs in a mirror, so that another machine goes on from them.

    URL/state/RUN_KEY/WRITER/<file>.<16 hex of its SHA-256>     what the state's manifest names
    URL/state/RUN_KEY/WRITER/manifest.json                      written last: which of these are one round

A writer is one result folder on one machine: nobody writes into another's. Files are named by their content, so that
none is ever overwritten; what a new manifest does not name is removed after it.
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
        """Bring the states of unfinished runs that have none here, of `keys` or of all.

        Returns:
            How many; and sentences on those that cannot be used.
        """
        from filelock import FileLock, Timeout

        there = self._there()
        wanted = [key for key in there if keys is None or key in keys]
        done = self._store.finished(wanted) if wanted else set()
        brought, problems = 0, []
        for key in sorted({*wanted} - done - {*self._here()}):
            self._folder.mkdir(parents=True, exist_ok=True)
            with suppress(Timeout), FileLock(self._folder / f"{key}.lock", timeout=0):  # else it is at work here
                if not (self._folder / key / MANIFEST).exists():
                    usable = self._bring_furthest(key, there[key])
                    brought += usable
                    if not usable and self._place.files(f"state/{key}"):
                        problems.append(f"the state of run {key[:16]} in the mirror is damaged: it begins anew")
        return brought, problems

    def push(self, stored: Collection[str]) -> int:
        """Write the states as they are now, and remove those of runs that are over; return how many were written.

        `stored` are the keys of the finished rows that the mirror has: the state of a run that ended since is its only
        copy.
        """
        from filelock import FileLock, Timeout

        pushed = 0
        with suppress(Timeout), FileLock(self._folder.with_name("mirror.lock"), timeout=0):  # else another sweep does
            there, here = self._there(), self._here()
            pushed = sum(self._push(key, there.get(key, {})) for key in here)
            for key in there.keys() - set(here) & set(stored):
                self._remove(key, there[key])
        return pushed

    def _here(self) -> list[str]:
        keys = sorted(path.parent.name for path in self._folder.glob(f"*/{MANIFEST}"))
        return [key for key in keys if _KEY.fullmatch(key)]

    def _there(self) -> dict[str, dict[str, int]]:
        """List the mirror's states: run key -> file below its folder -> bytes."""
        states: dict[str, dict[str, int]] = {}
        for name, size in self._place.files("state").items():
            key, _, rest = name.partition("/")
            if _KEY.fullmatch(key) and rest.count("/") == 1:
                states.setdefault(key, {})[rest] = size
        return states

    def _push(self, key: str, there: dict[str, int]) -> bool:
        """Write one state; False if it is there already, or cannot be read: damaged, or saved anew."""
        target = f"{self._writer}/{MANIFEST}"
        try:
            manifest = (self._folder / key / MANIFEST).read_bytes()
            if self._written.get(key) == manifest and target in there:
                return False
            files = {}
            for name, digest in json.loads(manifest)["sha256"].items():
                with (self._folder / key / name).open("rb") as file:  # stays as it was if it is replaced
                    size, blob = os.fstat(file.fileno()).st_size, f"{name}.{digest[:16]}"
                    files[name] = {"blob": blob, "sha256": digest, "bytes": size}
                    if there.get(f"{self._writer}/{blob}") != size:
                        self._place.put(f"state/{key}/{self._writer}/{blob}", file)
        except (FileNotFoundError, ValueError, LookupError, TypeError, AttributeError):
            return False  # no reason to leave out the others
        content = {"manifest": json.loads(manifest), "files": files}
        self._place.put(f"state/{key}/{target}", json.dumps(content).encode())
        self._written[key] = manifest
        kept = {target, *(f"{self._writer}/{entry['blob']}" for entry in files.values())}
        self._remove(key, {name for name in there if name.startswith(f"{self._writer}/")} - kept)
        return True

    def _remove(self, key: str, names: Iterable[str]) -> None:
        """Remove files, manifests first: a state that is seen is whole."""
        for name in sorted(names, key=lambda name: not name.endswith(MANIFEST)):
            self._place.remove(f"state/{key}/{name}")

    def _bring_furthest(self, key: str, names: Iterable[str]) -> bool:
        """Bring the state of the highest round that can be used; whether there is one. `names`: of the run's files."""
        manifests = {}
        for name in names:
            writer, _, rest = name.partition("/")
            if rest == MANIFEST:
                with suppress(FileNotFoundError):
                    manifests[writer] = self._place.read(f"state/{key}/{name}")
        furthest_first = sorted(manifests, key=lambda writer: _round(manifests[writer]), reverse=True)
        return any(self._bring(key, writer, manifests[writer]) for writer in furthest_first)

    def _bring(self, key: str, writer: str, text: bytes) -> bool:
        """Copy one state, its manifest last; False if a file is missing or has another hash than the manifest says."""
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
    """The round that a manifest in a mirror is of; -1 if it cannot be read."""
    try:
        return int(json.loads(text)["manifest"]["round"])
    except (ValueError, LookupError, TypeError):
        return -1
