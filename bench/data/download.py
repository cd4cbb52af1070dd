"""Folders of data on this machine, and published files: verifying and downloading them.

Imports neither torch nor ray, nor numpy.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import zipfile
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedIOBase
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from bench.data.dataset import MissingData
from bench.errors import EnvironmentProblem, with_its_kind
from bench.terminal.paths import resolved
from leaderboards.shell_text import shell_command

APPLICATION = "fedkd-bench"
SMALLEST = 2**26  # bytes that a file in an archive may have in any case
# What a larger file may have, in multiples of its packed size; images take at most some ten.
TIMES = 50
COMPRESSED = ".gz"
SUBFOLDERS = 1_000  # of the folder of data sets that are looked into, down to the second level
LISTED = 8  # names in a message about what lies in a folder
# Its vocabulary splits texts, and its weights are read.
DISTILBERT = "distilbert/distilbert-base-uncased"


def data_dir(option: Path | str | None = None) -> Path:
    """Return the folder of data sets, in which they are looked for, and to which downloaded.

    It is resolved, and need not exist.

    Args:
        option: the user's choice (`--data-dir`); without it $FEDKD_DATA counts, then
            $XDG_DATA_HOME/fedkd-bench, whose default is ~/.local/share/fedkd-bench.
    """
    chosen = option or os.environ.get("FEDKD_DATA")
    return resolved(str(chosen)) if chosen else _xdg("XDG_DATA_HOME", "~/.local/share")


def cache_dir() -> Path:
    """Return the folder for files that can be remade.

    It is $XDG_CACHE_HOME/fedkd-bench, or ~/.cache/fedkd-bench if the variable is not set.
    """
    return _xdg("XDG_CACHE_HOME", "~/.cache")


def _xdg(variable: str, default: str) -> Path:
    # An empty variable counts as unset (XDG Base Directory Specification).
    return resolved(os.environ.get(variable) or default) / APPLICATION


def md5_of(opened: BufferedIOBase, limit: int) -> str:
    """Compute the MD5 of a file, or of so much that it has more than `limit` bytes.

    The files are published with MD5, which detects damage; it does not stop an attacker.
    """
    digest = hashlib.md5(usedforsecurity=False)
    count = 0
    while count <= limit and (block := opened.read(2**20)):
        digest.update(block)
        count += len(block)
    return digest.hexdigest()


def largest_in(packed: int) -> int:
    """Return the bytes that a file may have which is packed in so many bytes."""
    return max(SMALLEST, TIMES * packed)


@dataclass(frozen=True)
class Original:
    """A published file, or a zip archive that holds files of a data set under their names.

    Args:
        path: below the folder of data sets; torchvision's place if torchvision has the data set.
        md5: checksum, hexadecimal; None if none is published.
        also: other places where it may lie.
        compressed: checksum of its form compressed by gzip, which is read as well; empty if that is
            not read.
        url: address, if it can be downloaded from one.
        repository: of a model on the Hugging Face hub that has the file, as owner/name.
    """

    path: str
    md5: str | None = None
    also: tuple[str, ...] = ()
    compressed: str = ""
    url: str = ""
    repository: str = ""

    def find(self, folder: Path) -> Path | None:
        """Find the file in the first of its places that has it; None if no place has.

        Its places are below `folder`, up to two levels deeper than `path` says, and in the hub
        client's cache, which comes last. `folder` may itself be a folder of its path. A compressed
        file comes before a file without a checksum, and after others.
        """
        return next((file for file in self._places(folder) if file.is_file()), None)

    def where(self, folder: Path) -> Path:
        """Return the place of the file, as `find` does; where it belongs if no place has it."""
        return self.find(folder) or folder / self.path

    def _places(self, folder: Path) -> Iterator[Path]:
        """Yield where the file may lie, the likeliest place first."""
        names = self._forms(self.path)
        for path in self.also:
            names += self._forms(path)
        yield from (folder / name for name in names)
        for name in names:
            parts = PurePosixPath(name).parts
            for depth in range(1, len(parts)):
                if folder.parts[-depth:] == parts[:depth]:
                    yield folder.joinpath(*parts[depth:])
        for below in subfolders(folder):
            yield from (below / name for name in names)
        for version in snapshots(self.repository, "models"):
            yield version / PurePosixPath(self.path).name

    def _forms(self, path: str) -> list[str]:
        """Return the path, and that of the compressed file if it is read.

        A file with a checksum comes first.
        """
        if not self.compressed:
            return [path]
        forms = [path, path + COMPRESSED]
        return forms if self.md5 else forms[::-1]

    def verify(self, folder: Path, name: str) -> None:
        """Compare the file, which is present, with its checksum; raises EnvironmentProblem.

        Of a compressed file the content is compared, unless only the checksum of the compressed
        file is published. `name`: of the data set.
        """
        file = self.where(folder)
        packed = bool(self.compressed) and file.suffix == COMPRESSED
        expected = self.md5 or (self.compressed if packed else None)
        with gzip.open(file) if packed and self.md5 else file.open("rb") as opened:
            md5 = md5_of(opened, largest_in(file.stat().st_size))
        if expected not in (None, md5):
            raise EnvironmentProblem(
                f"{file} is not the original file: expected md5 {expected}, "
                f"found {file.stat().st_size:,} bytes, md5 {md5}; {mending(name, folder)}"
            )

    def download(self, folder: Path) -> Path:
        """Download the file into its place and return its path; raises the client's errors."""
        target = folder / self.path
        if self.repository:
            from huggingface_hub import hf_hub_download

            return Path(hf_hub_download(self.repository, target.name, local_dir=target.parent))
        from torchvision.datasets.utils import download_url

        part = target.with_name(f".{target.name}.part")
        # If no checksum is published, torchvision would take an old part for the whole file.
        part.unlink(missing_ok=True)
        download_url(self.url, part.parent, part.name, self.md5)
        return part.replace(target)


