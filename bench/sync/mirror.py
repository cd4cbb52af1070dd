"""A result folder and its mirror: opened, and kept in step by copying the files that one side lacks."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bench.errors import UsageError
from bench.sync.place import MirrorProblem, Place, await_thread, each, first_line, local_folder, open_place, patiently
from bench.sync.states import States
from bench.terminal.console import say
from bench.terminal.words import counted
from leaderboards import StoreError
from leaderboards.rows.store import BOARD
from leaderboards.shell_text import shell_command

if TYPE_CHECKING:
    from leaderboards.rows.segments import Files

EVERY_SECONDS = 60.0
PATIENCE = 120.0  # seconds without a byte moved, after which the last push is given up
_FOLDERS = ("runs", "curves", "tracked", "state")
_TRACKED = (".npz", ".safetensors")
_T = TypeVar("_T")


@dataclass(frozen=True)
class Moved:
    """Counts of the things that went one way. `problems`: sentences on those that could not."""

    rows: int = 0
    tracked: int = 0
    states: int = 0
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        counts = ((self.rows, "row"), (self.tracked, "tracked file"), (self.states, "state"))
        return ", ".join(counted(count, what) for count, what in counts if count) or "nothing new"


class Mirror:
    """A result folder `out` and its mirror at `place`; `scratch` is a folder for copies."""

    def __init__(self, out: Path, place: Place, scratch: Path) -> None:
        from leaderboards.rows.segments import Folder

        self.out, self.place = out, place
        self._scratch, self._folder, self._states = scratch, Folder(out), States(out, place)
        self._held: dict[str, set[str]] = {}  # name of a segment of the mirror -> names that it stands in for
        self._before = self._tracked()

    def pull(self, keys: Collection[str] | None = None) -> Moved:
        """Bring the files that the folder lacks. `keys`: runs whose states are wanted; None is all.

        Raises:
            MirrorProblem: the mirror cannot be read.
            StoreError: a file there is broken, foreign or of a newer schema; the message names it.
            OSError: the folder cannot be written.
        """
        before = len(self._tracked())
        rows = self._steady(self._pull_rows)
        states, problems = self._states.pull(keys)
        self._before = self._tracked()
        return Moved(rows, len(self._before) - before, states, tuple(problems))

    def push(self) -> Moved:
        """Write the files that the mirror lacks. Raises as `pull` does."""
        rows, tracked, finished = self._steady(self._push_rows)
        return Moved(rows, tracked, self._states.push(finished))

    def tidy(self) -> None:
        """Remove the files of the mirror that its segments stand in for, and the leftovers of killed writers."""
        held = self._stood_for(self._rows_there())
        for kind in ("runs", "curves"):  # rows first: a curve without its row is nobody's
            for name in sorted(held.intersection(self.place.files(kind))):
                self.place.remove(f"{kind}/{name}")
        for folder in _FOLDERS:
            self.place.sweep(folder)

    def _steady(self, action: Callable[[], _T]) -> _T:
        """Call `action` again until no file vanishes that it was about to copy."""
        try:
            return self._folder.steady(action)
        except FileNotFoundError as error:
            again = "compacted faster than it can be read: give the same command again"
            raise MirrorProblem(f"mirror {self.place.url}: {again}") from error

    def _shared_names(self, files: Files) -> dict[Path, str]:
        """Each of the folder's files of rows, with its name in the mirror."""
        from leaderboards.rows.segments import shared_name

        return {path: shared_name(path) for path in files.paths}

    def _rows_there(self) -> dict[str, int]:
        """The mirror's files of rows, by name, with their bytes."""
        files = self.place.files("runs").items()
        return {name: size for name, size in files if name.endswith(".parquet") and "/" not in name and name[0] != "."}

    def _stood_for(self, there: Collection[str]) -> set[str]:
        """The names that the mirror's segments stand in for; each segment is read once."""
        from leaderboards.rows.segments import SEGMENT_NAME, read_segment

        names = set[str]()
        for name in filter(SEGMENT_NAME.fullmatch, there):
            if name not in self._held:
                path = self.out / "runs" / name
                if not path.exists():
                    path = self._scratch / name
                    self._fetch_rows(name, path)
                self._held[name] = read_segment(path).names()
            names |= self._held[name]
        return names

    def _pull_rows(self) -> int:
        from leaderboards.rows.segments import SEGMENT_NAME

        there, count = self._rows_there(), 0
        curves = self.place.files("curves")
        tracked = [name for name in self.place.files("tracked") if name.endswith(_TRACKED) and "/" not in name]
        lacking = [name for name in tracked if not (self.out / "tracked" / name).exists()]  # before their rows
        each(partial(self.place.fetch, f"tracked/{name}", self.out / "tracked" / name) for name in lacking)
        for segments in (True, False):  # files that a segment stands in for are not needed
            files = self._folder.files()
            have = {*self._shared_names(files).values(), *files.held()}
            missing = sorted(name for name in there.keys() - have if bool(SEGMENT_NAME.fullmatch(name)) == segments)
            with_curves = [name for name in missing if name in curves]
            each(partial(self.place.fetch, f"curves/{n}", self.out / "curves" / n) for n in with_curves)
            each(partial(self._fetch_rows, name, self.out / "runs" / name) for name in missing)
            count += sum(_count(self.out / "runs" / name) for name in missing)
        return count

    def _fetch_rows(self, name: str, target: Path) -> None:
        """Bring a file of rows, unless it is broken."""
        from leaderboards.rows.files import read_metadata

        def check(path: Path) -> None:
            try:
                read_metadata(path, "runs")
            except StoreError as error:
                where = f"{self.place.url}/runs/{name}"
                raise StoreError(Path(where), str(error).replace(str(path), where)) from error

        self.place.fetch(f"runs/{name}", target, check)

    def _push_rows(self) -> tuple[int, int, set[str]]:
        """Push rows and tracked files: how many of each, and the keys of the finished rows that the mirror has."""
        files = self._folder.files()
        here, index = self._shared_names(files), self._folder.index(files=files)
        rows = index.select(["run_key", "status", "holder"]).to_pylist()
        finished = {row["run_key"] for row in rows if row["status"] == "finished" and Path(row["holder"]) in here}
        there = self._rows_there()
        have = self._stood_for(there) | {name for path, name in here.items() if there.get(name) == path.stat().st_size}
        tracked = self._push_tracked()  # before the rows that they belong to
        curves = {path: self.out / "curves" / path.name for path in here}
        missing = {path: name for path, name in here.items() if name not in have and curves[path].exists()}
        for path in here:
            path.stat()  # FileNotFoundError, if it was compacted with its curve
        each(partial(self._put, curves[path], f"curves/{name}") for path, name in missing.items())
        each(partial(self._put, path, f"runs/{name}") for path, name in missing.items())
        return sum(map(_count, missing)), tracked, finished

    def _put(self, path: Path, name: str) -> None:
        with path.open("rb") as file:
            self.place.put(name, file)

    def _tracked(self) -> dict[Path, tuple[int, int]]:
        """Each tracked file of the folder, with when it was written and its bytes."""
        paths = sorted((self.out / "tracked").glob("*"))
        paths = [path for path in paths if path.suffix in _TRACKED and not path.name.startswith(".")]
        return {path: ((stat := path.stat()).st_mtime_ns, stat.st_size) for path in paths}

    def _push_tracked(self) -> int:
        """Push the tracked files that the mirror lacks, has with less in them, or that were written anew meanwhile."""
        there, pushed = self.place.files("tracked"), 0
        for path, sign in self._tracked().items():
            if there.get(path.name, -1) < sign[1] or self._before.get(path, sign) != sign:
                self._put(path, f"tracked/{path.name}")
                pushed += 1
            self._before[path] = sign
        return pushed


