"""Fetches the missing files of a data set: checked, resumed where they broke off, in place only once they are whole."""

from __future__ import annotations

import gzip
import shutil
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import md5
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Protocol, cast
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from bench.data.dataset import MissingData
from bench.errors import EnvironmentProblem

if TYPE_CHECKING:
    from bench.data.originals import Original
    from bench.data.remote import Remote

ATTEMPTS = 3  # at one server, each going on where the last one broke off
TIMEOUT = 60  # seconds without a byte
BLOCK = 2**20
UNSATISFIABLE = 416  # HTTP: there is nothing behind the bytes that are here

# What a network, a disk or a cut-off archive can raise.
_FAILURES = (OSError, HTTPException, tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error)


class Fetched(Protocol):
    """What can be fetched: a `FileSource`, or a model's weights."""

    @property
    def name(self) -> str:
        """As `python -m bench.data prepare` knows it."""

    @property
    def title(self) -> str:
        """Name in print."""

    @property
    def files(self) -> tuple[Original, ...]:
        """All files that are wanted."""

    @property
    def remotes(self) -> tuple[Remote, ...]:
        """What is downloaded for them, and from where."""

    def missing(self, folder: Path) -> list[str]:
        """The files that are not in `folder`, as paths below it."""


def fetch(source: Fetched, folder: Path, offline: bool) -> None:
    """Bring missing files into `folder`; of several processes one does it and the others wait.

    An archive that lies in `folder` is used; it is downloaded where there is none, or where that one lacks a file.
    Files that are there stay as they are.

    Args:
        source: what they belong to.
        folder: the folder of data sets, made if need be.
        offline: never use the network; archives that are here are still used.

    Raises:
        MissingData: files are missing that no archive here has, `offline`, nor what was downloaded.
        EnvironmentProblem: the download failed, an archive is damaged, or `folder` cannot be written.
    """
    if offline and not any(remote.file.find(folder) for remote in source.remotes):
        raise MissingData(_missing(source, folder, offline))
    from filelock import FileLock

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{source.name}.lock"):
            for remote in source.remotes:
                if source.missing(folder):
                    _bring(source, remote, folder, offline)
    except _FAILURES as problem:
        raise EnvironmentProblem(_failed(source, folder, problem)) from problem
    if source.missing(folder):
        raise MissingData(_missing(source, folder, offline))


def _bring(source: Fetched, remote: Remote, folder: Path, offline: bool) -> None:
    """Use one remote: the archive that is here, then for what that lacks a download, which goes once it is unpacked."""
    here, wanted = remote.file.find(folder), _wanted(source, remote, folder)
    if here and wanted:
        _check(here, remote, source.name, folder)
        _unpack(here, wanted, folder)
        wanted = _wanted(source, remote, folder)
    # An archive of the right checksum is what would be downloaded.
    if not wanted or offline or (here and remote.file.md5):
        return
    archive = _download(remote, folder)
    if archive.name in wanted:
        return
    try:
        _unpack(archive, wanted, folder)
    except _FAILURES:
        # With the right checksum it is whole: the failure is the disk's, and what was downloaded stays of use.
        if not remote.file.md5:
            archive.unlink()
        raise
    archive.unlink()


def _wanted(source: Fetched, remote: Remote, folder: Path) -> dict[str, Path]:
    """The missing files that a remote may hold, by name: the one that it is, else all that are no other remote."""
    names = {PurePosixPath(file.path).name for file in source.files}
    own, *others = (_stem(each) for each in (remote, *source.remotes))
    mine = {own} if own in names else names - set(others)
    missing = {PurePosixPath(path).name: folder / path for path in source.missing(folder)}
    return {name: path for name, path in missing.items() if name in mine}


def _stem(remote: Remote) -> str:
    """The name of a file that is packed by itself, without the packing."""
    return PurePosixPath(remote.file.path).name.removesuffix(".gz")


def _check(file: Path, remote: Remote, name: str, folder: Path) -> None:
    if remote.file.md5 and _md5(file) != remote.file.md5:
        remote.file.read(folder, name)  # which says what is wrong


