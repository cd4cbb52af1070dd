"""Every image data set is read from its published formats as torchvision and the papers' code read it, or refused."""

from __future__ import annotations

import os
import shutil
import string
from dataclasses import replace
from pathlib import Path

import numpy as np
import published_formats as formats
import pytest

from bench import data
from bench.data import digits5, femnist, idx, matlab, mnist_m, tiny_imagenet, usps
from bench.data.dataset import Dataset
from bench.data.originals import Original
from bench.errors import EnvironmentProblem


@pytest.fixture(autouse=True)
def cache_home(tmp_path, monkeypatch):
    """A cache folder that is empty at first, and no folder of the hub's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "data"


def same(found: Dataset, train, test) -> None:
    for array, expected in zip(
        (found.train_x, found.train_y, found.test_x, found.test_y), (*train, *test), strict=True
    ):
        np.testing.assert_array_equal(array, expected)
        assert not array.flags.writeable
    assert (found.train_x.dtype, found.train_y.dtype) == (np.uint8, np.int64)


def refused(source, folder: Path, *wanted: str) -> None:
    """Reading fails with the file, what was expected and found, and the command that mends it; nothing is kept."""
    with pytest.raises(EnvironmentProblem) as caught:
        source.read(folder)
    told = str(caught.value)
    texts = [*wanted, f"python -m bench.data prepare {source.name} --data-dir {folder}"]
    assert [text for text in texts if text not in told] == []
    assert not list(Path(os.environ["XDG_CACHE_HOME"]).glob(f"fedkd-bench/{source.name}-*"))


# --- MNIST and EMNIST


def small_idx(source: idx.Idx, folder: Path, first: int = 0, classes: int = 10) -> tuple[idx.Idx, tuple, tuple]:
    """A source of 60 and 40 images, its files in `folder`."""
    train, test = formats.draw(60, (28, 28), classes, 1), formats.draw(40, (28, 28), classes, 2)
    blobs = [formats.idx(array) for x, y in (train, test) for array in (x, y + first)]
    for file, blob in zip(source.files, blobs, strict=True):
        formats.put(folder / file.path, blob)
    files = tuple(
        formats.published(file, blob) if file.md5 else file for file, blob in zip(source.files, blobs, strict=True)
    )
    return formats.small(source, 60, 40, files=files), train, test


def test_mnist_is_read_as_torchvision_reads_it(folder):
    source, train, test = small_idx(idx.MNIST, folder)
    same(source.read(folder), (train[0][:, None], train[1]), (test[0][:, None], test[1]))
    theirs = pytest.importorskip("torchvision.datasets").MNIST(folder, train=False)
    np.testing.assert_array_equal(source.read(folder).test_x[:, 0], theirs.data.numpy())
    np.testing.assert_array_equal(source.read(folder).test_y, theirs.targets.numpy())


def test_letters_are_counted_from_zero(folder):
    source, train, _ = small_idx(idx.EMNIST_LETTERS, folder, first=1, classes=26)
    np.testing.assert_array_equal(source.labels(folder), train[1])
    found = source.read(folder)
    theirs = pytest.importorskip("torchvision.datasets").EMNIST(folder, split="letters", train=True)
    np.testing.assert_array_equal(found.train_x[:, 0], theirs.data.numpy())
    np.testing.assert_array_equal(found.train_y, theirs.targets.numpy() - 1)
    np.testing.assert_array_equal(source.labels(folder), train[1])


@pytest.mark.parametrize(
    ("number", "damage", "wanted"),
    [
        (0, lambda blob: blob[:-1], "expected an idx file of uint8 with 3 axes, 47,056 bytes long, found 47,055 bytes"),
        (0, lambda blob: b"", "0 bytes that start with nothing"),
        (1, lambda blob: b"<html>" + blob[6:], "found 68 bytes that start with 3c68746d"),
        (1, lambda blob: blob[:-1] + b"\x1b", "expected 60 samples with labels 1 to 26, found 60 with labels 1 to 27"),
        (2, lambda blob: formats.idx(np.ones((39, 28, 28))), "expected 40 images, one a label, found 39"),
        (3, lambda blob: formats.idx(np.ones(39)), "expected 40 samples with labels 1 to 26, found 39"),
    ],
    ids=["cut", "empty", "page", "label", "images", "count"],
)
def test_damaged_letters_are_refused(folder, number, damage, wanted):
    source, _, _ = small_idx(idx.EMNIST_LETTERS, folder, first=1, classes=26)
    file = folder / source.files[number].path
    file.write_bytes(damage(file.read_bytes()))
    refused(source, folder, str(file), wanted)


def test_the_originals_of_mnist_and_emnist_are_those_of_torchvision():
    theirs = pytest.importorskip("torchvision.datasets")
    packed = [(Path(remote.file.path).name, remote.file.md5) for remote in idx.MNIST.remotes]
    assert packed == theirs.MNIST.resources
    for remote in idx.MNIST.remotes:
        assert remote.urls == tuple(mirror + Path(remote.file.path).name for mirror in theirs.MNIST.mirrors)
    (remote,) = idx.EMNIST_LETTERS.remotes
    assert (remote.file.md5, remote.urls) == (theirs.EMNIST.md5, (theirs.EMNIST.url,))


# --- USPS


def small_usps(folder: Path) -> tuple[usps.Usps, list[tuple[np.ndarray, np.ndarray]]]:
    rng = np.random.RandomState(3)
    parts = [(rng.randint(-1000, 1001, (count, 256)) / 1000, rng.randint(0, 10, count)) for count in (30, 20)]
    blobs = [formats.libsvm(*part) for part in parts]
    files = []
    for file, blob in zip(usps.USPS.files, blobs, strict=True):
        formats.put(folder / file.path, blob)
        files.append(formats.published(file, blob))
    return formats.small(usps.USPS, 30, 20, files=tuple(files)), parts


def test_usps_is_read_as_torchvision_reads_it(folder):
    source, parts = small_usps(folder)
    found = source.read(folder)
    datasets = pytest.importorskip("torchvision.datasets")
    train, test = (datasets.USPS(folder, train=train) for train in (True, False))
    same(found, (train.data[:, None], train.targets), (test.data[:, None], test.targets))
    np.testing.assert_array_equal(found.train_y, parts[0][1])


def test_usps_of_hugging_face_is_the_same_data(folder, tmp_path, monkeypatch):
    source, _ = small_usps(folder)
    found = source.read(folder)
    parts = {"train": (found.train_x[:, 0], found.train_y), "test": (found.test_x[:, 0], found.test_y)}
    formats.usps_tables(tmp_path / "tables", parts)
    assert source.missing(tmp_path / "tables") == []
    assert source.read(tmp_path / "tables").hash == found.hash
    # The hub's own client keeps versions of a repository in its cache.
    kept = tmp_path / "hub/datasets--flwrlabs--usps/snapshots/0123"
    shutil.copytree(tmp_path / "tables/usps", kept)
    assert source.read(tmp_path / "nothing").hash == found.hash


def test_damaged_usps_is_refused(folder, tmp_path):
    source, (train, _) = small_usps(folder)
    formats.put(folder / "usps.bz2", formats.libsvm(train[0][:29], train[1][:29]))
    refused(source, folder, "usps.bz2 is not the original file", source.files[0].md5)
    open_source = replace(source, files=tuple(replace(file, md5=None) for file in source.files))
    refused(open_source, folder, "usps.bz2: expected 30 samples with labels 0 to 9, found 29 with labels")
    narrow = formats.libsvm(train[0][:, :255], train[1])
    for blob in (narrow, narrow[:-4]):
        formats.put(folder / "usps.bz2", blob)
        refused(open_source, folder, "expected lines of a label and 256 values")
    formats.put(folder / "usps.bz2", formats.libsvm(train[0][:0], train[1][:0]))
    refused(open_source, folder, "expected 30 samples with labels 0 to 9, found 0 with no labels")
    pixels = np.zeros((30, 16, 15), np.uint8)
    formats.usps_tables(tmp_path / "tables", {"train": (pixels, train[1]), "test": (pixels, train[1])})
    refused(source, tmp_path / "tables", "train-00000", "expected an image of 16x16 in row 0, found 16x15 pixels")


def test_the_originals_of_usps_and_svhn_are_those_of_torchvision():
    theirs = pytest.importorskip("torchvision.datasets")
    for source, listed in ((usps.USPS, theirs.USPS.split_list), (matlab.SVHN, theirs.SVHN.split_list)):
        for file, remote, part in zip(source.files, source.remotes, ("train", "test"), strict=True):
            assert [remote.urls[0], file.path, file.md5] == listed[part]
            assert remote.file == file


# --- SVHN and SynthDigits


def small_matlab(source: matlab.Matlab, folder: Path, zero: int) -> tuple[matlab.Matlab, list]:
    parts = [formats.draw(count, (32, 32, 3), seed=count) for count in (50, 30)]
    files = []
    for file, (x, y) in zip(source.files, parts, strict=True):
        blob = formats.matlab(x, np.where(y == 0, zero, y))
        formats.put(folder / file.path, blob)
        files.append(formats.published(file, blob) if file.md5 else file)
    return formats.small(source, 50, 30, files=tuple(files)), parts


def test_svhn_is_read_as_torchvision_reads_it(folder, monkeypatch):
    source, parts = small_matlab(matlab.SVHN, folder, zero=10)
    train, test = ((x.transpose(0, 3, 1, 2), y) for x, y in parts)
    same(source.read(folder), train, test)
    theirs = pytest.importorskip("torchvision.datasets").SVHN
    monkeypatch.setattr(theirs, "_check_integrity", lambda self: True)
    np.testing.assert_array_equal(source.read(folder).train_x, theirs(folder, "train").data)
    np.testing.assert_array_equal(source.read(folder).train_y, theirs(folder, "train").labels)


def test_svhn_is_found_where_fedbn_has_it(folder):
    source, _ = small_matlab(matlab.SVHN, folder, zero=10)
    first = source.read(folder)
    (folder / "SVHN").mkdir()
    for file in source.files:
        (folder / file.path).rename(folder / "SVHN" / file.path)
    assert source.missing(folder) == []
    assert source.read(folder).hash == first.hash


def test_synthdigits_has_zeros_as_they_are_and_nothing_above_nine(folder):
    source, _ = small_matlab(matlab.SYNTHDIGITS, folder, zero=10)
    refused(
        source, folder, "synth_train_32x32.mat", "expected 50 samples with labels 0 to 9, found 50 with labels 1 to 10"
    )
    source, parts = small_matlab(matlab.SYNTHDIGITS, folder, zero=0)
    train, test = ((x.transpose(0, 3, 1, 2), y) for x, y in parts)
    same(source.read(folder), train, test)


def test_damaged_matlab_files_are_refused(folder):
    source, _ = small_matlab(matlab.SYNTHDIGITS, folder, zero=0)
    refused(formats.small(source, 51, 30), folder, "shape (32, 32, 3, 51)", "(32, 32, 3, 50)")
    file = folder / source.files[0].path
    whole = file.read_bytes()
    for blob in (b"", b"<html>Quota exceeded</html>" * 20, whole[:200], whole[: len(whole) // 2]):
        file.write_bytes(blob)
        refused(source, folder, str(file), "expected")


# --- MNIST-M


def small_mnist_m(folder: Path) -> tuple[mnist_m.MnistM, dict]:
    parts = {
        part: formats.draw(count, (28, 28, 3), seed=count)
        for part, count in (("train", 40), ("valid", 20), ("test", 30))
    }
    formats.put(folder / "MNIST_M/mnistm_data.pkl", formats.mnist_m(parts))
    return formats.small(mnist_m.MNIST_M, 60, 30), parts


def test_mnist_m_has_the_validation_part_behind_the_training_part(folder):
    source, parts = small_mnist_m(folder)
    x, y = (np.concatenate([parts[part][array] for part in ("train", "valid")]) for array in (0, 1))
    same(source.read(folder), (x.transpose(0, 3, 1, 2), y), (parts["test"][0].transpose(0, 3, 1, 2), parts["test"][1]))


def test_damaged_mnist_m_is_refused(folder):
    source, parts = small_mnist_m(folder)
    file = folder / source.files[0].path
    refused(
        formats.small(source, 61, 30), folder, "expected 61 images of 28x28x3 in train and valid", "(60, 28, 28, 3)"
    )
    file.write_bytes(formats.mnist_m({"train": parts["train"], "test": parts["test"]}))
    refused(source, folder, "expected an array valid, found train, train_label, test, test_label")
    for blob in (b"", b"<html>", formats.mnist_m(parts)[:1000]):
        file.write_bytes(blob)
        refused(source, folder, str(file), "expected a pickle of arrays")
    file.write_bytes(formats.mnist_m({**parts, "test": (parts["test"][0], parts["test"][1] + 9)}))
    refused(source, folder, "expected 30 samples with labels 0 to 9, found 30 with labels 9 to 18")


# --- Digits-5


@pytest.fixture
def five(folder, monkeypatch):
    """Five small sources, with more images than are trained on."""
    made = {
        "mnist": (idx, "MNIST", small_idx(idx.MNIST, folder)[0]),
        "svhn": (matlab, "SVHN", small_matlab(matlab.SVHN, folder, zero=10)[0]),
        "usps": (usps, "USPS", small_usps(folder)[0]),
        "synthdigits": (matlab, "SYNTHDIGITS", small_matlab(matlab.SYNTHDIGITS, folder, zero=0)[0]),
        "mnist_m": (mnist_m, "MNIST_M", small_mnist_m(folder)[0]),
    }
    for module, attribute, source in made.values():
        monkeypatch.setattr(module, attribute, source)
    return {name: source for name, (_, _, source) in made.items()}


def as_fedbn_does(source: Dataset, trained: int) -> tuple:
    """Merged, split by scikit-learn, each image resized by Pillow and made of three channels; an image at a time."""
    from PIL import Image
    from sklearn.model_selection import StratifiedShuffleSplit

    pixels, labels = np.concatenate([source.train_x, source.test_x]), np.concatenate([source.train_y, source.test_y])
    splitter = StratifiedShuffleSplit(n_splits=1, test_size=0.2, random_state=0)
    ((train, test),) = splitter.split(pixels, labels)

    def image(x: np.ndarray) -> np.ndarray:
        made = Image.fromarray(x.transpose(1, 2, 0).squeeze()).resize((28, 28), Image.Resampling.BILINEAR)
        return np.asarray(made.convert("RGB")).transpose(2, 0, 1)

    train = train[:trained]
    return [(np.stack([image(pixels[index]) for index in part]), labels[part]) for part in (train, test)]


def test_digits5_is_what_fedbn_makes_of_the_five_sources(folder, five):
    found = replace(digits5.DIGITS5, trained=7).read(folder)
    parts = [as_fedbn_does(source.read(folder), 7) for source in five.values()]
    train, test = ([np.concatenate([part[which][array] for part in parts]) for array in (0, 1)] for which in (0, 1))
    same(found, train, test)
    assert found.train_groups.tolist() == [group for group in range(5) for _ in range(7)]
    sizes = [len(part[1][1]) for part in parts]
    assert found.test_groups.tolist() == [group for group, size in enumerate(sizes) for _ in range(size)]
    assert sizes == [20, 16, 10, 16, 18]


def test_groups_are_kept_with_the_prepared_copy_and_count_for_the_hash(folder, five):
    source = replace(digits5.DIGITS5, trained=7)
    first, second = source.read(folder), source.read(folder)
    assert first is not second
    assert second.hash == first.hash
    for name in ("train_groups", "test_groups"):
        np.testing.assert_array_equal(getattr(second, name), getattr(first, name))
        assert not getattr(second, name).flags.writeable
    train, test = (first.train_x, first.train_y), (first.test_x, first.test_y)
    assert Dataset.of("digits5", train, test).hash != first.hash
    assert Dataset.of("digits5", train, test, first.train_groups[::-1].copy(), first.test_groups).hash != first.hash


def test_a_missing_source_is_named_and_a_changed_one_read_again(folder, five):
    source = replace(digits5.DIGITS5, trained=7)
    first = source.read(folder)
    small_mnist_m(folder)
    file = folder / "MNIST_M/mnistm_data.pkl"
    parts = {
        part: formats.draw(count, (28, 28, 3), seed=9) for part, count in (("train", 40), ("valid", 20), ("test", 30))
    }
    file.write_bytes(formats.mnist_m(parts))
    assert source.read(folder).hash != first.hash
    file.unlink()
    with pytest.raises(data.MissingData, match=r"MNIST_M/mnistm_data.pkl missing"):
        source.read(folder)
    assert data.groups("digits5", folder) is None


def test_the_published_sizes_of_digits5_follow_from_those_of_its_sources():
    names = digits5.DIGITS5.names
    merged = {name: data.info(name).train_size + data.info(name).test_size for name in names}
    tested = [-(-merged[name] // 5) for name in names]
    assert tested == [14_000, 19_858, 1_860, 97_791, 14_000]
    assert sum(tested) == data.info("digits5").test_size
    assert int((merged["usps"] - tested[2]) / 10) == 743
    assert data.info("digits5").train_size == 5 * 743 == 3_715


# --- FEMNIST


def writers(seed: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {
        f"f{number:04}_1{number}": formats.draw(count, (28, 28), 62, seed + number)
        for number, count in enumerate((25, 10, 7, 38))
    }


def test_leafs_files_keep_their_split_and_writers(folder):
    train, test = writers(), {name: (x[:2], y[:2]) for name, (x, y) in writers(seed=50).items()}
    names = sorted(train)
    for part, users in (("train", train), ("test", test)):
        first, second = ({name: users[name] for name in half} for half in (names[2:], names[:2]))
        formats.put(folder / f"femnist/data/{part}/all_data_0.json", formats.leaf(first))
        formats.put(folder / f"femnist/data/{part}/all_data_1.json", formats.leaf(second))
    found, order = femnist.FEMNIST.read(folder), [*names[2:], *names[:2]]
    for array, users, groups in ((found.train_x, train, found.train_groups), (found.test_x, test, found.test_groups)):
        np.testing.assert_array_equal(array[:, 0], np.concatenate([users[name][0] for name in order]))
        assert groups.tolist() == [names.index(name) for name in order for _ in users[name][1]]
    np.testing.assert_array_equal(found.train_y, np.concatenate([train[name][1] for name in order]))
    np.testing.assert_array_equal(data.groups("femnist", folder), found.train_groups)


def hub_femnist(folder: Path) -> list[tuple[str, bytes, int]]:
    """Two parquet files; their rows in order."""
    rows = [(name, formats.encoded(x), int(y)) for name, part in writers().items() for x, y in zip(*part, strict=True)]
    for number, part in enumerate((rows[:31], rows[31:])):
        file = folder / f"femnist/data/train-0000{number}-of-00002.parquet"
        columns = {
            "writer_id": [row[0] for row in part],
            "hsf_id": [0] * len(part),
            "character": [row[2] for row in part],
        }
        formats.images_table(file, [row[1] for row in part], **columns)
    return rows


def test_a_tenth_of_each_writers_samples_of_the_hub_is_the_test_part(folder):
    rows = hub_femnist(folder)
    found = formats.small(femnist.FEMNIST, 72, 8).read(folder)
    assert (len(found.train_y), len(found.test_y)) == (72, 8)
    counts = np.bincount(found.test_groups, minlength=4)
    assert all(abs(count - total / 10) < 1 for count, total in zip(counts, (25, 10, 7, 38), strict=True))
    images = np.concatenate([x for x, _ in writers().values()])
    names = sorted(writers())
    expected = sorted((x.tobytes(), row[2], names.index(row[0])) for x, row in zip(images, rows, strict=True))
    both = [
        (x.tobytes(), int(y), int(group))
        for part in ("train", "test")
        for x, y, group in zip(*(getattr(found, f"{part}_{kind}") for kind in ("x", "y", "groups")), strict=True)
    ]
    assert sorted(both) == expected
    info = data.info("femnist")
    assert (info.train_size + info.test_size, info.test_size) == (814_277, 814_277 // 10)


def characters_of(whole, classes):
    """Pixels, labels and writers of each part of FEMNIST, of the characters that `classes` has, by their code."""
    made = []
    for part in ("train", "test"):
        x, y, groups = (getattr(whole, f"{part}_{kind}") for kind in ("x", "y", "groups"))
        kept = [position for position, code in enumerate(y) if int(code) in classes]
        made.append((x[kept], [classes[int(y[position])] for position in kept], groups[kept]))
    return made


CODES = {
    character: code for code, character in enumerate(string.digits + string.ascii_uppercase + string.ascii_lowercase)
}


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("femnist_digits", {CODES[digit]: int(digit) for digit in string.digits}),
        ("femnist_letters", {CODES[letter]: ord(letter.lower()) - ord("a") for letter in string.ascii_letters}),
    ],
)
@pytest.mark.parametrize("form", ["leaf", "hub"])
def test_letters_and_digits_are_those_of_femnist(folder, monkeypatch, name, classes, form):
    if form == "leaf":
        for part, seed in (("train", 0), ("test", 50)):
            formats.put(folder / f"femnist/data/{part}/all_data_0.json", formats.leaf(writers(seed)))
    else:
        hub_femnist(folder)
    monkeypatch.setattr(femnist, "FEMNIST", formats.small(femnist.FEMNIST, 72, 8))
    expected = characters_of(femnist.FEMNIST.read(folder), classes)
    found = data.load(name, folder, offline=True)
    for part, (x, y, groups) in zip(("train", "test"), expected, strict=True):
        np.testing.assert_array_equal(getattr(found, f"{part}_x"), x)
        assert getattr(found, f"{part}_y").tolist() == y
        np.testing.assert_array_equal(getattr(found, f"{part}_groups"), groups)
    assert (found.name, data.info(name).num_classes) == (name, len(set(classes.values())))
    assert len(expected[0][1]) > 9
    np.testing.assert_array_equal(data.labels(name, folder), found.train_y)
    np.testing.assert_array_equal(data.source(name).read(folder).train_x, found.train_x)


def test_letters_and_digits_are_all_that_nist_counts():
    infos = [data.info(name) for name in ("femnist_letters", "femnist_digits")]
    assert sum(info.train_size + info.test_size for info in infos) == 814_277 - 22
    assert [info.test_size for info in infos] == [(info.train_size + info.test_size) // 10 for info in infos]


def test_damaged_femnist_is_refused(folder, tmp_path):
    (name, (x, y)), *_ = writers().items()
    source = femnist.FEMNIST
    test = formats.put(folder / "femnist/data/test/a.json", formats.leaf({name: (x, y)}))
    train = folder / "femnist/data/train/a.json"
    whole = formats.leaf({name: (x, y)})
    for blob, wanted in (
        (whole[:-9], "expected LEAF's JSON with user_data"),
        (b"{}", "expected LEAF's JSON with user_data"),
        (
            formats.leaf({name: (x, np.where(y == y.max(), 62, y))}),
            "expected 25 samples with labels 0 to 61, found 25 with labels",
        ),
        (formats.leaf({name: (x, y[1:])}), "expected 25 samples with labels 0 to 61, found 24 with"),
        (formats.leaf({name: (x[:, :27], y)}), "x of 784 levels each"),
        (formats.leaf({name: (x.astype(int) * 255, y)}), "expected levels from 0 to 1, found 0 to 255"),
    ):
        formats.put(train, blob)
        refused(source, folder, str(train), wanted)
    train.unlink()
    assert source.missing(folder)
    test.unlink()
    hub_femnist(folder)
    refused(source, folder, f"{folder / 'femnist/data'}: expected 814,277 samples with labels 0 to 61, found 80")
    file = folder / "femnist/data/train-00001-of-00002.parquet"
    file.write_bytes(file.read_bytes()[:-5])
    refused(source, folder, str(file), "expected a parquet file with columns image, writer_id, character")


# --- Tiny-ImageNet


@pytest.fixture
def tiny(folder):
    """Three classes whose list is not in order, in a published archive."""
    images = np.random.RandomState(0).randint(0, 256, (3, 6, 64, 64, 3)).astype(np.uint8)
    files = formats.tiny_imagenet(["n03", "n01", "n02"], images[:, :4], images[:, 4:])
    blob = formats.zipped(files)
    formats.put(folder / "tiny-imagenet-200.zip", blob)
    source = tiny_imagenet.TINY_IMAGENET
    original = formats.published(source.files[0], blob)
    return formats.small(source, 12, 6, 3, files=(original,)), files


def decoded(blob: bytes) -> np.ndarray:
    import io

    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(blob)).convert("RGB")).transpose(2, 0, 1)


def test_tiny_imagenet_is_read_from_its_archive(folder, tiny):
    source, files = tiny
    found = source.read(folder)
    assert found.train_y.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert found.test_y.tolist() == [2, 2, 0, 0, 1, 1]
    for position, wnid in enumerate(("n01", "n02", "n03")):
        for number in range(4):
            blob = files[f"tiny-imagenet-200/train/{wnid}/images/{wnid}_{number}.JPEG"]
            np.testing.assert_array_equal(found.train_x[4 * position + number], decoded(blob))
    np.testing.assert_array_equal(found.test_x[2], decoded(files["tiny-imagenet-200/val/images/val_2.JPEG"]))


def test_the_three_forms_of_tiny_imagenet_are_the_same_data(folder, tiny, tmp_path):
    source, files = tiny
    packed = source.read(folder)
    for path, blob in files.items():
        formats.put(tmp_path / "unpacked" / path, blob)
    assert source.read(tmp_path / "unpacked").hash == packed.hash
    for part, kept in (("train", "train"), ("valid", "test")):
        x, y = getattr(packed, f"{kept}_x"), getattr(packed, f"{kept}_y")
        blobs = [formats.encoded(np.ascontiguousarray(image.transpose(1, 2, 0))) for image in x]
        file = tmp_path / f"hub/datasets--zh-plus--tiny-imagenet/snapshots/1/data/{part}-00000-of-00001-5a6b.parquet"
        formats.images_table(file, blobs, label=y.tolist())
    assert source.read(tmp_path / "nothing").hash == packed.hash
    formats.images_table(file, blobs, label=[1] * len(blobs))
    with pytest.raises(EnvironmentProblem, match="expected 6 images of 3 classes, found 6 of 1"):
        source.read(tmp_path / "nothing")


def test_an_unpacked_folder_with_images_by_class_is_passed_over(folder, tiny, tmp_path):
    """Many tools sort the images of `val` into folders of classes, and some delete the list of them."""
    source, files = tiny
    expected, sorted_by_class = source.read(folder), tmp_path / "sorted"
    for path, blob in files.items():
        formats.put(sorted_by_class / path.replace("val/images", "val/n01/images"), blob)
    images, lists = "tiny-imagenet-200/val/images/*.JPEG", "tiny-imagenet-200/val/val_annotations.txt"
    assert source.missing(sorted_by_class) == ["tiny-imagenet-200.zip", f"or {images}"]
    with pytest.raises(data.MissingData, match=r"tiny-imagenet-200.zip, or tiny-imagenet-200/val/images/\*.JPEG miss"):
        source.fetch(sorted_by_class, offline=True)
    (sorted_by_class / lists).unlink()
    assert source.missing(sorted_by_class) == ["tiny-imagenet-200.zip", f"or {lists} and {images}"]
    shutil.copy(folder / "tiny-imagenet-200.zip", sorted_by_class)
    assert source.missing(sorted_by_class) == []
    assert source.read(sorted_by_class).hash == expected.hash


def test_damaged_tiny_imagenet_is_refused(folder, tiny, tmp_path):
    source, files = tiny
    archive = folder / "tiny-imagenet-200.zip"
    for path, blob in files.items():
        formats.put(tmp_path / "unpacked" / path, blob)
    image = tmp_path / "unpacked/tiny-imagenet-200/train/n01/images/n01_2.JPEG"
    image.write_bytes(image.read_bytes()[:300])
    refused(source, tmp_path / "unpacked", "expected an image of 64x64 as train/n01/images/n01_2.JPEG")
    image.unlink()
    refused(source, tmp_path / "unpacked", "expected 12 samples with labels 0 to 2, found 11 with labels 0 to 2")
    (tmp_path / "unpacked/tiny-imagenet-200/val/val_annotations.txt").write_text("val_0.JPEG\tn09")
    refused(source, tmp_path / "unpacked", "a class of it for each image")
    archive.write_bytes(archive.read_bytes()[:-1])
    refused(source, folder, f"{archive} is not the original file")


# --- the published files


@pytest.fixture
def real_folder():
    folder = os.environ.get("FEDKD_DATA")
    if not folder:
        pytest.skip("FEDKD_DATA names no folder of data sets")
    return Path(folder)


@pytest.mark.real_data
def test_mnist_is_what_the_table_says(real_folder):
    if idx.MNIST.missing(real_folder):
        pytest.skip("FEDKD_DATA names no folder with MNIST")
    found, info = idx.MNIST.read(real_folder), data.info("mnist")
    assert found.hash == "ab11189a59a5c115fef1fb6a3bf6361d9fd9ddc5f917cd5ccfc2038fa2542646"
    assert found.train_x.shape == (info.train_size, *info.input_shape)
    assert np.bincount(found.test_y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    (mean,), (std,) = info.normalization("standard")
    assert (found.train_x / 255).mean() == pytest.approx(mean, abs=1e-4)
    assert (found.train_x / 255).std() == pytest.approx(std, abs=1e-4)


@pytest.fixture
def real_usps(real_folder, tmp_path):
    """A folder with the published USPS, or with what a packed copy (grey levels in `usps.npz`) holds."""
    if not usps.USPS.missing(real_folder):
        return real_folder
    packed = real_folder / "usps/usps.npz"
    if not packed.is_file():
        pytest.skip("FEDKD_DATA names no folder with USPS")
    content = np.load(packed)
    levels = (content["levels"] * 255).astype(np.uint8)
    parts = {part: (levels[content[f"x_{part}"]], content[f"y_{part}"]) for part in ("train", "test")}
    formats.usps_tables(tmp_path / "data", parts)
    for file in idx.MNIST.files:
        if (real_folder / file.path).is_file():
            (tmp_path / "data" / file.path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "data" / file.path).symlink_to(real_folder / file.path)
    return tmp_path / "data"


@pytest.mark.real_data
def test_usps_is_what_the_table_says(real_usps):
    found, info = usps.USPS.read(real_usps), data.info("usps")
    assert found.train_x.shape == (info.train_size, *info.input_shape)
    assert found.test_x.shape == (info.test_size, *info.input_shape)
    assert np.bincount(found.train_y).tolist() == [1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644]
    (mean,), (std,) = info.normalization("standard")
    assert (found.train_x / 255).mean() == pytest.approx(mean, abs=1e-4)
    assert (found.train_x / 255).std() == pytest.approx(std, abs=1e-4)


@pytest.mark.real_data
def test_the_two_sources_that_are_here_have_fedbns_sizes(real_usps):
    if idx.MNIST.missing(real_usps):
        pytest.skip("FEDKD_DATA names no folder with MNIST")
    found, info = digits5.MNIST_USPS.read(real_usps), data.info("mnist_usps")
    assert found.train_x.shape == (info.train_size, *info.input_shape)
    assert found.test_x.shape == (info.test_size, *info.input_shape)
    assert np.bincount(found.train_groups).tolist() == [743, 743]
    assert np.bincount(found.test_groups).tolist() == [14_000, 1_860]
    assert len(set(found.train_y)) == 10


def test_originals_are_found_in_all_their_places(folder):
    file = Original("a/b", None, also=("c",))
    assert file.find(folder) is None
    formats.put(folder / "c", b"second")
    assert file.find(folder) == folder / "c"
    formats.put(folder / "a/b", b"first")
    assert file.read(folder, "some") == b"first"
