"""Synchronisation of a result folder and its mirror, by copying the files that one side lacks."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench import artifacts
from bench.errors import UsageError
from bench.sync.mirrored_states import MirroredStates
from bench.sync.place import MirrorProblem, Place, first_line, local_folder, open_place
from bench.terminal.console import say
from bench.terminal.words import counted
from leaderboards import StoreError
from leaderboards.rows.compaction import Claims
from leaderboards.rows.file_names import curve_path, shared_name
from leaderboards.rows.files import content_hash, is_regular, open_regular, part_of, read_table
from leaderboards.rows.index import Folder, index_of
from leaderboards.rows.store import BOARD
from leaderboards.shell_text import shell_command

EVERY_SECONDS = 60.0
_AT_ONCE = 8  # files on their way: an object store answers slowly, but many at a time
_T = TypeVar("_T")


@dataclass(frozen=True)
class Moved:
    """Counts of rows, files and states copied in one direction.

    `problems`: sentences on what could not be copied.
    """

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
        self.out = out
        self.place = place
        self._folder = Folder(out)
        self._states = MirroredStates(out, place)

    def pull(self, keys: Collection[str] | None = None) -> Moved:
        """Fetch the files that the folder lacks.

        `keys`: runs whose states are wanted; None for all.

        Raises:
            MirrorProblem: the mirror cannot be read, or the folder not written.
            StoreError: a file in the mirror is broken, foreign or of a newer schema; the message
                names it.
        """
        rows, tracked, damaged = self._folder.steady(self._pull_files)
        states, problems = self._states.pull(keys)
        return Moved(rows, tracked, states, (*damaged, *problems))

    def push(self) -> Moved:
        """Write the files that the mirror lacks, and remove files that local segments replace.

        Raises:
            MirrorProblem: the mirror cannot be read or written.
            OSError: the folder cannot be read.
        """
        rows, tracked, finished = self._folder.steady(self._push_files)
        states = self._states.push(finished)
        self._remove_replaced()
        return Moved(rows, tracked, states)

    def _remove_replaced(self) -> None:
        """Remove files from the mirror whose rows a segment of the mirror holds, too."""
        remote = self._remote_files("runs", ".parquet")
        curves = self._remote_files("curves", ".parquet")
        shared_segments = [path for path in self._folder.segments() if path.name in remote]
        claims = Claims(self._folder, shared_segments)
        replaced = self._covered(claims, remote)
        orphans = claims.names.intersection(curves) - remote.keys()  # of a push that was killed
        for name in sorted(replaced):  # rows first: a curve without its row is ignored
            self.place.remove(f"runs/{name}")
        for name in sorted((replaced & curves.keys()) | orphans):
            self.place.remove(f"curves/{name}")

    def _covered(self, claims: Claims, remote: Mapping[str, int]) -> set[str]:
        """Return the mirror's files of rows that are claimed rightly, as their content shows."""
        covered: set[str] = set()

        def read(name: str) -> None:
            with suppress(FileNotFoundError, StoreError):  # a broken file stays
                self.place.fetch(f"runs/{name}", Path(folder) / name, remote[name])
                if claims.cover(index_of(Path(folder) / name)):
                    covered.add(name)

        with tempfile.TemporaryDirectory() as folder:
            _for_each(read, sorted(claims.names & remote.keys()))
        return covered

    def _remote_files(self, kind: str, *endings: str) -> dict[str, int]:
        """List the mirror's files of a kind: name -> bytes."""
        files = {}
        for name, size in self.place.files(kind).items():
            is_plain = "/" not in name and not name.startswith(".")
            if is_plain and name.endswith(endings):
                files[name] = size
        return files

    def _remote_tracked(self) -> dict[str, int]:
        files = self.place.files(artifacts.FOLDER)
        return {name: size for name, size in files.items() if artifacts.NAME.fullmatch(name)}

    def _pull_files(self) -> tuple[int, int, list[str]]:
        """Fetch rows and tracked files; return how many of each, and sentences on damaged files."""
        paths = self._folder.paths()
        runs = self._remote_files("runs", ".parquet")
        covered = self._covered(Claims(self._folder, self._folder.segments()), runs)
        wanted = sorted(runs.keys() - covered)
        rows = sorted({*wanted} - {shared_name(path) for path in paths})
        # After the rows, so that each row's curve is among them.
        stored = self._remote_files("curves", ".parquet")
        folder = self.out / "curves"
        curves = [name for name in wanted if name in stored and not is_regular(folder / name)]
        tracked, damaged = self._pull_tracked()

        def fetch_curve(name: str) -> None:
            self.place.fetch(f"curves/{name}", folder / name, stored[name])

        _for_each(fetch_curve, curves)
        _for_each(lambda name: self._fetch_rows(name, runs[name]), rows)
        return _count_rows(self.out / "runs" / name for name in rows), tracked, damaged

    def _pull_tracked(self) -> tuple[int, list[str]]:
        """Fetch the tracked files that the folder lacks; return how many, and what is damaged."""
        remote = self._remote_tracked()
        folder = part_of(self.out, artifacts.FOLDER)
        lacking = [name for name in remote if not is_regular(folder / name)]
        damaged: list[str] = []

        def check(path: Path, name: str) -> None:
            stated = Path(name).stem[17:]  # empty in names of earlier versions
            if not content_hash(path).startswith(stated):
                raise StoreError(
                    path, f"the tracked file {name} in the mirror is damaged and left there"
                )

        def fetch(name: str) -> None:
            try:
                place = f"{artifacts.FOLDER}/{name}"
                self.place.fetch(place, folder / name, remote[name], lambda path: check(path, name))
            except StoreError as error:
                damaged.append(str(error))

        _for_each(fetch, lacking)
        return len(lacking) - len(damaged), damaged

    def _fetch_rows(self, name: str, size: int) -> None:
        """Fetch a file of rows; raises StoreError if it is broken."""

        def check(path: Path) -> None:
            try:
                read_table(path, "runs", [])
            except StoreError as error:
                where = f"{self.place.url}/runs/{name}"
                raise StoreError(Path(where), str(error).replace(str(path), where)) from error

        self.place.fetch(f"runs/{name}", self.out / "runs" / name, size, check)

    def _push_files(self) -> tuple[int, int, set[str]]:
        """Push rows and tracked files.

        Returns how many of each, and the keys of finished rows that the mirror has.
        """
        paths = self._folder.paths()
        rows = self._folder.index(paths=paths).select(["run_key", "status"]).to_pylist()
        remote = self._remote_files("runs", ".parquet")
        claims = Claims(self._folder, self._folder.segments())
        with_curve = [path for path in paths if is_regular(curve_path(path))]
        # FileNotFoundError, if a file was compacted meanwhile.
        sizes = {path: path.stat().st_size for path in paths}
        missing = {}
        for path in with_curve:
            name = shared_name(path)
            if remote.get(name) == sizes[path]:
                continue
            # A segment here may have rows as good.
            if name in claims.names and claims.cover(self._folder.index(paths=[path])):
                continue
            missing[path] = name
        tracked = self._push_tracked()  # before the rows that they belong to
        _for_each(lambda path: self._put(curve_path(path), f"curves/{missing[path]}"), [*missing])
        _for_each(lambda path: self._put(path, f"runs/{missing[path]}"), [*missing])
        finished = {row["run_key"] for row in rows if row["status"] == "finished"}
        return _count_rows(missing), tracked, finished

    def _push_tracked(self) -> int:
        """Push the tracked files that the mirror lacks, or has with fewer bytes."""
        remote = self._remote_tracked()
        folder = part_of(self.out, artifacts.FOLDER)
        local = [
            path
            for path in sorted(folder.glob("*"))
            if artifacts.NAME.fullmatch(path.name) and is_regular(path)
        ]
        larger = [path for path in local if remote.get(path.name, -1) < path.stat().st_size]
        _for_each(lambda path: self._put(path, f"{artifacts.FOLDER}/{path.name}"), larger)
        return len(larger)

    def _put(self, path: Path, name: str) -> None:
        with open_regular(path) as file:
            self.place.put(name, file)


