"""The mirror that is asked for, found to be there, and in step with its folder around a sweep."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.errors import UsageError
from bench.mirror.mirror import Mirror, Moved
from bench.mirror.place import MirrorProblem, local_folder, open_place, patiently, refuse_password
from bench.mirror.pusher import Pusher
from bench.terminal.console import say
from leaderboards.commands import shell_command
from leaderboards.store import BOARD

VARIABLE = "FEDKD_MIRROR"


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
        UsageError: no such URL, or one that lies within the folder or around it, or is a result folder to be written.
        MirrorProblem: it cannot be reached or written.
    """
    check_place(url, out, read_only)
    with ExitStack() as kept:
        with _advised("there is no room for copies"):
            folder = tempfile.TemporaryDirectory(prefix="fedkd-mirror-", ignore_cleanup_errors=True)
            scratch = kept.enter_context(folder)
            place = patiently(lambda: open_place(url), url)
            patiently(place.check_results if read_only else place.probe, url, lambda: place.silent)
        yield Mirror(out, place, Path(scratch))


def pulled(mirror: Mirror, keys: Collection[str] | None = None) -> Moved:
    """`Mirror.pull`, given up where no answer comes. Raises MirrorProblem, StoreError."""
    with _advised("what the mirror has cannot be stored here"):
        return patiently(lambda: mirror.pull(keys), mirror.place.url, lambda: mirror.place.silent)


def pushed(mirror: Mirror) -> Moved:
    """`Mirror.push` and `tidy`, given up where no answer comes. Raises MirrorProblem, StoreError."""

    def push() -> Moved:
        found = mirror.push()
        mirror.tidy()
        return found

    with _advised("what is to be pushed cannot be copied"):
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
            say(sentence)
        pusher = Pusher(mirror, replace)
        try:
            yield
        finally:
            pusher.finish()


@contextmanager
def _advised(here: str) -> Iterator[None]:
    """Around what comes before anything runs: a problem is one of the machine, with what to do.

    Args:
        here: what a problem of this machine's files means.
    """
    try:
        yield
    except MirrorProblem as error:
        step = (
            "check the URL, the network and your rights; without --mirror, `boards push` comes later (docs/cluster.md)"
        )
        raise MirrorProblem(f"{error}; {step}") from error
    except OSError as error:
        raise MirrorProblem(f"{here}: {error}") from error
