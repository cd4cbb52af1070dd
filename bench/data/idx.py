"""MNIST and EMNIST's letters, in the idx format.

Sources: Y. LeCun, C. Cortes, C. Burges, The MNIST Database of Handwritten Digits (1998); G. Cohen et al., EMNIST:
Extending MNIST to Handwritten Letters (2017). The files lie where torchvision puts them, so a folder that torchvision
has filled can be used as it is; as there, EMNIST's images stay transposed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.data.dataset import Dataset
from bench.data.files import FileSource
from bench.data.originals import Original, unlike
from bench.data.remote import Remote
from bench.data.table import DATASETS

if TYPE_CHECKING:
    from bench.data.dataset import Images, Labels

UINT8 = 8  # the format's code of the type


@dataclass(frozen=True)
class Idx(FileSource):
    """The `Source` of a data set of four idx files: images and labels of the training part, then of the test part.

    Args:
        first_label: what the files call class 0.
    """

    first_label: int = 0

    def parse(self, folder: Path) -> Dataset:
        """As `FileSource.parse` says."""
        return Dataset.of(self.name, self._part(folder, 0), self._part(folder, 2))

    def parse_labels(self, folder: Path) -> Labels:
        """(N,) labels of the training part."""
        return self._targets(folder, 0)

    def _part(self, folder: Path, first: int) -> tuple[Images, Labels]:
        """(N, 1, H, W) pixels and (N,) labels."""
        pixels = self._array(folder, self.files[first], axes=3)[:, None]
        targets = self._targets(folder, first)
        if len(pixels) != len(targets):
            where = self.files[first].find(folder) or folder
            raise unlike(where, self.name, folder, f"{len(targets):,} images, one a label", f"{len(pixels):,}")
        return pixels, targets

    def _targets(self, folder: Path, first: int) -> Labels:
        """(N,) labels of the part whose images are the file at `first`."""
        file = self.files[first + 1]
        targets = self._array(folder, file, axes=1).astype(np.int64) - self.first_label
        self.check(file.find(folder) or folder, folder, self.counts[first // 2], targets, self.first_label)
        return targets

    def _array(self, folder: Path, file: Original, axes: int) -> Images:
        """The array in a file: two zero bytes, its type, its number of axes, the length of each, the values."""
        blob = file.read(folder, self.name)
        shape = struct.unpack(f">{axes}I", blob[4 : 4 + 4 * axes]) if len(blob) >= 4 + 4 * axes else ()
        expected = 4 + 4 * axes + int(np.prod(shape))
        if blob[:4] != bytes((0, 0, UINT8, axes)) or len(blob) != expected:
            raise unlike(
                file.find(folder) or folder,
                self.name,
                folder,
                f"an idx file of uint8 with {axes} axes, {expected:,} bytes long",
                f"{len(blob):,} bytes that start with {blob[:4].hex() or 'nothing'}",
            )
        return np.frombuffer(blob, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _mnist(stem: str, md5: str, packed_md5: str, size: int) -> tuple[Original, Remote]:
    mirrors = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/")
    packed = Original(f"MNIST/raw/{stem}.gz", packed_md5, size)
    return Original(f"MNIST/raw/{stem}", md5), Remote(packed, tuple(f"{mirror}{stem}.gz" for mirror in mirrors))


_MNIST = (
    _mnist(
        "train-images-idx3-ubyte", "6bbc9ace898e44ae57da46a324031adb", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422
    ),
    _mnist("train-labels-idx1-ubyte", "a25bea736e30d166cdddb491f175f624", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
    _mnist("t10k-images-idx3-ubyte", "2646ac647ad5339dbf082846283269ea", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
    _mnist("t10k-labels-idx1-ubyte", "27ae3e4e09519cfbb04c329615203637", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
)
MNIST = Idx(
    info=DATASETS["mnist"],
    files=tuple(file for file, _ in _MNIST),
    remotes=tuple(remote for _, remote in _MNIST),
)

# Published is the checksum of the archive alone.
EMNIST_LETTERS = Idx(
    info=DATASETS["emnist_letters"],
    files=tuple(
        Original(f"EMNIST/raw/emnist-letters-{part}-ubyte", None)
        for part in ("train-images-idx3", "train-labels-idx1", "test-images-idx3", "test-labels-idx1")
    ),
    remotes=(
        Remote(
            Original("EMNIST/raw/gzip.zip", "58c8d27c78d21e728a6bc7b3cc06412e", 561_753_746),
            ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",),
        ),
    ),
    first_label=1,
)
