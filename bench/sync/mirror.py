"""Synchronisation of a result folder and its mirror, by copying the files that one side lacks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.errors import UsageError
from bench.sync.place import MirrorProblem, Place, first_line, local_folder, open_place
from bench.sync.states import States
from bench.terminal.console import say
from bench.terminal.words import counted
from leaderboards import StoreError
from leaderboards.rows.files import read_table
from leaderboards.rows.segments import Folder, curve_path, held_names, shared_name
from leaderboards.rows.store import BOARD
from leaderboards.shell_text import shell_command

EVERY_SECONDS = 60.0
_AT_ONCE = 8  # files on their way: an object store answers slowly, but many at a time
_TRACKED = (".npz", ".safetensors")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Moved:
    """Counts of rows, files and states copied in one direction. `problems`: sentences on those that could not be."""

    rows: int = 0
    tracked: int = 0
    states: int = 0
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        counts = ((self.rows, "row"), (self.tracked, "tracked file"), (self.states, "state"))
        return ", ".join(counted(count, noun) for count, noun in counts if count) or "nothing new"


class Mirror:
    """A result folder `out` and its mirror at `place`."""

    def __init__(self, out: Path, place: Place) -> None:
        self.out, self.place = out, place
        self._folder, self._states = Folder(out), States(out, place)

    def pull(self, keys: Collection[str] | None = None) -> Moved:
        """Fetch the files that the folder lacks. `keys`: runs whose states are wanted; None for all.

        Raises:
            MirrorProblem: the mirror cannot be read, or the folder not written.
            StoreError: a file in the mirror is broken, foreign or of a newer schema; the message names it.
        """
        rows, tracked = self._folder.steady(self._pull_files)
        states, problems = self._states.pull(keys)
        return Moved(rows, tracked, states, tuple(problems))

    def push(self) -> Moved:
        """Write the files that the mirror lacks, and remove those that segments of the folder replace.

        Raises:
            MirrorProblem: the mirror cannot be read or written.
            OSError: the folder cannot be read.
        """
        rows, tracked, finished = self._folder.steady(self._push_files)
        states = self._states.push(finished)
        remote = self._remote_files("runs", ".parquet")
        held = held_names(path for path in self._folder.paths() if path.name in remote)
        for kind in ("runs", "curves"):  # rows first: a curve without its row is ignored
            for name in sorted(held.intersection(self._remote_files(kind, ".parquet"))):
                self.place.remove(f"{kind}/{name}")
        return Moved(rows, tracked, states)

    def _remote_files(self, kind: str, *endings: str) -> dict[str, int]:
        """List the mirror's files of a kind: name -> bytes."""
        return {
            name: size
            for name, size in self.place.files(kind).items()
            if name.endswith(endings) and "/" not in name and not name.startswith(".")
        }

    def _pull_files(self) -> tuple[int, int]:
        """Fetch rows and tracked files; return how many of each."""
        paths = self._folder.paths()
        held = held_names(paths)
        remote = sorted(self._remote_files("runs", ".parquet").keys() - held)
        rows = sorted(set(remote) - {shared_name(path) for path in paths})
        stored = self._remote_files("curves", ".parquet")  # after the rows, so that each row's curve is among them
        curves = [name for name in remote if name in stored and not (self.out / "curves" / name).exists()]
        remote_tracked = self._remote_files("tracked", *_TRACKED)
        tracked = [name for name in remote_tracked if not (self.out / "tracked" / name).exists()]
        _for_each(lambda name: self.place.fetch(f"tracked/{name}", self.out / "tracked" / name), tracked)
        _for_each(lambda name: self.place.fetch(f"curves/{name}", self.out / "curves" / name), curves)
        _for_each(self._fetch_rows, rows)
        return _count_rows(self.out / "runs" / name for name in rows), len(tracked)

    def _fetch_rows(self, name: str) -> None:
        """Fetch a file of rows; raises StoreError if it is broken."""

        def check(path: Path) -> None:
            try:
                read_table(path, "runs", [])
            except StoreError as error:
                where = f"{self.place.url}/runs/{name}"
                raise StoreError(Path(where), str(error).replace(str(path), where)) from error

        self.place.fetch(f"runs/{name}", self.out / "runs" / name, check)

    def _push_files(self) -> tuple[int, int, set[str]]:
        """Push rows and tracked files; return how many of each, and the keys of finished rows that the mirror has."""
        paths = self._folder.paths()
        rows = self._folder.index(paths=paths).select(["run_key", "status"]).to_pylist()
        remote, held = self._remote_files("runs", ".parquet"), held_names(paths)
        with_curve = [path for path in paths if curve_path(path).exists()]
        sizes = {path: path.stat().st_size for path in paths}  # FileNotFoundError, if a file was compacted meanwhile
        missing = {
            path: name
            for path in with_curve
            if (name := shared_name(path)) not in held and remote.get(name) != sizes[path]
        }
        tracked = self._push_tracked()  # before the rows that they belong to
        _for_each(lambda path: self._put(curve_path(path), f"curves/{missing[path]}"), [*missing])
        _for_each(lambda path: self._put(path, f"runs/{missing[path]}"), [*missing])
        return _count_rows(missing), tracked, {row["run_key"] for row in rows if row["status"] == "finished"}

    def _push_tracked(self) -> int:
        """Push the tracked files that the mirror lacks, or has with fewer bytes."""
        remote = self._remote_files("tracked", *_TRACKED)
        local = [path for path in sorted((self.out / "tracked").glob("[!.]*")) if path.suffix in _TRACKED]
        larger = [path for path in local if remote.get(path.name, -1) < path.stat().st_size]
        _for_each(lambda path: self._put(path, f"tracked/{path.name}"), larger)
        return len(larger)

    def _put(self, path: Path, name: str) -> None:
        with path.open("rb") as file:
            self.place.put(name, file)


