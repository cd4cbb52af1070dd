"""Arrays of one's own as a `Source`: what a function gives, looked at before anything is trained on it.

Axes: N samples, C channels, H rows, W columns, L tokens, D numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import outside
from bench.data.dataset import Dataset, MissingData
from bench.errors import EnvironmentProblem, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.data.dataset import Groups, Labels
    from bench.data.table import DatasetInfo

DTYPES: dict[str, type[np.generic]] = {"images": np.uint8, "texts": np.int32, "vectors": np.float32}
FIXES = {
    "images": "images are whole numbers, 0 to `scale`: np.round(255 * x).astype(np.uint8) for x in [0, 1], scale=255",
    "texts": "texts are token ids, whole numbers",
    "vectors": "vectors are numbers",
}


@dataclass(frozen=True, eq=False)
class Arrays:
    """The `Source` of a data set that a function gives as arrays. It needs no folder and no network.

    Args:
        info: what is said of the data set; the arrays are held against it.
        function: without arguments; gives the training and the test part, each as (x, labels), or (x, labels, groups)
            where `info.groups` is set. Images are (N, C, H, W) uint8, texts (N, L) token ids, vectors (N, D); labels
            and groups are (N,) whole numbers from 0. A FileNotFoundError says that the data are not here.
    """

    info: DatasetInfo
    function: Callable[[], Any]

    def read(self, folder: Path) -> Dataset:
        """The data set, with copies of the arrays; `folder` is not looked at.

        Raises:
            MissingData: the function did not find a file.
            UsageError: it fails, or its arrays are not what `info` says.
        """
        return self.dataset

    def labels(self, folder: Path) -> Labels:
        """(N,) labels of the training part; raises as `read` does."""
        return self.dataset.train_y

    def missing(self, folder: Path) -> list[str]:
        """What the function did not find; raises UsageError as `read` does."""
        try:
            self.read(folder)
        except MissingData as problem:
            return [str(problem)]
        return []

    def fetch(self, folder: Path, offline: bool) -> None:
        """Nothing can be fetched; raises EnvironmentProblem if something is missing."""
        for problem in self.missing(folder):
            raise EnvironmentProblem(problem)

    @cached_property
    def dataset(self) -> Dataset:
        """The data set, read twice: a function that gives other data each time would make other runs each time."""
        found, again = self._made(), self._made()
        if found.hash != again.hash:
            raise self._problem("its function gives other data when it is called again: draw with a fixed seed")
        return found

    def _made(self) -> Dataset:
        try:
            made = self.function()
        except FileNotFoundError as error:
            raise MissingData(f"data set {self.info.name!r}: no file {error.filename or error}") from error
        except Exception as error:
            raise self._problem(f"its function raises {type(error).__name__}: {error}") from error
        if not isinstance(made, tuple | list) or len(made) != 2:
            raise self._problem(f"its function must give the training and the test part, got {_told(made)}")
        train, test = (self._part(*pair) for pair in zip(("train", "test"), made, strict=True))
        return Dataset.of(self.info.name, train[:2], test[:2], train[2], test[2])

    def _part(self, part: str, given: Any) -> tuple[NDArray[Any], Labels, Groups | None]:
        """One part, checked and copied: nobody else can write to it."""
        names = ("x", "labels", "groups") if self.info.groups else ("x", "labels")
        if not isinstance(given, tuple | list) or len(given) != len(names):
            raise self._problem(f"the {part} part must be ({', '.join(names)}), got {_told(given)}")
        arrays = [np.asarray(array) for array in given]
        count = self.info.train_size if part == "train" else self.info.test_size
        for name, array in zip(names, arrays, strict=True):
            if array.ndim < 1 or len(array) != count:
                found = len(array) if array.ndim else "no array"
                raise self._problem(f"{part} {name}: {part}_size is {count:,}, got {found}")
        labels = self._whole(f"{part} labels", arrays[1], self.info.num_classes)
        groups = self._whole(f"{part} groups", arrays[2]) if self.info.groups else None
        return self._samples(f"{part} x", arrays[0]), labels, groups

    def _samples(self, what: str, x: NDArray[Any]) -> NDArray[Any]:
        kind, shape = self.info.kind, self.info.input_shape
        if x.shape[1:] != shape:
            fix = "; one channel is x[:, None]" if x.shape[1:] == shape[1:] and shape[0] == 1 else ""
            raise self._problem(f"{what} must be of shape {_shape('N', *shape)}, got {_shape(*x.shape)}{fix}")
        whole = kind != "vectors"
        if not np.issubdtype(x.dtype, np.integer if whole else np.number) or x.dtype.kind == "c":
            raise self._problem(f"{what}: {FIXES[kind]}, got {x.dtype}")
        if whole and (x.min() < 0 or (kind == "images" and x.max() > self.info.scale)):
            limit = f"in [0, {self.info.scale}], which scale says" if kind == "images" else ">= 0"
            raise self._problem(f"{what} must be {limit}, got {x.min()} to {x.max()}")
        if not whole and not np.isfinite(x).all():
            raise self._problem(f"{what} must be finite, got NaN or infinity")
        return np.array(x, DTYPES[kind], order="C")

    def _whole(self, what: str, values: NDArray[Any], count: int | None = None) -> NDArray[np.int64]:
        """(N,) whole numbers from 0, below `count`."""
        if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
            shape = _shape(*values.shape)
            raise self._problem(f"{what} must be whole numbers of shape (N,), got {values.dtype} of {shape}")
        if values.min() < 0 or (count is not None and values.max() >= count):
            allowed = ">= 0" if count is None else f"in [0, {count - 1}], num_classes being {count}"
            raise self._problem(f"{what} must be {allowed}, got {values.min()} to {values.max()}")
        return np.array(values, np.int64)

    def _problem(self, what: str) -> UsageError:
        return outside.problem(outside.DATASETS, self.info.name, what)


def _told(given: Any) -> str:
    return f"{len(given)} things" if isinstance(given, tuple | list) else type(given).__name__


def _shape(*sides: int | str) -> str:
    return f"({', '.join(map(str, sides))}{',' * (len(sides) == 1)})"
