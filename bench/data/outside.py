"""Data sets of other packages, each described by a `DatasetInfo`.

It is at an entry point in `fedkd_bench.datasets`, or at `module:name`. Its `loader` names a
`Loader`, or simply a function that returns arrays, which are checked before training. Mistakes in
the entry and in such a function are UsageErrors.

Axes: N samples, C channels, H rows, W columns, L tokens, D numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from algorithms.entry_points import Kind, fingerprint
from bench.data.dataset import Dataset, Loader, MissingData
from bench.data.download import data_dir
from bench.data.registry import DATASETS, GROUPS, DatasetInfo
from bench.errors import UsageError
from bench.terminal.words import unknown
from leaderboards.rows.schema import digest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.data.dataset import Groups, Labels

KIND = Kind("data set", "fedkd_bench.datasets", UsageError)
KINDS = {"images": 3, "texts": 1, "vectors": 1}  # kind of samples -> length of their `input_shape`
DTYPES: dict[str, type[np.generic]] = {"images": np.uint8, "texts": np.int32, "vectors": np.float32}
FIXES = {
    "images": "images are whole numbers, 0 to `scale`: "
    "np.round(255 * x).astype(np.uint8) for x in [0, 1], scale=255",
    "texts": "texts are token ids, whole numbers",
    "vectors": "vectors are numbers",
}


@cache
def find(name: str) -> DatasetInfo:
    """Return the entry of a data set from outside, under the name that was typed."""
    path = KIND.path(name)
    if path is None:
        raise unknown("data set", name, [*DATASETS, *KIND.names()], importable=True)
    info = replace(KIND.load_entry(name, path, DatasetInfo), name=name)
    for rule, broken in _mistakes(info).items():
        if broken:
            raise KIND.error(name, f"{rule}, got {getattr(info, rule.split()[0])!r}")
    return info


@cache
def loader(name: str) -> Loader:
    """Return the loader of a data set from outside."""
    info = find(name)
    loaded = KIND.load(name, info.loader)
    has_methods = all(hasattr(loaded, method) for method in ("read", "missing", "fetch"))
    if has_methods and not isinstance(loaded, type):
        return cast(Loader, loaded)
    return Arrays(info, loaded)


@cache
def version(name: str) -> str:
    """Return the part of a run key that identifies the data of a data set from outside.

    If a function returns the arrays, they and the entry are hashed: an edit that leaves the data
    alone changes nothing, a changed file does. Of a `Loader` the code is hashed, because its files
    may arrive only after planning.
    """
    info = find(name)
    data = loader(name)
    if isinstance(data, Arrays):
        try:
            return content_version(info, data.read(data_dir()).hash)
        except MissingData:
            pass  # without the data no run was made, so the code will do
    modules = [path.partition(":")[0] for path in (KIND.path(name) or "", info.loader)]
    return f"{fingerprint(dict.fromkeys(modules)):08x}"


def content_version(info: DatasetInfo, content: str) -> str:
    """Return 16 hexadecimal digits of all in a data set that decides numbers.

    `content`: hash of the arrays.
    """
    fields = ("num_classes", "input_shape", "scale", "flip", "groups", "kind")
    facts = {field: getattr(info, field) for field in fields}
    facts["normalizations"] = dict(sorted(info.normalizations.items()))
    return digest({"content": content, **facts})[:16]


@dataclass(frozen=True, eq=False)
class Arrays:
    """The `Loader` of a data set that a function returns as arrays.

    It needs no folder and no network.

    Args:
        function: takes nothing, returns the training and the test part, each as (x, labels), or (x,
            labels, groups) if `info.groups` is set. Images are (N, C, H, W) uint8, texts (N, L)
            token ids, vectors (N, D); labels and groups are (N,) whole numbers from 0. It raises
            FileNotFoundError if the data are not here.
    """

    info: DatasetInfo  # the entry, with which the arrays are compared
    function: Callable[[], Any]

    def read(self, folder: Path) -> Dataset:
        """Return the data set, with copies of the arrays.

        Raises MissingData if the function did not find a file.
        """
        return self.dataset

    def missing(self, folder: Path) -> list[str]:
        """List the file that the function did not find, if any."""
        try:
            self.read(folder)
        except MissingData as problem:
            return [str(problem)]
        return []

    def fetch(self, folder: Path, offline: bool) -> None:
        """Raise MissingData if something is missing, because nothing can be fetched."""
        self.read(folder)

    @cached_property
    def dataset(self) -> Dataset:
        """The data set, read twice: a function that returns other data each time is refused."""
        dataset = self._call()
        if dataset.hash != self._call().hash:
            raise self._problem(
                "its function gives other data when it is called again: draw with a fixed seed"
            )
        return dataset

    def _call(self) -> Dataset:
        try:
            parts = self.function()
        except FileNotFoundError as error:
            raise MissingData(
                f"data set {self.info.name!r}: no file {error.filename or error}"
            ) from error
        except Exception as error:
            raise self._problem(f"its function raises {type(error).__name__}: {error}") from error
        if not isinstance(parts, tuple | list) or len(parts) != 2:
            raise self._problem(
                f"its function must give the training and the test part, got {type(parts).__name__}"
            )
        train_x, train_y, train_groups = self._checked_part("train", parts[0])
        test_x, test_y, test_groups = self._checked_part("test", parts[1])
        return Dataset.of(
            self.info.name, (train_x, train_y), (test_x, test_y), train_groups, test_groups
        )

    def _checked_part(self, part: str, values: Any) -> tuple[NDArray[Any], Labels, Groups | None]:
        """Check one part and copy it, so that nobody else can write to it."""
        names = ("x", "labels", "groups") if self.info.groups else ("x", "labels")
        if not isinstance(values, tuple | list) or len(values) != len(names):
            raise self._problem(
                f"the {part} part must be ({', '.join(names)}), got {type(values).__name__}"
            )
        arrays = [np.asarray(array) for array in values]
        count = self.info.train_size if part == "train" else self.info.test_size
        for name, array in zip(names, arrays, strict=True):
            if array.shape[:1] != (count,):
                raise self._problem(
                    f"{part} {name}: {part}_size is {count:,}, got shape {array.shape}"
                )
        labels = self._checked_numbers(f"{part} labels", arrays[1], self.info.num_classes)
        groups = self._checked_numbers(f"{part} groups", arrays[2]) if self.info.groups else None
        return self._checked_samples(f"{part} x", arrays[0]), labels, groups

    def _checked_samples(self, what: str, x: NDArray[Any]) -> NDArray[Any]:
        kind = self.info.kind
        shape = self.info.input_shape
        if x.shape[1:] != shape:
            raise self._problem(f"{what} must be (N, {', '.join(map(str, shape))}), got {x.shape}")
        if x.dtype.kind not in ("iuf" if kind == "vectors" else "iu"):
            raise self._problem(f"{what}: {FIXES[kind]}, got {x.dtype}")
        largest = self.info.scale if kind == "images" else np.inf
        if kind != "vectors" and not 0 <= x.min() <= x.max() <= largest:
            raise self._problem(f"{what} must be in [0, {largest}], got {x.min()} to {x.max()}")
        if not np.isfinite(x).all():
            raise self._problem(f"{what} must be finite, got NaN or infinity")
        return np.array(x, DTYPES[kind], order="C")

    def _checked_numbers(
        self, what: str, values: NDArray[Any], count: int | None = None
    ) -> NDArray[np.int64]:
        """Return (N,) whole numbers from 0, below `count`; raises UsageError for other values."""
        if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
            raise self._problem(
                f"{what} must be whole numbers of shape (N,), got {values.dtype} of {values.shape}"
            )
        if values.min() < 0 or (count is not None and values.max() >= count):
            below = f", and num_classes is {count}" if count else ""
            raise self._problem(
                f"{what} must count from 0{below}, got {values.min()} to {values.max()}"
            )
        return np.array(values, np.int64)

    def _problem(self, what: str) -> ValueError:
        return KIND.error(self.info.name, what)


def _mistakes(info: DatasetInfo) -> Mapping[str, bool]:
    """Return each rule for an entry -> whether the entry breaks it.

    A rule begins with the name of a field.
    """
    kind = info.kind
    shape = info.input_shape
    numbers = KINDS.get(kind, 0)
    kinds = ", ".join(KINDS)
    groups = ", ".join(map(repr, GROUPS))
    shape_fits = isinstance(shape, tuple) and len(shape) == numbers and all(map(_positive, shape))
    shape_rule = (
        f"input_shape must be {numbers} whole numbers > 0 for {kind}, "
        "as (channels, rows, columns) or (length,)"
    )
    normalizations_rule = (
        "normalizations must map a rule to a mean and a deviation > 0 for each channel, "
        'or be {"none": ((), ())}'
    )
    has_classes = _positive(info.num_classes) and info.num_classes > 1
    has_scale = _positive(info.scale) and info.scale <= 255
    return {
        f"kind must be one of {kinds}": kind not in KINDS,
        shape_rule: not shape_fits,
        "train_size must be a whole number > 0": not _positive(info.train_size),
        "test_size must be a whole number > 0": not _positive(info.test_size),
        "num_classes must be a whole number > 1": not has_classes,
        "scale must be a whole number from 1 to 255": not has_scale,
        f"groups must be one of {groups}": info.groups not in GROUPS,
        normalizations_rule: not _normalizations_fit(info),
    }


def _normalizations_fit(info: DatasetInfo) -> bool:
    """Return whether every rule has a mean and a deviation > 0 for each channel."""
    try:
        if info.kind != "images":
            return "none" in info.normalizations
        channels = info.input_shape[0]
        rules = info.normalizations.values()
        fit = [len(mean) == len(std) == channels and min(std) > 0 for mean, std in rules]
        return bool(fit) and all(fit)
    except (TypeError, ValueError, AttributeError, IndexError):
        return False


def _positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