def _for_each(action: Callable[[_T], None], items: Sequence[_T]) -> None:
    """Call `action` with each item, several in parallel; raises the first problem, after which no call begins."""
    with ThreadPoolExecutor(_AT_ONCE, "mirror") as pool:
        for _ in pool.map(action, items):
            pass


def _count_rows(paths: Iterable[Path]) -> int:
    """Count the rows of some files."""
    return sum(read_table(path, "runs", []).num_rows for path in paths)


def check_place(url: str, out: Path, read_only: bool = False) -> None:
    """Raise UsageError if mirror and folder contain one another, or if a mirror to be written is a result folder."""
    near = local_folder(url)
    if near and (near.is_relative_to(out) or out.is_relative_to(near)):
        raise UsageError(f"the mirror {url} and the result folder {out} contain one another: choose another location")
    if near and not read_only and (near / BOARD).exists():
        raise UsageError(
            f"{url} is a result folder, not a mirror of {out}: name another place, or bring the rows into it by "
            f"`{shell_command('bench.boards', 'merge', out, '--out', near)}`"
        )


def open_mirror(url: str, out: Path, read_only: bool = False) -> Mirror:
    """Open the mirror of a folder, and check that it can be read and written, or has results if `read_only`.

    Raises:
        UsageError: the URL is not valid, or `check_place` refuses it.
        MirrorProblem: the mirror cannot be reached or written.
    """
    check_place(url, out, read_only)
    try:
        place = open_place(url)
        if read_only:
            place.check_results()
        else:
            place.probe()
            place.sweep()
    except MirrorProblem as error:
        raise MirrorProblem(f"{error}; check the URL, the network and your rights") from error
    return Mirror(out, place)


@contextmanager
def mirrored(url: str, out: Path, keys: Collection[str] | None) -> Iterator[None]:
    """Pull before a sweep, push every minute, and push the rest at the end.

    `keys`: the sweep's runs, whose states are fetched; None for all.

    Raises:
        UsageError: the mirror lies within the folder or around it, or is a result folder.
        MirrorProblem: before anything ran, the mirror cannot be reached, read or written.
    """
    try:
        mirror = open_mirror(url, out)
    except MirrorProblem as error:
        raise MirrorProblem(f"{error}, or drop --mirror and `boards push` later (docs/cluster.md)") from error
    moved = mirror.pull(keys)
    say(f"mirror {url}: {moved} fetched", *moved.problems)
    pusher = Pusher(mirror)
    try:
        yield
    finally:
        pusher.finish()


class Pusher:
    """A thread that pushes while runs go on; a problem is reported once, and the push is tried again later."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror, self._problem = mirror, ""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name="mirror")
        self._thread.start()

    def finish(self) -> None:
        """Push the rest, and report if that fails."""
        self._ending.set()
        try:
            self._thread.join()
        except KeyboardInterrupt:
            self._problem = "interrupted"
        if self._problem:
            out = self._mirror.out
            command = shell_command("bench.boards", "push", self._mirror.place.url, out)
            say(
                f"not all of {out} is mirrored ({self._problem}); everything is in {out}; the same command, or "
                f"`{command}`, pushes it"
            )

    def _work(self) -> None:
        while not self._ending.wait(EVERY_SECONDS):
            before = self._problem
            self._push()
            if self._problem and not before:
                say(f"{self._problem}; runs go on, and it is tried again every {EVERY_SECONDS:g} s")
        self._push()

    def _push(self) -> None:
        try:
            self._mirror.push()
            self._problem = ""
        except Exception as error:  # no problem of the copy, whatever it is, must end a run
            self._problem = first_line(error)
