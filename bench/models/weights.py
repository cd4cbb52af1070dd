"""DistilBERT's pretrained weights: finding, fetching and remembering their file.

Imports neither torch nor ray.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from bench.data import download
from bench.data.dataset import MissingData
from bench.errors import EnvironmentProblem
from leaderboards.rows.files import content_hash

# The model that starts from them, and their name for `python -m bench.data prepare`.
PRETRAINED = "distilbert"
DRAWN = "distilbert_scratch"  # the model of the same form that needs none
TITLE = "distilbert-base-uncased"
FILE = download.Original(f"{TITLE}/model.safetensors", repository=download.DISTILBERT)

_chosen: Path | None = None  # the file that `fetch` gave this process, which goes on using it


def starts_from_them(model: str) -> bool:
    """Return whether a model, in any of its forms, starts from the weights."""
    return model.partition("+")[0] == PRETRAINED


def fetch(data_dir: Path | str | None, offline: bool) -> Path:
    """Return the file of weights, fetched into the folder of data sets if it is missing.

    Raises:
        EnvironmentProblem: it is missing and cannot or may not be fetched; the message says what to
            do.
    """
    global _chosen
    folder = download.data_dir(data_dir)
    file = FILE.find(folder)
    try:
        if file is None and offline:
            raise download.lacking(TITLE, [FILE.path], folder)
        if file is None:
            with download.fetching(PRETRAINED, TITLE, folder):
                file = FILE.find(folder) or FILE.download(folder)
    except EnvironmentProblem as problem:
        raise type(problem)(f"{problem}; or take model {DRAWN}, which needs none") from problem
    _chosen = file
    return file


def here() -> Path:
    """Return the file that `fetch` gave this process, or the file in the usual places.

    Raises MissingData without any.
    """
    folder = download.data_dir()
    file = _chosen or FILE.find(folder)
    if file is None:
        raise MissingData(
            f"the weights of {TITLE} are neither in {folder} nor in the hub's cache: "
            f"run `python -m bench.data prepare {PRETRAINED}`, put {FILE.path} there, "
            f"or take model {DRAWN}, which needs none"
        )
    return file


def provide(model: str, data_dir: Path | str | None, offline: bool) -> None:
    """Fetch the weights of a model, if it starts from any and they are missing.

    Raises as `fetch` does.
    """
    if starts_from_them(model):
        fetch(data_dir, offline)


def versions(model: str) -> dict[str, str]:
    """Return title -> version of the weights that a model starts from.

    It is empty if the model starts from random weights. No checksum is published: a version is the
    first 16 digits of the SHA-256 of the file that this process uses.
    """
    return {TITLE: _digest(here())} if starts_from_them(model) else {}


@cache
def _digest(file: Path) -> str:
    return content_hash(file)[:16]
