"""Published files, each checked before it is opened."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import md5
from pathlib import Path

from bench.errors import EnvironmentProblem
from leaderboards.commands import shell_command


@dataclass(frozen=True)
class Original:
    """A published file.

    Args:
        path: where it lies, below the folder of data sets; torchvision's place where torchvision has the data set.
        md5: checksum, hexadecimal; None where none is published, so that only the content can be checked.
        size: bytes, where known; only the message of a damaged file needs it.
        also: other places where it may lie.
    """

    path: str
    md5: str | None
    size: int | None = None
    also: tuple[str, ...] = ()

    def find(self, folder: Path) -> Path | None:
        """The file, in the first of its places that has one; None if none has."""
        return next((folder / path for path in (self.path, *self.also) if (folder / path).is_file()), None)

    def read(self, folder: Path, name: str) -> bytes:
        """The file's content, once it is known to be the published one.

        Args:
            folder: the folder of data sets.
            name: the data set's, for the message.

        Raises:
            EnvironmentProblem: it is another, or cannot be read.
        """
        file = self.find(folder) or folder / self.path
        try:
            blob = file.read_bytes()
        except OSError as problem:
            raise EnvironmentProblem(
                f"{file} cannot be read: {problem}; mend that, or use another folder with --data-dir or FEDKD_DATA"
            ) from problem
        found = checksum(blob)
        if self.md5 and found != self.md5:
            size = f"{self.size:,} bytes, " if self.size else ""
            raise EnvironmentProblem(
                f"{file} is not the original file: expected {size}md5 {self.md5}, found {len(blob):,} bytes, "
                f"md5 {found}; {mending(name, folder)}"
            )
        return blob


def mending(name: str, folder: Path) -> str:
    """What to do about a damaged file of a data set."""
    again = shell_command("bench.data", "prepare", name, "--data-dir", folder)
    return f"delete it and run: {again} (this downloads it again), or put the original there"


def checksum(blob: bytes) -> str:
    """MD5, hexadecimal: what the files are published with. It shows damage; it keeps no attacker out."""
    return md5(blob, usedforsecurity=False).hexdigest()


def unlike(file: Path, name: str, folder: Path, expected: str, found: str) -> EnvironmentProblem:
    """The complaint about a file whose content is not what the data set has."""
    return EnvironmentProblem(f"{file}: expected {expected}, found {found}; {mending(name, folder)}")
