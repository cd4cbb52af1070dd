"""`--mirror URL`: a result folder's copy in any file system that pyarrow knows, and sweeps that go on from it.

What the mirror has and the folder lacks is brought before a sweep is planned; what the folder has and the mirror lacks
is written every minute and at the end. The folder stays what runs work with: a mirror that fails costs no run. Layout
and guarantees: `bench.mirror_rows`, `bench.mirror_states`; files of `--track` lie under their own names, before rows.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.errors import UsageError
from bench.mirror_place import MirrorProblem, Place, await_thread, each, gist, local_folder, open_place, patiently
from bench.mirror_rows import Rows
from bench.mirror_states import States
from leaderboards.commands import shell_command
from leaderboards.store import BOARD

VARIABLE = "FEDKD_MIRROR"
EVERY_SECONDS = 60.0
FOLDERS = ("runs", "curves", "tracked", "state")
_PATIENCE = 120.0  # seconds without a byte moved, after which the last push is given up
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

    def pull(self, keys: Collection[str] | None = None) -> Moved:
        """Bring what the folder lacks. `keys`: runs whose states are wanted; None is all.

        Raises:
            MirrorProblem: the mirror cannot be read.
            StoreError, OSError: of the folder.
        """
        tracked = self._pull_tracked()  # before rows: what is stored as finished has its tracked data
        rows = self.rows.pull()
        states, problems = self.states.pull(keys)
        self._before = _signs(self.out)
        return Moved(rows, tracked, states, tuple(problems))

    def push(self, replace: bool = False) -> Moved:
        """Write what the mirror lacks. `replace`: as of `Rows.push`. Raises as `pull` does."""
        from filelock import Timeout

        try:
            with self.rows.store.locked("mirror", _PATIENCE):  # several sweeps may share a folder
                tracked = self._push_tracked()
                return Moved(self.rows.push(replace), tracked, self.states.push())
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

    def _pull_tracked(self) -> int:
        folder = self.out / "tracked"
        there = [name for name in self.place.files("tracked") if name.endswith(_TRACKED) and "/" not in name]
        missing = [name for name in there if not (folder / name).exists()]
        each(partial(self.place.fetch, f"tracked/{name}", folder / name) for name in missing)
        return len(missing)

    def _push_tracked(self) -> int:
        """Those that the mirror lacks, has with less in them, or that were made anew meanwhile."""
        there, pushed = self.place.files("tracked"), 0
        for path, sign in _signs(self.out).items():
            if there.get(path.name, -1) < sign[1] or self._before.get(path, sign) != sign:
                with path.open("rb") as file:
                    self.place.put(f"tracked/{path.name}", file)
                pushed += 1
            self._before[path] = self._settled[path] = sign
        return pushed


class Pusher:
    """Pushes in a thread of its own while runs go on; a problem is said once, and the push tried again later.

    Args:
        mirror: what is pushed.
        replace: as of `Mirror.push`.
    """

    def __init__(self, mirror: Mirror, replace: bool = False) -> None:
        self._mirror, self._replace = mirror, replace
        self._problem = ""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name="mirror")
        self._thread.start()

    def finish(self) -> None:
        """Push the rest, and say what could not be pushed."""
        self._ending.set()
        try:
            if not await_thread(self._thread, lambda: self._mirror.place.silent, _PATIENCE):
                self._problem = f"no answer for {_PATIENCE:g} s"
        except KeyboardInterrupt:
            self._problem = "interrupted"
        if self._problem:
            _say(f"not mirrored: {self._left()} ({self._problem}); {_again(self._mirror)}")

    def _work(self) -> None:
        while not self._ending.wait(EVERY_SECONDS):
            known = self._problem
            self._push()
            if self._problem and not known:
                _say(f"{self._problem}; runs go on, and it is tried again every {EVERY_SECONDS:g} s")
        self._push()
        if not self._problem:
            with suppress(Exception):  # tidiness can wait for the next push
                self._mirror.tidy()

    def _push(self) -> None:
        try:
            self._mirror.push(self._replace)
            self._problem = ""
        except Exception as error:  # no run must end for its copy, whatever is wrong with that
            self._problem = gist(error)

    def _left(self) -> str:
        try:
            return str(self._mirror.pending())
        except Exception as error:  # the folder itself cannot be read: that is said elsewhere
            return gist(error)


def mirror_url(given: str | None, offline: bool = False) -> str | None:
    """The mirror asked for, by option or `$FEDKD_MIRROR`; None for none.

    Raises:
        UsageError: it is on the network, which must not be touched.
    """
    url = (os.environ.get(VARIABLE) if given is None else given) or None
    if url and offline and local_folder(url) is None:
        raise UsageError(f"--offline and the mirror {url} exclude each other: leave one out, or --mirror '' for none")
    return url


@contextmanager
def opened(url: str, out: Path, read_only: bool = False) -> Iterator[Mirror]:
    """The mirror of a folder, found to be readable and writable; or to have results, if it shall only be read.

    Raises:
        UsageError: no such URL, or one that lies within the folder or around it, or is a result folder to be written.
        MirrorProblem: it cannot be reached or written.
    """
    near = local_folder(url)
    if near and (near.is_relative_to(out) or out.is_relative_to(near)):
        raise UsageError(f"the mirror {url} and the result folder {out} lie in one another: choose another place")
    if near and not read_only and (near / BOARD).exists():
        raise UsageError(
            f"{url} is a result folder, not a mirror of {out}: name another place, or bring the rows into it by "
            f"`{shell_command('bench.boards', 'merge', out, '--out', near)}`"
        )
    with tempfile.TemporaryDirectory(prefix="fedkd-mirror-", ignore_cleanup_errors=True) as scratch:
        with _advised():
            place = patiently(lambda: open_place(url), url)
            patiently(place.check_results if read_only else place.probe, url, lambda: place.silent)
        yield Mirror(out, place, Path(scratch))


def pulled(mirror: Mirror, keys: Collection[str] | None = None) -> Moved:
    """`Mirror.pull`, given up where no answer comes. Raises MirrorProblem, StoreError."""
    with _advised():
        return patiently(lambda: mirror.pull(keys), mirror.place.url, lambda: mirror.place.silent)


def pushed(mirror: Mirror) -> Moved:
    """`Mirror.push` and `tidy`, given up where no answer comes. Raises MirrorProblem, StoreError."""

    def push() -> Moved:
        found = mirror.push()
        mirror.tidy()
        return found

    with _advised():
        return patiently(push, mirror.place.url, lambda: mirror.place.silent)


@contextmanager
def mirrored(url: str | None, out: Path, keys: Collection[str] | None, replace: bool = False) -> Iterator[None]:
    """Around a sweep: first what the mirror has, then pushes, at the end what is left. Nothing without a URL.

    Args:
        url: of the mirror, or None.
        out: the result folder, writable.
        keys: of the sweep's runs, whose states are wanted; None is all.
        replace: the sweep runs again what is stored.

    Raises:
        UsageError: as of `opened`.
        MirrorProblem: before anything ran, the mirror cannot be reached, read or written.
    """
    if not url:
        yield
        return
    with opened(url, out) as mirror:
        found = pulled(mirror, keys)
        for sentence in (f"mirror {url}: {found} brought", *found.problems):
            _say(sentence)
        pusher = Pusher(mirror, replace)
        try:
            yield
        finally:
            pusher.finish()


@contextmanager
def _advised() -> Iterator[None]:
    """Around what comes before anything runs: a problem is one of the machine, with what to do."""
    try:
        yield
    except MirrorProblem as error:
        step = (
            "check the URL, the network and your rights; without --mirror, `boards push` comes later (docs/cluster.md)"
        )
        raise MirrorProblem(f"{error}; {step}") from error
    except OSError as error:
        raise MirrorProblem(f"what the mirror has cannot be stored here: {error}") from error


def _again(mirror: Mirror) -> str:
    command = shell_command("bench.boards", "push", mirror.place.url, mirror.out)
    return f"everything is in {mirror.out}; the same command, or `{command}`, pushes it"


def _signs(out: Path) -> _Signs:
    """Each tracked file with when it was written and its bytes."""
    found = {}
    for path in sorted((out / "tracked").glob("*")):
        if path.suffix in _TRACKED and not path.name.startswith("."):
            stat = path.stat()
            found[path] = (stat.st_mtime_ns, stat.st_size)
    return found


def _say(text: str) -> None:
    sys.stderr.write(f"note: {text}\n")
