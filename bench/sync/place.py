"""The place of a mirror: a folder in any file system that pyarrow knows.

Its files appear whole or not at all. A file is written under a temporary name and moved: a process
killed at any point leaves nothing half-written in view. A folder of this machine may be somebody
else's: below it links, pipes and devices are passed over.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qsl, unquote

from bench.errors import EnvironmentProblem, UsageError
from bench.terminal.paths import resolved
from leaderboards.rows.files import atomic_file, part_of

_CHUNK = 2**22  # bytes
_DAY = 24 * 60 * 60  # seconds after which a temporary file is abandoned
_FOLDERS = ("runs", "curves", "tracked", "state")
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")  # the name of a file until it is whole
# In names of a query's fields.
_SECRET = re.compile("secret|passw|token|key|credential|signature|sas", re.IGNORECASE)


class MirrorProblem(EnvironmentProblem):
    """A failure to read or write a mirror; nothing stored in the result folder is affected."""


class Place:
    """A folder somewhere: its URL as given, a `pyarrow.fs.FileSystem`, and its path in it.

    Messages name the URL.
    """

    def __init__(self, url: str, system: Any, root: str) -> None:
        from pyarrow.fs import LocalFileSystem

        self._here = isinstance(system, LocalFileSystem)
        root = os.path.realpath(root) if self._here else root
        self.url = url
        self._system = system
        self._root = root.rstrip("/")
        self._created: set[str] = set()

    def files(self, folder: str) -> dict[str, int]:
        """List the files below `folder`, without temporary files: name -> bytes."""
        listed = self._list_files(folder)
        return {name: info.size for name, info in listed if not _is_temporary(name)}

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of a file of at most `limit` bytes.

        Raises:
            FileNotFoundError: it is not there, or no longer.
            MirrorProblem: it is larger, or cannot be read.
        """
        return b"".join(self._chunks(name, limit))

    def fetch(
        self, name: str, target: Path, size: int, check: Callable[[Path], None] = lambda _: None
    ) -> None:
        """Copy a file of `size` bytes to `target`, which appears whole, if `check` accepts it.

        Raises as `read` does.
        """
        try:
            part_of(target.parent.parent, target.parent.name).mkdir(parents=True, exist_ok=True)
            with atomic_file(target) as file:
                file.writelines(self._chunks(name, size))
                file.flush()
                check(Path(file.name))
        except FileNotFoundError:
            raise
        except OSError as error:
            step = "make room here, or name another folder"
            raise MirrorProblem(
                f"files of mirror {self.url} cannot be stored here: {error}; {step}"
            ) from error

    def put(self, name: str, source: bytes | BinaryIO) -> None:
        """Write a file, replacing one of the same name."""
        folder, _, last = self._path(name).rpartition("/")
        temporary = f"{folder}/.{last}.{uuid.uuid4().hex[:8]}.tmp"
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
                # If this folder was removed meanwhile, others may have been, too.
                self._created.clear()
                with suppress(Exception):  # the first problem is the one to report
                    self._system.delete_file(temporary)
                raise

    def remove(self, name: str) -> None:
        """Delete a file, unless it is gone already."""
        with suppress(FileNotFoundError), self._errors_translated(may_lack=True):
            self._system.delete_file(self._path(name))

    def sweep(self) -> None:
        """Delete the half-written files of writers that were killed more than a day ago."""
        limit = time.time() - _DAY
        for folder in _FOLDERS:
            for name, info in self._list_files(folder):
                if _is_temporary(name) and info.mtime and info.mtime.timestamp() < limit:
                    with suppress(MirrorProblem):  # a file of another user
                        self.remove(f"{folder}/{name}")

    def check_results(self) -> None:
        """Raise MirrorProblem unless there are results here. Nothing is written."""
        if not any(self.files(folder) for folder in ("runs", "state")):
            raise MirrorProblem(
                f"there are no results at {self.url}: check it, or push to it first"
            )

    def probe(self) -> None:
        """Raise MirrorProblem unless files can be listed, written and deleted here."""
        name = f"probe-{uuid.uuid4().hex}"
        self.files("runs")
        self.put(name, b"fedkd-bench")
        self.remove(name)

    def _list_files(self, folder: str) -> Iterator[tuple[str, Any]]:
        """List all regular files below `folder`: name, and pyarrow's information."""
        from pyarrow.fs import FileSelector, FileType

        base = self._path(folder)
        with self._errors_translated():
            infos = self._system.get_file_info(
                FileSelector(base, allow_not_found=True, recursive=True)
            )
        for info in infos:
            # A name of this machine that is not UTF-8 is none of ours.
            with suppress(UnicodeDecodeError):
                if info.type == FileType.File and not (self._here and _leads_elsewhere(info.path)):
                    # The beginning may be spelt differently.
                    _, _, name = info.path.partition(base.strip("/") + "/")
                    yield name, info

    def _path(self, name: str) -> str:
        """Return the path of a file or folder here.

        Raises MirrorProblem if its folder is or lies behind a link.
        """
        path = f"{self._root}/{name}"
        if self._here and _leads_elsewhere(str(Path(path).parent)):
            raise MirrorProblem(f"mirror {self.url}: {path} lies behind a link: move the link away")
        return path

    def _chunks(self, name: str, limit: int) -> Iterator[bytes]:
        """Read a file in chunks; raises MirrorProblem once there are more than `limit` bytes.

        Errors in the use of a chunk do not count as the mirror's.
        """
        path = self._path(name)
        read = 0
        if self._here and _leads_elsewhere(path):
            raise FileNotFoundError(path)
        with self._errors_translated(may_lack=True), self._system.open_input_stream(path) as stream:
            while chunk := stream.read(_CHUNK):
                read += len(chunk)
                if read > limit:
                    raise MirrorProblem(
                        f"mirror {self.url}: {name} has more than its {limit:,} bytes"
                    )
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
    """Open the folder of a URL or a path, without access to it yet.

    S3 is asked for a bucket's region, though.

    Raises:
        UsageError: pyarrow does not know the URL, or it has a password.
        MirrorProblem: its file system is not available here.
    """
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    refuse_password(url)
    shown, _, query = url.partition("?")
    uri = url if "://" in url else resolved(url).as_uri()
    try:
        system, root = FileSystem.from_uri(uri)
    except (OSError, ValueError, pa.ArrowException) as error:
        problem = first_line(error)
        values = [value for _, value in parse_qsl(query)]
        for secret in filter(None, [query, *values]):
            problem = problem.replace(secret, "...")  # what is wrong may be a secret
        if isinstance(error, pa.ArrowInvalid | UnicodeError):
            allowed = (
                "a path, file:///..., s3://bucket/folder, gs://bucket/folder, "
                "hdfs://host:port/folder"
            )
            raise UsageError(f"mirror {shown}: {problem}; allowed: {allowed}") from None
        raise MirrorProblem(f"mirror {shown}: {problem}") from None
    return Place(url, system, root)


