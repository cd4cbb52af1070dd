"""MNIST and its relatives, USPS, SVHN and CIFAR, which torchvision downloads; and Tiny-ImageNet.

The files lie where torchvision puts them, so a folder that torchvision has filled can be used as it
is; USPS and SVHN may also lie where the code of FedBN (Li et al. 2021) puts them. MNIST's files may
be compressed, and CIFAR's archives are read as they are. Hugging Face's tables are read if the
published files are missing; their rows may have another order, which gives the data another hash.
Only downloading, USPS and SVHN import torchvision.

Tiny-ImageNet has 200 classes of ImageNet in 64x64 pixels, numbered in the order of their names in
WordNet; its validation part is the test part. The published archive is read as it is or unpacked,
or `zh-plus/tiny-imagenet`.

Sources: Y. LeCun, C. Cortes, C. Burges, The MNIST Database of Handwritten Digits (1998); G. Cohen
et al., EMNIST: Extending MNIST to Handwritten Letters (2017), whose images stay transposed; J. J.
Hull, A Database for Handwritten Text Recognition Research (1994), also as `flwrlabs/usps` on the
Hugging Face hub; Y. Netzer et al., Reading Digits in Natural Images with Unsupervised Feature
Learning (2011); A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009);
Stanford CS231n, Tiny-ImageNet (2015); H. Xiao, K. Rasul, R. Vollgraf, Fashion-MNIST (2017); T.
Clanuwat et al., Deep Learning for Classical Japanese Literature (2018), KMNIST.
"""

from __future__ import annotations

import gzip
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.data import parquet
from bench.data.dataset import Dataset, whole_numbers
from bench.data.download import COMPRESSED, Original, largest_in, md5_of
from bench.data.file_loaders import FileLoader
from bench.data.pickled import load_arrays, with_text_keys
from bench.data.registry import DATASETS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.data.dataset import Images, Labels

NAMES = "wnids.txt"  # of Tiny-ImageNet's classes
ANNOTATIONS = "val/val_annotations.txt"


@dataclass(frozen=True)
class Vision(FileLoader):
    """The `Loader` of a data set that is in `torchvision.datasets`, which reads USPS and SVHN.

    Args:
        parts: arguments of its class there for the training and the test part, to which the first
            and the last of `files` belong.
    """

    theirs: str = ""  # name of its class there
    parts: tuple[dict[str, Any], dict[str, Any]] = ({"train": True}, {"train": False})

    def parse(self, folder: Path) -> Dataset:
        """Read the tables if they replace the files, otherwise the files."""
        tables = self.tables(folder)
        if tables:
            train, test = (parquet.labelled(part, self.info.input_shape) for part in tables)
        else:
            train, test = self.published(folder)
        return Dataset.of(self.name, train, test)

    def published(self, folder: Path) -> list[tuple[Images, Labels]]:
        """Read the training and the test part from the published files."""
        train = self._part(folder, self.files[0], self.parts[0])
        test = self._part(folder, self.files[-1], self.parts[1])
        return [train, test]

    def download(self, folder: Path) -> None:
        """Have torchvision download all files elsewhere, and move missing files to `folder`."""
        from torchvision import datasets

        with TemporaryDirectory(dir=folder, prefix=f".{self.name}-") as scratch:
            for arguments in self.parts:
                getattr(datasets, self.theirs)(scratch, download=True, **arguments)
            for path in self.missing(folder):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (Path(scratch) / path).replace(folder / path)

    def _part(
        self, folder: Path, file: Original, arguments: dict[str, Any]
    ) -> tuple[Images, Labels]:
        """Read (N, C, H, W) pixels and (N,) labels of the part that has this file."""
        from torchvision import datasets

        place = file.where(folder)
        with self.reading(place, folder):
            part = getattr(datasets, self.theirs)(place.parent, **arguments)
            pixels = np.asarray(part.data)
            if pixels.ndim == 3:
                pixels = pixels[:, None]
            labels = part.labels if hasattr(part, "labels") else part.targets
            return np.ascontiguousarray(pixels), whole_numbers(np.asarray(labels), "label")


@dataclass(frozen=True)
class Idx(Vision):
    """The `Loader` of images and labels in the idx format.

    There are files of both for the training part, then for the test part.
    """

    first_label: int = 0  # number of the first class in the files

    def published(self, folder: Path) -> list[tuple[Images, Labels]]:
        """Read the four files, compressed or not."""
        arrays = []
        for file in self.files:
            place = file.where(folder)
            with self.reading(place, folder):
                arrays.append(read_idx(place))
        train_x, train_y, test_x, test_y = arrays
        train_labels = whole_numbers(train_y, "label") - self.first_label
        test_labels = whole_numbers(test_y, "label") - self.first_label
        return [(train_x[:, None], train_labels), (test_x[:, None], test_labels)]


