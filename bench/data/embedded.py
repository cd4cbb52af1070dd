"""Data sets that need no file: scikit-learn's 8x8 digits, for tests and first tries, and four classes in the plane.

Sources: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits (1998), UCI Machine Learning Repository,
https://doi.org/10.24432/C50P49; its test part of 1,797 images, as `sklearn.datasets.load_digits` gives it.

The plane is after FedGKD's Figure 5, whose decision boundaries can be drawn. Yao et al. (2021) draw points "in (-4, 4)"
with four classes and do not say how many, nor what the classes are. Here 1,000 points of either part are uniform in
the square, and a class is a quadrant.
"""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.data.dataset import Dataset, Embedded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.data.dataset import Labels

TEST_SHARE = 0.2  # of digits
REACH = 4.0  # of the plane
COUNT = 1_000  # points of either part


class Digits(Embedded):
    """The `Source` of digits.

    The set has no test part of its own. Ours is 20 % of each class, rounded, drawn by RandomState(0): the same 359
    images for every seed, so that accuracies of different seeds are measured on one test set.
    """

    def read(self, folder: Path) -> Dataset:
        """The data set; both parts keep the order of the original. `folder` is not looked at."""
        # Importing scikit-learn takes a second, which a dry run should not; its table has 64 pixels and the label.
        table = Path(str(distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")))
        rows = np.loadtxt(table, delimiter=",", dtype=np.int64)
        pixels, labels = rows[:, :-1].astype(np.uint8).reshape(-1, 1, 8, 8), rows[:, -1].astype(np.int64)
        rng = np.random.RandomState(0)
        test = np.zeros(len(labels), dtype=np.bool_)
        for label in np.unique(labels):
            members = rng.permutation(np.flatnonzero(labels == label))
            test[members[: int(TEST_SHARE * len(members) + 0.5)]] = True
        return Dataset.of("digits", (pixels[~test], labels[~test]), (pixels[test], labels[test]))


class Toy2d(Embedded):
    """The `Source` of toy2d. The points are the same for every seed."""

    def read(self, folder: Path) -> Dataset:
        """The data set; `folder` is not looked at."""
        rng = np.random.RandomState(0)
        train, test = (rng.uniform(-REACH, REACH, (COUNT, 2)).astype(np.float32) for _ in range(2))
        return Dataset.of("toy2d", (train, _quadrants(train)), (test, _quadrants(test)))


def _quadrants(points: NDArray[np.float32]) -> Labels:
    """(N,) 0 to 3, counter-clockwise from the upper right."""
    right, upper = points[:, 0] > 0, points[:, 1] > 0
    return np.where(upper, np.where(right, 0, 1), np.where(right, 3, 2)).astype(np.int64)


DIGITS, TOY2D = Digits(), Toy2d()
