"""The place of a mirror: a folder in any file system that pyarrow knows, whose files appear whole or not at all.

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
_DAY = 24 * 60 * 60  # seconds after which a temporary file is abandoned
_FOLDERS = ("runs", "curves", "tracked", "state")
_TEMPORARY = ".tmp"


class MirrorProblem(EnvironmentProblem):
    """A failure to read or write a mirror; nothing stored in the result folder is affected."""


class Place:
    """A folder somewhere: its URL as given, for messages, a `pyarrow.fs.FileSystem`, and the folder's path in it."""

    def __init__(self, url: str, system: Any, root: str) -> None:
        self.url, self._system, self._root = url, system, root.rstrip("/")
        self._created: set[str] = set()

    def files(self, folder: str) -> dict[str, int]:
        """List the files below `folder`, without temporary ones: name -> bytes."""
        return {name: info.size for name, info in self._list_files(folder) if not name.endswith(_TEMPORARY)}

    def read(self, name: str) -> bytes:
        """Return the content of a file. Raises FileNotFoundError if it is not there, or no longer."""
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
            raise MirrorProblem(f"files of mirror {self.url} cannot be stored here: {error}; {step}") from error

    def put(self, name: str, source: bytes | BinaryIO) -> None:
        """Write a file, replacing one of the same name."""
        folder, _, last = f"{self._root}/{name}".rpartition("/")
        temporary = f"{folder}/.{last}.{uuid.uuid4().hex[:8]}{_TEMPORARY}"
        file = BytesIO(source) if isinstance(source, bytes) else source
        with self._errors_translated():
            if folder not in self._created:
                self._system.create_dir(folder, recursive=True)
                self._created.add(folder)
            try:
                with self._system.open_output_stream(temporary) as stream:
                    shutil.copyfileobj(file, stream, _CHUNK)
                self._system.move(temporary, f"{folder}/{last}")
            except BaseException:
                self._created.clear()  # if this folder was removed meanwhile, others may have been, too
                with suppress(Exception):  # the first problem is the one to report
                    self._system.delete_file(temporary)
                raise

    def remove(self, name: str) -> None:
        """Delete a file, unless it is gone already."""
        with suppress(FileNotFoundError), self._errors_translated(may_lack=True):
            self._system.delete_file(f"{self._root}/{name}")

    def sweep(self) -> None:
        """Delete the half-written files of writers that were killed more than a day ago."""
        limit = time.time() - _DAY
        for folder in _FOLDERS:
            for name, info in self._list_files(folder):
                if name.endswith(_TEMPORARY) and info.mtime and info.mtime.timestamp() < limit:
                    with suppress(MirrorProblem):  # a file of another user
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

    def _list_files(self, folder: str) -> Iterator[tuple[str, Any]]:
        """List all files below `folder`: name, and pyarrow's information."""
        from pyarrow.fs import FileSelector, FileType

        base = f"{self._root}/{folder}"
        with self._errors_translated():
            infos = self._system.get_file_info(FileSelector(base, allow_not_found=True, recursive=True))
        for info in infos:
            if info.type == FileType.File:
                yield info.path.partition(base.strip("/") + "/")[2], info  # the beginning may be spelt differently

    def _chunks(self, name: str) -> Iterator[bytes]:
        """Read a file in chunks. Errors in the use of a chunk do not count as the mirror's."""
        with self._errors_translated(may_lack=True), self._system.open_input_stream(f"{self._root}/{name}") as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk

    @contextmanager
    def _errors_translated(self, may_lack: bool = False) -> Iterator[None]:
        """Turn errors of the file system into MirrorProblem.

        With `may_lack`, FileNotFoundError passes, because a missing file is a valid answer.
        """
        import pyarrow as pa

        try:
            yield
        except (OSError, pa.ArrowException) as error:
            if may_lack and isinstance(error, FileNotFoundError):
                raise
            raise MirrorProblem(f"mirror {self.url}: {first_line(error)}") from error


def open_place(url: str) -> Place:
    """Open the folder of a URL or a path, without access to it yet, except that S3 is asked for a bucket's region.

    Raises:
        UsageError: pyarrow does not know the URL, or it has a password.
        MirrorProblem: its file system is not available here.
    """
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    refuse_password(url)
    uri = url if "://" in url else Path(url).expanduser().resolve().as_uri()
    try:
        system, root = FileSystem.from_uri(uri)
    except pa.ArrowInvalid as error:
        allowed = "a path, file:///..., s3://bucket/folder, gs://bucket/folder, hdfs://host:port/folder"
        raise UsageError(f"mirror {url}: {first_line(error)}; allowed: {allowed}") from None
    except (OSError, pa.ArrowException) as error:
        raise MirrorProblem(f"mirror {url}: {first_line(error)}") from error
    return Place(url, system, root)


def refuse_password(url: str) -> None:
    """Raise UsageError for a URL with a password, before anything prints or keeps the URL."""
    if re.match(r"[a-z0-9+.-]+://[^/]*:(?!\d+(/|$)).*@", url, re.IGNORECASE):  # a port is not a password
        raise UsageError(
            "the mirror's URL has a password in it, which every row's column `command` would keep: leave it out, and "
            "give it in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile)"
        )


def local_folder(url: str) -> Path | None:
    """Return the local folder of a mirror's URL or path; None if the mirror is remote."""
    if "://" not in url:
        return Path(url).expanduser().resolve()
    return Path(unquote(url.removeprefix("file://"))).resolve() if url.startswith("file:///") else None


def first_line(error: BaseException) -> str:
    """Return the first line of an error; a long one loses its middle, because libraries put the cause at the end."""
    text = " ".join(str(error).split("\n")[0].split()) or type(error).__name__
    return text if len(text) <= 400 else f"{text[:200]} ... {text[-190:]}"