@dataclass(frozen=True)
class Cifar(Vision):
    """The `Loader` of CIFAR: pickled dictionaries of images and labels.

    The `archive` of these is read as it is. The last of `files` is the test part, the others are
    the training part in turn.
    """

    labels: str = "labels"  # key in a dictionary

    def substitutes(self, folder: Path) -> list[Path]:
        """List the archive, which has the files themselves, before any tables."""
        archive = self._archive(folder)
        return [archive] if archive else super().substitutes(folder)

    def tables(self, folder: Path) -> list[list[Path]]:
        """Find the hub's tables, unless the archive is here."""
        return [] if self._archive(folder) else super().tables(folder)

    def published(self, folder: Path) -> list[tuple[Images, Labels]]:
        """Read the files, or the archive's."""
        archive = self._archive(folder)
        if archive:
            blobs = self._unpacked(archive)
        else:
            blobs = [file.read_bytes() for file in self.present(folder)]
        parts = list(map(self._batch, blobs))
        train_x = np.concatenate([x for x, _ in parts[:-1]])
        train_y = np.concatenate([y for _, y in parts[:-1]])
        return [(train_x, train_y), parts[-1]]

    def _archive(self, folder: Path) -> Path | None:
        """Return the archive if it is here and the files are not."""
        if self.archive and not self._complete(folder):
            return self.archive.find(folder)
        return None

    def _unpacked(self, archive: Path) -> list[bytes]:
        """Read the files in an archive.

        Raises ValueError unless all originals are there, and none is too large for the archive.
        """
        sums = {PurePosixPath(file.path).name: file.md5 for file in self.files}
        bound = largest_in(archive.stat().st_size)
        blobs = {}
        with tarfile.open(archive) as opened:
            for member in opened:
                name = PurePosixPath(member.name).name
                content = opened.extractfile(member) if name in sums else None
                if content and member.size > bound:
                    raise ValueError(
                        f"{name} in it would have {member.size:,} bytes of at most {bound:,}"
                    )
                if content:
                    blobs[name] = content.read()
        missing = sorted(sums.keys() - blobs.keys())
        if missing:
            raise ValueError(f"no {', '.join(missing)} in it")
        for name, md5 in sums.items():
            if md5_of(BytesIO(blobs[name]), len(blobs[name])) != md5:
                raise ValueError(f"{name} in it is not the original file of md5 {md5}")
        return [blobs[name] for name in sums]

    def _batch(self, blob: bytes) -> tuple[Images, Labels]:
        """Read (N, 3, 32, 32) pixels and (N,) labels of a pickled dictionary."""
        content = with_text_keys(load_arrays(blob))
        pixels = np.ascontiguousarray(content["data"]).reshape(-1, *self.info.input_shape)
        return pixels, whole_numbers(content[self.labels], "label")


def read_idx(file: Path) -> NDArray[np.uint8]:
    """Read an array of bytes in the idx format.

    Raises ValueError if the file has another format, or is cut off.
    """
    blob = file.read_bytes()
    if file.suffix == COMPRESSED:
        blob = gzip.decompress(blob)
    dimensions = blob[3] if len(blob) > 3 else 0
    start = 4 + 4 * dimensions
    if blob[:3] != b"\0\0\x08" or len(blob) < start:
        raise ValueError(f"no idx file of bytes: it begins with {blob[:4].hex()}")
    shape = np.frombuffer(blob[4:start], ">u4").tolist()
    return np.frombuffer(blob, np.uint8, offset=start).reshape(shape)


