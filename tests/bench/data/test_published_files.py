"""Every data set is read from its published formats, or refused with the file and the next step."""

from __future__ import annotations

import io
import math
import shutil
import string
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import published_formats as formats
import pytest
from board import assert_approved
from PIL import Image
from published_formats import folder, surroundings
from scipy.io import loadmat, savemat
from sklearn.model_selection import StratifiedShuffleSplit

from bench import data
from bench.data import command, digits5, femnist, parquet, vision
from bench.data.dataset import Dataset, whole_numbers
from bench.data.download import Original
from bench.data.file_loaders import FileLoader
from bench.errors import EnvironmentProblem
from bench.terminal.console import console

__all__ = ["folder", "surroundings"]
Part = tuple[np.ndarray, np.ndarray]


def same(dataset: Dataset, train: Part, test: Part) -> None:
    arrays = (dataset.train_x, dataset.train_y, dataset.test_x, dataset.test_y)
    for array, expected in zip(arrays, (*train, *test), strict=True):
        np.testing.assert_array_equal(array, expected)
        assert not array.flags.writeable
    assert (dataset.train_x.dtype, dataset.train_y.dtype) == (np.uint8, np.int64)


def put_all(loader: FileLoader, folder: Path, blobs: list[bytes]) -> tuple[Original, ...]:
    """The files of a loader, with these contents; those that have a checksum get that of their content."""
    files = []
    for file, blob in zip(loader.files, blobs, strict=True):
        formats.put(folder / file.path, blob)
        files.append(formats.published(file, blob) if file.md5 else file)
    return tuple(files)


def channels_first(part: Part) -> Part:
    return part[0].transpose(0, 3, 1, 2), part[1]


# --- MNIST, EMNIST, USPS, SVHN, CIFAR-100


def small_idx(
    loader: vision.Vision, folder: Path, classes: int = 10
) -> tuple[vision.Vision, Part, Part]:
    train, test = formats.draw(60, (28, 28), classes, 1), formats.draw(40, (28, 28), classes, 2)
    blobs = [formats.idx(array) for x, y in (train, test) for array in (x, y + loader.first_label)]
    files = put_all(loader, folder, blobs)
    return (
        formats.small(loader, 60, 40, files=files),
        (train[0][:, None], train[1]),
        (test[0][:, None], test[1]),
    )


@pytest.mark.parametrize(("loader", "classes"), [(vision.MNIST, 10), (vision.EMNIST_LETTERS, 26)])
def test_idx_files_are_read(folder, loader, classes):
    loader, train, test = small_idx(loader, folder, classes)
    formats.put(folder / loader.theirs / "processed/training.pt", b"of an older torchvision")
    formats.put(folder / loader.theirs / "processed/test.pt", b"")
    same(loader.read(folder), train, test)


def small_usps(folder: Path) -> tuple[vision.Vision, list[Part]]:
    rng = np.random.RandomState(3)
    parts = [
        (rng.randint(-1000, 1001, (count, 256)) / 1000, np.arange(count) % 10) for count in (30, 20)
    ]
    files = put_all(vision.USPS, folder, [formats.libsvm(*part) for part in parts])
    return formats.small(vision.USPS, 30, 20, files=files), parts


def test_usps_is_equal_in_three_places(folder, tmp_path):
    loader, parts = small_usps(folder)
    usps = loader.read(folder)
    for values, labels, x, y in (
        (*parts[0], usps.train_x, usps.train_y),
        (*parts[1], usps.test_x, usps.test_y),
    ):
        np.testing.assert_array_equal(y, labels)
        assert np.abs(x.reshape(len(x), 256) - (values + 1) * 127.5).max() <= 1
    for file in loader.files:
        formats.put(tmp_path / "fedbn/USPS" / file.path, (folder / file.path).read_bytes())
    assert loader.read(tmp_path / "fedbn").hash == usps.hash
    tables = {"train": (usps.train_x[:, 0], usps.train_y), "test": (usps.test_x[:, 0], usps.test_y)}
    formats.usps_tables(tmp_path / "tables", tables)
    assert loader.missing(tmp_path / "tables") == []
    assert loader.read(tmp_path / "tables").hash == usps.hash
    # The hub's own client keeps versions of a repository in its cache.
    shutil.copytree(
        tmp_path / "tables/usps", tmp_path / "hub/datasets--flwrlabs--usps/snapshots/0123"
    )
    assert loader.read(tmp_path / "nothing").hash == usps.hash


