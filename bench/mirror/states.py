"""States of runs under way in a mirror, so that another machine goes on from them.

    URL/state/RUN_KEY/WRITER/<file>.<16 hex of its SHA-256>     what the state's manifest names
    URL/state/RUN_KEY/WRITER/manifest.json                      written last: which of these are one round

A writer is one result folder on one machine: nobody writes into another's. Files are named by their content, so that
none is ever overwritten and a manifest's are those it was written for; what it does not name is removed afterwards.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.mirror.place import Place
from bench.whole import whole_file
from leaderboards import Store

MANIFEST = "manifest.json"
_ATTEMPTS = 5  # at copying a state that is saved anew meanwhile


class States:
    """The states of a result folder and those of its mirror.

    Args:
        out: the result folder.
        place: the mirror.
    """

    def __init__(self, out: Path, place: Place) -> None:
        self._folder, self._place, self._store = out / "state", place, Store(out)
        self._writer = hashlib.sha256(f"{platform.node()}:{out}".encode()).hexdigest()[:12]
        self._written: dict[str, bytes] = {}  # run key -> the last manifest that went out

    def pull(self, keys: Collection[str] | None = None) -> tuple[int, list[str]]:
        """Bring the states of unfinished runs that have none here.

        Args:
            keys: of the runs; None is all.

        Returns:
            How many; and sentences on those that cannot be used.
        """
        there = self._there()
        done = self._store.finished(there)
        wanted = [key for key in there if key not in done and (keys is None or key in keys) and not self._has(key)]
        brought, problems = 0, []
        for key in wanted:
            found = self._pull(key, there[key])
            brought += found is True
            problems += [f"the state of run {key[:16]} in the mirror is damaged: it begins anew"] * (found is False)
        return brought, problems

    def push(self, stored: Collection[str]) -> int:
        """Write the states as they are now, and remove those of runs that are over; returns how many were written.

        Args:
            stored: keys of the finished rows that the mirror has. The state of a run that ended since is its only copy.
        """
        there, here = self._there(), self._here()
        pushed = sum(self._push(key, there.get(key, {})) for key in here)
        over = self._store.finished(set(there) - set(here)).intersection(stored)
        for key in over:
            self._remove(key, there[key])
        return pushed

    def pending(self) -> int:
        """States whose last save the mirror, as far as is known, lacks."""
        return sum(_content(self._folder / key / MANIFEST) != self._written.get(key) for key in self._here())

    def _here(self) -> list[str]:
        return sorted(path.parent.name for path in self._folder.glob(f"*/{MANIFEST}") if _is_key(path.parent.name))

    def _has(self, key: str) -> bool:
        return (self._folder / key / MANIFEST).exists()

    def _there(self) -> dict[str, dict[str, int]]:
        """Run key -> file below it -> bytes."""
        found: dict[str, dict[str, int]] = {}
        for name, size in self._place.files("state").items():
            key, _, rest = name.partition("/")
            if _is_key(key) and rest.count("/") == 1:
                found.setdefault(key, {})[rest] = size
        return found

    def _push(self, key: str, there: dict[str, int]) -> bool:
        """Write one state; False if it is there already, gone here meanwhile, or damaged."""
        folder = self._folder / key
        for _ in range(_ATTEMPTS):
            try:
                return self._push_round(key, (folder / MANIFEST).read_bytes(), there)
            except FileNotFoundError:  # a newer round was saved, or the run has ended
                if not folder.exists():
                    return False
            except (ValueError, LookupError, TypeError, AttributeError):  # damaged: no reason to leave out the others
                return False
        return False  # the next time, then

    def _push_round(self, key: str, manifest: bytes, there: dict[str, int]) -> bool:
        own = f"{self._writer}/{MANIFEST}"
        if self._written.get(key) == manifest and own in there:
            return False
        files = {}
        for name, digest in json.loads(manifest)["sha256"].items():
            with (self._folder / key / name).open("rb") as file:  # what is replaced meanwhile stays open as it was
                size = os.fstat(file.fileno()).st_size
                blob = f"{name}.{digest[:16]}"
                files[name] = {"blob": blob, "sha256": digest, "bytes": size}
                if there.get(f"{self._writer}/{blob}") != size:
                    self._place.put(f"state/{key}/{self._writer}/{blob}", file)
        content = {"manifest": json.loads(manifest), "files": files}
        self._place.put(f"state/{key}/{own}", json.dumps(content).encode())
        self._written[key] = manifest
        kept = {own, *(f"{self._writer}/{entry['blob']}" for entry in files.values())}
        self._remove(key, {name for name in there if name.startswith(f"{self._writer}/") and name not in kept})
        return True

    def _remove(self, key: str, names: Iterable[str]) -> None:
        """Manifests first: a state in view is whole."""
        ordered = sorted(names, key=lambda name: not name.endswith(MANIFEST))
        self._place.remove(f"state/{key}/{name}" for name in ordered)

    def _pull(self, key: str, names: Iterable[str]) -> bool | None:
        """Bring the furthest state of a run; False if there are states and none can be used, None if it is at work."""
        from filelock import FileLock, Timeout

        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self._folder / f"{key}.lock", timeout=0):
                return None if self._has(key) else self._bring_furthest(key, names)
        except Timeout:  # another sweep of this folder is at this run
            return None

    def _bring_furthest(self, key: str, names: Iterable[str]) -> bool | None:
        """As `_pull`. A round that another machine saves while this one is copied takes its files away: once more."""
        there, useless = self._manifests(key, names), set[bytes]()
        for _ in range(_ATTEMPTS + len(there)):
            if not there:  # the run has ended meanwhile
                return None
            writer, content = _furthest({writer: text for writer, text in there.items() if text not in useless})
            if not content:
                return False
            if self._bring(key, writer, content):
                return True
            before, there = there, self._manifests(key, self._place.files(f"state/{key}"))
            if there.get(writer) == before[writer]:
                useless.add(before[writer])
        return False

    def _manifests(self, key: str, names: Iterable[str]) -> dict[str, bytes]:
        """What the manifest of each writer says now. `names`: of the files below the run's folder."""
        found = {}
        for name in names:
            writer, _, rest = name.partition("/")
            if rest == MANIFEST:
                with suppress(FileNotFoundError):
                    found[writer] = self._place.read(f"state/{key}/{name}")
        return found

    def _bring(self, key: str, writer: str, content: dict[str, Any]) -> bool:
        """Copy one state, its manifest last; False if a file is missing or not what was written."""
        folder = self._folder / key
        try:
            for name, entry in content["files"].items():
                self._place.fetch(f"state/{key}/{writer}/{entry['blob']}", folder / Path(name).name)
                with (folder / Path(name).name).open("rb") as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != entry["sha256"]:
                        raise FileNotFoundError(name)
        except (FileNotFoundError, KeyError, TypeError):
            shutil.rmtree(folder, ignore_errors=True)
            return False
        folder.mkdir(parents=True, exist_ok=True)
        with whole_file(folder / MANIFEST) as manifest:
            manifest.write(json.dumps(content["manifest"]).encode())
        return True


def _furthest(manifests: Mapping[str, bytes]) -> tuple[str, dict[str, Any]]:
    """The writer of the highest round, and what its manifest says; nothing where none can be read."""
    furthest, round = ("", dict[str, Any]()), -1
    for writer, text in manifests.items():
        with suppress(ValueError, KeyError, TypeError):
            content = json.loads(text)
            if int(content["manifest"]["round"]) > round:
                furthest, round = (writer, content), int(content["manifest"]["round"])
    return furthest


def _is_key(name: str) -> bool:
    return len(name) == 64 and all(letter in "0123456789abcdef" for letter in name)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