@dataclass(frozen=True)
class TinyImageNet(FileLoader):
    """The `Loader` of Tiny-ImageNet."""

    def parse(self, folder: Path) -> Dataset:
        """Read the archive, or its unpacked folder, or the tables: the first that is here."""
        place = self.files[0].find(folder)
        if place:
            with zipfile.ZipFile(place) as archive:
                return self._images(archive.namelist(), archive.read)
        tree = self._tree(folder)
        if tree:
            names = [file.relative_to(tree.parent).as_posix() for file in _files_of(tree)]
            with self.reading(tree, folder):
                return self._images(names, lambda name: (tree.parent / name).read_bytes())
        train, test = (
            parquet.labelled(part, self.info.input_shape) for part in self.tables(folder)
        )
        return Dataset.of(self.name, train, test)

    def substitutes(self, folder: Path) -> list[Path]:
        """List the files of the unpacked folder, or the tables; none if the archive is here."""
        if self._complete(folder):
            return []
        tree = self._tree(folder)
        return _files_of(tree) if tree else super().substitutes(folder)

    def accepted(self) -> list[str]:
        """Describe what may lie in the place of the archive."""
        return [f"its unpacked folder with {ANNOTATIONS}", *super().accepted()]

    def _tree(self, folder: Path) -> Path | None:
        """Find the unpacked folder, which has the annotations of the validation part."""
        base = self.files[0].path.removesuffix(".zip")
        names = Original(f"{base}/{NAMES}").find(folder)
        if names and (names.parent / ANNOTATIONS).is_file():
            return names.parent
        return None

    def _images(self, names: list[str], read: Callable[[str], bytes]) -> Dataset:
        """Read the data set from files.

        Args:
            names: of all files, each beginning with the name of its folder.
            read: reads a file by its name.

        Raises:
            ValueError: a list is missing, an image is of no listed class, or an annotation of no
                image.
        """
        base = _base_of(names)
        classes = sorted(read(f"{base}/{NAMES}").decode().split())
        labels = {wnid: label for label, wnid in enumerate(classes)}
        annotations = read(f"{base}/{ANNOTATIONS}").decode()
        train_images = []
        path_of = {}  # file name -> path, of the validation part
        for name in sorted(name for name in names if name.endswith(".JPEG")):
            parts = name.split("/")
            if name.startswith(f"{base}/train/"):
                wnid = name.removeprefix(f"{base}/train/").partition("/")[0]
                if wnid not in labels:
                    raise ValueError(f"{name}: {NAMES} has no class {wnid}")
                train_images.append((name, labels[wnid]))
            # In some copies the images are in folders of their classes.
            elif name.startswith(f"{base}/val/"):
                path_of[parts[-1]] = name
        test_images = []
        for image, wnid in _annotated(annotations):
            if image not in path_of or wnid not in labels:
                raise ValueError(
                    f"{ANNOTATIONS}: {image} is of {wnid}, and there is no such image below val, "
                    f"or no such class in {NAMES}, or the image is there twice"
                )
            test_images.append((path_of.pop(image), labels[wnid]))
        train = self._decode(read, train_images)
        return Dataset.of(self.name, train, self._decode(read, test_images))

    def _decode(
        self, read: Callable[[str], bytes], images: list[tuple[str, int]]
    ) -> tuple[Images, Labels]:
        """Decode images, given by path and label, to (N, 3, 64, 64) pixels and (N,) labels."""
        pixels = np.empty((len(images), *self.info.input_shape), np.uint8)
        for position, (path, _) in enumerate(images):
            try:
                pixels[position] = parquet.decoded(read(path), self.info.input_shape)
            except Exception as problem:
                raise ValueError(f"{path}: {problem}") from problem
        return pixels, np.array([label for _, label in images], np.int64)


def _base_of(names: list[str]) -> str:
    """Return the folder of the list of classes; raises ValueError unless annotations are there."""
    lists = [name for name in names if name.endswith(f"/{NAMES}")]
    base = lists[0].removesuffix(f"/{NAMES}") if lists else ""
    for name in (NAMES, ANNOTATIONS):
        if f"{base}/{name}" not in names:
            raise ValueError(f"it has {len(names):,} files, and no {name} among them")
    return base


def _annotated(text: str) -> list[tuple[str, str]]:
    """List the image and the class of each line, sorted; raises ValueError if a line has one."""
    pairs = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if len(fields) == 1:
            raise ValueError(f"{ANNOTATIONS}, line {number}: no image and class, but {line!r}")
        if fields:
            pairs.append((fields[0], fields[1]))
    return sorted(pairs)


def _files_of(tree: Path) -> list[Path]:
    """List all files of a folder and the folders in it, sorted, without hidden ones."""
    return sorted(file for file in tree.rglob("*") if file.name[0] != "." and file.is_file())


def _relative_of_mnist(
    name: str, folder: str, *sums: tuple[str | None, str], repository: str = ""
) -> Idx:
    """Return the loader of four files that are named as MNIST's are.

    Args:
        name: in `DATASETS`, which is that of the hub's configuration as well.
        folder: of the files, which is the name of torchvision's class as well.
        sums: the checksum of each file, if one is published, and of its compressed form.
        repository: of tables on the hub.
    """
    files = tuple(
        Original(f"{folder}/raw/{part}-ubyte", md5, compressed=compressed)
        for part, (md5, compressed) in zip(IDX_PARTS, sums, strict=True)
    )
    return Idx(
        info=DATASETS[name],
        form=f"{IDX_FORM}, or a table of images" if repository else IDX_FORM,
        files=files,
        repository=repository,
        configuration=name if repository else "",
        theirs=folder,
    )