def small_matlab(loader: FileLoader, folder: Path, zero: int) -> tuple[FileLoader, list[Part]]:
    parts = [formats.draw(count, (32, 32, 3), seed=count) for count in (50, 30)]
    files = put_all(
        loader, folder, [formats.matlab(x, np.where(y == 0, zero, y)) for x, y in parts]
    )
    return formats.small(loader, 50, 30, files=files), [channels_first(part) for part in parts]


@pytest.fixture
def svhn(folder, monkeypatch) -> tuple[FileLoader, list[Part]]:
    """A small SVHN, which torchvision takes for the published one."""
    from torchvision import datasets

    loader, parts = small_matlab(vision.SVHN, folder, zero=10)
    listed = {
        part: ["", file.path, file.md5]
        for part, file in zip(("train", "test"), loader.files, strict=True)
    }
    monkeypatch.setattr(datasets.SVHN, "split_list", listed)
    return loader, parts


def test_svhn_is_found_in_both_places(folder, svhn):
    loader, parts = svhn
    same(loader.read(folder), *parts)
    (folder / "SVHN").mkdir()
    for file in loader.files:
        (folder / file.path).rename(folder / "SVHN" / file.path)
    same(loader.read(folder), *parts)


def test_cifar100_has_the_fine_labels(folder, monkeypatch):
    from torchvision import datasets

    parts = [formats.draw(count, (3, 32, 32), 100) for count in (200, 100)]
    files = put_all(
        vision.CIFAR100, folder, [formats.cifar(*part, "fine_labels") for part in parts]
    )
    for name, file in zip(("train", "test"), files, strict=True):
        monkeypatch.setattr(datasets.CIFAR100, f"{name}_list", [[name, file.md5]])
    same(formats.small(vision.CIFAR100, 200, 100, files=files).read(folder), *parts)


# --- SynthDigits and MNIST-M


def test_synthdigits_has_labels_zero_to_nine(folder):
    loader, _ = small_matlab(digits5.SYNTHDIGITS, folder, zero=10)
    with pytest.raises(EnvironmentProblem, match="10"):
        loader.read(folder)
    loader, parts = small_matlab(digits5.SYNTHDIGITS, folder, zero=0)
    same(loader.read(folder), *parts)


def small_mnist_m(folder: Path) -> tuple[FileLoader, dict[str, Part]]:
    counts = (("train", 40), ("valid", 20), ("test", 30))
    parts = {part: formats.draw(count, (28, 28, 3), seed=count) for part, count in counts}
    formats.put(folder / "MNIST_M/mnistm_data.pkl", formats.mnist_m(parts))
    return formats.small(digits5.MNIST_M, 60, 30), parts


def test_mnist_m_ends_with_its_validation_part(folder):
    loader, parts = small_mnist_m(folder)
    x, y = (np.concatenate([parts[part][array] for part in ("train", "valid")]) for array in (0, 1))
    same(loader.read(folder), channels_first((x, y)), channels_first(parts["test"]))


# --- Digits-5


@pytest.fixture
def five(folder, svhn, monkeypatch) -> dict[str, FileLoader]:
    """Five small sources, with more images than are trained on."""
    loaders = {
        "mnist": small_idx(vision.MNIST, folder)[0],
        "svhn": svhn[0],
        "usps": small_usps(folder)[0],
        "synthdigits": small_matlab(digits5.SYNTHDIGITS, folder, zero=0)[0],
        "mnist_m": small_mnist_m(folder)[0],
    }
    for name, loader in loaders.items():
        monkeypatch.setattr(vision if hasattr(loader, "theirs") else digits5, name.upper(), loader)
    return loaders


