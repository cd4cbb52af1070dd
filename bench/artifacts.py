"""Data that `--track` kept of runs besides their rows and curves: the files, and how to read them.

    OUT/tracked/<key16>-<hash16>.npz           arrays, by name (below); read by `arrays`
    OUT/tracked/<key16>-<hash16>.safetensors   `models`: the final model; read by
                                               `bench.engine.tracking.load_model`

`key16` begins the run key of a row, `hash16` the SHA-256 of the file, which is never changed:
`--force` makes another. The row names its files (`Store.tracked`). Earlier versions wrote
`<key16>.npz` and named it nowhere. Files appear whole or not at all, before the run's row: a
finished row that was tracked has them. A run that a scheduler stopped has none. Arrays, with R
evaluated rounds, m clients in a round, K in all, C classes, n test samples, D features:

| name | shape | meaning |
|---|---|---|
| `run/key`, `run/algorithm` | () | the row's run key and registry name |
| `local/rounds`, `local/clients` | (R,), (R, m) | evaluated rounds, and the clients of each |
| `local/accuracy` | (R, m) | test accuracy of their own final models; the curve has the mean |
| `classes/rounds`, `classes/global` | (R,), (R, C) | test accuracy by class, after each round |
| `classes/personal` | () | whether each client has its own model (FedBN) |
| `classes/counts` | (K, C) | training samples of each client and class |
| `classes/clients`, `classes/local` | (m,), (m, C) | the last round's clients, accuracy by class |
| `features/samples`, `features/labels` | (n,), (n,) | test samples, the same for all runs; labels |
| `features/global` | (n, D) | penultimate features; absent if each client has its own model |
| `features/client`, `features/local` | (), (n, D) | first client of the last round, its features |
| `drift/rounds`, `drift/clients` | (R,), (R, m) | evaluated rounds, and the clients of each |
| `drift/shares` | (R, m) | p_k, each client's share of these clients' training samples |
| `drift/gradients` | (R, m) | norm of the gradient of the client's loss F_k at the received model |
| `drift/mean_gradient` | (R,) | norm of the mean of these gradients, weighted by p_k |
| `drift/dissimilarity` | (R,) | FedGKD's B^2: mean squared norm over `mean_gradient` squared |
| `drift/distances` | (R, m) | distance of the client's final model from the received one |
| `drift/distance` | (R,) | the mean of these distances, weighted by p_k |
| `message/rounds` | (R,) | evaluated rounds |
| `message/<name>` | (R, ...) | a tensor that the server sent: `message/class_weights` (R, C) |

Accuracies are fractions on the global test set, whatever a client holds; NaN for a class without
test samples. If clients hold one source each, they are means over the sources. For models that
clients have of their own they are means over clients, and drift is measured from the model that
each client starts with. Imports neither torch nor ray.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bench.errors import EnvironmentProblem
from bench.execution import TRACKS
from leaderboards import Store
from leaderboards.rows.files import (
    copy_file,
    is_regular,
    open_regular,
    part_of,
    sweep_leftovers,
    write_named_by_content,
)

# The axes of the arrays, by the letters above; within a part, axes of one letter are equally long.
AXES = {
    "run/key": "",
    "run/algorithm": "",
    "local/rounds": "R",
    "local/clients": "Rm",
    "local/accuracy": "Rm",
    "classes/rounds": "R",
    "classes/global": "RC",
    "classes/personal": "",
    "classes/counts": "KC",
    "classes/clients": "m",
    "classes/local": "mC",
    "features/samples": "n",
    "features/labels": "n",
    "features/global": "nD",
    "features/client": "",
    "features/local": "nD",
    "drift/rounds": "R",
    "drift/clients": "Rm",
    "drift/shares": "Rm",
    "drift/gradients": "Rm",
    "drift/mean_gradient": "R",
    "drift/dissimilarity": "R",
    "drift/distances": "Rm",
    "drift/distance": "R",
    "message/rounds": "R",
}
MOST = 2**20  # classes or clients that a figure can show
FOLDER = "tracked"
NAME = re.compile(r"[0-9a-f]{16}(-[0-9a-f]{16})?\.(npz|safetensors)")
# Errors of reading a damaged file of arrays.
_DAMAGES = (
    zipfile.BadZipFile,
    EOFError,
    SyntaxError,
    ValueError,
    TypeError,
    OverflowError,
    RuntimeError,
)
Arrays = dict[str, np.ndarray[Any, Any]]


class Tracked:
    """The tracked files of the rows in a result folder, as they are now; none for a file of rows.

    `keys`: the runs to look for, by their keys or the first 16 characters; None is all.
    """

    def __init__(self, out: Path | str, keys: Collection[str] | None = None) -> None:
        self._folder = part_of(Path(out), FOLDER)
        whole = keys is not None and all(len(key) == 64 for key in keys)
        named = Store(out).tracked(keys if whole else None)
        self._named = {key[:16]: names for key, names in named.items()}

    def path(self, key: str, ending: str = "npz") -> Path:
        """Return the path of a row's file, whether or not it is there.

        It is the file that the row names. If the row names none, or is not in this folder, it is
        the file of earlier versions, or without such a file the latest of the run. `ending`: npz or
        safetensors.
        """
        named = self._named.get(key[:16], {}).get(f".{ending}")
        if named:
            return self._folder / named
        old = self._folder / f"{key[:16]}.{ending}"
        if is_regular(old):
            return old
        files = filter(is_regular, self._folder.glob(f"{key[:16]}-*.{ending}"))
        return max(files, key=lambda path: path.lstat().st_mtime_ns, default=old)

    def has(self, key: str, ending: str = "npz") -> bool:
        """Return whether a row has such a file."""
        return is_regular(self.path(key, ending))

    def names(self, key: str) -> set[str]:
        """Return the names of `TRACKS` that a row's files have.

        Raises EnvironmentProblem if a file is damaged.
        """
        names = {"models"} if self.has(key, "safetensors") else set[str]()
        if self.has(key):
            with _archive(self.path(key)) as archive:
                names |= set(map(_part_of, archive.namelist())) & set(TRACKS)
        return names

    def arrays(self, key: str) -> Arrays:
        """Read the tracked arrays of a row, by the names above.

        Raises:
            FileNotFoundError: there are none.
            EnvironmentProblem: the file is damaged.
        """
        path = self.path(key)
        if not os.path.lexists(path):
            raise FileNotFoundError(
                f"{path}: run {key[:16]} has no tracked data; "
                "run it with --track, and --force if it is stored"
            )
        arrays: Arrays = {}
        with _archive(path) as archive:
            for name in archive.namelist():
                with archive.open(name) as member:
                    array = np.lib.format.read_array(member, allow_pickle=False)
                arrays[name.removesuffix(".npy")] = array
            _check_arrays(arrays)
        return arrays


def _check_arrays(arrays: Arrays) -> None:
    """Raise ValueError for arrays that `--track` does not write, because figures index arrays."""
    lengths: dict[tuple[str, str], int] = {}
    for name, axes in AXES.items():
        if name not in arrays:
            continue
        array = arrays[name]
        part = _part_of(name)
        kinds = "U" if part == "run" else "biuf"
        if array.dtype.kind not in kinds:
            raise ValueError(f"its {name} is of type {array.dtype}")
        if array.ndim != len(axes) or not array.size:
            raise ValueError(
                f"its {name} has the shape {array.shape}, for axes ({', '.join(axes)})"
            )
        for axis, length in zip(axes, array.shape, strict=True):
            if lengths.setdefault((part, axis), length) != length:
                raise ValueError(f"its {name} has another number {axis} than other arrays")
    _check_places(arrays, clients=lengths.get(("classes", "K"), MOST))


def _check_places(arrays: Arrays, clients: int) -> None:
    """Raise ValueError for numbers of clients and classes at which there is nothing."""
    with_features = {"local/clients", "features/client"} <= arrays.keys()
    if with_features and arrays["features/client"] not in arrays["local/clients"][-1]:
        raise ValueError("its features/client is none of the last round")
    ends = {"classes/clients": clients, "features/labels": MOST}
    for name, end in ends.items():
        if name not in arrays:
            continue
        numbers = arrays[name]
        if numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= end:
            raise ValueError(f"its {name} are no whole numbers from 0 to {end - 1}")


def _part_of(name: str) -> str:
    """Return what an array is of, the part of its name before the slash: `drift`."""
    return name.partition("/")[0]


def path_of(out: Path | str, key: str, ending: str = "npz") -> Path:
    """Return the path of a row's tracked file, as `Tracked.path` does."""
    return Tracked(out, [key]).path(key, ending)