def _for_each(action: Callable[[_T], None], items: Sequence[_T]) -> None:
    """Call `action` with each item, several in parallel.

    Raises the first problem, after which no call begins.
    """
    with ThreadPoolExecutor(_AT_ONCE, "mirror") as pool:
        for _ in pool.map(action, items):
            pass


def _count_rows(paths: Iterable[Path]) -> int:
    """Count the rows of some files."""
    return sum(read_table(path, "runs", []).num_rows for path in paths)


def check_place(url: str, out: Path, read_only: bool = False) -> None:
    """Raise UsageError if mirror and folder contain one another.

    The same holds if a mirror to be written is a result folder.
    """
    near = local_folder(url)
    if near and (near.is_relative_to(out) or out.is_relative_to(near)):
        raise UsageError(
            f"the mirror {url} and the result folder {out} contain one another: "
            "choose another location"
        )
    if near and not read_only and (near / BOARD).exists():
        command = shell_command("bench.boards", "merge", out, "--out", near)
        raise UsageError(
            f"{url} is a result folder, not a mirror of {out}: name another place, "
            f"or bring the rows into it by `{command}`"
        )


def open_mirror(url: str, out: Path, read_only: bool = False) -> Mirror:
    """Open the mirror of a folder, and check that it can be used.

    It must be readable and writable; with `read_only` it must have results.

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
        raise MirrorProblem(
            f"{error}, or drop --mirror and `boards push` later (docs/cluster.md)"
        ) from error
    moved = mirror.pull(keys)
    say(f"mirror {url}: {moved} fetched", *moved.problems)
    pusher = Pusher(mirror)
    try:
        yield
    finally:
        pusher.finish()


class Pusher:
    """A thread that pushes while runs go on.

    A problem is reported once, and the push is tried again later.
    """

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._problem = ""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._push_regularly, daemon=True, name="mirror")
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
                f"not all of {out} is mirrored ({self._problem}); everything is in {out}; "
                f"the same command, or `{command}`, pushes it"
            )

    def _push_regularly(self) -> None:
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
