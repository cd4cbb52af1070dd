"""Files of the Hugging Face hub, wherever its own client keeps them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bench.data.originals import Original

DISTILBERT = "distilbert/distilbert-base-uncased"  # whose vocabulary texts are split by, and whose weights are read


@dataclass(frozen=True)
class HubFile(Original):
    """A published file that is also on the hub, as a file of the same name of a model's repository.

    Args:
        repository: owner/name.
    """

    repository: str = ""

    def find(self, folder: Path) -> Path | None:
        """As `Original.find` says; where `folder` has none, the one that the hub's client has kept."""
        name = PurePosixPath(self.path).name
        kept = (place / name for place in snapshots(self.repository, "models"))
        return super().find(folder) or next((file for file in kept if file.is_file()), None)

    @property
    def url(self) -> str:
        """Where it can be downloaded."""
        return f"https://huggingface.co/{self.repository}/resolve/main/{PurePosixPath(self.path).name}"


def snapshots(repository: str, kind: str) -> list[Path]:
    """Where the hub's client keeps the versions of a repository, the newest first.

    Args:
        repository: owner/name.
        kind: `datasets` or `models`.
    """
    home = Path(os.environ.get("HF_HOME") or Path("~/.cache/huggingface").expanduser())
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    kept = (hub / f"{kind}--{repository.replace('/', '--')}" / "snapshots").glob("*")
    return sorted(kept, key=lambda place: place.stat().st_mtime, reverse=True)
