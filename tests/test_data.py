"""Data sets are read whole or refused with what to do, and nothing is unpickled that is not the published file."""

from __future__ import annotations

import os
import pickle
import shutil
import struct
import subprocess
import sys
import tarfile
from dataclasses import replace
from hashlib import md5
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from commands import command

from bench import data
from bench.data import cache, originals, paths, pickles, vision
from bench.data.pickles import ForbiddenPickle, load_arrays
from bench.data.remote import Remote
from bench.errors import EnvironmentProblem, UsageError

REPOSITORY = Path(__file__).parent.parent
FILES = ["cifar-10-batches-py/data_batch_1", "cifar-10-batches-py/data_batch_2", "cifar-10-batches-py/test_batch"]


@pytest.fixture(autouse=True)
def cache_home(tmp_path, monkeypatch):
    """A cache folder that is empty at first."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


# --- small files in the published format, written by hand: Python 3 does not write Python 2's pickles


def _text(text):
    return b"U" + bytes([len(text)]) + text


def published_format(pixels, labels, key=b"labels"):
    """The bytes of a file of CIFAR: pickle protocol 2, as Python 2 wrote it."""
    array = b"cnumpy.core.multiarray\n_reconstruct\n" + b"cnumpy\nndarray\n" + b"K\x00\x85U\x01b\x87R"
    shape = b"(K\x01M" + struct.pack("<H", len(pixels)) + b"M\x00\x0c\x86"
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    raw = b"\x89T" + struct.pack("<I", pixels.size) + pixels.tobytes() + b"tb"
    targets = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + _text(key) + targets + _text(b"data") + array + shape + dtype + raw + b"u."


@pytest.fixture
def small(tmp_path, monkeypatch):
    """CIFAR-10 made of three files of 20 images, its table, its pixels and its labels."""
    rng = np.random.RandomState(0)
    pixels = rng.randint(0, 256, (3, 20, 3, 32, 32)).astype(np.uint8)
    labels = rng.randint(0, 10, (3, 20))
    folder = tmp_path / "data"
    published = []
    for path, x, y in zip(FILES, pixels, labels, strict=True):
        blob = published_format(x, y)
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(blob)
        published.append(originals.Original(path, md5(blob).hexdigest(), len(blob)))
    source = replace(vision.CIFAR10, files=tuple(published))
    monkeypatch.setattr(vision, "CIFAR10", source)
    return SimpleNamespace(folder=folder, source=source, pixels=pixels, labels=labels)


def read(small, offline=True):
    return data.load("cifar10", small.folder, offline)


# --- the table


@pytest.mark.parametrize("name", data.DATASETS)
def test_an_entry_is_consistent(name):
    info = data.info(name)
    assert info.name == name
    if info.kind != "images":
        assert info.normalizations == {"none": ((), ())}
        return
    assert {"standard", "none"} <= set(info.normalizations)
    for rule in info.normalizations:
        mean, std = info.normalization(rule)
        assert len(mean) == len(std) == info.input_shape[0]
        assert min(std) > 0


def test_an_unknown_data_set_is_answered_with_the_nearest():
    message = r"no data set 'cifar1'; known: ag_news, cifar10, cifar100, digits, .* \(did you mean cifar10\?\)"
    with pytest.raises(UsageError, match=message):
        data.load("cifar1")


def test_an_unknown_normalization_is_answered_with_those_there_are():
    with pytest.raises(UsageError, match="normalization must be one of standard, none for digits, got 'fedgkd'"):
        data.info("digits").normalization("fedgkd")


def test_the_table_needs_no_numpy_and_labels_need_no_torch(tmp_path):
    program = (
        "import sys, bench.data; assert 'numpy' not in sys.modules\n"
        "bench.data.labels('digits'); bench.data.labels('cifar10', sys.argv[1])\n"
        "assert not {'torch', 'torchvision', 'sklearn', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path], check=True, cwd=REPOSITORY)


def test_the_folder_is_the_option_then_the_variable_then_the_users(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDKD_DATA", str(tmp_path / "variable"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    assert paths.data_dir(tmp_path / "option") == tmp_path / "option"
    assert paths.data_dir() == tmp_path / "variable"
    monkeypatch.setenv("FEDKD_DATA", "")
    assert paths.data_dir() == tmp_path / "home" / "fedkd-bench"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.data_dir() == tmp_path / ".local/share/fedkd-bench"


# --- digits


def test_digits_are_those_of_scikit_learn_in_their_order():
    from sklearn.datasets import load_digits

    found, (pixels, targets) = data.load("digits"), load_digits(return_X_y=True)
    everything = {row.tobytes() + bytes([y]) for row, y in zip(pixels.astype(np.uint8), targets, strict=True)}
    for x, y in ((found.train_x, found.train_y), (found.test_x, found.test_y)):
        assert {row.tobytes() + bytes([label]) for row, label in zip(x, y, strict=True)} <= everything
    assert len(found.train_y) + len(found.test_y) == len(targets)


def test_digits_never_change():
    assert data.load("digits").hash == "b79fad70078fcb7d46b5f05b272b2e68dad62fde69da2c27d901ea6fed8962d3"


def test_digits_are_what_the_table_says():
    found, info = data.load("digits"), data.info("digits")
    assert found.train_x.shape == (info.train_size, *info.input_shape)
    assert found.test_x.shape == (info.test_size, *info.input_shape)
    assert (found.train_x.dtype, found.train_y.dtype) == (np.uint8, np.int64)
    assert found.train_x.max() == info.scale
    (mean,), (std,) = info.normalization("standard")
    assert (found.train_x / 16).mean() == pytest.approx(mean, abs=1e-4)
    assert (found.train_x / 16).std() == pytest.approx(std, abs=1e-4)


def test_the_test_part_of_digits_is_a_fifth_of_each_class():
    found = data.load("digits")
    tested, trained = np.bincount(found.test_y), np.bincount(found.train_y)
    np.testing.assert_array_equal(tested, np.floor(0.2 * (tested + trained) + 0.5))


def test_loading_twice_gives_the_same_object_and_nobody_can_change_it():
    found = data.load("digits")
    assert data.load("digits", offline=True) is found
    with pytest.raises(ValueError, match="read-only"):
        found.train_x[0] = 0


# --- CIFAR


def test_cifar_is_read_as_written(small):
    found = read(small)
    np.testing.assert_array_equal(found.train_x, small.pixels[:2].reshape(40, 3, 32, 32))
    np.testing.assert_array_equal(found.train_y, small.labels[:2].ravel())
    np.testing.assert_array_equal(found.test_x, small.pixels[2])
    np.testing.assert_array_equal(found.test_y, small.labels[2])
    assert (found.train_x.dtype, found.train_y.dtype) == (np.uint8, np.int64)


def test_cifar100_reads_the_fine_labels(small, monkeypatch):
    for path in FILES:
        blob = (small.folder / path).read_bytes().replace(_text(b"labels"), _text(b"fine_labels"))
        (small.folder / path).write_bytes(blob)
    sums = [md5((small.folder / path).read_bytes()).hexdigest() for path in FILES]
    files = tuple(originals.Original(path, value) for path, value in zip(FILES, sums, strict=True))
    monkeypatch.setattr(vision, "CIFAR100", replace(vision.CIFAR100, files=files))
    np.testing.assert_array_equal(data.labels("cifar100", small.folder), small.labels[:2].ravel())


def test_labels_are_those_of_the_training_part_with_and_without_a_copy(small):
    source = small.source
    fresh = source.labels(small.folder)
    read(small)
    kept = source.labels(small.folder)
    np.testing.assert_array_equal(fresh, small.labels[:2].ravel())
    np.testing.assert_array_equal(kept, fresh)
    assert fresh.dtype == kept.dtype == np.int64


def test_missing_offline_names_the_folder_the_files_and_what_mends_it(small):
    for path in FILES[1:]:
        (small.folder / path).unlink()
    with pytest.raises(EnvironmentProblem) as caught:
        read(small)
    wanted = [str(small.folder), *FILES[1:], "--data-dir", "FEDKD_DATA", "without --offline", "cifar-10-python.tar.gz"]
    assert [text for text in wanted if text not in str(caught.value)] == []
    assert FILES[0] not in str(caught.value)


def test_labels_are_none_where_the_data_are_not_here(tmp_path):
    assert data.labels("cifar10", tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def altered(blob):
    return blob[:-9] + bytes([blob[-9] ^ 1]) + blob[-8:]


@pytest.mark.parametrize("damage", [altered, lambda blob: blob[:-100], lambda blob: b""], ids=["bit", "cut", "empty"])
def test_a_damaged_file_is_refused_with_its_checksums(small, damage):
    file = small.folder / FILES[1]
    blob = damage(file.read_bytes())
    file.write_bytes(blob)
    with pytest.raises(EnvironmentProblem) as caught:
        read(small)
    original = small.source.files[1]
    wanted = [
        str(file),
        original.md5,
        f"{original.size:,} bytes",
        md5(blob).hexdigest(),
        f"{len(blob):,} bytes",
        "delete",
    ]
    assert [text for text in wanted if text not in str(caught.value)] == []
    with pytest.raises(EnvironmentProblem, match="is not the original file"):
        data.labels("cifar10", small.folder)


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


def test_nothing_is_unpickled_from_a_file_with_another_checksum(small, tmp_path):
    target = tmp_path / "ran"
    (small.folder / FILES[0]).write_bytes(pickle.dumps(Bomb(target)))
    with pytest.raises(EnvironmentProblem, match="is not the original file"):
        read(small)
    assert not target.exists()


def test_even_with_the_right_checksum_a_pickle_runs_nothing(tmp_path):
    target = tmp_path / "ran"
    with pytest.raises(ForbiddenPickle, match="has no place in a file of numbers"):
        load_arrays(pickle.dumps({"data": Bomb(target)}, protocol=2))
    assert not target.exists()


def test_arrays_of_objects_are_refused():
    with pytest.raises(ForbiddenPickle):
        load_arrays(b"\x80\x02cnumpy\ndtype\nU\x01OK\x00K\x01\x87R.")


_CALLED = b"cnumpy\nndarray\n"
_U8 = b"cnumpy\ndtype\nU\x02u8K\x00K\x01\x87R"


def array(kind=_U8, shape=b"K\x02\x85", content=b"U\x10" + bytes(16)):
    """A pickled dictionary of one array of two numbers of eight bytes."""
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return b"\x80\x02}U\x01x" + made + b"(K\x01" + shape + kind + b"\x89" + content + b"tbs."


# An array of objects, and one of numbers in the same memory: what is written into that is taken for an object.
FORGED_POINTER = (
    b"\x80\x02}(U\x01a" + _CALLED + b"K\x03\x85U\x01O\x86Rq\x01"
    b"U\x01b" + _CALLED + b"(K\x03\x85U\x02u8h\x01tRK\x00JAAAAsu."
)


def test_a_pickle_that_forges_pointers_is_refused_in_words(tmp_path):
    """The classes of numpy, called with what a file gives them, end the process (139)."""
    file = tmp_path / "mnistm_data.pkl"
    file.write_bytes(FORGED_POINTER.replace(b"U\x01O", b"X\x01\0\0\0O").replace(b"U\x02u8", b"X\x02\0\0\0u8"))
    done = command("prepare", "mnist_m", "--offline", "--data-dir", str(tmp_path), module="bench.data")
    assert done.returncode == 3, done.stderr
    assert f"{file}: expected a pickle of arrays" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_array_is_what_its_pickle_says():
    np.testing.assert_array_equal(load_arrays(array())[b"x"], np.zeros(2, np.uint64))
    for kept in (np.arange(6, dtype=">i2").reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3))):
        for protocol in (2, 3, 4):
            found = load_arrays(pickle.dumps({"x": kept}, protocol))["x"]
            assert found.dtype == kept.dtype
            np.testing.assert_array_equal(found, kept)


_PLAIN = b"K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00"


@pytest.mark.parametrize(
    "blob",
    [
        array(kind=_U8.replace(b"u8", b"O8")),
        array(kind=_U8.replace(b"u8", b"f8")),
        array(kind=b"U\x02u8"),  # not even a type
        array(kind=_U8 + b"(" + _PLAIN.replace(b"NNN", b"N}N") + b"tb"),  # with names
        array(content=b"U\x0f" + bytes(15)),
        array(content=b"U\x11" + bytes(17)),
        array(content=b"]"),  # a list of objects
        array(shape=b"K\x02K\x02\x86"),
        array(shape=b"J\xfe\xff\xff\xff\x85"),
        array(shape=b"J\xff\xff\xff\xffJ\xfe\xff\xff\xff\x86"),
        array(shape=b"(J\xff\xff\xff\x7fJ\xff\xff\xff\x7fJ\xff\xff\xff\x7ft"),
        array(shape=b"U\x01x\x85"),
        array(shape=b"]"),
        b"\x80\x02}U\x01x" + _CALLED + b"K\x03\x85\x85Rs.",
        b"\x80\x02}U\x01xcnumpy.core.multiarray\n_reconstruct\n)\x81s.",  # an array of nothing
        b"\x80\x02]r\xff\xff\xff\x7f.",  # would have 16 GiB of memory
        b"\x80\x04\x95" + bytes(7) + b"\x80N.",  # a frame of 2^63 bytes
        b"\x80\x04\x8e" + bytes(7) + b"\x40x.",  # 2^62 bytes
        b"",
        pickle.dumps([1]),
    ],
)
def test_what_is_no_array_of_whole_numbers_is_refused(blob):
    with pytest.raises(pickle.UnpicklingError):
        load_arrays(blob)


# --- prepared copies


def no_unpickling(blob):
    raise AssertionError("the originals were read")


def test_a_copy_is_read_instead_of_the_originals(small, monkeypatch):
    first = small.source.read(small.folder)
    monkeypatch.setattr(pickles, "load_arrays", no_unpickling)
    second = small.source.read(small.folder)
    assert second.hash == first.hash
    for array in cache.ARRAYS:
        np.testing.assert_array_equal(getattr(second, array), getattr(first, array))
        assert not getattr(second, array).flags.writeable


def test_originals_that_changed_are_checked_again(small):
    read(small)
    file = small.folder / FILES[0]
    file.write_bytes(altered(file.read_bytes()))
    with pytest.raises(EnvironmentProblem, match="is not the original file"):
        small.source.read(small.folder)


def test_originals_that_were_only_touched_are_read_again(small):
    first = read(small)
    os.utime(small.folder / FILES[0], (1, 1))
    assert small.source.read(small.folder).hash == first.hash


@pytest.mark.parametrize("name", ["train_x.npy", "train_y.npy", "meta.json"])
@pytest.mark.parametrize("damage", [altered, lambda blob: blob[:-100], lambda blob: b"[]"], ids=["bit", "cut", "other"])
def test_a_damaged_copy_is_not_used(small, cache_home, name, damage):
    first = read(small)
    (file,) = cache_home.glob(f"fedkd-bench/cifar10-*/{name}")
    file.write_bytes(damage(file.read_bytes()))
    assert small.source.read(small.folder).train_x.tobytes() == first.train_x.tobytes()
    np.testing.assert_array_equal(small.source.labels(small.folder), first.train_y)


def test_a_cache_that_cannot_be_written_is_no_error(small, cache_home):
    cache_home.write_text("a file where the folder should be")
    assert len(read(small).train_y) == 40


# --- fetching


def packed(small, monkeypatch, folder):
    """The tarball that holds the files, in a folder; the source knows its checksum and fetches it from there."""
    folder.mkdir(exist_ok=True)
    archive = folder / "cifar-10-python.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(small.folder / "cifar-10-batches-py", "cifar-10-batches-py")
    original = originals.Original(archive.name, md5(archive.read_bytes()).hexdigest())
    source = replace(small.source, remotes=(Remote(original, (archive.as_uri(),)),))
    monkeypatch.setattr(vision, "CIFAR10", source)
    return archive


def test_missing_files_are_fetched_and_others_left_alone(small, tmp_path, monkeypatch):
    packed(small, monkeypatch, tmp_path / "server")
    (small.folder / FILES[0]).unlink()
    before = (small.folder / FILES[1]).stat()
    assert len(read(small, offline=False).train_y) == 40
    assert (small.folder / FILES[1]).stat() == before
    assert sorted(path.name for path in small.folder.iterdir()) == [".cifar10.lock", "cifar-10-batches-py"]


def test_offline_nothing_is_fetched(small, tmp_path, monkeypatch):
    packed(small, monkeypatch, tmp_path / "server")
    (small.folder / FILES[0]).unlink()
    with pytest.raises(EnvironmentProblem, match="without --offline"):
        read(small, offline=True)


def test_a_download_that_fails_says_what_to_do(tmp_path, monkeypatch):
    remote = Remote(vision.CIFAR10.remotes[0].file, ((tmp_path / "nothing.tar.gz").as_uri(),))
    monkeypatch.setattr(vision, "CIFAR10", replace(vision.CIFAR10, remotes=(remote,)))
    with pytest.raises(EnvironmentProblem, match="could not be fetched") as caught:
        data.load("cifar10", tmp_path / "new")
    wanted = [str(tmp_path / "new"), "nothing.tar.gz", "Check the connection", "cifar-10-python.tar.gz", "FEDKD_DATA"]
    assert [text for text in wanted if text not in str(caught.value)] == []
    assert [path.name for path in (tmp_path / "new").iterdir()] == [".cifar10.lock"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentProblem, match=rf"{tmp_path}/file/data.*--data-dir"):
        data.load("cifar10", tmp_path / "file" / "data")


def test_a_tarball_is_unpacked_without_the_network_and_stays(small, monkeypatch):
    archive = packed(small, monkeypatch, small.folder)
    shutil.rmtree(small.folder / "cifar-10-batches-py")
    assert len(read(small, offline=True).train_y) == 40
    assert archive.is_file()


def test_a_damaged_tarball_is_refused_with_its_checksums(small, monkeypatch):
    archive = packed(small, monkeypatch, small.folder)
    shutil.rmtree(small.folder / "cifar-10-batches-py")
    expected = md5(archive.read_bytes()).hexdigest()
    archive.write_bytes(archive.read_bytes()[:-1])
    with pytest.raises(EnvironmentProblem, match=rf"{archive} is not the original.*{expected}"):
        read(small, offline=True)


@pytest.mark.parametrize("name", ["CIFAR10", "CIFAR100"])
def test_the_originals_are_those_of_torchvision(name):
    theirs, source = getattr(pytest.importorskip("torchvision.datasets"), name), getattr(vision, name)
    expected = [(f"{theirs.base_folder}/{path}", md5) for path, md5 in theirs.train_list + theirs.test_list]
    assert [(file.path, file.md5) for file in source.files] == expected
    (remote,) = source.remotes
    assert (remote.file.path, remote.file.md5, remote.urls) == (theirs.filename, theirs.tgz_md5, (theirs.url,))


# --- the published files


@pytest.fixture
def real_folder():
    folder = os.environ.get("FEDKD_DATA")
    if not folder or vision.CIFAR10.missing(Path(folder)):
        pytest.skip("FEDKD_DATA names no folder with CIFAR-10")
    return Path(folder)


@pytest.mark.real_data
def test_cifar10_is_what_the_table_says(real_folder):
    found, info = vision.CIFAR10.read(real_folder), data.info("cifar10")
    assert found.hash == "88e86320badeeb3222583a99746eabbb91cd9053975499ba792fc5e724718934"
    assert found.train_x.shape == (info.train_size, *info.input_shape)
    assert np.bincount(found.train_y).tolist() == [5000] * 10
    assert np.bincount(found.test_y).tolist() == [1000] * 10
    for channel, (mean, std) in enumerate(zip(*info.normalization("standard"), strict=True)):
        # From the histogram: as floats the pixels would fill a gigabyte.
        share = np.bincount(found.train_x[:, channel].ravel(), minlength=256) / found.train_x[:, channel].size
        level = np.arange(256) / info.scale
        assert share @ level == pytest.approx(mean, abs=1e-4)
        assert np.sqrt(share @ level**2 - (share @ level) ** 2) == pytest.approx(std, abs=1e-4)


@pytest.mark.real_data
def test_the_prepared_cifar10_is_the_same(real_folder):
    first = vision.CIFAR10.read(real_folder)
    assert vision.CIFAR10.read(real_folder).hash == first.hash
    np.testing.assert_array_equal(vision.CIFAR10.labels(real_folder), first.train_y)
