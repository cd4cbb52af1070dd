"""Published files: where they lie, whether they are the original ones, and downloads that go on where they broke off.

Imports neither torch nor ray, nor numpy.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, Protocol, cast

from bench.data.dataset import MissingData
from bench.errors import EnvironmentProblem, with_its_kind
from leaderboards.shell_text import shell_command

ATTEMPTS = 3  # at one server, each going on where the last one broke off
TIMEOUT = 60  # seconds without a byte
BLOCK = 2**20
UNSATISFIABLE = 416  # HTTP: there is nothing behind the bytes that are here

DISTILBERT = "distilbert/distilbert-base-uncased"  # whose vocabulary texts are split by, and whose weights are read


@dataclass(frozen=True)
class Original:
    """A published file, or an archive that holds files of a data set under their names."""

    path: str  # where it lies, below the folder of data sets; torchvision's place if torchvision has the data set
    md5: str | None = None  # checksum, hexadecimal; None if none is published
    also: tuple[str, ...] = ()  # other places where it may lie
    urls: tuple[str, ...] = ()  # addresses, if it can be downloaded; the first that answers is used
    repository: str = ""  # of a model on the Hugging Face hub that has the file, too, as owner/name

    @property
    def content(self) -> str | None:
        """The name of the one file that it is or packs; None for an archive of several."""
        name = PurePosixPath(self.path).name
        return None if name.endswith((".zip", ".tar.gz")) else name.removesuffix(".gz")

    def find(self, folder: Path) -> Path | None:
        """The file, in the first of its places that has one, else where the hub's client keeps it; None if none has."""
        kept = [place / PurePosixPath(self.path).name for place in snapshots(self.repository, "models")]
        places = [*(folder / path for path in (self.path, *self.also)), *kept]
        return next((file for file in places if file.is_file()), None)

    def verify(self, folder: Path, name: str) -> Path:
        """The file, which is here, compared with its checksum; raises EnvironmentProblem. `name`: the data set's."""
        file = self.find(folder) or folder / self.path
        try:
            md5 = checksum(file)
        except OSError as problem:
            raise EnvironmentProblem(
                f"{file} cannot be read: {problem}; mend that, or use another folder with --data-dir or FEDKD_DATA"
            ) from problem
        if self.md5 not in (None, md5):
            raise EnvironmentProblem(
                f"{file} is not the original file: expected md5 {self.md5}, found {file.stat().st_size:,} bytes, "
                f"md5 {md5}; {mending(name, folder)}"
            )
        return file


def hub_file(repository: str, path: str, md5: str | None = None, also: tuple[str, ...] = ()) -> Original:
    """A published file that a model's repository on the hub has, under the same name."""
    url = f"https://huggingface.co/{repository}/resolve/main/{PurePosixPath(path).name}"
    return Original(path, md5, also, (url,), repository)


class Fetched(Protocol):
    """Something that can be fetched: a data set's files, or a model's weights."""

    @property
    def name(self) -> str:
        """As `python -m bench.data prepare` takes it."""

    @property
    def title(self) -> str:
        """Name in print."""

    @property
    def remotes(self) -> tuple[Original, ...]:
        """The files to download; archives of several files come last."""

    def missing(self, folder: Path) -> list[str]:
        """The files that are not in `folder`, as paths below it."""


def snapshots(repository: str, kind: str) -> list[Path]:
    """The folders of versions of a repository that the hub's client keeps, newest first. `kind`: datasets or models."""
    home = Path(os.environ.get("HF_HOME") or Path("~/.cache/huggingface").expanduser())
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    kept = (hub / f"{kind}--{repository.replace('/', '--')}" / "snapshots").glob("*") if repository else ()
    return sorted(kept, key=lambda place: place.stat().st_mtime, reverse=True)


def checksum(file: Path) -> str:
    """MD5 of a file, hexadecimal, as files are published with. It shows damage; it keeps no attacker out."""
    digest = hashlib.md5(usedforsecurity=False)
    with file.open("rb") as opened:
        while block := opened.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def mending(name: str, folder: Path) -> str:
    """The advice about damaged files of a data set."""
    again = shell_command("bench.data", "prepare", name, "--data-dir", folder)
    return f"delete what is damaged and run: {again} (this downloads it again), or put the original there"


