"""The place of a mirror: a folder of any file system that pyarrow knows, whose files appear whole or not at all.

A file is written under a temporary name and moved: a process killed at any point leaves nothing half-written in view.
"""

from __future__ import annotations

import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote

from bench.errors import EnvironmentProblem, UsageError
from leaderboards.rows.files import atomic_file

_CHUNK = 2**22  # bytes
_DAY = 24 * 60 * 60  # seconds after which a temporary file is nobody's
_FOLDERS = ("runs", "curves", "tracked", "state")
_TEMPORARY = ".tmp"


class MirrorProblem(EnvironmentProblem):
    """A mirror cannot be read or written now. Nothing stored in the result folder is touched by it."""


class Place:
    """A folder somewhere: its URL as given, for messages, a `pyarrow.fs.FileSystem`, and the folder's path in it."""

    def __init__(self, url: str, system: Any, root: str) -> None:
        self.url, self._system, self._root = url, system, root.rstrip("/")
        self._made: set[str] = set()

    def files(self, folder: str) -> dict[str, int]:
        """Name below `folder` -> bytes, of every file there; temporary ones are left out."""
        return {name: info.size for name, info in self._listed(folder) if not name.endswith(_TEMPORARY)}

    def read(self, name: str) -> bytes:
        """Return the content of a file. Raises FileNotFoundError if it is not there, or not any more."""
        return b"".join(self._chunks(name))

    def fetch(self, name: str, target: Path, check: Callable[[Path], None] = lambda _: None) -> None:
        """Copy a file to `target`, which appears whole, and only if `check` accepts the copy. Raises as `read` does."""
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(target) as file:
                file.writelines(self._chunks(name))
                file.flush()
                check(Path(file.name))
        except FileNotFoundError:
            raise
        except OSError as error:
            step = "make room here, or name another folder"
            raise MirrorProblem(f"what mirror {self.url} has cannot be stored here: {error}; {step}") from error

    def put(self, name: str, source: bytes | BinaryIO) -> None:
        """Write a file, in the place of one of that name."""
        folder, _, last = f"{self._root}/{name}".rpartition("/")
        temporary = f"{folder}/.{last}.{uuid.uuid4().hex[:8]}{_TEMPORARY}"
        file = BytesIO(source) if isinstance(source, bytes) else source
        with self._asked():
            if folder not in self._made:
                self._system.create_dir(folder, recursive=True)
                self._made.add(folder)
            try:
                with self._system.open_output_stream(temporary) as stream:
                    shutil.copyfileobj(file, stream, _CHUNK)
                self._system.move(temporary, f"{folder}/{last}")
            except BaseException:
                self._made.clear()  # whoever removed this folder may have removed others
                with suppress(Exception):  # the first problem is the one to tell
                    self._system.delete_file(temporary)
                raise

    def remove(self, name: str) -> None:
        """Delete a file, unless it is gone already."""
        with suppress(FileNotFoundError), self._asked(may_lack=True):
            self._system.delete_file(f"{self._root}/{name}")

    def sweep(self) -> None:
        """Delete what writers that were killed more than a day ago left half-written."""
        limit = time.time() - _DAY
        for folder in _FOLDERS:
            for name, info in self._listed(folder):
                if name.endswith(_TEMPORARY) and info.mtime and info.mtime.timestamp() < limit:
                    with suppress(MirrorProblem):  # another user's
                        self.remove(f"{folder}/{name}")

    def check_results(self) -> None:
        """Raise MirrorProblem unless there are results here. Nothing is written."""
        if not any(self.files(folder) for folder in ("runs", "state")):
            raise MirrorProblem(f"there are no results at {self.url}: check it, or push to it first")

    def probe(self) -> None:
        """Raise MirrorProblem unless files can be listed, written and deleted here."""
        name = f"probe-{uuid.uuid4().hex}"
        self.files("runs")
        self.put(name, b"fedkd-bench")
        self.remove(name)

    def _listed(self, folder: str) -> Iterator[tuple[str, Any]]:
        """List all files below `folder`: name, and pyarrow's information."""
        from pyarrow.fs import FileSelector, FileType

        base = f"{self._root}/{folder}"
        with self._asked():
            infos = self._system.get_file_info(FileSelector(base, allow_not_found=True, recursive=True))
        for info in infos:
            if info.type == FileType.File:
                yield info.path.partition(base.strip("/") + "/")[2], info  # some spell the beginning otherwise

    def _chunks(self, name: str) -> Iterator[bytes]:
        """Read a file piece by piece; what is done with them is not the mirror's failure."""
        with self._asked(may_lack=True), self._system.open_input_stream(f"{self._root}/{name}") as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk

    @contextmanager
    def _asked(self, may_lack: bool = False) -> Iterator[None]:
        """Around whatever the file system does: its failures become a sentence.

        With `may_lack`, FileNotFoundError passes: a file that is not there is an answer.
        """
        import pyarrow as pa

        try:
            yield
        except (OSError, pa.ArrowException) as error:
            if may_lack and isinstance(error, FileNotFoundError):
                raise
            raise MirrorProblem(f"mirror {self.url}: {first_line(error)}") from error


def open_place(url: str) -> Place:
    """Open the folder of a URL, or of a path; nothing is asked of it yet, but S3 for a bucket's region.

    Raises:
        UsageError: no URL that pyarrow knows, or one with a password.
        MirrorProblem: its file system cannot be had here.
    """
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    refuse_password(url)
    where = url if "://" in url else Path(url).expanduser().resolve().as_uri()
    try:
        system, root = FileSystem.from_uri(where)
    except pa.ArrowInvalid as error:
        known = "a path, file:///..., s3://bucket/folder, gs://bucket/folder, hdfs://host:port/folder"
        raise UsageError(f"mirror {url}: {first_line(error)}; allowed: {known}") from None
    except (OSError, pa.ArrowException) as error:
        raise MirrorProblem(f"mirror {url}: {first_line(error)}") from error
    return Place(url, system, root)


def refuse_password(url: str) -> None:
    """Raise UsageError for a URL with a password, before anything prints or keeps the URL."""
    if re.match(r"[a-z0-9+.-]+://[^/]*:(?!\d+(/|$)).*@", url, re.IGNORECASE):  # a port is none
        raise UsageError(
            "the mirror's URL has a password in it, which every row's column `command` would keep: leave it out, and "
            "give it in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile)"
        )


def local_folder(url: str) -> Path | None:
    """The folder of this machine that a mirror is, or None."""
    if "://" not in url:
        return Path(url).expanduser().resolve()
    return Path(unquote(url.removeprefix("file://"))).resolve() if url.startswith("file:///") else None


def first_line(error: BaseException) -> str:
    """The first line of an error, its middle left out if it is long: libraries put the cause at the end."""
    text = " ".join(str(error).split("\n")[0].split()) or type(error).__name__
    return text if len(text) <= 400 else f"{text[:200]} ... {text[-190:]}"
