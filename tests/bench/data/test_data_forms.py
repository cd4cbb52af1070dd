"""Data sets are read in the forms and places in which people have them, and are then the same data."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
from dataclasses import replace
from hashlib import md5
from pathlib import Path

import numpy as np
import published_formats as formats
import pytest
from published_formats import folder, surroundings

from bench import data
from bench.data import download, vision
from bench.data.download import Original, subfolders
from bench.errors import EnvironmentProblem

__all__ = ["folder", "surroundings"]
IDX = (vision.MNIST, vision.FASHION_MNIST, vision.KMNIST)


def tarred(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for path, blob in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(blob)
            archive.addfile(member, io.BytesIO(blob))
    return made.getvalue()


def small_cifar(loader: vision.Cifar, folder: Path) -> vision.Cifar:
    """A small CIFAR in its usual place, and in its archive beside the folder."""
    blobs = {}
    for number, file in enumerate(loader.files):
        part = formats.draw(200, (3, 32, 32), loader.info.num_classes, number)
        blobs[file.path] = formats.cifar(*part, loader.labels)
        formats.put(folder / file.path, blobs[file.path])
    files = tuple(formats.published(file, blobs[file.path]) for file in loader.files)
    packed = tarred({"readme.html": b"", **dict(reversed(blobs.items()))})
    formats.put(folder.parent / loader.archive.path, packed)
    train = 200 * (len(files) - 1)
    return formats.small(loader, train, 200, files=files)


@pytest.fixture(params=[vision.CIFAR10, vision.CIFAR100], ids=["10", "100"])
def cifar(request, folder) -> vision.Cifar:
    return small_cifar(request.param, folder)


def test_cifars_archive_has_the_same_data(folder, cifar, tmp_path):
    whole = cifar.read(folder)
    place = tmp_path / "archive"
    place.mkdir()
    (tmp_path / cifar.archive.path).rename(place / cifar.archive.path)
    assert cifar.missing(place) == []
    assert cifar.read(place).hash == whole.hash
    another = {file.path: (folder / file.path).read_bytes() for file in cifar.files}
    another[cifar.files[0].path] += b"."
    for blob in (b"cut", tarred({}), tarred(another)):
        (place / cifar.archive.path).write_bytes(blob)
        with pytest.raises(EnvironmentProblem, match=cifar.archive.path):
            cifar.read(place)


def test_a_bomb_in_cifars_archive_is_refused(tmp_path):
    files = {file.path: b"" for file in vision.CIFAR10.files}
    files[vision.CIFAR10.files[0].path] = bytes(2**26 + 1)
    formats.put(tmp_path / vision.CIFAR10.archive.path, tarred(files))
    with pytest.raises(EnvironmentProblem, match="67,108,865 bytes of at most 67,108,864"):
        vision.CIFAR10.read(tmp_path)


def test_part_of_cifar_beside_its_archive(folder, cifar, tmp_path):
    whole = cifar.read(folder)
    (folder / cifar.files[0].path).unlink()
    (tmp_path / cifar.archive.path).rename(folder / cifar.archive.path)
    assert cifar.read(folder).hash == whole.hash


@pytest.mark.parametrize("place", ["", "cifar/", "cifar/raw/", "any name/rawdata/"])
def test_cifar_is_found_in_deeper_folders(folder, cifar, tmp_path, place):
    whole = cifar.read(folder)
    inner = Path(cifar.files[0].path).parent
    shutil.copytree(folder / inner, tmp_path / "other" / place / inner)
    assert cifar.read(tmp_path / "other").hash == whole.hash
    assert cifar.read(folder / inner).hash == whole.hash


def test_hidden_and_surplus_folders_are_ignored(tmp_path, monkeypatch):
    for name in (".hidden/a", "b/c/d", "e"):
        (tmp_path / name).mkdir(parents=True)
    assert subfolders(tmp_path) == [tmp_path / name for name in ("b", "e", "b/c")]
    monkeypatch.setattr("bench.data.download.SUBFOLDERS", 2)
    assert subfolders(tmp_path) == [tmp_path / name for name in ("b", "e")]
    assert subfolders(tmp_path / "none") == []


def small_idx(loader: vision.Idx, folder: Path) -> tuple[vision.Idx, dict[str, bytes]]:
    """A small relative of MNIST, compressed; its files by path, as they are."""
    blobs, files = {}, []
    for seed, count in ((1, 60), (2, 40)):
        for array in formats.draw(count, (28, 28), seed=seed):
            blob, file = formats.idx(array), loader.files[len(files)]
            packed = gzip.compress(blob)
            formats.put(folder / f"{file.path}.gz", packed)
            checksum = md5(blob).hexdigest() if file.md5 else None
            files.append(replace(file, md5=checksum, compressed=md5(packed).hexdigest()))
            blobs[file.path] = blob
    return formats.small(loader, 60, 40, files=tuple(files)), blobs


@pytest.mark.parametrize("original", IDX, ids=lambda loader: loader.name)
def test_compressed_idx_files_are_the_same_data(folder, tmp_path, original):
    loader, blobs = small_idx(original, folder)
    packed = loader.read(folder)
    assert packed.train_x.shape == (60, 1, 28, 28)
    for path, blob in blobs.items():
        formats.put(tmp_path / "plain" / path, blob)
        formats.put(folder / path, blob)
    assert loader.read(tmp_path / "plain").hash == packed.hash
    assert loader.read(folder).hash == packed.hash
    for path in blobs:
        (folder / path).unlink()
    inner = folder / Path(loader.files[0].path).parent
    assert loader.read(inner).hash == packed.hash
    assert loader.read(inner.parent).hash == packed.hash
    (folder / f"{loader.files[1].path}.gz").write_bytes(
        gzip.compress(blobs[loader.files[1].path], 1)
    )
    if loader.files[1].md5:  # that of the content, which another compression leaves alone
        assert loader.read(folder).hash == packed.hash
    (folder / f"{loader.files[1].path}.gz").write_bytes(gzip.compress(b"another"))
    with pytest.raises(EnvironmentProblem, match=r"\.gz is not the original"):
        loader.read(folder)


def test_a_compressed_file_is_read_no_further_than_it_may_be(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "SMALLEST", 2**20)
    blob = bytes(2**25)
    file = Original("a", md5=md5(blob).hexdigest(), compressed="0" * 32)
    formats.put(tmp_path / "a.gz", gzip.compress(blob))
    with pytest.raises(EnvironmentProblem, match="not the original"):
        file.verify(tmp_path, "mnist")


@pytest.mark.parametrize(
    "blob", [b"", b"\0\0\x08", b"<html>no such file</html>", formats.idx(np.ones(9))[:-1]]
)
def test_idx_files_that_are_none(tmp_path, blob):
    with pytest.raises(ValueError, match=r"idx|reshape"):
        vision.read_idx(formats.put(tmp_path / "file", blob))


def tables(
    place: Path, names: tuple[str, str], whole: data.Dataset, columns: tuple[str, str]
) -> None:
    """Hugging Face's tables of a data set, `names` those of both parts."""
    for name, part in zip(names, ("train", "test"), strict=True):
        pixels, labels = getattr(whole, f"{part}_x"), getattr(whole, f"{part}_y")
        shown = np.ascontiguousarray(pixels.transpose(0, 2, 3, 1)).squeeze()
        cells = [{"bytes": formats.encoded(image), "path": None} for image in shown]
        given = {columns[0]: cells, columns[1]: labels.tolist()}
        if columns[1] == "fine_label":
            given["coarse_label"] = [0] * len(cells)
        formats.table(place / name, given)


