"""The mirror that is asked for: opened, found to be there, and kept in step with its folder around a sweep."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.errors import UsageError
from bench.sync.mirror import Mirror, Moved
from bench.sync.place import (
    MirrorProblem,
    await_thread,
    first_line,
    local_folder,
    open_place,
    patiently,
    refuse_password,
)
from bench.terminal.console import say
from leaderboards.rows.store import BOARD
from leaderboards.shell_text import shell_command

VARIABLE = "FEDKD_MIRROR"
EVERY_SECONDS = 60.0
PATIENCE = 120.0  # seconds without a byte moved, after which the last push is given up


def mirror_url(given: str | None, offline: bool = False) -> str | None:
    """The mirror asked for, by option or `$FEDKD_MIRROR`; None for none.

    Raises:
        UsageError: it has a password in it, or is on the network, which must not be touched.
    """
    url = (os.environ.get(VARIABLE) if given is None else given) or None
    if url:
        refuse_password(url)
    if url and offline and local_folder(url) is None:
        raise UsageError(f"--offline and the mirror {url} exclude each other: leave one out, or --mirror '' for none")
    return url


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
    """The mirror of a folder, found to be readable and writable; or to have results, if it shall only be read.

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
def mirrored(url: str | None, out: Path, keys: Collection[str] | None) -> Iterator[None]:
    """Pull before a sweep, push every minute, and the rest at the end. Without a URL, do nothing.

    Args:
        url: of the mirror, or None.
        out: the result folder, writable.
        keys: of the sweep's runs, whose states are wanted; None is all.

    Raises:
        UsageError: as of `opened`.
        MirrorProblem: before anything ran, the mirror cannot be reached, read or written.
    """
    if not url:
        yield
        return
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
