"""`--mirror URL`: a result folder's copy in any file system that pyarrow knows, and sweeps that go on from it.

A mirror is itself a result folder (`leaderboards.rows`), with the same files under the same names: syncing is copying
those that one side lacks, and that no segment there stands in for. Missing files come before a sweep is planned, and
go every minute and at the end. The folder stays what runs work with: a mirror that fails costs no run.

`mirror` copies rows and tracked files, and keeps a folder in step around a sweep; `states` copies the states of
unfinished runs, `place` is the file system.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.errors import UsageError

VARIABLE = "FEDKD_MIRROR"


def mirror_url(given: str | None, offline: bool = False) -> str | None:
    """Find the mirror asked for, by option or `$FEDKD_MIRROR`; None for none.

    Raises:
        UsageError: it has a password in it, or is on the network, which must not be touched.
    """
    url = (os.environ.get(VARIABLE) if given is None else given) or None
    if not url:
        return None
    from bench.sync.place import local_folder, refuse_password

    refuse_password(url)
    if offline and local_folder(url) is None:
        raise UsageError(f"--offline and the mirror {url} exclude each other: leave one out, or --mirror '' for none")
    return url


@contextmanager
def mirrored(url: str | None, out: Path, keys: Collection[str] | None) -> Iterator[None]:
    """Pull before a sweep, push every minute, and the rest at the end. Without a URL, do nothing.

    `keys` are of the sweep's runs, whose states are wanted; None is all.

    Raises:
        UsageError: the mirror lies within the folder or around it, or is a result folder.
        MirrorProblem: before anything ran, the mirror cannot be reached, read or written.
    """
    if not url:
        yield
        return
    from bench.sync.mirror import in_step

    with in_step(url, out, keys):
        yield
