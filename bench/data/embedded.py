"""Data sets that need no file: scikit-learn's 8x8 digits, four classes in the plane, noise.

The digits are for tests and first tries. Source: E. Alpaydin and C. Kaynak, Optical Recognition of
Handwritten Digits (1998), UCI Machine Learning Repository, https://doi.org/10.24432/C50P49; its
test part of 1,797 images, as `sklearn.datasets.load_digits` gives it.

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

from bench.data.dataset import Dataset, FunctionLoader, drawn_test_part
from bench.data.registry import DatasetInfo
from bench.data.splits import Split

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.data.dataset import Labels

REACH = 4.0  # of the plane
COUNT = 1_000  # points of either part
WORDS = 1_000  # of the vocabulary of made-up texts


def _digits() -> Dataset:
    """Read digits; both parts keep the order of the original.

    The set has no test part of its own. Ours has 359 images (`drawn_test_part`).
    """
    # Importing scikit-learn would cost a dry run a second; a line of its table has 64 pixels and
    # the label.
    package = distribution("scikit-learn")
    table = Path(str(package.locate_file("sklearn/datasets/data/digits.csv.gz")))
    rows = np.loadtxt(table, delimiter=",", dtype=np.int64)
    pixels = rows[:, :-1].astype(np.uint8).reshape(-1, 1, 8, 8)
    labels = rows[:, -1].astype(np.int64)
    test = drawn_test_part(labels)
    return Dataset.of("digits", (pixels[~test], labels[~test]), (pixels[test], labels[test]))


def _toy2d() -> Dataset:
    """Draw points in the plane."""
    rng = np.random.RandomState(0)
    train = rng.uniform(-REACH, REACH, (COUNT, 2)).astype(np.float32)
    test = rng.uniform(-REACH, REACH, (COUNT, 2)).astype(np.float32)
    return Dataset.of("toy2d", (train, _quadrants(train)), (test, _quadrants(test)))


def _quadrants(points: NDArray[np.float32]) -> Labels:
    """Return (N,) quadrants 0 to 3, counter-clockwise from the upper right."""
    right = points[:, 0] > 0
    upper = points[:, 1] > 0
    above = np.where(right, 0, 1)
    below = np.where(right, 3, 2)
    return np.where(upper, above, below).astype(np.int64)


DIGITS = FunctionLoader(_digits)
TOY2D = FunctionLoader(_toy2d)


def made_up(
    constants: DatasetInfo, clients: int, samples: int, auxiliary: int, validation: int, tests: int
) -> tuple[Dataset, Split]:
    """Make a data set like `constants`, and its split.

    Args:
        constants: facts of the data set that it is like.
        clients: number of clients.
        samples: of each client.
        auxiliary: samples of the server.
        validation: samples to select on.
        tests: samples of the test part.
    """
    trained = clients * samples
    total = trained + auxiliary + validation
    train_part = made_up_samples(total, constants)
    dataset = Dataset.of(constants.name, train_part, made_up_samples(tests, constants))
    order = np.arange(total)
    dealt, server, held_out = np.split(order, [trained, trained + auxiliary])
    empty = tuple(order[:0] for _ in range(clients))
    parts = tuple(np.split(dealt, clients))
    return dataset, Split(parts, empty, empty, server, held_out, "equal")


def made_up_samples(count: int, constants: DatasetInfo) -> tuple[np.ndarray, np.ndarray]:
    """Make random inputs, and labels that cycle through the classes."""
    rng = np.random.RandomState(0)
    classes = constants.num_classes
    labels = np.arange(count, dtype=np.int64) % classes
    shape = constants.input_shape
    if constants.kind == "texts":  # of full length, because shorter ones cost less
        return rng.randint(1, WORDS, (count, *shape)).astype(np.int32), labels
    end = constants.scale // 2 + 1  # so that a sum of two stays within the scale
    patterns = rng.randint(0, end, (classes, *shape), np.uint8)
    noise = rng.randint(0, end, (count, *shape), np.uint8)
    return patterns[labels] + noise, labels
