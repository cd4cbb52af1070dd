"""Files that appear whole or not at all, whenever the process is killed or the disk is full."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_OF_DISKS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)  # the system names no file with them


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of `path` when all of it is on the disk.

    After an error what was there stays. Whoever has the old file open or mapped keeps it. A killed writer leaves a
    hidden file, `.NAME.*.tmp`. Only a device, a pipe or a link is written in place: `/dev/null` has to stay one.

    Raises:
        OSError: the folder cannot be written, or the disk is full; its `filename` is `path`.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):
        with _naming(path, path), path.open("wb") as file:
            yield file
        return
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with _naming(path, temporary):
            with temporary.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        with suppress(OSError):  # what prevented the writing may prevent this, and is said already
            temporary.unlink()


@contextmanager
def _naming(path: Path, opened: Path) -> Iterator[None]:
    """Errors name `path`, whatever was opened in its place, and where the system names no file."""
    try:
        yield
    except OSError as error:
        if error.filename != str(opened) and (error.filename is not None or error.errno not in _OF_DISKS):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error  # of the class that belongs to the number
