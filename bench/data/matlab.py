"""SVHN and SynthDigits, in MATLAB's format.

Sources: Y. Netzer et al., Reading Digits in Natural Images with Unsupervised Feature Learning (2011); Y. Ganin and
V. Lempitsky, Unsupervised Domain Adaptation by Backpropagation (2015). SVHN's files lie where torchvision puts them, or
all files where the code of FedBN (Li et al. 2021) has them.
"""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.data.dataset import Dataset
from bench.data.files import FileSource
from bench.data.originals import Original, unlike
from bench.data.remote import Remote
from bench.data.table import DATASETS

if TYPE_CHECKING:
    from bench.data.dataset import Images, Labels

# The digit sources as FedBN's authors distribute them, on Google Drive, without a checksum.
FEDBN_DIGITS = Remote(
    Original("fedbn-digits.zip", None),
    ("https://drive.usercontent.google.com/download?id=1P8g7uHyVxQJPcBKE8TAzfdKbimpRbj0I&export=download&confirm=t",),
)


@dataclass(frozen=True)
class Matlab(FileSource):
    """The `Source` of a data set of two files, training and test part, each with images `X` and labels `y`.

    Args:
        zero: what the files call the digit 0.
    """

    zero: int = 0

    def parse(self, folder: Path) -> Dataset:
        """As `FileSource.parse` says."""
        train, test = (self._part(folder, *pair) for pair in zip(self.files, self.counts, strict=True))
        return Dataset.of(self.name, train, test)

    def _part(self, folder: Path, file: Original, count: int) -> tuple[Images, Labels]:
        """(N, 3, 32, 32) pixels and (N,) labels."""
        where = file.find(folder) or folder
        content = self._content(folder, file, where)
        pixels, targets = content.get("X", np.empty(0)), content.get("y", np.empty(0))
        if (pixels.dtype, pixels.shape) != (np.dtype(np.uint8), (32, 32, 3, count)):
            wanted = f"X of uint8 and shape (32, 32, 3, {count})"
            raise unlike(where, self.name, folder, wanted, f"{pixels.dtype} of shape {pixels.shape}")
        labels = targets.astype(np.int64).ravel()
        labels[labels == self.zero] = 0
        self.check(where, folder, count, labels)
        return np.ascontiguousarray(pixels.transpose(3, 2, 0, 1)), labels

    def _content(self, folder: Path, file: Original, where: Path) -> dict[str, Any]:
        from scipy.io import loadmat
        from scipy.io.matlab import MatReadError

        blob = file.read(folder, self.name)
        try:
            content: dict[str, Any] = loadmat(io.BytesIO(blob), variable_names=("X", "y"))
        except (MatReadError, ValueError, OSError, zlib.error, TypeError, NotImplementedError) as problem:
            raise unlike(where, self.name, folder, "a MATLAB file", f"{len(blob):,} bytes: {problem}") from problem
        return content


def _svhn(part: str, md5: str, size: int) -> Original:
    return Original(f"{part}_32x32.mat", md5, size, also=(f"SVHN/{part}_32x32.mat",))


_SVHN = (
    _svhn("train", "e26dedcc434d2e4c54c9b2d4a06d8373", 182_040_794),
    _svhn("test", "eb5a983be6a315427106f1b164d9cef3", 64_275_384),
)
SVHN = Matlab(
    info=DATASETS["svhn"],
    files=_SVHN,
    remotes=tuple(Remote(file, (f"http://ufldl.stanford.edu/housenumbers/{file.path}",)) for file in _SVHN),
    zero=10,
)
SYNTHDIGITS = Matlab(
    info=DATASETS["synthdigits"],
    files=tuple(
        Original(f"SynthDigits/synth_{part}_32x32.mat", None, also=(f"synth_{part}_32x32.mat",))
        for part in ("train", "test")
    ),
    remotes=(FEDBN_DIGITS,),
)