IDX_FORM = "images and labels in the idx format"
IDX_PARTS = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
MNIST = _relative_of_mnist(
    "mnist",
    "MNIST",
    ("6bbc9ace898e44ae57da46a324031adb", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    ("a25bea736e30d166cdddb491f175f624", "d53e105ee54ea40749a09fcbcd1e9432"),
    ("2646ac647ad5339dbf082846283269ea", "9fb629c4189551a2d022fa330f9573f3"),
    ("27ae3e4e09519cfbb04c329615203637", "ec29112dd5afa0611ce80d1b7f02629c"),
    repository="ylecun/mnist",
)
# Only the compressed files of these two have published checksums.
FASHION_MNIST = _relative_of_mnist(
    "fashion_mnist",
    "FashionMNIST",
    (None, "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
    (None, "25c81989df183df01b3e8a0aad5dffbe"),
    (None, "bef4ecab320f06d8554ea6380940ec79"),
    (None, "bb300cfdad3c16e7a12a480ee83cd310"),
    repository="zalando-datasets/fashion_mnist",
)
KMNIST = _relative_of_mnist(
    "kmnist",
    "KMNIST",
    (None, "bdb82020997e1d708af4cf47b453dcf7"),
    (None, "e144d726b3acfaa3e44228e80efcd344"),
    (None, "5c965bf0a639b31b8f53240b1b52f4d7"),
    (None, "7320c461ea6c1c855c0b718fb2a4b134"),
)
EMNIST_LETTERS = Idx(
    info=DATASETS["emnist_letters"],
    form=IDX_FORM,
    # Only the checksum of the archive is published.
    files=(
        Original("EMNIST/raw/emnist-letters-train-images-idx3-ubyte"),
        Original("EMNIST/raw/emnist-letters-train-labels-idx1-ubyte"),
        Original("EMNIST/raw/emnist-letters-test-images-idx3-ubyte"),
        Original("EMNIST/raw/emnist-letters-test-labels-idx1-ubyte"),
    ),
    theirs="EMNIST",
    parts=({"split": "letters", "train": True}, {"split": "letters", "train": False}),
    first_label=1,
)
USPS = Vision(
    info=DATASETS["usps"],
    form="lines of a label and 256 values, or a table of images",
    files=(
        Original("usps.bz2", "ec16c51db3855ca6c91edd34d0e9b197", ("USPS/usps.bz2",)),
        Original("usps.t.bz2", "8ea070ee2aca1ac39742fdd1ef5ed118", ("USPS/usps.t.bz2",)),
    ),
    repository="flwrlabs/usps",
    theirs="USPS",
)
SVHN = Vision(
    info=DATASETS["svhn"],
    form="a MATLAB file of images X and labels y, or a table of images",
    files=(
        Original("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", ("SVHN/train_32x32.mat",)),
        Original("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", ("SVHN/test_32x32.mat",)),
    ),
    repository="ufldl-stanford/svhn",
    configuration="cropped_digits",
    theirs="SVHN",
    parts=({"split": "train"}, {"split": "test"}),
)
CIFAR10 = Cifar(
    info=DATASETS["cifar10"],
    form="a pickled dictionary of images and labels, or a table of images",
    files=(
        Original("cifar-10-batches-py/data_batch_1", "c99cafc152244af753f735de768cd75f"),
        Original("cifar-10-batches-py/data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
        Original("cifar-10-batches-py/data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
        Original("cifar-10-batches-py/data_batch_4", "634d18415352ddfa80567beed471001a"),
        Original("cifar-10-batches-py/data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
        Original("cifar-10-batches-py/test_batch", "40351d587109b95175f43aff81a1287e"),
    ),
    archive=Original("cifar-10-python.tar.gz"),
    repository="uoft-cs/cifar10",
    configuration="plain_text",
    theirs="CIFAR10",
)
CIFAR100 = Cifar(
    info=DATASETS["cifar100"],
    form="a pickled dictionary of images and labels, or a table of images",
    files=(
        Original("cifar-100-python/train", "16019d7e3df5f24257cddd939b257f8d"),
        Original("cifar-100-python/test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),
    ),
    archive=Original("cifar-100-python.tar.gz"),
    labels="fine_labels",
    repository="uoft-cs/cifar100",
    configuration="cifar100",
    theirs="CIFAR100",
)
TINY_IMAGENET = TinyImageNet(
    info=DATASETS["tiny_imagenet"],
    form="an archive of wnids.txt, val/val_annotations.txt and images of 64x64, "
    "or a table of images",
    files=(
        Original(
            "tiny-imagenet-200.zip",
            "90528d7ca1a48142e341f4ef8d21d0de",
            url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        ),
    ),
    repository="zh-plus/tiny-imagenet",
    table_parts=("train", "valid"),
)