def fetch(source: Fetched, folder: Path, offline: bool) -> None:
    """Bring missing files into `folder`; of several processes one does it and the others wait.

    An archive that lies in `folder` is used, even if `offline`, else it is downloaded. Files that are there stay.

    Raises:
        MissingData: files are missing that no archive has, or `offline` and there is no archive here.
        EnvironmentProblem: the download failed, an archive is damaged, or `folder` cannot be written.
    """
    from filelock import FileLock

    try:
        if not offline or any(remote.find(folder) for remote in source.remotes):
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / f".{source.name}.lock"):
                for remote in source.remotes:
                    missing = {PurePosixPath(path).name: folder / path for path in source.missing(folder)}
                    if missing and remote.content in (None, *missing):
                        _bring(source, remote, missing, folder, offline)
    except EnvironmentProblem:
        raise
    except Exception as problem:
        raise EnvironmentProblem(
            f"{source.title} could not be fetched into {folder}: {with_its_kind(problem)}. Check the connection, the "
            "space and the right to write there (--data-dir or FEDKD_DATA name another folder), or put "
            f"{_archives(source)} there by hand, and run again"
        ) from problem
    if lost := source.missing(folder):
        download = f"put {_archives(source)} into {folder}, or run once without --offline to download it"
        lacking = f"or put them into {folder}, for {_archives(source)} lacks them"
        raise MissingData(
            f"{source.title} is not in {folder}: {', '.join(lost)} missing. Name the folder that holds them with "
            f"--data-dir or FEDKD_DATA, {download if offline else lacking}"
        )


def _archives(source: Fetched) -> str:
    """The files that may be put there by hand, with checksums."""
    return ", ".join(file.path + (f" (md5 {file.md5})" if file.md5 else "") for file in source.remotes)


def _bring(source: Fetched, remote: Original, missing: dict[str, Path], folder: Path, offline: bool) -> None:
    """Unpack missing files, by name, from the archive that is here, else from a download, which goes afterwards."""
    if remote.find(folder):
        _unpack(remote.verify(folder, source.name), missing, folder, source.name)
    elif not offline:
        archive = _download(remote, folder)
        if archive.name not in missing:
            try:
                _unpack(archive, missing, folder, source.name)
            finally:
                archive.unlink()


def _download(remote: Original, folder: Path) -> Path:
    """The file in its place, once its checksum is right."""
    target = folder / remote.path
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    problems = []
    for url in remote.urls:
        for _ in range(ATTEMPTS):
            try:
                _stream(url, part)
            except Exception as problem:  # of the connection, the protocol or the disk
                problems.append(f"{url}: {with_its_kind(problem)}")
                continue
            md5 = checksum(part)
            if remote.md5 in (None, md5):
                return part.replace(target)
            part.unlink()
            problems.append(f"{url}: expected md5 {remote.md5}, got a file with {md5}")
    raise OSError("; ".join(dict.fromkeys(problems)))


def _stream(url: str, part: Path) -> None:
    """Append to `part` the bytes that the server has behind it; begin anew if the server cannot go on."""
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    have = part.stat().st_size if part.is_file() else 0
    headers = {"User-Agent": "fedkd-bench", **({"Range": f"bytes={have}-"} if have else {})}
    try:
        with urlopen(Request(url, headers=headers), timeout=TIMEOUT) as response:
            have = have if response.status == 206 else 0
            length = response.headers.get("Content-Length")
            size = f"{(have + int(length)) / 1e6:,.1f} MB" if length else "of unknown size"
            rest = f", going on after {have / 1e6:,.1f} MB" if have else ""
            sys.stderr.write(f"downloading {url} ({size}{rest})\n")
            with part.open("ab" if have else "wb") as file:
                shutil.copyfileobj(response, file, BLOCK)
    except HTTPError as problem:
        if problem.code != UNSATISFIABLE:
            raise
        return
    if length and part.stat().st_size != have + int(length):
        raise OSError(f"the connection closed after {part.stat().st_size:,} of {have + int(length):,} bytes")


def _unpack(archive: Path, wanted: dict[str, Path], folder: Path, name: str) -> None:
    """Put the wanted files, found in the archive by their names, into their places once all are unpacked."""
    with TemporaryDirectory(dir=folder, prefix=f".{archive.name}-") as scratch:
        unpacked: dict[Path, Path] = {}
        try:
            for member, content in _members(archive):
                target = wanted.get(member.removesuffix(".gz"))
                if target:
                    unpacked[target] = Path(scratch) / target.name
                    with content() as packed, unpacked[target].open("wb") as file:
                        plain = gzip.GzipFile(fileobj=packed) if member.endswith(".gz") else packed
                        shutil.copyfileobj(plain, file, BLOCK)
        except Exception as problem:
            if isinstance(problem, OSError) and problem.errno:
                raise  # the disk's, not the archive's
            raise EnvironmentProblem(
                f"{archive}: expected an archive with {', '.join(wanted)}, found {archive.stat().st_size:,} bytes: "
                f"{with_its_kind(problem)}; {mending(name, folder)}"
            ) from problem
        for target, whole in unpacked.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            whole.replace(target)


def _members(archive: Path) -> Iterator[tuple[str, Callable[[], IO[bytes]]]]:
    """Name and content of each file in an archive, or of the file itself."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as opened:
            for path in opened.namelist():
                yield PurePosixPath(path).name, partial(opened.open, path)
    elif archive.name.endswith(".tar.gz"):
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.isfile():
                    yield (
                        PurePosixPath(member.name).name,
                        cast(Callable[[], IO[bytes]], partial(tar.extractfile, member)),
                    )
    else:
        yield archive.name, lambda: archive.open("rb")
