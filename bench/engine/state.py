"""A run's state on disk: written atomically, so that a kill at any moment leaves the last saved one.

`server-R.pt` holds the server with its counters and the curve so far, `memory-K-R.pt` one client's memory, and
`manifest.json`, written last, names the files of one round, each with its SHA-256, and has a digest of its own: a bit
that a disk has changed stops a run instead of changing its results. Files that no manifest names are removed
afterwards. Only tensors and plain values are stored, and loaded with `weights_only`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from bench.errors import UnusableState
from bench.execution import BACKENDS, STATE_VERSION
from bench.whole import whole_file
from leaderboards.identity import digest

MANIFEST = "manifest.json"


class StateFolder:
    """The folder of one run's state.

    Args:
        path: `OUT/state/RUN_KEY`; made when first written.
        run: whose state it is, as plain values for the manifest: a run without a row has its name from them.
    """

    def __init__(self, path: Path, run: Mapping[str, Any] | None = None) -> None:
        self.path, self._run = path, run

    def manifest(self) -> dict[str, Any] | None:
        """What the last save wrote, or None if there is no state.

        Raises:
            UnusableState: the manifest is of another version, has changed since it was written, or an entry is not
                what `save` writes.
        """
        file = self.path / MANIFEST
        if not file.exists():
            return None
        try:
            manifest: Any = json.loads(file.read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise self._damaged(file, str(error)) from error
        for problem in _problems(manifest):
            raise self._damaged(file, problem)
        return dict(manifest)

    def save(
        self, round: int, server: Mapping[str, Any], memories: Mapping[int, Any], facts: Mapping[str, Any]
    ) -> None:
        """Make `round` the round that a load gives.

        Args:
            round: finished rounds.
            server: tree of the server's state.
            memories: of the clients whose memory changed since the last save; the others' files stay.
            facts: plain values for the manifest, such as the backend.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        server_file = f"server-{round}.pt"
        old = self.manifest() or {"memories": {}, "sha256": {}}
        # An empty memory needs no file, but must be known: it is not what a client begins with.
        files = {str(client): f"memory-{client}-{round}.pt" if memory else "" for client, memory in memories.items()}
        trees: dict[str, Any] = {files[str(client)]: memory for client, memory in memories.items() if memory}
        trees[server_file] = dict(server)
        sums = old["sha256"] | {name: self._write(name, tree) for name, tree in trees.items()}
        kept = {**old["memories"], **files}
        named = {server_file, *filter(None, kept.values())}
        manifest = {
            "version": STATE_VERSION,
            "round": round,
            "server": server_file,
            "memories": kept,
            "sha256": {name: sums[name] for name in sorted(named)},
            **({"run": dict(self._run)} if self._run else {}),
            **facts,
        }
        with whole_file(self.path / MANIFEST) as file:
            file.write(json.dumps(manifest | {"digest": digest(manifest)}).encode())
        self._sweep({MANIFEST, *named})

    def load(self, manifest: Mapping[str, Any], device: torch.device) -> tuple[dict[str, Any], dict[int, Any]]:
        """What a manifest names: the server's tree on `device`, the memories on the CPU.

        Raises:
            UnusableState: a file is missing or damaged.
        """
        sums = manifest["sha256"]
        server = self._read(manifest["server"], sums, device)
        memories = {
            int(client): self._read(name, sums, "cpu") if name else {} for client, name in manifest["memories"].items()
        }
        return server, memories

    def remove(self) -> None:
        """Forget the run: its row is stored."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _write(self, name: str, tree: Any) -> str:
        """Write a file; returns its SHA-256."""
        with whole_file(self.path / name) as file:
            torch.save(tree, file)
        return _sha256(self.path / name)

    def _read(self, name: str, sums: Mapping[str, str], device: torch.device | str) -> Any:
        file = self.path / name
        try:
            if _sha256(file) != sums[name]:
                raise ValueError("it has changed since it was written")
            return torch.load(file, map_location=device, weights_only=True)
        except Exception as error:
            raise self._damaged(file, str(error)) from error

    def _sweep(self, keep: set[str]) -> None:
        for file in self.path.iterdir():
            if file.name not in keep:
                file.unlink(missing_ok=True)

    def _damaged(self, file: Path, why: str) -> UnusableState:
        return UnusableState(
            f"the saved state {file} cannot be used ({why}); remove the folder {self.path} to start this run anew"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _problems(manifest: Any) -> Iterator[str]:
    """What of a manifest is not as `StateFolder.save` writes it."""
    if not isinstance(manifest, dict):
        yield f"{type(manifest).__name__} where names and values are expected"
        return
    if manifest.get("version") != STATE_VERSION:
        yield f"version {manifest.get('version')!r} where {STATE_VERSION} is known"
        return
    sums, memories = manifest.get("sha256"), manifest.get("memories")
    files = list(sums) if isinstance(sums, dict) else []
    sound = {
        "round": type(manifest.get("round")) is int and manifest["round"] >= 0,
        "sha256": all(Path(name).name == name for name in files),
        "server": manifest.get("server") in files,
        "memories": isinstance(memories, dict)
        and all(client.isdecimal() and name in ["", *files] for client, name in memories.items()),
        "backend": manifest.get("backend") in BACKENDS,
        "track": isinstance(manifest.get("track"), list),
        "programs": isinstance(manifest.get("programs"), dict),
    }
    yield from (f"its {name} is {manifest.get(name)!r}" for name, is_sound in sound.items() if not is_sound)
    try:
        changed = manifest.get("digest") != digest({name: of for name, of in manifest.items() if name != "digest"})
    except ValueError:  # NaN, say
        changed = True
    if changed:
        yield "it has changed since it was written"
