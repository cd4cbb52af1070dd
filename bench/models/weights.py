"""Pretrained weights: files that a model starts from, found, fetched, remembered. Imports neither torch nor ray."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.data import download
from bench.data.dataset import MissingData
from bench.data.download import Original
from bench.errors import EnvironmentProblem


@dataclass(frozen=True)
class Weights:
    """The weights of one model, in one file of the Hugging Face hub; the model `without` is of its form and needs none.

    `name` is the model's, for `python -m bench.data prepare`, `title` the one in print.
    """

    name: str
    title: str
    file: Original
    without: str

    def provide(self, folder: Path, offline: bool) -> Path:
        """The file, fetched into `folder` where it is not here yet; the process goes on using this one.

        Raises:
            EnvironmentProblem: it is not here and cannot be fetched, or may not be; the message says what to do.
        """
        file = self.file.find(folder)
        try:
            if file is None and offline:
                raise download.lacking(self.title, [self.file.path], folder)
            if file is None:
                with download.fetching(self.name, self.title, folder):
                    file = self.file.find(folder) or self.file.download(folder)
        except EnvironmentProblem as problem:
            raise type(problem)(f"{problem}; or take model {self.without}, which needs none") from problem
        _CHOSEN[self.name] = file
        return file

    def here(self) -> Path:
        """The file that `provide` gave this process, else the one in the usual places.

        Raises:
            MissingData: there is none.
        """
        folder = download.data_dir()
        file = _CHOSEN.get(self.name) or self.file.find(folder)
        if file is None:
            raise MissingData(
                f"the weights of {self.title} are neither in {folder} nor in the hub's cache: run "
                f"`python -m bench.data prepare {self.name}`, put {self.file.path} there, or take model "
                f"{self.without}, which needs none"
            )
        return file


_CHOSEN: dict[str, Path] = {}


@cache
def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:16]


DISTILBERT = Weights(
    name="distilbert",
    title="distilbert-base-uncased",
    file=Original("distilbert-base-uncased/model.safetensors", repository=download.DISTILBERT),
    without="distilbert_scratch",
)
WEIGHTS = {weights.name: weights for weights in (DISTILBERT,)}


def versions(model: str) -> dict[str, str]:
    """Title -> version of the weights that a model starts from; of one that starts from drawn numbers none.

    No checksum is published: a version is the first 16 digits of the SHA-256 of the file that this process uses.
    """
    weights = WEIGHTS.get(model.partition("+")[0])
    return {} if weights is None else {weights.title: _digest(weights.here())}


def provide(model: str, data_dir: Path | str | None, offline: bool) -> None:
    """Have the weights of a model here; nothing to do for one that starts from drawn numbers.

    Raises:
        EnvironmentProblem: they are not here and cannot be fetched.
    """
    weights = WEIGHTS.get(model.partition("+")[0])
    if weights is not None:
        weights.provide(download.data_dir(data_dir), offline)