def as_fedbn_does(source: Dataset, trained: int) -> list[Part]:
    """Merged, split by scikit-learn, each image resized by Pillow and made of three channels; an image at a time."""
    pixels, labels = (
        np.concatenate([source.train_x, source.test_x]),
        np.concatenate([source.train_y, source.test_y]),
    )
    splitter = StratifiedShuffleSplit(n_splits=1, test_size=0.2, random_state=0)
    ((train, test),) = splitter.split(pixels, labels)

    def image(x: np.ndarray) -> np.ndarray:
        made = Image.fromarray(x.transpose(1, 2, 0).squeeze()).resize(
            (28, 28), Image.Resampling.BILINEAR
        )
        return np.asarray(made.convert("RGB")).transpose(2, 0, 1)

    train = train[:trained]
    return [
        (np.stack([image(pixels[index]) for index in part]), labels[part]) for part in (train, test)
    ]


@pytest.mark.parametrize("name", ["digits5", "mnist_usps"])
def test_sizes_of_composed_digits_follow_fedbn(name):
    """743 training samples of each source; a fifth of both its parts, rounded up, tests."""
    sources = [data.info(source) for source in data.loader(name).names]
    assert data.info(name).train_size == 743 * len(sources)
    fifths = [math.ceil((info.train_size + info.test_size) / 5) for info in sources]
    assert data.info(name).test_size == sum(fifths)


def test_digits5_is_composed_as_in_fedbn(folder, five):
    loader = formats.small(digits5.DIGITS5, 5 * 15, 20 + 16 + 10 + 16 + 18, trained=15)
    digits, again = loader.read(folder), loader.read(folder)
    parts = [as_fedbn_does(each.read(folder), 15) for each in five.values()]
    train, test = (
        [np.concatenate([part[which][array] for part in parts]) for array in (0, 1)]
        for which in (0, 1)
    )
    same(digits, train, test)
    assert digits.train_groups.tolist() == np.repeat(range(5), 15).tolist()
    assert digits.test_groups.tolist() == np.repeat(range(5), [20, 16, 10, 16, 18]).tolist()
    assert again.hash == digits.hash
    for name in ("train_groups", "test_groups"):
        np.testing.assert_array_equal(getattr(again, name), getattr(digits, name))
        assert not getattr(again, name).flags.writeable
    assert Dataset.of("digits5", train, test).hash != digits.hash, "groups count"


def test_missing_sources_are_fetched(folder, five, monkeypatch):
    (folder / five["usps"].files[0].path).unlink()
    fetched = []
    monkeypatch.setattr(
        FileLoader, "fetch", lambda self, place, offline: fetched.append((self.name, offline))
    )
    digits5.DIGITS5.fetch(folder, offline=True)
    assert fetched == [("usps", True)]


def test_a_bad_source_of_digits5_is_named(folder, five):
    file = folder / five["mnist_m"].files[0].path
    file.write_bytes(b"")
    with pytest.raises(EnvironmentProblem, match=f"{file}.*prepare mnist_m"):
        digits5.DIGITS5.read(folder)
    file.unlink()
    with pytest.raises(data.MissingData, match="mnistm_data"):
        digits5.DIGITS5.read(folder)
    assert data.read("digits5", folder) is None


@pytest.mark.parametrize(
    "values", [[0, 0.7], [0.0, math.nan], [math.inf], [0, None], ["0"], [True]]
)
def test_labels_are_whole_numbers(values: list[Any]) -> None:
    with pytest.raises(ValueError, match=f"row {len(values) - 1}: label"):
        whole_numbers(values, "label")
    assert whole_numbers([0.0, 3.0], "label").tolist() == [0, 3]
    assert whole_numbers(np.array([[1], [2]], np.uint8), "label").dtype == np.int64


