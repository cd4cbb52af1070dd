"""Data that `--track` kept of runs besides their rows and curves: the files, and how to read them.

    OUT/tracked/<key16>.npz           arrays, by name (below); read by `arrays`
    OUT/tracked/<key16>.safetensors   `models`: the final model; read by `bench.engine.tracking.load_model`

`key16` begins the run key of a row. Files appear whole or not at all, before the run's row: a finished row that was
tracked has them. A run that a scheduler stopped has none. Arrays, with R evaluated rounds, m clients in a round, K in
all, C classes, n test samples, D features:

| name | shape | meaning |
|---|---|---|
| `run/key`, `run/algorithm` | () | the row's run key and registry name |
| `local/rounds`, `local/clients` | (R,), (R, m) | evaluated rounds, and the clients of each |
| `local/accuracy` | (R, m) | test accuracy of their own final models; the curve's `local_accuracy` is the mean |
| `classes/rounds`, `classes/global` | (R,), (R, C) | test accuracy of the evaluated model by class, after each round |
| `classes/personal` | () | whether each client has its own model (FedBN): then accuracies are means over clients |
| `classes/counts` | (K, C) | training samples of each client and class |
| `classes/clients`, `classes/local` | (m,), (m, C) | the last round's clients, their models' accuracy by class |
| `features/samples`, `features/labels` | (n,), (n,) | test samples, the same for all runs on a data set; their labels |
| `features/global` | (n, D) | penultimate features of the evaluated model; absent if each client has its own |
| `features/client`, `features/local` | (), (n, D) | first client of the last round, and its own model's features |
| `drift/rounds`, `drift/clients` | (R,), (R, m) | evaluated rounds, and the clients of each |
| `drift/shares` | (R, m) | p_k, each client's share of these clients' training samples |
| `drift/gradients` | (R, m) | norm of the gradient of the client's loss F_k at the model w_t that it received |
| `drift/mean_gradient` | (R,) | norm of the mean of these gradients, weighted by p_k |
| `drift/dissimilarity` | (R,) | weighted mean of their squared norms over `mean_gradient` squared: FedGKD's B^2 |
| `drift/distances` | (R, m) | distance of the client's final model from w_t |
| `drift/distance` | (R,) | the mean of these distances, weighted by p_k |
| `message/rounds` | (R,) | evaluated rounds |
| `message/<name>` | (R, ...) | a tensor that the server sent in each: `message/class_weights` (R, C) of FedCAD |

Accuracies are fractions on the global test set, whatever a client holds; NaN for a class without test samples. If
clients hold one source each, they are means over the sources. For models that clients have of their own they are means
over clients, and drift is measured from the model that each client starts with. Imports neither torch nor ray.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bench.errors import EnvironmentProblem
from bench.execution import TRACKS
from leaderboards.rows.files import atomic_file, copy_file, sweep_leftovers

FOLDER = "tracked"
Arrays = dict[str, np.ndarray[Any, Any]]


def path_of(out: Path | str, key: str, ending: str = "npz") -> Path:
    """Return the path of a row's tracked data, whether or not they are there. `ending`: npz or safetensors."""
    return Path(out) / FOLDER / f"{key[:16]}.{ending}"


def arrays(out: Path | str, key: str) -> Arrays:
    """Read the tracked arrays of a row, by the names above.

    Raises:
        FileNotFoundError: there are none.
        EnvironmentProblem: the file is damaged.
    """
    path = path_of(out, key)
    if not path.exists():
        raise FileNotFoundError(
            f"{path}: run {key[:16]} has no tracked data; run it with --track, and --force if it is stored"
        )
    with _readable(path), np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def tracked_names(out: Path | str, key: str) -> set[str]:
    """Return the names of `TRACKS` that the files of a row have; raises EnvironmentProblem if a file is damaged."""
    path, names = path_of(out, key), set[str]()
    if path.exists():
        with _readable(path), zipfile.ZipFile(path) as file:
            names = {name.partition("/")[0] for name in file.namelist()} & set(TRACKS)
    return names | ({"models"} if path_of(out, key, "safetensors").exists() else set())


def write_arrays(out: Path | str, key: str, made: Mapping[str, Any]) -> None:
    """Write the arrays of a row. Data that only an earlier run of this key tracked stay in the file."""
    earlier: Arrays = {}
    if path_of(out, key).exists():
        tracked = {name.partition("/")[0] for name in made}
        earlier = {name: value for name, value in arrays(out, key).items() if name.partition("/")[0] not in tracked}
    content: dict[str, Any] = {**earlier, **{name: np.asarray(value) for name, value in made.items()}}
    with _new_file(path_of(out, key)) as file:
        np.savez(file, **content)


def write_tensors(
    out: Path | str, key: str, tensors: Mapping[str, np.ndarray[Any, Any]], facts: Mapping[str, str]
) -> None:
    """Write the model of a row. `facts`: the file's metadata."""
    from safetensors.numpy import save

    with _new_file(path_of(out, key, "safetensors")) as file:
        file.write(save(dict(tensors), dict(facts)))


def copy(sources: Sequence[Path], out: Path, key: str = "") -> None:
    """Copy the tracked files of several result folders, all or those of the run `key`; existing files stay.

    Raises OSError if a folder cannot be read or written; nothing half-written is left.
    """
    for source in sources:
        for path in sorted((source / FOLDER).glob(f"{key[:16]}*.*")):
            target = out / FOLDER / path.name
            if path.suffix in (".npz", ".safetensors") and not path.name.startswith(".") and not target.exists():
                copy_file(path, target)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, ValueError, EOFError) as error:
        raise EnvironmentProblem(
            f"{path} is not a readable file of tracked data ({error}): delete it; --track with --force makes it again"
        ) from error


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep_leftovers(path.parent)
    with atomic_file(path) as file:
        yield file