def _is_temporary(name: str) -> bool:
    """Return whether a file, in whatever folder, is one that is not whole yet."""
    return _TEMPORARY.fullmatch(name.rpartition("/")[2]) is not None


def _leads_elsewhere(path: str) -> bool:
    """Return whether a path on this machine is a link, or lies in a folder that is one."""
    return os.path.realpath(path) != str(Path(path))


def refuse_password(url: str) -> None:
    """Raise UsageError for a URL with a secret, before anything prints or keeps it."""
    # A port is not a password.
    password = re.match(r"[a-z0-9+.-]+://[^/]*:(?!\d+(/|$)).*@", url, re.IGNORECASE)
    query = parse_qsl(url.partition("?")[2], keep_blank_values=True)
    if password or any(_SECRET.search(name) for name, _ in query):
        raise UsageError(
            "the mirror's URL has a password in it, which every row's column `command` would keep: "
            "leave it out, and give it in the environment "
            "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile)"
        )


def local_folder(url: str) -> Path | None:
    """Return the local folder of a mirror's URL or path; None if the mirror is remote."""
    if "://" not in url:
        return resolved(url)
    if url.startswith("file:///"):
        return Path(os.path.realpath(unquote(url.removeprefix("file://"))))
    return None


def first_line(error: BaseException) -> str:
    """Return the first line of an error.

    A long line loses its middle, because libraries put the cause at the end.
    """
    line, _, _ = str(error).partition("\n")
    text = " ".join(line.split()) or type(error).__name__
    return text if len(text) <= 400 else f"{text[:200]} ... {text[-190:]}"