def snapshots(repository: str, kind: str) -> list[Path]:
    """List a repository's version folders in the hub client's cache, newest first.

    `kind`: datasets or models.
    """
    if not repository:
        return []
    from huggingface_hub import constants

    copy = Path(constants.HF_HUB_CACHE, f"{kind}--{repository.replace('/', '--')}")
    versions = [place for place in (copy / "snapshots").glob("*") if place.is_dir()]
    return sorted(versions, key=lambda place: place.stat().st_mtime, reverse=True)


def subfolders(folder: Path) -> list[Path]:
    """List the folders in `folder`, then the folders in these; at most `SUBFOLDERS`.

    They are sorted, without hidden ones.
    """
    first = _folders_in(folder)
    second = chain.from_iterable(map(_folders_in, first))
    return [*first, *islice(second, SUBFOLDERS - len(first))]


def _folders_in(folder: Path) -> list[Path]:
    """List the folders in a folder; none if it cannot be read."""
    with suppress(OSError), os.scandir(folder) as entries:
        folders = (Path(entry.path) for entry in entries if _is_shown_folder(entry))
        return sorted(islice(folders, SUBFOLDERS))
    return []


def _is_shown_folder(entry: os.DirEntry[str]) -> bool:
    """Tell whether an entry of a folder is a folder that is not hidden."""
    try:
        return entry.is_dir() and entry.name[0] != "."
    except OSError:  # such as that of a link to itself
        return False


def mending(name: str, folder: Path) -> str:
    """Return the advice about damaged files of a data set."""
    command = shell_command("bench.data", "prepare", name, "--data-dir", folder)
    return (
        f"delete what is damaged and run: {command} (this downloads it again), "
        "or put the original there"
    )


@contextmanager
def fetching(name: str, title: str, folder: Path) -> Iterator[None]:
    """Let one process at a time bring files of `name` into `folder`.

    Raises EnvironmentProblem if that fails.
    """
    from filelock import FileLock

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{name}.lock"):
            yield
    except EnvironmentProblem:
        raise
    except Exception as problem:  # of the connection, the protocol, a client or the disk
        raise EnvironmentProblem(
            f"{title} could not be fetched into {folder}: {with_its_kind(problem)}. Check the "
            "connection, the space and the right to write there (--data-dir or FEDKD_DATA name "
            "another folder), or put its files there"
        ) from problem


def lacking(
    title: str, paths: Sequence[str], folder: Path, others: Sequence[str] = ()
) -> MissingData:
    """Return the error for files that are not in `folder`.

    `others`: what would do in their place.
    """
    files = " or ".join(["them", *others])
    return MissingData(
        f"{title} is not in {folder}: {', '.join(paths)} missing. {lying_there(folder)}. Name the "
        f"folder that holds them with --data-dir or FEDKD_DATA, put {files} there, or run once "
        "without --offline to download them"
    )


def lying_there(folder: Path) -> str:
    """Say what a folder holds: its first names."""
    try:
        names = []
        for place in islice(folder.iterdir(), SUBFOLDERS):
            if not place.name.startswith("."):
                names.append(f"{place.name}/" if place.is_dir() else place.name)
    except OSError as problem:
        if folder.exists():
            return f"The folder cannot be listed ({problem.strerror})"
        return "There is no such folder"
    if not names:
        return "The folder is empty"
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return f"There lie {', '.join(sorted(names)[:LISTED])}{more}"


def unpack(archive: Path, missing: Sequence[str], folder: Path, name: str) -> None:
    """Unpack the `missing` files that an archive has into their places below `folder`.

    They may be in any folder of the archive; of several files with one name the last counts. No
    file is put into its place before all are unpacked. `name`: of the data set.
    """
    targets = {PurePosixPath(path).name: folder / path for path in missing}
    with TemporaryDirectory(dir=folder, prefix=f".{name}-") as scratch:
        try:
            _unpack_members(archive, targets.keys(), Path(scratch))
        except Exception as problem:
            if isinstance(problem, OSError) and problem.errno:
                raise  # an error of the disk, not of the archive
            raise EnvironmentProblem(
                f"{archive}: expected an archive with {', '.join(targets)}, found "
                f"{archive.stat().st_size:,} bytes: {with_its_kind(problem)}; "
                f"{mending(name, folder)}"
            ) from problem
        for unpacked in Path(scratch).iterdir():
            targets[unpacked.name].parent.mkdir(parents=True, exist_ok=True)
            unpacked.replace(targets[unpacked.name])


def _unpack_members(archive: Path, names: Set[str], folder: Path) -> None:
    """Unpack the files of these names, whatever their folders in the archive, into one folder."""
    with zipfile.ZipFile(archive) as opened:
        members = {PurePosixPath(member.filename).name: member for member in opened.infolist()}
        for name in names & members.keys():
            _check_member(members[name])
            with opened.open(members[name]) as packed, (folder / name).open("wb") as file:
                shutil.copyfileobj(packed, file)


def _check_member(member: zipfile.ZipInfo) -> None:
    """Raise ValueError for a file in an archive that is too large for its packed size."""
    bound = largest_in(member.compress_size)
    if member.file_size > bound:
        raise ValueError(
            f"{member.filename} would have {member.file_size:,} bytes, and "
            f"{member.compress_size:,} bytes of the archive may have {bound:,}"
        )