def test_fractions_of_labels_are_refused(folder, tmp_path):
    loader, _ = small_usps(folder)
    usps = loader.read(folder)
    test = usps.test_x[:, 0], usps.test_y + 0.7
    tables = {"train": (usps.train_x[:, 0], usps.train_y), "test": test}
    formats.usps_tables(tmp_path / "tables", tables)
    with pytest.raises(EnvironmentProblem, match=r"row 0: label 0\.7"):
        loader.read(tmp_path / "tables")
    synthdigits, _ = small_matlab(digits5.SYNTHDIGITS, folder, zero=0)
    file = folder / synthdigits.files[0].path
    content = loadmat(file)
    savemat(file, {"X": content["X"], "y": content["y"] + 0.5})
    with pytest.raises(EnvironmentProblem, match=f"{file}.*row 0: label"):
        synthdigits.read(folder)


# --- FEMNIST


def writers(seed: int = 0) -> dict[str, Part]:
    return {
        f"f{number:04}_1{number}": formats.draw(count, (28, 28), 62, seed + number)
        for number, count in enumerate((25, 10, 7, 38))
    }


def hub_femnist(folder: Path) -> list[tuple[str, bytes, int]]:
    """Two parquet files; their rows in order."""
    rows = [
        (name, formats.encoded(x), int(y))
        for name, part in writers().items()
        for x, y in zip(*part, strict=True)
    ]
    for number, part in enumerate((rows[:31], rows[31:])):
        columns = {"writer_id": [row[0] for row in part], "character": [row[2] for row in part]}
        file = folder / f"femnist/data/train-0000{number}-of-00002.parquet"
        formats.images_table(file, [row[1] for row in part], **columns)
    return rows


def small_femnist() -> femnist.Femnist:
    return formats.small(femnist.FEMNIST, 72, 8)


@pytest.fixture
def incomplete(monkeypatch):
    """80 samples do not have all 62 characters in the test part, as the published files do."""
    monkeypatch.setattr(femnist.Femnist, "counted", False)


def test_femnist_tests_on_a_tenth(folder, incomplete):
    rows = hub_femnist(folder)
    whole = small_femnist().read(folder)
    assert (len(whole.train_y), len(whole.test_y)) == (72, 8)
    counts = np.bincount(whole.test_groups, minlength=4)
    assert all(
        abs(count - total / 10) < 1 for count, total in zip(counts, (25, 10, 7, 38), strict=True)
    )
    images, names = np.concatenate([x for x, _ in writers().values()]), sorted(writers())
    expected = sorted(
        (x.tobytes(), row[2], names.index(row[0])) for x, row in zip(images, rows, strict=True)
    )
    both = [
        (x.tobytes(), int(y), int(group))
        for part in ("train", "test")
        for x, y, group in zip(
            *(getattr(whole, f"{part}_{kind}") for kind in ("x", "y", "groups")), strict=True
        )
    ]
    assert sorted(both) == expected


CODES = {
    character: code
    for code, character in enumerate(
        string.digits + string.ascii_uppercase + string.ascii_lowercase
    )
}


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("femnist_digits", {CODES[digit]: int(digit) for digit in string.digits}),
        (
            "femnist_letters",
            {CODES[letter]: ord(letter.lower()) - ord("a") for letter in string.ascii_letters},
        ),
    ],
)
def test_letters_and_digits_are_those_of_femnist(folder, incomplete, name, classes):
    hub_femnist(folder)
    whole, some = femnist.FEMNIST.read(folder), data.load(name, folder, offline=True)
    for part in ("train", "test"):
        x, y, groups = (getattr(whole, f"{part}_{kind}") for kind in ("x", "y", "groups"))
        kept = [position for position, code in enumerate(y) if int(code) in classes]
        assert kept
        np.testing.assert_array_equal(getattr(some, f"{part}_x"), x[kept])
        assert getattr(some, f"{part}_y").tolist() == [
            classes[int(y[position])] for position in kept
        ]
        np.testing.assert_array_equal(getattr(some, f"{part}_groups"), groups[kept])


