"""A run's state on disk, written atomically: a kill at any moment leaves the last saved one.

`server-R.pt` holds the server with its counters and the curve so far, `memory-K-R.pt` one client's
memory, and `manifest.json`, written last, names the files of one round, each with its SHA-256, and
has a digest of its own: a bit that a disk has changed stops a run instead of changing its results.
Files of earlier rounds are removed afterwards. Only tensors and plain values are stored, and loaded
with `weights_only`.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from bench import state_files
from bench.engine.process import is_out_of_memory
from bench.engine.pytree import leaves, num_bytes
from bench.errors import UnusableState
from bench.state_files import MANIFEST, STATE_VERSION
from leaderboards.rows.decoded import SMALLEST, TIMES
from leaderboards.rows.files import atomic_file, content_hash, open_regular, part_of
from leaderboards.rows.schema import digest


class StateFolder:
    """The folder of one run's state, `OUT/state/RUN_KEY`, which the first save creates.

    The manifest keeps `run`, plain values that name a run which has no row yet.
    """

    def __init__(self, path: Path, run: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self._run = run

    def manifest(self) -> dict[str, Any] | None:
        """Read the manifest of the last save, or None if there is no state.

        Raises:
            UnusableState: the folder is a link; the manifest is of another version, has changed
                since it was written, or names files that are no state's.
        """
        self._check_folder()
        try:
            manifest = state_files.manifest_of(self.path)
            if manifest is None:
                return None
            if manifest.get("version") != STATE_VERSION:
                raise ValueError(
                    f"version {manifest.get('version')!r}, and this version reads {STATE_VERSION}"
                )
            if manifest.get("digest") != digest(
                {key: value for key, value in manifest.items() if key != "digest"}
            ):
                raise ValueError("it has changed since it was written")
            state_files.files_of(manifest)
        except (OSError, ValueError, RecursionError) as error:
            raise self.unusable(self.path / MANIFEST, str(error)) from error
        return manifest

    def _check_folder(self) -> None:
        """Raise UnusableState if the folder is a link: its files would be another's."""
        try:
            part_of(self.path.parent, self.path.name)
        except ValueError as error:
            raise UnusableState(str(error)) from error

    def save(
        self,
        round: int,
        server: Mapping[str, Any],
        memories: Mapping[int, Any],
        facts: Mapping[str, Any],
    ) -> None:
        """Write the state after `round`, which the next load returns.

        `memories` are those that changed since the last save; the files of others stay. `facts` go
        into the manifest.
        """
        self._check_folder()
        self.path.mkdir(parents=True, exist_ok=True)
        server_file = f"server-{round}.pt"
        previous = self.manifest() or {"memories": {}, "sha256": {}}
        # An empty memory has no file but an entry, because a client may begin with another memory.
        files: dict[str, str] = {}
        hashes = dict(previous["sha256"])
        for client, memory in memories.items():
            name = f"memory-{client}-{round}.pt" if memory else ""
            files[str(client)] = name
            if memory:
                hashes[name] = self._write(name, memory)
        hashes[server_file] = self._write(server_file, dict(server))
        memory_files = {**previous["memories"], **files}
        named = {server_file, *filter(None, memory_files.values())}
        manifest = {
            "version": STATE_VERSION,
            "round": round,
            "server": server_file,
            "memories": memory_files,
            "sha256": {name: hashes[name] for name in sorted(named)},
            **({"run": dict(self._run)} if self._run else {}),
            **facts,
        }
        with atomic_file(self.path / MANIFEST) as file:
            file.write(json.dumps(manifest | {"digest": digest(manifest)}).encode())
        state_files.remove(self.path, kept={MANIFEST, *named})

    def load(
        self, manifest: Mapping[str, Any], device: torch.device
    ) -> tuple[dict[str, Any], dict[int, Any]]:
        """Load the files of a manifest: the server's tree on `device`, the memories on the CPU.

        Raises:
            UnusableState: a file is missing or damaged.
        """
        sums = manifest["sha256"]
        server = self._read(manifest["server"], sums, device)
        memories = {
            int(client): self._read(name, sums, "cpu") if name else {}
            for client, name in manifest["memories"].items()
        }
        return server, memories

    def remove(self) -> None:
        """Delete the state, its manifest first: without one there is no state.

        Raises UnusableState for a link.
        """
        self._check_folder()
        with suppress(OSError):
            state_files.remove(self.path)

    def _write(self, name: str, tree: Any) -> str:
        """Write a file; returns its SHA-256."""
        with atomic_file(self.path / name) as file:
            torch.save(tree, file)
        return content_hash(self.path / name)

    def _read(self, name: str, hashes: Mapping[str, str], device: torch.device | str) -> Any:
        file = self.path / name
        try:
            if content_hash(file) != hashes[name]:
                raise ValueError("it has changed since it was written")
            _check_archive(file)
            tree = torch.load(file, map_location=device, weights_only=True)
            _check_tensors(tree, file.stat().st_size)
            return tree
        except Exception as error:
            if is_out_of_memory(error):  # the file is sound
                raise
            raise self.unusable(file, str(error)) from error

    def unusable(self, file: Path, why: str) -> UnusableState:
        """Return the error about a state of which `file` cannot be used."""
        return UnusableState(
            f"the saved state {file} cannot be used ({why}); remove the folder {self.path} to "
            "start this run anew"
        )


def _check_archive(file: Path) -> None:
    """Raise ValueError for compressed or overlapping parts, which may be large once read."""
    with open_regular(file) as content, zipfile.ZipFile(content) as archive:
        parts = archive.infolist()
        if any(part.compress_type != zipfile.ZIP_STORED for part in parts):
            raise ValueError("its parts are compressed")
        if sum(part.file_size for part in parts) > file.stat().st_size:
            raise ValueError("its parts overlap")


def _check_tensors(tree: Any, size: int) -> None:
    """Raise ValueError for tensors that are not plain, or far larger than the file's `size`."""
    for tensor in leaves(tree):
        if tensor.layout != torch.strided or tensor.device.type == "meta":
            raise ValueError(f"it holds a {tensor.layout} tensor on {tensor.device}")
    if num_bytes(tree) > max(SMALLEST, TIMES * size):
        raise ValueError(f"its tensors take {num_bytes(tree):,} bytes, the file {size:,}")