HUB = ("train-00000-of-00001.parquet", "test-00000-of-00001.parquet")
CONVERTED = ("train/0000.parquet", "test/0000.parquet")


@pytest.mark.parametrize(
    ("place", "names", "named"),
    [
        ("{name}/{configuration}", HUB, ""),
        ("{name}/default", CONVERTED, ""),
        ("{repository}/{configuration}", HUB, ""),
        ("{short}/{configuration}", CONVERTED, ""),
        ("{short}/{configuration}", HUB, "{short}"),
        ("{name}/{configuration}", HUB, "{name}"),
    ],
)
def test_tables_of_cifar_are_the_same_data(folder, cifar, tmp_path, place, names, named):
    columns = (
        "img",
        "fine_label" if cifar is vision.CIFAR100 or cifar.labels == "fine_labels" else "label",
    )
    facts = {
        "name": cifar.name,
        "configuration": cifar.configuration,
        "repository": cifar.repository,
    }
    facts["short"] = cifar.repository.rpartition("/")[2]
    whole = cifar.read(folder)
    hub = tmp_path / "tables"
    tables(hub / place.format(**facts), names, whole, columns)
    assert cifar.missing(hub / named.format(**facts)) == []
    assert cifar.read(hub / named.format(**facts)).hash == whole.hash


