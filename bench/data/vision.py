"""CIFAR-10 and CIFAR-100, read from the original files, each of which is checked before it is opened.

Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009). The files lie where torchvision
puts them, so a folder that torchvision has filled can be used as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import md5
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.data import cache
from bench.data.dataset import Dataset, MissingData
from bench.errors import EnvironmentProblem

if TYPE_CHECKING:
    from bench.data.dataset import Images, Labels


@dataclass(frozen=True)
class Original:
    """A published file.

    Args:
        path: where it lies, below the folder of data sets.
        md5: checksum, hexadecimal.
        size: bytes, where known; only the message of a damaged file needs it.
    """

    path: str
    md5: str
    size: int | None = None

    def read(self, folder: Path) -> bytes:
        """The file's content, once it is known to be the published one.

        Raises:
            EnvironmentProblem: it is another, or cannot be read.
        """
        file = folder / self.path
        try:
            blob = file.read_bytes()
        except OSError as problem:
            raise EnvironmentProblem(
                f"{file} cannot be read: {problem}; mend that, or use another folder with --data-dir or FEDKD_DATA"
            ) from problem
        found = checksum(blob)
        if found != self.md5:
            size = f"{self.size:,} bytes, " if self.size else ""
            raise EnvironmentProblem(
                f"{file} is not the original file: expected {size}md5 {self.md5}, found {len(blob):,} bytes, "
                f"md5 {found}; delete it and run once without --offline to download it again, or put the original there"
            )
        return blob


@dataclass(frozen=True)
class Cifar:
    """The `Source` of CIFAR-10 or CIFAR-100.

    Args:
        name: name in `DATASETS`.
        title: name in print; without the hyphen it is the name of the class in torchvision.
        label_key: key of the labels in a file.
        train: files of the training part, in order.
        test: files of the test part.
        archive: the tarball that holds them.
    """

    name: str
    title: str
    label_key: bytes
    train: tuple[Original, ...]
    test: tuple[Original, ...]
    archive: Original

    @property
    def files(self) -> tuple[Original, ...]:
        """All files that are read."""
        return self.train + self.test

    def read(self, folder: Path) -> Dataset:
        """The data set, from its prepared copy where there is one, else from the original files.

        Raises:
            MissingData: a file is not in `folder`.
            EnvironmentProblem: a file is not the published one.
        """
        place, stamp = self._place(), self._stamp(folder)
        copy = cache.read(place, self.name, stamp)
        if copy is not None:
            return copy
        dataset = Dataset.of(self.name, self._part(folder, self.train), self._part(folder, self.test))
        cache.write(place, dataset, stamp)
        return dataset

    def labels(self, folder: Path) -> Labels:
        """(50000,) labels of the training part; raises as `read` does."""
        kept = cache.read_labels(self._place(), self._stamp(folder))
        if kept is not None:
            return kept
        targets = np.concatenate([self._contents(folder, file)[1] for file in self.train])
        targets.setflags(write=False)
        return targets

    def fetch(self, folder: Path, offline: bool) -> None:
        """Bring the missing files into `folder`, as `bench.data.download.fetch` says."""
        from bench.data.download import fetch

        fetch(self, folder, offline)

    def missing(self, folder: Path) -> list[str]:
        """The files that are not in `folder`, as paths below it."""
        return [file.path for file in self.files if not (folder / file.path).is_file()]

    def _place(self) -> Path:
        return cache.place(self.name, [file.md5 for file in self.files])

    def _stamp(self, folder: Path) -> cache.Stamp:
        missing = self.missing(folder)
        if missing:
            raise MissingData(f"{self.title} is not in {folder}: {', '.join(missing)} missing")
        return cache.stamp(folder / file.path for file in self.files)

    def _part(self, folder: Path, files: tuple[Original, ...]) -> tuple[Images, Labels]:
        contents = [self._contents(folder, file) for file in files]
        return np.concatenate([pixels for pixels, _ in contents]), np.concatenate([targets for _, targets in contents])

    def _contents(self, folder: Path, file: Original) -> tuple[Images, Labels]:
        """(N, 3, 32, 32) pixels and (N,) labels of one file."""
        from bench.data.pickles import load_arrays

        content = load_arrays(file.read(folder))
        return content[b"data"].reshape(-1, 3, 32, 32), np.asarray(content[self.label_key], dtype=np.int64)


def checksum(blob: bytes) -> str:
    """MD5, hexadecimal: what the files are published with. It shows damage; it keeps no attacker out."""
    return md5(blob, usedforsecurity=False).hexdigest()


CIFAR10 = Cifar(
    name="cifar10",
    title="CIFAR-10",
    label_key=b"labels",
    train=(
        Original("cifar-10-batches-py/data_batch_1", "c99cafc152244af753f735de768cd75f", 31_035_704),
        Original("cifar-10-batches-py/data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec", 31_035_320),
        Original("cifar-10-batches-py/data_batch_3", "54ebc095f3ab1f0389bbae665268c751", 31_035_999),
        Original("cifar-10-batches-py/data_batch_4", "634d18415352ddfa80567beed471001a", 31_035_696),
        Original("cifar-10-batches-py/data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb", 31_035_623),
    ),
    test=(Original("cifar-10-batches-py/test_batch", "40351d587109b95175f43aff81a1287e", 31_035_526),),
    archive=Original("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),
)

CIFAR100 = Cifar(
    name="cifar100",
    title="CIFAR-100",
    label_key=b"fine_labels",
    train=(Original("cifar-100-python/train", "16019d7e3df5f24257cddd939b257f8d"),),
    test=(Original("cifar-100-python/test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),),
    archive=Original("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),
)
