"""MNIST-M: MNIST's digits blended with patches of photographs.

Source: Y. Ganin and V. Lempitsky, Unsupervised Domain Adaptation by Backpropagation (2015); here in the form that the
code of FedBN (Li et al. 2021) reads, a pickle of 28x28 images.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.data.dataset import Dataset
from bench.data.files import FileSource
from bench.data.matlab import FEDBN_DIGITS
from bench.data.originals import Original, unlike
from bench.data.table import DATASETS

if TYPE_CHECKING:
    from bench.data.dataset import Images, Labels

SHAPE = (28, 28, 3)


@dataclass(frozen=True)
class MnistM(FileSource):
    """The `Source` of MNIST-M: `train` and `valid` of its one file are the training part, `test` is the test part."""

    def parse(self, folder: Path) -> Dataset:
        """As `FileSource.parse` says."""
        content = self._content(folder)
        train = self._part(folder, content, ("train", "valid"), self.counts[0])
        return Dataset.of(self.name, train, self._part(folder, content, ("test",), self.counts[1]))

    def _content(self, folder: Path) -> dict[str, Any]:
        from bench.data.pickles import load_arrays

        blob = self.files[0].read(folder, self.name)
        try:
            content = load_arrays(blob)
            return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in content.items()}
        except (pickle.UnpicklingError, ValueError) as problem:
            found = f"{len(blob):,} bytes: {problem}"
            raise unlike(self._where(folder), self.name, folder, "a pickle of arrays", found) from problem

    def _part(self, folder: Path, content: dict[str, Any], keys: tuple[str, ...], count: int) -> tuple[Images, Labels]:
        """(N, 3, 28, 28) pixels and (N,) labels."""
        lacking = [key for part in keys for key in (part, f"{part}_label") if key not in content]
        if lacking:
            raise unlike(self._where(folder), self.name, folder, f"an array {lacking[0]}", ", ".join(content) or "none")
        try:
            pixels = np.concatenate([content[key] for key in keys])
            labels = np.concatenate([np.ravel(content[f"{key}_label"]) for key in keys]).astype(np.int64)
        except (ValueError, TypeError, OverflowError) as problem:
            wanted = f"arrays of pixels and labels in {' and '.join(keys)}"
            raise unlike(self._where(folder), self.name, folder, wanted, f"others: {problem}") from problem
        if (pixels.dtype, pixels.shape) != (np.dtype(np.uint8), (count, *SHAPE)):
            wanted = f"{count:,} images of 28x28x3 in {' and '.join(keys)}"
            raise unlike(self._where(folder), self.name, folder, wanted, f"{pixels.dtype} of shape {pixels.shape}")
        self.check(self._where(folder), folder, count, labels)
        return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)), labels

    def _where(self, folder: Path) -> Path:
        return self.files[0].find(folder) or folder


MNIST_M = MnistM(
    info=DATASETS["mnist_m"],
    files=(Original("MNIST_M/mnistm_data.pkl", None, also=("mnistm_data.pkl",)),),
    remotes=(FEDBN_DIGITS,),
)
