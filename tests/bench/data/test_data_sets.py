"""Data sets are found by name, read once and kept as prepared copies; `python -m bench.data` says what there is."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import published_formats as formats
import pytest
from commands import ROOT
from published_formats import folder, surroundings

from bench import cli, data
from bench.data import command, digits5, download, file_loaders, outside, vision
from bench.data.command import main
from bench.data.pickled import ForbiddenPickle, load_arrays
from bench.errors import EnvironmentProblem, UsageError
from bench.terminal.console import console

__all__ = ["folder", "surroundings"]
FILES = ("data_batch_1", "data_batch_2", "test_batch")


@pytest.fixture
def small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """CIFAR-10 of three files of 20 images, which torchvision takes for the published ones."""
    from torchvision import datasets

    parts = [formats.draw(20, (3, 32, 32), seed=number) for number in range(3)]
    files = []
    for name, part in zip(FILES, parts, strict=True):
        blob = formats.cifar(*part)
        formats.put(folder / "cifar-10-batches-py" / name, blob)
        files.append(
            formats.published(
                replace(vision.CIFAR10.files[0], path=f"cifar-10-batches-py/{name}"), blob
            )
        )
    listed = [[name, file.md5] for name, file in zip(FILES, files, strict=True)]
    monkeypatch.setattr(datasets.CIFAR10, "train_list", listed[:2])
    monkeypatch.setattr(datasets.CIFAR10, "test_list", listed[2:])
    loader = formats.small(vision.CIFAR10, 40, 20, files=tuple(files))
    monkeypatch.setattr(vision, "CIFAR10", loader)
    data._read.cache_clear()
    pixels, labels = (np.concatenate([part[array] for part in parts]) for array in (0, 1))
    return SimpleNamespace(
        loader=loader, pixels=pixels, labels=labels, files=[folder / file.path for file in files]
    )


# --- the table


@pytest.mark.parametrize(
    ("rules", "fit"),
    [
        ({}, False),
        ({"none": ((0.0,), (1.0,))}, True),
        ({"none": ((0.0,), (1.0,)), "own": ((0.5,), (0.0,))}, False),
        ({"none": ((0.0, 0.0), (1.0, 1.0))}, False),
    ],
)
def test_every_rule_of_an_image_set_must_fit(rules: dict[str, Any], fit: bool) -> None:
    info = replace(data.info("mnist"), normalizations=rules)
    assert outside._normalizations_fit(info) is fit


@pytest.mark.parametrize(
    "name", [name for name, info in data.DATASETS.items() if info.kind == "images"]
)
def test_normalizations_have_one_number_a_channel(name):
    info = data.info(name)
    assert {"standard", "none"} <= set(info.normalizations)
    for rule in info.normalizations:
        mean, std = info.normalization(rule)
        assert len(mean) == len(std) == info.input_shape[0]
        assert min(std) > 0


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(UsageError, match="cifar10"):
        data.load("cifar1")
    with pytest.raises(UsageError, match="standard, none"):
        data.info("digits").normalization("fedgkd")


def test_the_registry_imports_little(small, folder):
    prepared = small.loader.read(folder)
    originals = json.loads((small.loader.place() / file_loaders.META).read_text())["originals"]
    program = (
        "import json, sys; from pathlib import Path; import bench.data.command; assert 'numpy' not in sys.modules\n"
        "bench.data.command.main(['list', '--data-dir', sys.argv[1]])\n"
        "from bench.data import file_loaders\n"
        "copy = file_loaders.read_copy(Path(sys.argv[2]), 'cifar10', json.loads(sys.argv[3]))\n"
        "assert copy.hash == sys.argv[4] and bench.data.read('digits')\n"
        "assert not {'torch', 'torchvision', 'sklearn', 'scipy', 'pyarrow', 'ray'} & set(sys.modules)"
    )
    arguments = [folder, small.loader.place(), json.dumps(originals), prepared.hash]
    subprocess.run(
        [sys.executable, "-c", program, *arguments], check=True, cwd=ROOT, capture_output=True
    )


def test_where_the_data_folder_is(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDKD_DATA", str(tmp_path / "variable"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    assert download.data_dir(tmp_path / "option") == tmp_path / "option"
    assert download.data_dir() == tmp_path / "variable"
    monkeypatch.setenv("FEDKD_DATA", "")
    assert download.data_dir() == tmp_path / "home" / "fedkd-bench"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert download.data_dir() == tmp_path / ".local/share/fedkd-bench"


# --- digits


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    digits, info, (pixels, targets) = (
        data.load("digits"),
        data.info("digits"),
        load_digits(return_X_y=True),
    )
    assert digits.hash == "b79fad70078fcb7d46b5f05b272b2e68dad62fde69da2c27d901ea6fed8962d3"
    everything = {
        row.tobytes() + bytes([y]) for row, y in zip(pixels.astype(np.uint8), targets, strict=True)
    }
    for x, y in ((digits.train_x, digits.train_y), (digits.test_x, digits.test_y)):
        assert {
            row.tobytes() + bytes([label]) for row, label in zip(x, y, strict=True)
        } <= everything
    assert digits.train_x.shape == (info.train_size, *info.input_shape)
    assert digits.test_x.shape == (info.test_size, *info.input_shape)
    assert (digits.train_x.dtype, digits.train_y.dtype, digits.train_x.max()) == (
        np.uint8,
        np.int64,
        info.scale,
    )
    (mean,), (std,) = info.normalization("standard")
    assert ((digits.train_x / 16).mean(), (digits.train_x / 16).std()) == pytest.approx(
        (mean, std), abs=1e-4
    )
    tested, trained = np.bincount(digits.test_y), np.bincount(digits.train_y)
    np.testing.assert_array_equal(tested, np.floor(0.2 * (tested + trained) + 0.5))


# --- files that are here, and their prepared copies


def test_cifar_is_read_without_class_names(small, folder):
    cifar = data.load("cifar10", folder, offline=True)
    np.testing.assert_array_equal(cifar.train_x, small.pixels[:40])
    np.testing.assert_array_equal(cifar.train_y, small.labels[:40])
    np.testing.assert_array_equal(cifar.test_x, small.pixels[40:])
    np.testing.assert_array_equal(cifar.test_y, small.labels[40:])
    assert (cifar.train_x.dtype, cifar.train_y.dtype, cifar.train_x.flags.writeable) == (
        np.uint8,
        np.int64,
        False,
    )


def test_a_prepared_copy_is_read(small, folder, monkeypatch):
    first = small.loader.read(folder)
    monkeypatch.setattr(vision.Vision, "parse", lambda *_: pytest.fail("the originals were read"))
    second = small.loader.read(folder)
    assert second.hash == first.hash
    for name in ("train_x", "train_y", "test_x", "test_y"):
        np.testing.assert_array_equal(getattr(second, name), getattr(first, name))
        assert not getattr(second, name).flags.writeable


def altered(blob: bytes) -> bytes:
    return blob[:-9] + bytes([blob[-9] ^ 1]) + blob[-8:]


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, target: Path):
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


@pytest.mark.parametrize("damage", ["bit", "cut", "empty", "bomb"])
def test_a_damaged_file_is_not_unpickled(small, folder, tmp_path, damage):
    small.loader.read(folder)
    file, ran = small.files[1], tmp_path / "ran"
    blob = file.read_bytes()
    file.write_bytes(
        {"bit": altered(blob), "cut": blob[:-100], "bomb": pickle.dumps(Bomb(ran))}.get(damage, b"")
    )
    with pytest.raises(EnvironmentProblem) as caught:
        data.load("cifar10", folder, offline=True)
    wanted = [
        str(file),
        small.loader.files[1].md5,
        f"python -m bench.data prepare cifar10 --data-dir {folder}",
    ]
    assert [text for text in wanted if text not in str(caught.value)] == []
    with pytest.raises(EnvironmentProblem, match=file.name):
        data.read("cifar10", folder)
    assert not ran.exists()


@pytest.mark.parametrize("name", ["train_x.npy", "train_y.npy", "meta.json"])
@pytest.mark.parametrize("damage", [altered, lambda blob: blob[:-100]], ids=["bit", "cut"])
def test_a_damaged_copy_is_not_used(small, folder, tmp_path, name, damage):
    first = small.loader.read(folder)
    (file,) = tmp_path.glob(f"cache/fedkd-bench/cifar10-*/{name}")
    file.write_bytes(damage(file.read_bytes()))
    again = small.loader.read(folder)
    np.testing.assert_array_equal(again.train_y, first.train_y)
    assert again.hash == first.hash


def test_an_unwritable_cache_is_no_error(small, folder, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert len(small.loader.read(folder).train_y) == 40


# --- pickles

_CALLED = b"cnumpy\nndarray\n"
_U8 = b"cnumpy\ndtype\nU\x02u8K\x00K\x01\x87R"


def array(kind=_U8, shape=b"K\x02\x85", content=b"U\x10" + bytes(16)):
    """A pickled dictionary of one array of two numbers of eight bytes."""
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return b"\x80\x02}U\x01x" + made + b"(K\x01" + shape + kind + b"\x89" + content + b"tbs."


# An array of objects, and one of numbers in the same memory: what is written into that is taken for
# an object.
FORGED_POINTER = (
    b"\x80\x02}(U\x01a" + _CALLED + b"K\x03\x85U\x01O\x86Rq\x01"
    b"U\x01b" + _CALLED + b"(K\x03\x85U\x02u8h\x01tRK\x00JAAAAsu."
)


@pytest.mark.parametrize(
    "typed", [FORGED_POINTER, FORGED_POINTER.replace(b"U\x01O", b"X\x01\0\0\0O")]
)
def test_a_pickle_that_forges_pointers_is_refused(folder, capsys, typed):
    """The classes of numpy, called with what a file gives them, end the process (139)."""
    file = formats.put(folder / "mnistm_data.pkl", typed)
    assert main(["prepare", "mnist_m", "--offline", "--data-dir", str(folder)]) == 3
    assert str(file) in capsys.readouterr().err


def test_a_pickle_runs_nothing(tmp_path):
    with pytest.raises(ForbiddenPickle):
        load_arrays(pickle.dumps({"data": Bomb(tmp_path / "ran")}, protocol=2))
    with pytest.raises(ForbiddenPickle):
        load_arrays(b"\x80\x02cnumpy\ndtype\nU\x01OK\x00K\x01\x87R.")
    assert not (tmp_path / "ran").exists()


def test_an_array_is_what_its_pickle_says():
    np.testing.assert_array_equal(load_arrays(array())[b"x"], np.zeros(2, np.uint64))
    for protocol in range(5):  # which write lists of one and of several values in ways of their own
        lists = {"one": [7], "several": [1, 2, 3], "names": ["a.png"]}
        assert load_arrays(pickle.dumps(lists, protocol)) == lists
    for kept in (
        np.arange(6, dtype=">i2").reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
    ):
        for protocol in (2, 3, 4):
            loaded = load_arrays(pickle.dumps({"x": kept}, protocol))["x"]
            assert loaded.dtype == kept.dtype
            np.testing.assert_array_equal(loaded, kept)


@pytest.mark.parametrize(
    "blob",
    [
        array(kind=_U8.replace(b"u8", b"O8")),
        array(content=b"U\x0f" + bytes(15)),
        array(content=b"]"),  # a list of objects
        array(shape=b"K\x02K\x02\x86"),
        array(shape=b"(J\xff\xff\xff\x7fJ\xff\xff\xff\x7fJ\xff\xff\xff\x7ft"),
        b"\x80\x02}U\x01x" + _CALLED + b"K\x03\x85\x85Rs.",
        b"\x80\x02]r\xff\xff\xff\x7f.",  # would have 16 GiB of memory
        b"\x80\x04\x95" + bytes(7) + b"\x80N.",  # a frame of 2^63 bytes
        pickle.dumps([1]),
        b"\x80\x02}(K\x01\x85q\x00"
        + b"h\x00h\x00\x86q\x00" * 60
        + b"K\x01u.",  # a key of 2^60 leaves
        b"\x80\x02}(U\x05trainK\x01\x85q\x00"
        + b"h\x00h\x00\x86q\x00" * 60
        + b"u.",  # a value of as many
        b"\x80\x02}K\x01" + b"\x85" * 10**6 + b"K\x01s.",  # a key a million deep
        b"\x80\x02}U\x01x" + b"}U\x01x" * 10**6 + b"N" + b"s" * 10**6 + b".",  # dictionaries
        pickle.dumps({"x": {"y": 1}}),
        pickle.dumps({("x",): 1}),
        pickle.dumps({1: 1}),
        pickle.dumps({"x": tuple(range(100))}),
        pickle.dumps({"x": 1.5}),
        pickle.dumps({"x": [[1]]}),
        pickle.dumps({"x": {1}}),
        b"\x80\x02}" + b"N0" * 10**5 + b".",
        b"\x80\x02}U\x01xh\x07s.",  # what was never kept
        b"\x80\x02s.",
        b"",
    ],
)
def test_pickles_without_whole_numbers_are_refused(blob):
    with pytest.raises(pickle.UnpicklingError):
        load_arrays(blob)


_FIELDS = b"(K\x03U\x01<NU\x01xNtb"  # the state of a type with fields
_ENCODED = b"\x80\x02c_codecs\nencode\nX\x01\0\0\0aX\x04\0\0\0utf8\x86R."


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"\x80\x02K\x01)R.", "only a name may be called"),
        (b"\x80\x02K\x01Nb.", "only an array and its type have a state"),
        (b"\x80\x02" + _CALLED + b")R.", "not called"),
        (array(kind=_U8 + _FIELDS), "plain whole numbers"),
        (array(content=b"K\x01"), "must have a shape, a type and bytes"),
        (_ENCODED, "must be written as latin1, got 'utf8'"),
    ],
)
def test_what_has_no_place_is_told(blob, message):
    with pytest.raises(ForbiddenPickle, match=message):
        load_arrays(blob)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_plain_values_are_read_in_every_protocol(protocol):
    kept = {
        "text": "α",
        "bytes": b"a" if protocol > 2 else "a",
        "number": 3,
        "large": 2**40,
        "none": None,
    }
    kept |= {"yes": True, "tuple": (1, ("x", 2), ()), "pair": (1, 2)}
    assert load_arrays(pickle.dumps(kept, protocol)) == kept


def test_too_large_a_file_is_refused(folder, monkeypatch):
    file = formats.put(folder / "mnistm_data.pkl", pickle.dumps({"x": 1}))
    monkeypatch.setattr(digits5, "MOST_BYTES", file.stat().st_size - 1)
    with pytest.raises(EnvironmentProblem, match="bytes"):
        digits5.MNIST_M.read(folder)


@pytest.mark.parametrize("option", ["FEDKD_DATA", "--data-dir"])
def test_nobodys_home_is_no_folder(option, monkeypatch):
    given = ["--data-dir", "~nosuchuser/data"] if option == "--data-dir" else []
    if not given:
        monkeypatch.setenv(option, "~nosuchuser/data")
    assert main(["prepare", "cifar10", "--offline", *given]) == 2


# --- the command


def test_preparing_says_sizes_and_keeps_a_copy(small, folder, tmp_path, capsys):
    assert main(["prepare", "cifar10,digits", "--data-dir", str(folder)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert all(word in first for word in ("cifar10", " 40 ", " 20 ", "0.2 MB"))
    assert all(word in second for word in ("digits", "1,438", "359"))
    assert list(tmp_path.glob("cache/fedkd-bench/cifar10-*/train_x.npy"))


def test_a_line_says_what_is_ready(capsys, tmp_path):
    assert main(["prepare", "digits,toy2d", "--data-dir", str(tmp_path)]) == 0
    digits, toy = capsys.readouterr().out.splitlines()
    assert digits == (
        "digits: ready, 1,438 training and 359 test samples, 0.1 MB of images, hash b79fad70078f"
    )
    assert toy.startswith("toy2d: ready, 1,000 training and 1,000 test samples, 0.0 MB of vectors")


@pytest.mark.parametrize(
    ("width", "head", "cells"),
    [
        (120, "title", ["sst5", "SST-5", "5", "128 tokens", "9,645", "2,210", "unknown", "no"]),
        (100, "title", ["sst5", "SST-5", "5", "128 tokens", "9,645", "2,210", "unknown", "no"]),
        (99, "", ["sst5", "5", "128 tokens", "9,645", "2,210", "unknown", "no"]),
    ],
)
def test_a_row_has_all_facts(folder, capsys, monkeypatch, width, head, cells):
    monkeypatch.setattr(command, "console", lambda: console(width))
    names = ["sst5,toy2d,mnist,digits,sst5"]
    assert main(["list", *names, "--data-dir", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = []
    for line in lines:
        parts = [part.strip() for part in line.strip("│┃").replace("┃", "│").split("│")]
        rows.append(parts)
    heads = ["data set", *filter(None, [head])]
    heads += ["classes", "inputs", "train", "test", "download", "here"]
    assert heads in rows
    assert cells in rows
    numbers = ["4", "2 numbers", "1,000", "1,000", "none", "yes"]
    assert any(row[-6:] == numbers for row in rows)
    assert any(row[-6:] == ["10", "1x28x28", "60,000", "10,000", "11.6 MB", "no"] for row in rows)
    assert sum(row[0] == "sst5" for row in rows) == 1
    assert " ".join(lines[-1:]).startswith("folder: ")


def test_prepare_says_what_it_cannot_do(small, folder, capsys):
    small.files[1].unlink()
    assert main(["prepare", "cifar10", "--offline", "--data-dir", str(folder)]) == 3
    told = capsys.readouterr().err
    assert str(small.files[1].relative_to(folder)) in told
    assert FILES[0] not in told
    assert data.read("cifar10", folder) is None
    assert main(["prepare", "mnits", "--data-dir", str(folder)]) == 2
    assert "mnist" in capsys.readouterr().err
    for words in (["prepair"], [], ["prepare"]):
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == 2


def test_the_list_has_every_data_set(small, folder, capsys):
    assert cli.main(["data", "list", "--json", "--data-dir", str(folder)]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == list(data.DATASETS)
    assert {name for name, row in rows.items() if row["here"]} == {"digits", "toy2d", "cifar10"}
    assert rows["cifar10"]["download"] == 170_498_071
    assert main(["list", "--data-dir", str(folder)]) == 0
    told = capsys.readouterr().out
    assert [name for name in (*data.DATASETS, "170.5 MB") if name not in told] == []


def test_a_narrow_terminal_cuts_no_name(folder, capsys, monkeypatch):
    monkeypatch.setattr(command, "console", lambda: console(80))
    assert main(["list", "--data-dir", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[:-1])) <= 80, "the last one is the folder"
    assert {*data.DATASETS} <= {*" ".join(lines).split()}


# --- the published files


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "golden"),
    [
        ("mnist", "ab11189a59a5c115fef1fb6a3bf6361d9fd9ddc5f917cd5ccfc2038fa2542646"),
        ("cifar10", "88e86320badeeb3222583a99746eabbb91cd9053975499ba792fc5e724718934"),
        ("usps", None),
    ],
)
def test_published_files_are_what_the_table_says(name, golden):
    loader, info = data.loader(name), data.info(name)
    if not formats.REAL or loader.missing(Path(formats.REAL)):
        pytest.skip(f"FEDKD_DATA names no folder with {name}")
    published = loader.read(Path(formats.REAL))
    assert golden in (None, published.hash)
    assert published.train_x.shape == (info.train_size, *info.input_shape)
    for channel, (mean, std) in enumerate(zip(*info.normalization("standard"), strict=True)):
        # From the histogram: as floats the pixels would fill a gigabyte.
        share = (
            np.bincount(published.train_x[:, channel].ravel(), minlength=256)
            / published.train_x[:, channel].size
        )
        level = np.arange(256) / info.scale
        assert share @ level == pytest.approx(mean, abs=1e-4)
        assert np.sqrt(share @ level**2 - (share @ level) ** 2) == pytest.approx(std, abs=1e-4)
    assert loader.read(Path(formats.REAL)).hash == published.hash, "and so is the prepared copy"


@pytest.mark.parametrize("name", data.DATASETS)
def test_pixels_are_normalised_by_fractions_of_white(name):
    for mean, deviation in data.info(name).normalizations.values():
        assert all(0 <= value < 1 for value in mean)
        assert all(0 < value <= 1 for value in deviation)