def test_tables_of_mnist_are_the_same_data(folder, tmp_path):
    loader, _ = small_idx(vision.MNIST, folder)
    whole = loader.read(folder)
    tables(tmp_path / "here/mnist/mnist", HUB, whole, ("image", "label"))
    assert loader.read(tmp_path / "here").hash == whole.hash
    snapshot = tmp_path / "hub/datasets--ylecun--mnist/snapshots/01/mnist"
    tables(snapshot, HUB, whole, ("image", "label"))
    assert loader.read(tmp_path / "nothing").hash == whole.hash


@pytest.mark.parametrize(
    ("loader", "place"), [(vision.SVHN, "cropped_digits"), (vision.USPS, "default")]
)
def test_tables_of_svhn_and_usps(tmp_path, loader, place):
    parts = [formats.draw(count, loader.info.input_shape, seed=count) for count in (50, 30)]
    whole = data.Dataset.of(loader.name, *parts)
    small = formats.small(loader, 50, 30)
    tables(tmp_path / loader.name / place, CONVERTED, whole, ("image", "label"))
    assert small.read(tmp_path).hash == whole.hash
    (tmp_path / loader.name / place / "test/0000.parquet").unlink()
    assert small.missing(tmp_path) == [file.path for file in loader.files]


def test_a_table_without_images_is_refused(tmp_path):
    for name in HUB:
        formats.table(tmp_path / "cifar10/plain_text" / name, {"picture": [b""], "label": [0]})
    with pytest.raises(EnvironmentProblem, match="image or img"):
        vision.CIFAR10.read(tmp_path)


@pytest.mark.parametrize("validation", ["val/images", "val/{wnid}/images", "val/{wnid}"])
def test_an_unpacked_tiny_imagenet_has_its_labels(folder, tmp_path, validation):
    images = np.random.RandomState(0).randint(0, 256, (3, 6, 64, 64, 3)).astype(np.uint8)
    files = formats.tiny_imagenet(["n03", "n01", "n02"], images[:, :4], images[:, 4:])
    blob = formats.zipped(files)
    formats.put(folder / "tiny-imagenet-200.zip", blob)
    archive = formats.published(vision.TINY_IMAGENET.files[0], blob)
    loader = formats.small(vision.TINY_IMAGENET, 12, 6, 3, files=(archive,))
    packed = loader.read(folder)
    rows = [
        line.split()
        for line in files[f"tiny-imagenet-200/{vision.ANNOTATIONS}"].decode().splitlines()
    ]
    wnids = {row[0]: row[1] for row in rows}
    for path, content in files.items():
        base, _, name = path.rpartition("/")
        if name in wnids:
            base = f"tiny-imagenet-200/{validation.format(wnid=wnids[name])}"
        formats.put(tmp_path / "data set" / base / name, content)
    formats.put(tmp_path / "data set/tiny-imagenet-200/train/._n01_0.JPEG", b"of another system")
    assert loader.read(tmp_path / "data set").hash == packed.hash
    assert loader.read(tmp_path / "data set/tiny-imagenet-200").hash == packed.hash
    image = tmp_path / "data set/tiny-imagenet-200/train/n01/images/n01_0.JPEG"
    image.write_bytes(formats.encoded(images[0, 0], "JPEG"))
    assert loader.read(tmp_path / "data set").hash != packed.hash
    image.unlink()
    with pytest.raises(EnvironmentProblem, match="11 samples"):
        loader.read(tmp_path / "data set")


def test_what_lies_there_is_said(tmp_path):
    for name in ("CIFAR-10-images", "notes.txt", ".hidden"):
        (tmp_path / name).mkdir()
    with pytest.raises(data.MissingData) as caught:
        vision.CIFAR10.read(tmp_path)
    words = str(caught.value)
    looked_for = ("cifar-10-python.tar.gz", "uoft-cs/cifar10", "cifar-10-batches-py/test_batch")
    assert all(name in words for name in (*looked_for, "CIFAR-10-images/", "notes.txt"))
    assert ".hidden" not in words
    with pytest.raises(data.MissingData, match="no such folder"):
        vision.MNIST.read(tmp_path / "nowhere")


def test_a_file_without_checksum_comes_last(tmp_path):
    file = Original("a/b", compressed="0" * 32)
    formats.put(tmp_path / "a/b", b"")
    assert file.find(tmp_path) == tmp_path / "a/b"
    formats.put(tmp_path / "a/b.gz", b"")
    assert file.find(tmp_path) == tmp_path / "a/b.gz"
    assert replace(file, md5="0" * 32).find(tmp_path) == tmp_path / "a/b"
