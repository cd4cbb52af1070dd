"""The form of every data set once it is read, and the protocol of its loaders.

Axes: N samples, C channels, H rows, W columns, L tokens, D numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol, cast

from bench.data.registry import SIDE
from bench.errors import EnvironmentProblem
from leaderboards.numbers import is_number

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    Images = NDArray[np.uint8]
    Inputs = Images | NDArray[np.int32] | NDArray[np.float32]
    Labels = NDArray[np.int64]
    Groups = NDArray[np.int64]


TEST_SHARE = 0.2  # of a data set without a test part
PAD = 0  # the token id that texts are filled up with: [PAD], the vocabulary's first piece


class MissingData(EnvironmentProblem):
    """An error for files of a data set that are not in its folder; fetching them fixes it."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set in memory.

    Images are integers; the trainer divides them by the scale and normalises them. The arrays are
    read-only, because every run of a process shares them.

    Attributes:
        train_x: (N, C, H, W) pixels, uint8, 0 to the data set's scale; of texts (N, L) token ids,
            int32, padded with 0 to the longest; of vectors (N, D), float32.
        train_y: (N,) labels, int64, 0 to classes - 1.
        test_x: as `train_x`.
        test_y: as `train_y`.
        hash: SHA-256 of the content, hexadecimal.
        train_groups: (N,) source or writer of each sample, int64 from 0; None if that is not known.
        test_groups: as `train_groups`.
    """

    name: str
    train_x: Inputs
    train_y: Labels
    test_x: Inputs
    test_y: Labels
    hash: str
    train_groups: Groups | None = None
    test_groups: Groups | None = None

    @classmethod
    def of(
        cls,
        name: str,
        train: tuple[Inputs, Labels],
        test: tuple[Inputs, Labels],
        train_groups: Groups | None = None,
        test_groups: Groups | None = None,
    ) -> Dataset:
        """Make a data set of two parts, with its hash and read-only arrays."""
        arrays = (*train, *test)
        hashed = [array for array in (*arrays, train_groups, test_groups) if array is not None]
        for array in hashed:
            array.setflags(write=False)
        return cls(name, *arrays, content_hash(hashed), train_groups, test_groups)

    def sized(self, image_size: str) -> Dataset:
        """Return the data set with images of the size that `Setting.image_size` names.

        It is the data set itself if its images have that size.
        """
        return _sized(self, image_size)


class Loader(Protocol):
    """A reader and fetcher of one data set; the `loader` of a `DatasetInfo` names one."""

    def read(self, folder: Path) -> Dataset:
        """Read the data set from `folder`.

        Raises MissingData, or EnvironmentProblem if a file is not the original one.
        """

    def missing(self, folder: Path) -> list[str]:
        """List the files that are not in `folder`, as paths below it."""

    def fetch(self, folder: Path, offline: bool) -> None:
        """Bring the missing files into `folder`, without the network if `offline`.

        Raises EnvironmentProblem.
        """


@dataclass(frozen=True)
class FunctionLoader:
    """A `Loader` of what a function gives, which needs no folder: nothing is missing or fetched."""

    function: Callable[[], Dataset]

    def read(self, folder: Path) -> Dataset:
        """Return what the function gives."""
        return self.function()

    def missing(self, folder: Path) -> list[str]:
        """Return an empty list."""
        return []

    def fetch(self, folder: Path, offline: bool) -> None:
        """Do nothing."""


# Cached because all runs of a process use the same images, and making them takes seconds.
@lru_cache(maxsize=2)
def _sized(dataset: Dataset, image_size: str) -> Dataset:
    are_images = dataset.train_x.ndim == 4
    if image_size == "own" or not are_images or dataset.train_x.shape[2:] == (SIDE, SIDE):
        return dataset
    resize = padded if image_size == "pad32" else resized
    train = resize(cast("Images", dataset.train_x), SIDE)
    test = resize(cast("Images", dataset.test_x), SIDE)
    train.setflags(write=False)
    test.setflags(write=False)
    # A different hash tells the two apart wherever pixels are cached by hash.
    new_hash = sha256(f"{dataset.hash}/{image_size}".encode()).hexdigest()
    return replace(dataset, train_x=train, test_x=test, hash=new_hash)


def padded(images: Images, side: int) -> Images:
    """Centre images (N, C, H, W) in black (N, C, side, side).

    An odd row goes below, an odd column to the right.
    """
    import numpy as np

    rows, columns = images.shape[2:]
    top = (side - rows) // 2
    left = (side - columns) // 2
    vertical = (top, side - rows - top)
    horizontal = (left, side - columns - left)
    return np.pad(images, ((0, 0), (0, 0), vertical, horizontal))


def resized(images: Images, side: int) -> Images:
    """Resize images (N, C, H, W) to (N, C, side, side).

    Pillow's bilinear filter does it, as in torchvision.
    """
    import numpy as np
    from PIL import Image

    pixels = np.empty((*images.shape[:2], side, side), np.uint8)
    for channel in np.ndindex(pixels.shape[:2]):
        image = Image.fromarray(images[channel])
        pixels[channel] = image.resize((side, side), Image.Resampling.BILINEAR)
    return pixels


def drawn_test_part(labels: Labels) -> NDArray[np.bool_]:
    """Tell which of N samples are the test part of a data set that has none.

    It is 20 % of each class, rounded, drawn by RandomState(0): the same for every seed, so that
    accuracies of different seeds are measured on one test set. `labels` are (N,), as is the result.
    """
    import numpy as np

    rng = np.random.RandomState(0)
    test = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        test[members[: int(TEST_SHARE * len(members) + 0.5)]] = True
    return test


def whole_numbers(values: Sequence[Any] | NDArray[Any], what: str) -> Labels:
    """Return labels as (N,) int64.

    Args:
        values: N numbers; of another type than whole numbers, such as float, each must be whole.
        what: name of a value, for the message.

    Raises:
        ValueError: a value is no whole number; the message names it and its row.
    """
    import numpy as np

    array = np.asarray(values).ravel()
    if array.dtype.kind not in "iu":
        for row, value in enumerate(array.tolist()):
            if not is_number(value) or not float(value).is_integer():
                raise ValueError(f"row {row}: {what} {value!r} is no whole number")
    return array.astype(np.int64)


def content_hash(arrays: Iterable[NDArray[Any]]) -> str:
    """Return the SHA-256, hexadecimal, of each array's type, shape and values in turn.

    It is the same on every machine.
    """
    digest = sha256()
    for array in arrays:
        portable = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
        digest.update(f"{portable.dtype.str}{portable.shape};".encode())
        digest.update(portable.data)
    return digest.hexdigest()
