"""Digits-5: five sources of the same ten digits, one per client; and two of them, SynthDigits and MNIST-M.

Sources: X. Li et al., FedBN: Federated Learning on Non-IID Features via Local Batch Normalization (2021), and its code:
the published parts of a source are merged; a stratified fifth is the test part, and the first 743 of the other samples,
a tenth of those of USPS, are the training part. Images become 28x28 with three channels. Y. Ganin and V.
Lempitsky, Unsupervised Domain Adaptation by Backpropagation (2015): SynthDigits, and MNIST's digits blended with
patches of photographs, here in the forms that FedBN's code reads.

MNIST-M is a pickle without a published checksum, and unpickling calls the names in a file with arguments of the file's
choosing. Here the names are mapped to classes of this module, which only store their arguments: numpy gets nothing but
a type of whole numbers, bytes of the right length and a shape.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bench import data
from bench.data.dataset import Dataset, resized, whole_numbers
from bench.data.download import Original
from bench.data.files import FileSource, PreparedSource
from bench.data.table import DATASETS

if TYPE_CHECKING:
    from bench.data.dataset import Groups, Images, Labels
    from bench.data.table import DatasetInfo

SIDE = 28
TRAINED = 743
TEST_SHARE = 0.2

# The digit sources as FedBN's authors distribute them, on Google Drive, without a checksum.
FEDBN_DIGITS = Original(
    "fedbn-digits.zip",
    url="https://drive.usercontent.google.com/download?id=1P8g7uHyVxQJPcBKE8TAzfdKbimpRbj0I&export=download&confirm=t",
)


@dataclass(frozen=True)
class SynthDigits(FileSource):
    """The `Source` of SynthDigits: MATLAB files of the training and the test part, each with images `X`, labels `y`."""

    def parse(self, folder: Path) -> Dataset:
        """Read both parts."""
        train, test = (self._part(file.find(folder) or folder, folder) for file in self.files)
        return Dataset.of(self.name, train, test)

    def _part(self, file: Path, folder: Path) -> tuple[Images, Labels]:
        """Read (N, 3, 32, 32) pixels and (N,) labels."""
        from scipy.io import loadmat

        with self.reading(file, folder):
            content = loadmat(file, variable_names=("X", "y"))
            labels = whole_numbers(content["y"], "label")
            return np.ascontiguousarray(content["X"].transpose(3, 2, 0, 1)), labels


@dataclass(frozen=True)
class MnistM(FileSource):
    """The `Source` of MNIST-M: `train` and `valid` of its one file are the training part, `test` is the test part."""

    def parse(self, folder: Path) -> Dataset:
        """Read both parts."""
        content = load_arrays((self.files[0].find(folder) or folder).read_bytes())
        arrays = {key.decode() if isinstance(key, bytes) else str(key): value for key, value in content.items()}

        def part(*names: str) -> tuple[Images, Labels]:
            pixels = np.concatenate([arrays[name] for name in names]).transpose(0, 3, 1, 2)
            labels = np.concatenate([np.ravel(arrays[f"{name}_label"]) for name in names]).astype(np.int64)
            return np.ascontiguousarray(pixels), labels

        return Dataset.of(self.name, part("train", "valid"), part("test"))


@dataclass(frozen=True)
class Sources(PreparedSource):
    """The `Source` of a data set composed of others; a sample's group is the position of its source in `names`."""

    info: DatasetInfo
    names: tuple[str, ...]
    trained: int = TRAINED  # training samples of each
    form: str = "digits of several sources"

    def present(self, folder: Path) -> list[Path]:
        """List the files of all sources that are present."""
        return [file for source in self._sources() for file in source.present(folder)]

    def missing(self, folder: Path) -> list[str]:
        """List the files of all sources that are not in `folder`, as paths below it."""
        return [path for source in self._sources() for path in source.missing(folder)]

    def fetch(self, folder: Path, offline: bool) -> None:
        """Bring the missing files of each source into `folder`; raises as `FileSource.fetch` does."""
        for source in self._sources():
            if source.missing(folder):
                source.fetch(folder, offline)

    def parse(self, folder: Path) -> Dataset:
        """Concatenate the parts of the sources."""
        parts = [_parts(source.read(folder), self.trained) for source in self._sources()]
        (train_x, train_y), (test_x, test_y) = (
            tuple(np.concatenate([part[which][array] for part in parts]) for array in (0, 1)) for which in (0, 1)
        )
        train_groups, test_groups = (_groups([len(part[which][1]) for part in parts]) for which in (0, 1))
        return Dataset.of(self.name, (train_x, train_y), (test_x, test_y), train_groups, test_groups)

    def identity(self) -> list[str]:
        """Return the sources and their number of training samples."""
        return [*self.names, str(self.trained)]

    def _sources(self) -> list[FileSource]:
        return [cast(FileSource, data.source(name)) for name in self.names]


def _parts(source: Dataset, trained: int) -> tuple[tuple[Images, Labels], tuple[Images, Labels]]:
    """Return the training and the test part of one source."""
    from sklearn.model_selection import StratifiedShuffleSplit

    pixels = np.concatenate([source.train_x, source.test_x])
    labels = np.concatenate([source.train_y, source.test_y])
    splitter = StratifiedShuffleSplit(n_splits=1, test_size=TEST_SHARE, random_state=0)
    train, test = next(iter(splitter.split(labels, labels)))
    first = train[:trained]
    return (_as_28x28_rgb(pixels[first]), labels[first]), (_as_28x28_rgb(pixels[test]), labels[test])