def arrays(out: Path | str, key: str) -> Arrays:
    """Read the tracked arrays of a row, as `Tracked.arrays` does."""
    return Tracked(out, [key]).arrays(key)


def tensor_names(path: Path) -> list[str]:
    """Read the names of the tensors in a model's file.

    Raises EnvironmentProblem if it is damaged.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return list(file.keys())
    except SafetensorError as error:
        again = "delete it; --track models with --force makes it again"
        raise EnvironmentProblem(f"{path} is no readable model ({error}): {again}") from error


def write_arrays(out: Path | str, key: str, tracked: Mapping[str, Any]) -> str:
    """Write a row's arrays, with those that only an earlier run tracked; return the file's name."""
    stored = Tracked(out, [key])
    earlier = stored.arrays(key) if stored.has(key) else {}
    replaced = set(map(_part_of, tracked))
    content: dict[str, Any] = {name: np.asarray(value) for name, value in tracked.items()}
    content |= {name: value for name, value in earlier.items() if _part_of(name) not in replaced}
    return _new_file(out, key, "npz", lambda file: np.savez(file, **content))


def write_tensors(
    out: Path | str, key: str, tensors: Mapping[str, np.ndarray[Any, Any]], facts: Mapping[str, str]
) -> str:
    """Write the model of a row; return the file's name. `facts`: the file's metadata."""
    from safetensors.numpy import save

    content = _in_order(save(dict(tensors), dict(facts)))
    return _new_file(out, key, "safetensors", lambda file: file.write(content))


def _in_order(content: bytes) -> bytes:
    """Sort the metadata of a safetensors file, whose order is random.

    The name of a file is of its content, so equal models have to have equal files.
    """
    end = 8 + int.from_bytes(content[:8], "little")  # of the header, after its length
    header = json.loads(content[8:end])
    metadata = header.pop("__metadata__", {})
    header = {"__metadata__": dict(sorted(metadata.items())), **header}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8
    return len(text).to_bytes(8, "little") + text + content[end:]


def copy(sources: Sequence[Path], out: Path, key: str = "") -> None:
    """Copy the tracked files of several result folders that `out` lacks.

    With `key`, the files of that row are copied. Only regular files with names as above are copied.
    Raises OSError if a folder cannot be read or written; nothing half-written is left.
    """
    target = part_of(out, FOLDER)
    for source in sources:
        if key:  # copied in any case: of a run without a row the latest file counts
            tracked = Tracked(source, [key])
            paths = [tracked.path(key, ending) for ending in ("npz", "safetensors")]
        else:
            tracked_files = sorted(part_of(source, FOLDER).glob("*"))
            paths = [path for path in tracked_files if not is_regular(target / path.name)]
        for path in paths:
            if NAME.fullmatch(path.name) and is_regular(path):
                copy_file(path, target / path.name)


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a file of arrays, whose members are as large as they say.

    Raises EnvironmentProblem if it is damaged.
    """
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            compressed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
            unpacked = sum(member.file_size for member in members)
            if compressed or unpacked > os.fstat(file.fileno()).st_size:
                raise ValueError(
                    "its arrays are compressed or overlap, which --track writes none of"
                )
            yield archive
    except MemoryError as error:  # the file may be sound
        raise EnvironmentProblem(f"memory does not suffice to read {path}: free some") from error
    except _DAMAGES as error:
        raise EnvironmentProblem(
            f"{path} is not a readable file of tracked data ({error}): delete it; "
            "--track with --force makes it again"
        ) from error


def _new_file(out: Path | str, key: str, ending: str, write: Callable[[BinaryIO], Any]) -> str:
    folder = part_of(Path(out), FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    sweep_leftovers(folder)
    return write_named_by_content(folder, key[:16], ending, write).name
