"""Data sets by name: `DATASETS` says what they are, `load` reads them, `labels` reads as much as a plan needs.

The table imports neither numpy nor torch; a data set's loader is imported when it is asked for. `bench.data.splits`
gives the samples to clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bench.data import paths
from bench.data.dataset import Dataset, MissingData, Source
from bench.data.paths import data_dir
from bench.errors import UsageError
from bench.names import unknown

if TYPE_CHECKING:
    from bench.data.dataset import Labels

__all__ = ["DATASETS", "Dataset", "DatasetInfo", "MissingData", "data_dir", "info", "labels", "load"]

Normalization = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a data set without reading it.

    Args:
        name: name in `DATASETS`.
        title: name in print.
        num_classes: classes C; labels are 0 to C - 1.
        input_shape: channels, rows, columns.
        train_size: training samples.
        test_size: test samples.
        scale: largest pixel value; pixel / scale lies in [0, 1].
        normalizations: by rule of `Setting.normalization`, mean and standard deviation of each channel, in units of
            pixel / scale.
        loader: where its `Source` is, as "module:name".
        flip: whether a mirrored image still shows the same class.
    """

    name: str
    title: str
    num_classes: int
    input_shape: tuple[int, int, int]
    train_size: int
    test_size: int
    scale: int
    normalizations: Mapping[str, Normalization] = field(hash=False)
    loader: str
    flip: bool

    def normalization(self, rule: str) -> Normalization:
        """Mean and standard deviation of each channel under `rule`, in units of pixel / scale.

        Raises:
            UsageError: the data set has no such rule.
        """
        if rule in self.normalizations:
            return self.normalizations[rule]
        known = ", ".join(self.normalizations)
        raise UsageError(f"normalization must be one of {known} for {self.name}, got {rule!r}")


def _none(channels: int) -> Normalization:
    return (0.0,) * channels, (1.0,) * channels


# "fedgkd" are the values in the code of Yao et al. (2021); the others are the data sets' own, as commonly printed.
DATASETS: dict[str, DatasetInfo] = {
    "digits": DatasetInfo(
        name="digits",
        title="scikit-learn digits (8x8)",
        num_classes=10,
        input_shape=(1, 8, 8),
        train_size=1438,
        test_size=359,
        scale=16,
        normalizations={"standard": ((0.3058,), (0.3766,)), "none": _none(1)},
        loader="bench.data.digits:DIGITS",
        flip=False,
    ),
    "cifar10": DatasetInfo(
        name="cifar10",
        title="CIFAR-10",
        num_classes=10,
        input_shape=(3, 32, 32),
        train_size=50_000,
        test_size=10_000,
        scale=255,
        normalizations={
            "standard": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
            "fedgkd": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
            "none": _none(3),
        },
        loader="bench.data.vision:CIFAR10",
        flip=True,
    ),
    "cifar100": DatasetInfo(
        name="cifar100",
        title="CIFAR-100",
        num_classes=100,
        input_shape=(3, 32, 32),
        train_size=50_000,
        test_size=10_000,
        scale=255,
        normalizations={
            "standard": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
            "fedgkd": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
            "none": _none(3),
        },
        loader="bench.data.vision:CIFAR100",
        flip=True,
    ),
}


def info(name: str) -> DatasetInfo:
    """The table's entry for a data set.

    Raises:
        UsageError: there is no data set of that name; the message lists those that there are.
    """
    if name not in DATASETS:
        raise unknown("data set", name, DATASETS)
    return DATASETS[name]


def load(name: str, data_dir: Path | str | None = None, offline: bool = False) -> Dataset:
    """Read a data set, downloading it first where it is missing; a second call in one process costs nothing.

    Args:
        name: name in `DATASETS`.
        data_dir: the folder of data sets; see `bench.data.paths.data_dir` for None.
        offline: never use the network.

    Raises:
        UsageError: there is no data set of that name.
        EnvironmentProblem: the files are missing and cannot be fetched, or are not the original ones.
    """
    folder = paths.data_dir(data_dir)
    try:
        return _read(name, folder)
    except MissingData:
        _source(name).fetch(folder, offline)
    return _read(name, folder)


def labels(name: str, data_dir: Path | str | None = None) -> Labels | None:
    """(N,) labels of the training part, int64, read-only; None where the data are not here. Never downloads.

    Args:
        name: name in `DATASETS`.
        data_dir: as in `load`.

    Raises:
        UsageError: there is no data set of that name.
        EnvironmentProblem: a file is not the original one.
    """
    try:
        return _labels(name, paths.data_dir(data_dir))
    except MissingData:
        return None


# Failures are not remembered, so data that arrive later in the life of a process are found.
@lru_cache(maxsize=4)
def _read(name: str, folder: Path) -> Dataset:
    return _source(name).read(folder)


@lru_cache(maxsize=4)
def _labels(name: str, folder: Path) -> Labels:
    return _source(name).labels(folder)


def _source(name: str) -> Source:
    module, attribute = info(name).loader.split(":")
    return cast(Source, getattr(import_module(module), attribute))