def _as_28x28_rgb(images: Images) -> Images:
    """Resize images to (N, 3, 28, 28)."""
    sized = images if images.shape[2:] == (SIDE, SIDE) else resized(images, SIDE)
    return np.broadcast_to(sized, (len(sized), 3, SIDE, SIDE))


def _groups(sizes: list[int]) -> Groups:
    return np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)


SYNTHDIGITS = SynthDigits(
    info=DATASETS["synthdigits"],
    form="a MATLAB file of images X and labels y",
    files=tuple(
        Original(f"SynthDigits/synth_{part}_32x32.mat", also=(f"synth_{part}_32x32.mat",)) for part in ("train", "test")
    ),
    archive=FEDBN_DIGITS,
)
MNIST_M = MnistM(
    info=DATASETS["mnist_m"],
    form="a pickle of arrays train, valid, test and their labels",
    files=(Original("MNIST_M/mnistm_data.pkl", also=("mnistm_data.pkl",)),),
    archive=FEDBN_DIGITS,
)
DIGITS5 = Sources(DATASETS["digits5"], ("mnist", "svhn", "usps", "synthdigits", "mnist_m"))
MNIST_USPS = Sources(DATASETS["mnist_usps"], ("mnist", "usps"))


# --- pickled arrays of whole numbers


class ForbiddenPickle(pickle.UnpicklingError):
    """An error for a pickle that names or holds something that does not belong in a file of numbers."""


def load_arrays(blob: bytes) -> dict[Any, Any]:
    """Load the dictionary in a pickle; its arrays of whole numbers become read-only numpy arrays.

    Text of Python 2 becomes bytes.

    Raises:
        ForbiddenPickle: it names anything but arrays of whole numbers, or an array is not as long as its shape says.
        pickle.UnpicklingError: it is not a pickled dictionary.
    """
    try:
        for opcode, argument, _ in pickletools.genops(blob):  # raises if a string is longer than the file
            if opcode.name in ("PUT", "LONG_BINPUT") and (argument or 0) > len(blob):
                raise ForbiddenPickle(f"{len(blob):,} bytes cannot hold {argument:,} objects")
        content = _Reader(io.BytesIO(blob), encoding="bytes").load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # of almost any kind, as the documentation of pickle says
        raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from error
    if not isinstance(content, dict):
        raise pickle.UnpicklingError(f"a {type(content).__name__}, not a dictionary")
    return {key: value.array() if isinstance(value, _Array) else value for key, value in content.items()}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise ForbiddenPickle(f"{module}.{name} has no place in a file of numbers")
        return _ALLOWED[module, name]


class _Kind:
    """A numpy.dtype of whole numbers, as a pickle describes it."""

    def __init__(self, name: bytes | str, align: int = 0, copy: int = 0) -> None:
        self.name = name.decode() if isinstance(name, bytes) else name
        if self.name not in _KINDS:
            raise ForbiddenPickle(f"arrays must be of whole numbers, got {self.name!r}")

    def __setstate__(self, state: Any) -> None:
        """Take (version, byte order, subtype, names, fields, ...); the last three are None for a plain type."""
        match state:
            case (_, ("<" | ">" | "|" | b"<" | b">" | b"|") as order, None, None, None, *_):
                text = order.decode() if isinstance(order, bytes) else order
                self.name = text + self.name.lstrip("<>|")
            case _:
                raise ForbiddenPickle("arrays must be of plain whole numbers")


class _Array:
    """An array, as a pickle describes it: created empty, then filled by its state."""

    def __init__(self, subtype: Any, shape: Any, name: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        """Take (version, shape, type, whether columns come first, content)."""
        self.state = state

    def array(self) -> np.ndarray[Any, Any]:
        """Return the array, after checking that its shape, type and content fit."""
        match getattr(self, "state", None):
            case (_, tuple() as shape, _Kind() as kind, bool() as columns_first, bytes() as content):
                dtype = np.dtype(kind.name)
            case _:
                raise ForbiddenPickle("an array must have a shape, a type and bytes")
        if len(shape) > 4 or not all(type(size) is int and size > 0 for size in shape):
            raise ForbiddenPickle("an array's shape must be up to four whole numbers >= 1")
        if prod(shape) * dtype.itemsize != len(content):
            raise ForbiddenPickle(f"an array's shape and type ask for other than its {len(content):,} bytes")
        return np.frombuffer(content, dtype).reshape(shape, order="F" if columns_first else "C")


def _ndarray(*_: Any) -> None:
    raise ForbiddenPickle("numpy.ndarray may be named as the class of an array, not called")


def _encode(text: str, encoding: str) -> bytes:
    """Encode text; protocol 2 of Python 3 writes bytes as a call of this function."""
    if encoding not in ("latin1", b"latin1"):
        raise ForbiddenPickle(f"bytes must be written as latin1, got {encoding!r}")
    return text.encode("latin1")


_KINDS = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")
_ALLOWED = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")},
    ("numpy", "ndarray"): _ndarray,
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): _encode,
}
