"""A result folder and its copy: what goes from one to the other."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.mirror.place import FOLDERS, MirrorProblem, Place, each
from bench.mirror.rows import Rows
from bench.mirror.states import States

PATIENCE = 120.0  # seconds without a byte moved, after which a push is given up
_TRACKED = (".npz", ".safetensors")
_Signs = dict[Path, tuple[int, int]]


@dataclass(frozen=True)
class Moved:
    """What went one way. `problems`: sentences on what could not."""

    rows: int = 0
    tracked: int = 0
    states: int = 0
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        counts = ((self.rows, "row"), (self.tracked, "tracked file"), (self.states, "state"))
        found = [f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts if count]
        return ", ".join(found) or "nothing new"


class Mirror:
    """A result folder and its mirror.

    Args:
        out: the result folder.
        place: where the mirror lies.
        scratch: a folder for copies.
    """

    def __init__(self, out: Path, place: Place, scratch: Path) -> None:
        self.out, self.place = out, place
        self.rows, self.states = Rows(out, place, scratch), States(out, place)
        self._before, self._settled = _signs(out), _Signs()
        self._pushed = 0  # tracked files

    def pull(self, keys: Collection[str] | None = None) -> Moved:
        """Bring what the folder lacks. `keys`: runs whose states are wanted; None is all.

        Raises:
            MirrorProblem: the mirror cannot be read.
            StoreError, OSError: of the folder.
        """
        before = len(_signs(self.out))
        rows = self.rows.pull(first=self._pull_tracked)
        states, problems = self.states.pull(keys)
        self._before = _signs(self.out)
        return Moved(rows, len(self._before) - before, states, tuple(problems))

    def push(self, replace: bool = False) -> Moved:
        """Write what the mirror lacks. `replace`: as of `Rows.push`. Raises as `pull` does."""
        from filelock import Timeout

        try:
            with self.rows.store.locked("mirror", PATIENCE):  # several sweeps may share a folder
                before = self._pushed
                rows = self.rows.push(replace, first=self._push_tracked)
                return Moved(rows, self._pushed - before, self.states.push(stored=self.rows.finished_there))
        except Timeout:
            raise MirrorProblem(f"mirror {self.place.url}: another process is pushing {self.out}") from None

    def tidy(self) -> None:
        """Few files of many, and nothing that killed writers left. Raises as `pull` does."""
        self.rows.tidy()
        for folder in FOLDERS:
            self.place.sweep(folder)

    def pending(self) -> Moved:
        """What the mirror, as far as is known, lacks."""
        tracked = sum(self._settled.get(path) != sign for path, sign in _signs(self.out).items())
        return Moved(self.rows.pending(), tracked, self.states.pending())

    def _pull_tracked(self) -> None:
        folder = self.out / "tracked"
        there = [name for name in self.place.files("tracked") if name.endswith(_TRACKED) and "/" not in name]
        missing = [name for name in there if not (folder / name).exists()]
        each(partial(self.place.fetch, f"tracked/{name}", folder / name) for name in missing)

    def _push_tracked(self) -> None:
        """Those that the mirror lacks, has with less in them, or that were made anew meanwhile."""
        there = self.place.files("tracked")
        for path, sign in _signs(self.out).items():
            if there.get(path.name, -1) < sign[1] or self._before.get(path, sign) != sign:
                with path.open("rb") as file:
                    self.place.put(f"tracked/{path.name}", file)
                self._pushed += 1
            self._before[path] = self._settled[path] = sign


def _signs(out: Path) -> _Signs:
    """Each tracked file with when it was written and its bytes."""
    found = {}
    for path in sorted((out / "tracked").glob("*")):
        if path.suffix in _TRACKED and not path.name.startswith("."):
            stat = path.stat()
            found[path] = (stat.st_mtime_ns, stat.st_size)
    return found
