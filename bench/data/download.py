"""Fetches missing files through torchvision, into place only once they are whole."""

from __future__ import annotations

import tarfile
from http.client import HTTPException
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.data.dataset import MissingData
from bench.errors import EnvironmentProblem

if TYPE_CHECKING:
    from bench.data.vision import Cifar

# What a network, a disk or a cut-off archive can raise through torchvision, which itself raises RuntimeError.
_FAILURES = (OSError, RuntimeError, HTTPException, tarfile.TarError, EOFError)


def fetch(source: Cifar, folder: Path, offline: bool) -> None:
    """Bring a data set's missing files into `folder`; of several processes one does it and the others wait.

    The data set's tarball is used if it lies in `folder`, else it is downloaded. Files that are there stay as they are.

    Args:
        source: the data set.
        folder: the folder of data sets, made if need be.
        offline: never use the network; the tarball is still used.

    Raises:
        MissingData: `offline`, and there is no tarball.
        EnvironmentProblem: the download failed, or `folder` cannot be written.
    """
    archive = folder / source.archive.path
    if offline and not archive.is_file():
        raise MissingData(_missing(source, folder))
    if archive.is_file():
        source.archive.read(folder)
    from filelock import FileLock

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f".{source.name}.lock"):
            if source.missing(folder):
                _unpack(source, folder, archive)
    except _FAILURES as problem:
        raise EnvironmentProblem(_failed(source, folder, problem)) from problem


def _unpack(source: Cifar, folder: Path, archive: Path) -> None:
    # torchvision writes where it is told to, and a kill leaves half a file: it is told a scratch folder.
    dataset = getattr(import_module("torchvision.datasets"), source.title.replace("-", ""))
    with TemporaryDirectory(dir=folder, prefix=f".{source.name}-") as scratch:
        if archive.is_file():
            (Path(scratch) / archive.name).symlink_to(archive)
        dataset(scratch, train=False, download=True)
        for path in source.missing(folder):
            (folder / path).parent.mkdir(exist_ok=True)
            (Path(scratch) / path).replace(folder / path)


def _missing(source: Cifar, folder: Path) -> str:
    return (
        f"{source.title} is not in {folder}: {', '.join(source.missing(folder))} missing. "
        f"Name the folder that holds {_subfolder(source)}/ with --data-dir or FEDKD_DATA, "
        f"put {source.archive.path} (md5 {source.archive.md5}) into {folder}, "
        f"or run once without --offline to download it"
    )


def _failed(source: Cifar, folder: Path, problem: BaseException) -> str:
    return (
        f"{source.title} could not be fetched into {folder}: {type(problem).__name__}: {problem}. "
        f"Check the connection, the space and the right to write there (--data-dir or FEDKD_DATA name another folder), "
        f"or put {source.archive.path} (md5 {source.archive.md5}) there by hand, and run again"
    )


def _subfolder(source: Cifar) -> str:
    return Path(source.files[0].path).parent.name