def _count(path: Path) -> int:
    """The rows of a file."""
    from leaderboards.rows.files import read_table

    return int(read_table(path, "runs", ["run_key"]).num_rows)


def check_place(url: str, out: Path, read_only: bool = False) -> None:
    """Raise UsageError for a mirror that lies within the folder or around it, or is a result folder to be written."""
    near = local_folder(url)
    if near and (near.is_relative_to(out) or out.is_relative_to(near)):
        raise UsageError(f"the mirror {url} and the result folder {out} lie in one another: choose another place")
    if near and not read_only and (near / BOARD).exists():
        raise UsageError(
            f"{url} is a result folder, not a mirror of {out}: name another place, or bring the rows into it by "
            f"`{shell_command('bench.boards', 'merge', out, '--out', near)}`"
        )


@contextmanager
def opened(url: str, out: Path, read_only: bool = False) -> Iterator[Mirror]:
    """Open the mirror of a folder, found to be readable and writable; or to have results, if it shall only be read.

    Raises:
        UsageError: no such URL, or one of `check_place`.
        MirrorProblem: it cannot be reached or written.
    """
    check_place(url, out, read_only)
    with tempfile.TemporaryDirectory(prefix="fedkd-mirror-", ignore_cleanup_errors=True) as scratch:
        with _advised("there is no room for copies"):
            place = patiently(lambda: open_place(url), url)
            patiently(place.check_results if read_only else place.probe, url, lambda: place.silent)
        yield Mirror(out, place, Path(scratch))