# --- Tiny-ImageNet


@pytest.fixture
def tiny(folder) -> tuple[FileLoader, dict[str, bytes]]:
    """Three classes whose list is not in order, in a published archive."""
    images = np.random.RandomState(0).randint(0, 256, (3, 6, 64, 64, 3)).astype(np.uint8)
    files = formats.tiny_imagenet(["n03", "n01", "n02"], images[:, :4], images[:, 4:])
    originals = put_all(vision.TINY_IMAGENET, folder, [formats.zipped(files)])
    return formats.small(vision.TINY_IMAGENET, 12, 6, 3, files=originals), files


def decoded(blob: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(blob)).convert("RGB")).transpose(2, 0, 1)


def test_tiny_imagenet_is_read_from_its_archive(folder, tiny):
    loader, files = tiny
    tiny = loader.read(folder)
    assert tiny.train_y.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert tiny.test_y.tolist() == [2, 2, 0, 0, 1, 1]
    for position, wnid in enumerate(("n01", "n02", "n03")):
        for number in range(4):
            blob = files[f"tiny-imagenet-200/train/{wnid}/images/{wnid}_{number}.JPEG"]
            np.testing.assert_array_equal(tiny.train_x[4 * position + number], decoded(blob))
    np.testing.assert_array_equal(
        tiny.test_x[2], decoded(files["tiny-imagenet-200/val/images/val_2.JPEG"])
    )


def test_an_archive_holds_other_folders_too(folder, tiny):
    loader, files = tiny
    packed = loader.read(folder)
    others = {"__MACOSX/tiny-imagenet-200/train/n01/._n01_0.JPEG": b"of another system"}
    moved = {f"train/{path}": blob for path, blob in files.items()}
    for members in ({**others, **files}, moved):
        originals = put_all(vision.TINY_IMAGENET, folder, [formats.zipped(members)])
        assert replace(loader, files=originals).read(folder).hash == packed.hash


@pytest.mark.parametrize("lost", ["wnids.txt", "val/val_annotations.txt"])
def test_missing_lists_of_images_are_named(folder, tiny, lost):
    loader, files = tiny
    some = {path: blob for path, blob in files.items() if not path.endswith(f"/{lost}")}
    originals = put_all(vision.TINY_IMAGENET, folder, [formats.zipped(some)])
    with pytest.raises(EnvironmentProblem, match=f"it has {len(some)} files, and no {lost} among"):
        replace(loader, files=originals).read(folder)