def _md5(file: Path) -> str:
    digest = md5(usedforsecurity=False)
    with file.open("rb") as opened:
        while block := opened.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _download(remote: Remote, folder: Path) -> Path:
    """The file, once its checksum is right: in its place, or beside the user's own that lies there."""
    target = folder / remote.file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    if target.exists():
        target = target.with_name(f".new-{target.name}")
    problems = []
    for url in remote.urls:
        for _ in range(ATTEMPTS):
            try:
                _stream(url, part)
            except _FAILURES as problem:
                problems.append(f"{url}: {type(problem).__name__}: {problem}")
                continue
            found = _md5(part)
            if remote.file.md5 in (None, found):
                return part.replace(target)
            part.unlink()
            problems.append(f"{url}: expected md5 {remote.file.md5}, got a file with {found}")
    raise OSError("; ".join(dict.fromkeys(problems)))


def _stream(url: str, part: Path) -> None:
    """Append to `part` what the server has behind it; begin anew where the server cannot go on."""
    have = part.stat().st_size if part.is_file() else 0
    headers = {"User-Agent": "fedkd-bench", **({"Range": f"bytes={have}-"} if have else {})}
    try:
        with urlopen(Request(url, headers=headers), timeout=TIMEOUT) as response:
            have = have if response.status == 206 else 0
            length = response.headers.get("Content-Length")
            total = have + int(length) if length else None
            _say(url, have, total)
            with part.open("ab" if have else "wb") as file:
                shutil.copyfileobj(response, file, BLOCK)
    except HTTPError as problem:
        if problem.code != UNSATISFIABLE:
            raise
        return
    if total is not None and part.stat().st_size != total:
        raise OSError(f"the connection closed after {part.stat().st_size:,} of {total:,} bytes")


def _say(url: str, have: int, total: int | None) -> None:
    size = "of unknown size" if total is None else f"{total / 1e6:,.1f} MB"
    rest = f", going on after {have / 1e6:,.1f} MB" if have else ""
    sys.stderr.write(f"downloading {url} ({size}{rest})\n")


def _unpack(archive: Path, wanted: dict[str, Path], folder: Path) -> None:
    """Put the wanted files, found in the archive by their names, into their places once all are unpacked."""
    with TemporaryDirectory(dir=folder, prefix=f".{archive.name}-") as scratch:
        made: dict[Path, Path] = {}
        for name, content in _members(archive):
            if name in wanted:
                made[wanted[name]] = Path(scratch) / name
                with content() as opened, made[wanted[name]].open("wb") as file:
                    shutil.copyfileobj(opened, file, BLOCK)
        for target, unpacked in made.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            unpacked.replace(target)


def _members(archive: Path) -> Iterator[tuple[str, Callable[[], IO[bytes]]]]:
    """Name and content of each file in an archive; what is packed once more inside goes by its name without `.gz`."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as opened:
            for path in opened.namelist():
                name = PurePosixPath(path).name
                yield name.removesuffix(".gz"), partial(_unzipped, opened, path)
    elif archive.name.endswith(".tar.gz"):
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.isfile():
                    yield PurePosixPath(member.name).name, partial(_extracted, tar, member)
    else:
        yield archive.name.removesuffix(".gz"), partial(_ungzipped, archive)


def _ungzipped(file: Path | IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(file))


def _unzipped(archive: zipfile.ZipFile, path: str) -> IO[bytes]:
    opened = archive.open(path)
    return _ungzipped(opened) if path.endswith(".gz") else opened


def _extracted(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    opened = archive.extractfile(member)
    assert opened is not None, "only files are asked for"
    return opened


def _missing(source: Fetched, folder: Path, offline: bool) -> str:
    archives = _archives(source)
    lacking = f"or put them into {folder}, for {archives} lacks them"
    download = f"put {archives} into {folder}, or run once without --offline to download it"
    return (
        f"{source.title} is not in {folder}: {', '.join(source.missing(folder))} missing. "
        f"Name the folder that holds them with --data-dir or FEDKD_DATA, {download if offline else lacking}"
    )


def _failed(source: Fetched, folder: Path, problem: BaseException) -> str:
    return (
        f"{source.title} could not be fetched into {folder}: {type(problem).__name__}: {problem}. "
        f"Check the connection, the space and the right to write there (--data-dir or FEDKD_DATA name another folder), "
        f"or put {_archives(source)} there by hand, and run again"
    )


def _archives(source: Fetched) -> str:
    """What may be put there by hand, with checksums."""
    files = [remote.file for remote in source.remotes]
    return ", ".join(file.path + (f" (md5 {file.md5})" if file.md5 else "") for file in files)
