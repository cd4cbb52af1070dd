"""Data sets as parquet files, the way the Hugging Face hub has them: found, fetched and decoded."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.data.dataset import MissingData
from bench.data.hub import snapshots
from bench.data.originals import unlike
from bench.errors import EnvironmentProblem

if TYPE_CHECKING:
    from bench.data.dataset import Images, Labels

SHARD = re.compile(r"-(\d+)-of-(\d+)")  # in a name: which of how many files of a part it is, mostly from 0


def find(folder: Path, repository: str, part: str, kinds: tuple[str, ...] = (".parquet",)) -> list[Path]:
    """The tables of one part, in order: in `folder`, else where the hub's own client keeps them; [] if not all are.

    Args:
        folder: a copy of the repository, or of its `data` folder.
        repository: on the hub, as owner/name.
        part: what the files' names begin with, such as `train`.
        kinds: how the names end, the first that there is being taken.
    """
    kept = [place for version in snapshots(repository, "datasets") for place in (version / "data", version)]
    for place in (folder / "data", folder, *kept):
        for kind in kinds:
            files = _whole(sorted(place.glob(f"{part}-*{kind}"))) or sorted(place.glob(f"{part}{kind}"))
            if files:
                return files
    return []


def parts(
    folder: Path, repository: str, named: Sequence[Sequence[str]], kinds: tuple[str, ...] = (".parquet",)
) -> list[list[Path]]:
    """The tables of each part, as `find` gives them by the first name that there is; [] where a part has none."""
    found = [[find(folder, repository, name, kinds) for name in names] for names in named]
    made = [next(filter(None, tables), []) for tables in found]
    return made if all(made) else []


def lacking(folder: Path, part: str) -> list[Path]:
    """The files that a part lacks in `folder`, as `find` looks there; [] where it has none, or all."""
    for place in (folder / "data", folder):
        shards = _shards(sorted(place.glob(f"{part}-*.parquet")))
        if shards:
            total, there = max(shards.items(), key=lambda pair: len(pair[1]))
            first = int(total in there)
            lost = [number for number in range(first, first + total) if number not in there]
            return [place / f"{part}-{number:05}-of-{total:05}.parquet" for number in lost]
    return []


def _whole(files: list[Path]) -> list[Path]:
    """Those that are all files of a part; all of them where no name says how many there are."""
    shards = _shards(files)
    whole = (list(there.values()) for total, there in shards.items() if len(there) == total)
    return next(whole, []) if shards else files


def _shards(files: list[Path]) -> dict[int, dict[int, Path]]:
    """By how many files a part was made of, which of them there are: a folder may hold what two downloads left."""
    found: dict[int, dict[int, Path]] = {}
    for file in files:
        named = SHARD.search(file.name)
        if named and int(named[1]) <= int(named[2]):
            found.setdefault(int(named[2]), {})[int(named[1])] = file
    return found


def read(files: Sequence[Path], columns: Sequence[str], name: str, folder: Path) -> dict[str, list[Any]]:
    """Columns of parquet files, one file behind the other.

    Args:
        files: of one part.
        columns: names.
        name: the data set's, for the message.
        folder: the folder of data sets, for the message.

    Raises:
        EnvironmentProblem: a file is no parquet file, or lacks a column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: dict[str, list[Any]] = {column: [] for column in columns}
    for file in files:
        try:
            table = pq.read_table(file, columns=list(columns))
            for column in columns:
                found[column].extend(table[column].to_pylist())
        except (pa.ArrowException, OSError, KeyError) as problem:
            wanted = f"a parquet file with columns {', '.join(columns)}"
            raise unlike(file, name, folder, wanted, f"{file.stat().st_size:,} bytes: {problem}") from problem
    return found


def images(cells: Sequence[Any], shape: tuple[int, int, int], file: Path, name: str, folder: Path) -> Images:
    """(N, C, H, W) pixels of a column of images, each a mapping with the encoded `bytes`.

    Raises:
        EnvironmentProblem: one is no image, or of another size.
    """
    made = np.empty((len(cells), *shape), np.uint8)
    for position, cell in enumerate(cells):
        try:
            made[position] = decoded(cell["bytes"], shape)
        except (OSError, ValueError, TypeError, KeyError) as problem:
            wanted = f"an image of {shape[1]}x{shape[2]} in row {position}"
            raise unlike(file, name, folder, wanted, str(problem)) from problem
    return made


def labelled(files: Sequence[Path], shape: tuple[int, int, int], name: str, folder: Path) -> tuple[Images, Labels]:
    """(N, C, H, W) pixels and (N,) labels of tables with columns `image` and `label`; raises as `read` and `images`."""
    columns = read(files, ("image", "label"), name, folder)
    return images(columns["image"], shape, files[0], name, folder), np.array(columns["label"], np.int64)


def decoded(blob: bytes, shape: tuple[int, int, int]) -> Images:
    """(C, H, W) pixels of an encoded image, made grey or coloured as `shape` has it.

    Raises:
        OSError: it is no image.
        ValueError: it is of another size.
    """
    from PIL import Image

    with Image.open(io.BytesIO(blob)) as image:
        if image.size != (shape[2], shape[1]):
            raise ValueError(f"{image.size[1]}x{image.size[0]} pixels")
        pixels = np.asarray(image.convert("L" if shape[0] == 1 else "RGB"))
    return pixels.reshape(*shape[1:], shape[0]).transpose(2, 0, 1)


def fetch(repository: str, folder: Path, title: str, offline: bool, missing: Sequence[str]) -> None:
    """Download the parquet files of a repository into `folder`; what is there stays, what broke off goes on.

    Args:
        repository: on the hub, as owner/name.
        folder: where `find` looks first.
        title: the data set's, for the message.
        offline: never use the network.
        missing: what is not here, for the message.

    Raises:
        MissingData: `offline`.
        EnvironmentProblem: the download failed.
    """
    if offline:
        raise MissingData(
            f"{title} is not in {folder.parent}: {', '.join(missing)} missing. Put the parquet files of the hub's data "
            f"set {repository} into {folder}, name another folder with --data-dir or FEDKD_DATA, or run once without "
            f"--offline to download them"
        )
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(repository, repo_type="dataset", allow_patterns="data/*.parquet", local_dir=folder)
    except Exception as problem:  # the client has errors of its own, of its transport, and of libraries below that
        raise EnvironmentProblem(
            f"{title} could not be fetched into {folder}: {type(problem).__name__}: {problem}. Check the connection "
            f"and the space there, or put the parquet files of the hub's data set {repository} there, and run again"
        ) from problem
