"""Data sets that need no file: scikit-learn's 8x8 digits, for tests and first tries, four classes in the plane, noise.

Sources: E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits (1998), UCI Machine
Learning Repository, https://doi.org/10.24432/C50P49; its test part of 1,797 images, as
`sklearn.datasets.load_digits` gives it.

The plane follows FedGKD's Figure 5, for pictures of decision boundaries. Yao et al. (2021) draw
points "in (-4, 4)" with four classes and say neither how many, nor what the classes are. Here each
part has 1,000 points, uniform in the square, and a class is a quadrant.

Made-up samples have another data set's shapes and classes, and take as long to train on as real
ones. Images of a class share a pattern, so that a model learns them: a run on mere noise could
diverge before it is timed.
"""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.data.dataset import Dataset, drawn_test_part
from bench.data.registry import DatasetInfo
from bench.data.splits import Split

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.data.dataset import Labels

REACH = 4.0  # of the plane
COUNT = 1_000  # points of either part
WORDS = 1_000  # of the vocabulary of made-up texts


class Embedded:
    """A `Loader` without files; subclasses define `read`."""

    def missing(self, folder: Path) -> list[str]:
        """Return an empty list, because there are no files."""
        return []

    def fetch(self, folder: Path, offline: bool) -> None:
        """Do nothing, because there are no files."""


class Digits(Embedded):
    """The `Loader` of digits.

    The set has no test part of its own. Ours has 359 images (`drawn_test_part`).
    """

    def read(self, folder: Path) -> Dataset:
        """Read the data set; both parts keep the order of the original. `folder` is not used."""
        # Importing scikit-learn would cost a dry run a second; a line of its table has 64 pixels
        # and the label.
        table = Path(
            str(distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz"))
        )
        rows = np.loadtxt(table, delimiter=",", dtype=np.int64)
        pixels, labels = (
            rows[:, :-1].astype(np.uint8).reshape(-1, 1, 8, 8),
            rows[:, -1].astype(np.int64),
        )
        test = drawn_test_part(labels)
        return Dataset.of("digits", (pixels[~test], labels[~test]), (pixels[test], labels[test]))


class Toy2d(Embedded):
    """The `Loader` of toy2d. The points are the same for every seed."""

    def read(self, folder: Path) -> Dataset:
        """Draw the data set; `folder` is not used."""
        rng = np.random.RandomState(0)
        train, test = (rng.uniform(-REACH, REACH, (COUNT, 2)).astype(np.float32) for _ in range(2))
        return Dataset.of("toy2d", (train, _quadrants(train)), (test, _quadrants(test)))


def _quadrants(points: NDArray[np.float32]) -> Labels:
    """Return (N,) quadrants 0 to 3, counter-clockwise from the upper right."""
    right, upper = points[:, 0] > 0, points[:, 1] > 0
    return np.where(upper, np.where(right, 0, 1), np.where(right, 3, 2)).astype(np.int64)


DIGITS, TOY2D = Digits(), Toy2d()


def made_up(
    constants: DatasetInfo, clients: int, samples: int, auxiliary: int, validation: int, tests: int
) -> tuple[Dataset, Split]:
    """Make a data set like `constants` and its split: `samples` per client, `auxiliary` ones, and others held out."""
    trained = clients * samples
    dataset = Dataset.of(
        constants.name,
        made_up_samples(trained + auxiliary + validation, constants),
        made_up_samples(tests, constants),
    )
    order = np.arange(trained + auxiliary + validation)
    dealt, server, held_out = np.split(order, [trained, trained + auxiliary])
    empty = tuple(order[:0] for _ in range(clients))
    parts = tuple(np.split(dealt, clients))
    return dataset, Split(parts, empty, empty, server, held_out, "equal")


def made_up_samples(count: int, constants: DatasetInfo) -> tuple[np.ndarray, np.ndarray]:
    """Make random inputs, and labels that cycle through the classes."""
    rng, labels = np.random.RandomState(0), np.arange(count, dtype=np.int64) % constants.num_classes
    if constants.kind == "texts":  # of full length, because shorter ones cost less
        return rng.randint(1, WORDS, (count, *constants.input_shape)).astype(np.int32), labels
    patterns = rng.randint(
        0, constants.scale // 2 + 1, (constants.num_classes, *constants.input_shape), np.uint8
    )
    noise = rng.randint(0, constants.scale // 2 + 1, (count, *constants.input_shape), np.uint8)
    return patterns[labels] + noise, labels