def pulled(mirror: Mirror, keys: Collection[str] | None = None) -> Moved:
    """`Mirror.pull`, given up if no answer comes. Raises MirrorProblem, StoreError."""
    with _advised("what the mirror has cannot be stored here"):
        return patiently(lambda: mirror.pull(keys), mirror.place.url, lambda: mirror.place.silent)


def pushed(mirror: Mirror) -> Moved:
    """`Mirror.push` and `tidy`, given up if no answer comes. Raises MirrorProblem, StoreError."""

    def push() -> Moved:
        moved = mirror.push()
        mirror.tidy()
        return moved

    with _advised("what is to be pushed cannot be copied"):
        return patiently(push, mirror.place.url, lambda: mirror.place.silent)


@contextmanager
def in_step(url: str, out: Path, keys: Collection[str] | None) -> Iterator[None]:
    """Pull, push every minute, and the rest at the end, as `bench.sync.mirrored` says."""
    with opened(url, out) as mirror:
        moved = pulled(mirror, keys)
        say(f"mirror {url}: {moved} brought", *moved.problems)
        pusher = Pusher(mirror)
        try:
            yield
        finally:
            pusher.finish()


class Pusher:
    """Pushes in a thread of its own while runs go on; a problem is said once, and the push tried again later."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror, self._problem = mirror, ""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name="mirror")
        self._thread.start()

    def finish(self) -> None:
        """Push the rest, and say what could not be pushed."""
        self._ending.set()
        try:
            if not await_thread(self._thread, lambda: self._mirror.place.silent, PATIENCE):
                self._problem = f"no answer for {PATIENCE:g} s"
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
        if not self._problem:
            with suppress(Exception):  # tidiness can wait for the next push
                self._mirror.tidy()

    def _push(self) -> None:
        try:
            self._mirror.push()
            self._problem = ""
        except Exception as error:  # no run must end for its copy, whatever is wrong with that
            self._problem = first_line(error)


@contextmanager
def _advised(here: str) -> Iterator[None]:
    """Say what to do about a problem before anything runs. `here`: what a problem of this machine's files means."""
    try:
        yield
    except MirrorProblem as error:
        step = (
            "check the URL, the network and your rights; without --mirror, `boards push` comes later (docs/cluster.md)"
        )
        raise MirrorProblem(f"{error}; {step}") from error
    except OSError as error:
        raise MirrorProblem(f"{here}: {error}") from error
