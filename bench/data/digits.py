"""The 8x8 handwritten digits that scikit-learn carries: always at hand, small enough for tests and first tries.

Source: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits (1998), UCI Machine Learning Repository,
https://doi.org/10.24432/C50P49; its test part of 1,797 images, as `sklearn.datasets.load_digits` gives it.
"""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.data.dataset import Dataset, Embedded

if TYPE_CHECKING:
    from bench.data.dataset import Images, Labels

TEST_SHARE = 0.2


class Digits(Embedded):
    """The `Source` of digits.

    The set has no test part of its own. Ours is 20 % of each class, rounded, drawn by RandomState(0): the same 359
    images for every seed, so that accuracies of different seeds are measured on one test set.
    """

    def read(self, folder: Path) -> Dataset:
        """The data set; both parts keep the order of the original. `folder` is not looked at."""
        pixels, targets = _original()
        test = _test_mask(targets)
        return Dataset.of("digits", (pixels[~test], targets[~test]), (pixels[test], targets[test]))


DIGITS = Digits()


def _original() -> tuple[Images, Labels]:
    """(1797, 1, 8, 8) pixels 0 to 16, and (1797,) labels."""
    # Importing scikit-learn takes a second, which a dry run should not; its table is a plain file: 64 pixels, 1 label.
    table = Path(str(distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")))
    if table.is_file():
        rows = np.loadtxt(table, delimiter=",", dtype=np.int64)
        pixels, targets = rows[:, :-1], rows[:, -1]
    else:
        from sklearn.datasets import load_digits

        pixels, targets = load_digits(return_X_y=True)
    return pixels.astype(np.uint8).reshape(-1, 1, 8, 8), targets.astype(np.int64)


def _test_mask(targets: Labels) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """(N,) which samples are the test part."""
    rng = np.random.RandomState(0)
    mask = np.zeros(len(targets), dtype=np.bool_)
    for label in np.unique(targets):
        members = rng.permutation(np.flatnonzero(targets == label))
        mask[members[: int(TEST_SHARE * len(members) + 0.5)]] = True
    return mask
