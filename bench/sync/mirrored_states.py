"""States of unfinished runs in a mirror, so that another machine can go on from them.

    URL/state/RUN_KEY/WRITER/<file>.<16 hex of its SHA-256>  a file that the manifest names
    URL/state/RUN_KEY/WRITER/manifest.json                   written last: the files of one round

A writer is one result folder on one machine, and changes only its own files. Files are named by
their content, so that none is ever overwritten; those that a new manifest does not name are removed
after it is written. A manifest may be somebody else's: only files with a state's names are copied,
and only with the stated size and content.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench import state_files
from bench.state_files import MANIFEST, MANIFEST_BYTES
from bench.sync.place import Place
from leaderboards import Store, StoreError
from leaderboards.rows.files import atomic_file, content_hash, open_regular, part_of

# Errors of a state that is not there, or is not what it should be.
_UNUSABLE = (
    FileNotFoundError,
    ValueError,
    LookupError,
    TypeError,
    OverflowError,
    RecursionError,
)


class MirroredStates:
    """The states of a result folder, and the states of its mirror."""

    def __init__(self, out: Path, place: Place) -> None:
        self._out = out
        self._folder = out / state_files.FOLDER
        self._place = place
        self._store = Store(out)
        self._writer = hashlib.sha256(f"{platform.node()}:{out}".encode()).hexdigest()[:12]
        self._written: dict[str, bytes] = {}  # run key -> the last manifest that was pushed

    def pull(self, keys: Collection[str] | None = None) -> tuple[int, list[str]]:
        """Fetch the states of unfinished runs without a local state, of `keys` or of all.

        Returns:
            The number of states, and sentences on states that cannot be used.
        """
        from filelock import FileLock, Timeout

        remote = self._remote_files()
        wanted = [key for key in remote if keys is None or key in keys]
        finished = self._store.finished(wanted) if wanted else set()
        count = 0
        problems = []
        for key in sorted({*wanted} - finished - {*self._local_keys()}):
            part_of(self._out, state_files.FOLDER).mkdir(parents=True, exist_ok=True)
            lock = FileLock(self._folder / f"{key}.lock", timeout=0)
            with suppress(Timeout), lock:  # a locked run is at work here
                if key not in self._local_keys():
                    usable = self._fetch_furthest(key, remote[key])
                    count += usable
                    if not usable and self._place.files(f"state/{key}"):
                        problems.append(
                            f"the state of run {key[:16]} in the mirror is damaged: it begins anew"
                        )
        return count, problems

    def push(self, stored: Collection[str]) -> int:
        """Write the current states, and remove the states of runs that are over.

        `stored` are the keys of the finished rows that the mirror has. A run that has ended since
        has no row there: its state is its only copy in the mirror, and stays. Returns how many
        states were written.
        """
        from filelock import FileLock, Timeout

        pushed = 0
        lock = FileLock(self._folder.with_name("mirror.lock"), timeout=0)
        with suppress(Timeout), lock:  # if it is locked, another sweep pushes
            remote = self._remote_files()
            unfinished = [key for key in self._local_keys() if key not in stored]
            pushed = sum(self._push(key, remote.get(key, {})) for key in unfinished)
            for key in remote.keys() & set(stored):
                self._remove(key, remote[key])
        return pushed

    def _local_keys(self) -> list[str]:
        """List the runs with a state here, or with a link, which the run refuses."""
        keys = []
        for folder in state_files.folders(self._out):
            has_state = folder.is_symlink() or (folder / MANIFEST).exists()
            if has_state and state_files.KEY.fullmatch(folder.name):
                keys.append(folder.name)
        return keys

    def _remote_files(self) -> dict[str, dict[str, int]]:
        """List the files of the mirror's states: run key -> name below its folder -> bytes."""
        by_key: dict[str, dict[str, int]] = {}
        for name, size in self._place.files(state_files.FOLDER).items():
            key, _, rest = name.partition("/")
            if state_files.KEY.fullmatch(key) and rest.count("/") == 1:
                by_key.setdefault(key, {})[rest] = size
        return by_key

    def _push(self, key: str, remote: dict[str, int]) -> bool:
        """Write one state.

        Returns False if the mirror has it, or if it cannot be read: damaged, or just saved anew.
        """
        folder = self._folder / key
        target = f"{self._writer}/{MANIFEST}"
        try:
            manifest = state_files.manifest_of(folder)
            text = json.dumps(manifest).encode()
            if self._written.get(key) == text and target in remote:
                return False
            sums = state_files.files_of(manifest)
            files = {
                name: self._push_file(folder / name, digest, remote)
                for name, digest in sums.items()
            }
        except (FileNotFoundError, ValueError, RecursionError):
            return False  # the others are pushed all the same
        remote_manifest = json.dumps({"manifest": manifest, "files": files})
        self._place.put(f"state/{key}/{target}", remote_manifest.encode())
        self._written[key] = text
        own = f"{self._writer}/"
        current = {target, *(f"{own}{entry['blob']}" for entry in files.values())}
        outdated = {name for name in remote if name.startswith(own)} - current
        self._remove(key, outdated)
        return True

    def _push_file(self, path: Path, digest: str, remote: Mapping[str, int]) -> dict[str, Any]:
        """Write a file of a state, unless the mirror has it; return its entry in the manifest.

        Raises:
            ValueError: it is no regular file, or its content has another SHA-256 than `digest`.
        """
        blob = _blob(path.name, digest)
        with open_regular(path) as file:  # an open file stays as it was if it is replaced
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise ValueError(f"{path} has changed since it was written")
            size = file.tell()
            if remote.get(f"{self._writer}/{blob}") != size:
                file.seek(0)
                self._place.put(f"state/{path.parent.name}/{self._writer}/{blob}", file)
        return {"blob": blob, "sha256": digest, "bytes": size}

    def _remove(self, key: str, names: Iterable[str]) -> None:
        """Remove files, manifests first, so that every state with a manifest is complete."""
        for name in sorted(names, key=lambda name: not name.endswith(MANIFEST)):
            self._place.remove(f"state/{key}/{name}")

    def _fetch_furthest(self, key: str, remote: Mapping[str, int]) -> bool:
        """Fetch the usable state of the highest round; return whether there is one.

        `remote`: the files of the run.
        """
        contents: dict[str, dict[str, Any]] = {}
        rounds = {}
        for name in remote:
            writer, _, rest = name.partition("/")
            if rest == MANIFEST:
                with suppress(*_UNUSABLE):
                    text = self._place.read(f"state/{key}/{name}", MANIFEST_BYTES)
                    contents[writer] = json.loads(text)
                    rounds[writer] = int(contents[writer]["manifest"]["round"])
        furthest_first = sorted(rounds, key=lambda writer: rounds[writer], reverse=True)
        return any(self._fetch(key, writer, contents[writer], remote) for writer in furthest_first)

    def _fetch(
        self, key: str, writer: str, content: Mapping[str, Any], remote: Mapping[str, int]
    ) -> bool:
        """Fetch one state, its manifest last; return False if a file is not as stated."""
        folder = self._folder / key
        try:
            for name, digest in state_files.files_of(content["manifest"]).items():
                blob = _blob(name, digest)
                stored = f"{writer}/{blob}"
                expected = {"blob": blob, "sha256": digest, "bytes": remote[stored]}
                if content["files"][name] != expected:
                    raise ValueError(f"its file {name} is not as stated")
                target = folder / name
                self._place.fetch(f"state/{key}/{stored}", target, remote[stored])
                if content_hash(target) != digest:
                    raise FileNotFoundError(name)
            folder.mkdir(parents=True, exist_ok=True)
            with atomic_file(folder / MANIFEST) as manifest:
                manifest.write(json.dumps(content["manifest"]).encode())
        except _UNUSABLE:
            with suppress(OSError, StoreError):
                state_files.remove(folder)
            return False
        return True


def _blob(name: str, digest: str) -> str:
    """Return the name of a state's file in a mirror."""
    return f"{name}.{digest[:16]}"