def test_both_forms_of_tiny_imagenet_agree(folder, tiny, tmp_path):
    loader, _ = tiny
    packed = loader.read(folder)
    for part, kept in (("train", "train"), ("valid", "test")):
        x, y = getattr(packed, f"{kept}_x"), getattr(packed, f"{kept}_y")
        blobs = [formats.encoded(np.ascontiguousarray(image.transpose(1, 2, 0))) for image in x]
        file = (
            tmp_path
            / f"hub/datasets--zh-plus--tiny-imagenet/snapshots/1/data/{part}-00000-of-00001-5a6b.parquet"
        )
        formats.images_table(file, blobs, label=y.tolist())
    assert loader.read(tmp_path / "nothing").hash == packed.hash
    formats.images_table(file, blobs, label=[1] * len(blobs))
    with pytest.raises(EnvironmentProblem, match="1 of 3 classes"):
        loader.read(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("path", "changed", "message"),
    [
        ("train/n04/images/n04_0.JPEG", lambda _: b"", r"n04_0.JPEG: wnids.txt has no class n04"),
        ("val/val_annotations.txt", lambda text: text + b"\nval_0.JPEG", "line 7: .*'val_0.JPEG'"),
        ("val/val_annotations.txt", lambda text: text.replace(b"_1", b"_0", 1), "val_0.JPEG is of"),
        ("val/val_annotations.txt", lambda text: text.replace(b"_1", b"_9", 1), "val_9.JPEG is of"),
        ("val/val_annotations.txt", lambda text: text.replace(b"n03", b"n9", 1), "0.JPEG is of n9"),
    ],
    ids=["class of an image", "cut line", "image twice", "image missing", "class of a line"],
)
def test_holes_of_tiny_imagenet_are_named(folder, tiny, path, changed, message):
    loader, files = tiny
    path = f"tiny-imagenet-200/{path}"
    files = {**files, path: changed(files.get(path, b""))}
    originals = put_all(vision.TINY_IMAGENET, folder, [formats.zipped(files)])
    with pytest.raises(EnvironmentProblem, match=message):
        replace(loader, files=originals).read(folder)
    next(folder.glob("*.zip")).unlink()
    for name, blob in files.items():
        formats.put(folder / name, blob)
    with pytest.raises(EnvironmentProblem, match=rf"^{folder}/tiny-imagenet-200: .*{message}"):
        loader.read(folder)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (None, "row 1: .* got None"),
        (b"file", "row 1: .* got b'file'"),
        ({"bytes": None, "path": "x.png"}, "row 1: .* 'x.png'"),
        ({"path": "x.png"}, "row 1: .* 'x.png'"),
        ([[0, 255]], r"row 1: .* got \[\[0, 255\]\]"),
        ({"bytes": b"file"}, "row 1: .*: 4 bytes that are no PNG"),
    ],
)
def test_other_cells_are_no_images(cell: Any, message: str) -> None:
    sound = {"bytes": formats.encoded(np.zeros((3, 2), np.uint8))}
    assert parquet.images([sound], (1, 3, 2)).shape == (1, 1, 3, 2)
    with pytest.raises(ValueError, match=message):
        parquet.images([sound, cell], (1, 3, 2))


@pytest.mark.parametrize(
    ("kind", "pixels"),
    [("PNG", np.full((3, 2), 40_000, np.uint16)), ("TIFF", np.full((3, 2), 0.5, np.float32))],
    ids=["16 bits", "fractions"],
)
def test_wider_pixels_are_refused(kind: str, pixels: np.ndarray) -> None:
    """Pillow would cut them off at 255."""
    with pytest.raises(ValueError, match=r"an image of mode .* 8 bits"):
        parquet.decoded(formats.encoded(pixels, kind), (1, 3, 2))


def test_height_comes_before_width() -> None:
    content = io.BytesIO()
    Image.new("L", (3, 2), 7).save(content, "png")
    pixels = parquet.decoded(content.getvalue(), (1, 2, 3))
    assert pixels.tolist() == [[[7, 7, 7], [7, 7, 7]]]
    with pytest.raises(ValueError, match="an image of 2x3 pixels"):
        parquet.decoded(content.getvalue(), (1, 3, 2))


def test_what_is_missing_is_told(folder):
    """The copy of a data set is named after its checksums."""
    lines = []
    for name in data.DATASETS:
        loader = data.loader(name)
        if loader.missing(folder):
            with pytest.raises(data.MissingData) as problem:
                loader.read(folder)
            lines.append(f"{problem.value}\n  copy: {loader.place().name}\n")
    assert_approved("print/missing_data.txt", "".join(lines), folder)


@pytest.mark.parametrize("columns", [99, 100])
def test_titles_are_listed_from_100_columns(columns, folder, capsys, monkeypatch):
    monkeypatch.setattr(command, "console", lambda: console(columns))
    assert (
        command.main(["list", "digits,svhn,ag_news,toy2d,femnist", "--data-dir", str(folder)]) == 0
    )
    assert_approved(f"print/data_list_{columns}.txt", capsys.readouterr().out, folder)
