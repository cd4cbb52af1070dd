"""The place of a mirror: a folder of any file system that pyarrow knows, whose files appear whole or not at all.

A file is written under a temporary name and moved: a process killed at any point leaves nothing half-written in view.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TypeVar
from urllib.parse import unquote

from bench.atomic_write import atomic_file
from bench.errors import EnvironmentProblem, UsageError

SILENT_SECONDS = 30.0  # without a byte moved, after which a mirror counts as out of reach
_AT_ONCE = 8  # files on their way: an object store answers slowly, but many at a time
_CHUNK = 2**22  # bytes
_DAY = 24 * 60 * 60  # seconds after which a temporary file is nobody's
_TEMPORARY = ".tmp"
_T = TypeVar("_T")


class MirrorProblem(EnvironmentProblem):
    """A mirror cannot be read or written now. Nothing stored in the result folder is touched by it."""


class Place:
    """A folder somewhere: its URL as given, for messages, a `pyarrow.fs.FileSystem`, and the folder's path in it."""

    def __init__(self, url: str, system: Any, root: str) -> None:
        self.url, self._system, self._root = url, system, root.rstrip("/")
        self._made: set[str] = set()
        self._lock, self._asking, self._heard = threading.Lock(), 0, time.monotonic()

    @property
    def silent(self) -> float:
        """Seconds that whatever is asked of the file system now has gone without an answer or a byte moved."""
        return time.monotonic() - self._heard if self._asking else 0.0

    def files(self, folder: str) -> dict[str, int]:
        """Name below `folder` -> bytes, of every file there; temporary ones are left out."""
        return {name: info.size for name, info in self._listed(folder) if not name.endswith(_TEMPORARY)}

    def read(self, name: str) -> bytes:
        """Return the content of a file. Raises FileNotFoundError if it is not there, or not any more."""
        with BytesIO() as target:
            self._copy_out(name, target)
            return target.getvalue()

    def fetch(self, name: str, target: Path, check: Callable[[Path], None] = lambda _: None) -> None:
        """Copy a file to `target`, which appears whole, and only if `check` accepts the copy. Raises as `read` does."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(target) as file:
            self._copy_out(name, file)
            file.flush()
            check(Path(file.name))

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
                    while chunk := file.read(_CHUNK):
                        stream.write(chunk)
                        self._heard = time.monotonic()
                self._system.move(temporary, f"{folder}/{last}")
            except BaseException:
                self._made.discard(folder)
                with suppress(Exception):  # the first problem is the one to tell
                    self._system.delete_file(temporary)
                raise

    def remove(self, name: str) -> None:
        """Delete a file, unless it is gone already."""
        with suppress(FileNotFoundError), self._asked(may_lack=True):
            self._system.delete_file(f"{self._root}/{name}")

    def sweep(self, folder: str) -> None:
        """Delete what writers that were killed more than a day ago left half-written."""
        limit = time.time() - _DAY
        for name, info in self._listed(folder):
            if name.endswith(_TEMPORARY) and info.mtime and info.mtime.timestamp() < limit:
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
        from pyarrow.fs import FileSelector, FileType

        base = f"{self._root}/{folder}"
        with self._asked():
            infos = self._system.get_file_info(FileSelector(base, allow_not_found=True, recursive=True))
        for info in infos:
            if info.type == FileType.File:
                _, _, name = info.path.partition(base.strip("/") + "/")  # some spell the beginning otherwise
                yield name, info

    def _copy_out(self, name: str, target: BinaryIO) -> None:
        with self._asked(may_lack=True):
            stream = self._system.open_input_stream(f"{self._root}/{name}")
        with stream:
            while chunk := self._next(stream):
                target.write(chunk)

    def _next(self, stream: Any) -> bytes:
        with self._asked(may_lack=True):
            chunk: bytes = stream.read(_CHUNK)
            return chunk

    @contextmanager
    def _asked(self, may_lack: bool = False) -> Iterator[None]:
        """Around whatever the file system does: its failures become a sentence, but for a file that is not there."""
        import pyarrow as pa

        with self._lock:
            self._asking, self._heard = self._asking + 1, time.monotonic()
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            if may_lack and isinstance(error, FileNotFoundError):
                raise
            raise MirrorProblem(f"mirror {self.url}: {first_line(error)}") from error
        finally:
            with self._lock:
                self._asking, self._heard = self._asking - 1, time.monotonic()


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


def each(actions: Iterable[Callable[[], None]]) -> None:
    """Do all actions, some at a time; raises the first problem, after which none is begun.

    In daemon threads, unlike those of `ThreadPoolExecutor`: a process ends while they wait for a mirror that is gone.
    """
    left, problems = deque(actions), list[BaseException]()

    def work() -> None:
        while not problems:
            try:
                action = left.popleft()
            except IndexError:
                return
            try:
                action()
            except BaseException as error:
                problems.append(error)

    threads = [threading.Thread(target=work, daemon=True, name="mirror") for _ in range(min(_AT_ONCE, len(left)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


def patiently(action: Callable[[], _T], url: str, silent: Callable[[], float] | None = None) -> _T:
    """Call `action` and return its result, but give it up if a mirror is silent: clients try again for minutes.

    The action, which talks to the mirror of this URL, is left behind in a thread if no answer comes. `silent` gives the
    seconds that the mirror has not answered for; None counts from now.

    Raises:
        MirrorProblem: no answer for `SILENT_SECONDS`. And whatever `action` raises.
    """
    outcome: Future[_T] = Future()

    def act() -> None:
        try:
            outcome.set_result(action())
        except BaseException as error:
            outcome.set_exception(error)

    began = time.monotonic()
    thread = threading.Thread(target=act, daemon=True, name="mirror")
    thread.start()
    if not await_thread(thread, silent or (lambda: time.monotonic() - began), SILENT_SECONDS):
        raise MirrorProblem(f"mirror {url}: no answer for {SILENT_SECONDS:g} s")
    return outcome.result()


def await_thread(thread: threading.Thread, silent: Callable[[], float], seconds: float) -> bool:
    """Wait for a thread while it is not `silent` for longer than `seconds`; whether it ended."""
    while thread.is_alive() and silent() < seconds:
        thread.join(0.05)
    return not thread.is_alive()


def first_line(error: BaseException) -> str:
    """The first line of an error, its middle left out if it is long: libraries put the cause at the end."""
    text = " ".join(str(error).split("\n")[0].split()) or type(error).__name__
    return text if len(text) <= 400 else f"{text[:200]} ... {text[-190:]}"
