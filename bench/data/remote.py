"""What can be downloaded: a published file, or an archive that holds some, and where from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.data.originals import Original


@dataclass(frozen=True)
class Remote:
    """A file on a server.

    Args:
        file: where it is put, its checksum and its size. An archive holds files of the data set under their names.
        urls: where it is, the first that answers being used.
    """

    file: Original
    urls: tuple[str, ...]
