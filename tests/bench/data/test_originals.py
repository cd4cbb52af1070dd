"""Published files: where they are looked for, how they are verified, and their limits."""

from __future__ import annotations

import gzip
import io
import zipfile
from dataclasses import replace
from hashlib import md5
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import data
from bench.data import download, vision
from bench.data.dataset import Dataset, content_hash
from bench.data.download import Original, lying_there, md5_of, subfolders
from bench.data.file_loaders import FileLoader, place_of_copy, stamp_of
from bench.errors import EnvironmentProblem


def put(file: Path, blob: bytes = b"content") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(blob)
    return file


# Places


@pytest.mark.parametrize(
    ("checksum", "forms"), [("0" * 32, ["", ".gz"]), (None, [".gz", ""])], ids=["plain", "packed"]
)
def test_a_file_with_a_checksum_is_looked_for_first(
    checksum: str | None, forms: list[str], tmp_path: Path
) -> None:
    original = Original("a/b/c.txt", checksum, also=("d.txt",), compressed="1" * 32)
    folder = tmp_path / "a" / "b"
    (folder / "sub").mkdir(parents=True)
    names = ["a/b/c.txt", "d.txt"]
    files = [f"{name}{form}" for name, form in product(names, forms)]
    expected = [folder / file for file in files]
    expected += [folder / f"c.txt{form}" for form in forms]
    expected += [folder / "sub" / file for file in files]
    assert list(original._places(folder)) == expected
    assert list(replace(original, compressed="", also=())._places(tmp_path / "a"))[:2] == [
        tmp_path / "a/a/b/c.txt",
        tmp_path / "a/b/c.txt",
    ]


def test_the_first_place_that_has_it_counts(tmp_path: Path) -> None:
    original = Original("a/c.txt", also=("d.txt",))
    assert original.find(tmp_path) is None
    assert original.where(tmp_path) == tmp_path / "a/c.txt"
    (tmp_path / "a/c.txt").mkdir(parents=True)
    for place in ("two/levels/d.txt", "one/a/c.txt", "d.txt"):
        file = put(tmp_path / place)
        assert original.find(tmp_path) == original.where(tmp_path) == file


def test_folders_are_looked_into_down_to_the_second_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b/y/deep", "a/z", "a/x", ".hidden/x", "b/.hidden"):
        (tmp_path / name).mkdir(parents=True)
    put(tmp_path / "file")
    expected = [tmp_path / name for name in ("a", "b", "a/x", "a/z", "b/y")]
    assert subfolders(tmp_path) == expected
    monkeypatch.setattr(download, "SUBFOLDERS", 4)
    assert subfolders(tmp_path) == expected[:4]
    assert subfolders(tmp_path / "file") == []


def test_a_looping_link_hides_no_folder(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "loop").symlink_to("loop")
        (tmp_path / name / "z").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    expected = ["a", "b", "a/z", "b/z"]
    assert subfolders(tmp_path) == [tmp_path / name for name in expected]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], "The folder is empty"),
        ([".hidden"], "The folder is empty"),
        (["b", "a/x"], "There lie a/, b"),
        (list("hgfedcba"), "There lie a, b, c, d, e, f, g, h"),
        (list("ihgfedcba"), "There lie a, b, c, d, e, f, g, h and 1 more"),
    ],
)
def test_messages_say_what_lies_there(names: list[str], text: str, tmp_path: Path) -> None:
    for name in names:
        put(tmp_path / name)
    assert lying_there(tmp_path) == text
    assert lying_there(tmp_path / "nowhere") == "There is no such folder"


# Checksums


def test_little_more_is_read_than_the_limit() -> None:
    """In blocks of a mebibyte, until there are more bytes than the limit."""
    blob = np.arange(3 * 2**18, dtype=np.uint32).tobytes()
    for limit, count in ((2**20 - 1, 2**20), (2**20, 2**21), (2**22, 3 * 2**20)):
        assert md5_of(io.BytesIO(blob), limit) == md5(blob[:count]).hexdigest()


def test_content_or_its_compressed_form_is_verified(tmp_path: Path) -> None:
    blob = b"content"
    packed = gzip.compress(blob)
    content, compressed = (md5(part).hexdigest() for part in (blob, packed))
    put(tmp_path / "c.txt.gz", packed)
    both = Original("c.txt", content, compressed="unused")
    both.verify(tmp_path, "mnist")
    Original("c.txt", None, compressed=compressed).verify(tmp_path, "mnist")
    put(tmp_path / "c.txt", blob + b"!")
    with pytest.raises(EnvironmentProblem, match=rf"expected md5 {content}, found 8 bytes, md5 "):
        both.verify(tmp_path, "mnist")
    Original("c.txt").verify(tmp_path, "mnist")
    with pytest.raises(
        EnvironmentProblem, match=r"is not the original file: .* run: .*prepare mnist"
    ):
        Original("c.txt.gz", content).verify(tmp_path, "mnist")


@pytest.mark.parametrize(("packed", "most"), [(10, 100), (20, 100), (30, 150)])
def test_an_archive_may_swell_by_so_much(
    packed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "SMALLEST", 100)
    monkeypatch.setattr(download, "TIMES", 5)
    member = zipfile.ZipInfo("a")
    member.compress_size = packed
    member.file_size = most
    download._check_member(member)
    member.file_size = most + 1
    with pytest.raises(
        ValueError, match=f"would have {most + 1} bytes, and {packed} bytes .* {most}$"
    ):
        download._check_member(member)


# The idx format


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"", "begins with $"),
        (b"\0\0\x08", "begins with 000008$"),
        (b"\0\0\x0d\x01\0\0\0\x01x", "begins with 00000d01$"),
        (b"\0\0\x08\x02\0\0\0\x01", "begins with 00000802$"),
        (b"\0\0\x08\x01\0\0\0\x02x", "reshape"),
    ],
)
def test_other_files_are_no_idx_files(blob: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        vision.read_idx(put(tmp_path / "a", blob))


def test_idx_files_have_any_number_of_axes(tmp_path: Path) -> None:
    blob = b"\0\0\x08\x02\0\0\0\x02\0\0\0\x03" + bytes(range(6))
    for file in (put(tmp_path / "a", blob), put(tmp_path / "a.gz", gzip.compress(blob))):
        assert vision.read_idx(file).tolist() == [[0, 1, 2], [3, 4, 5]]
    scalar = put(tmp_path / "b", b"\0\0\x08\0\x07")
    assert vision.read_idx(scalar).tolist() == 7


# What a loader accepts


class Counted(FileLoader):
    """A loader whose numbers of samples are published ones, or not."""

    def parse(self, folder: Path) -> Dataset:
        raise AssertionError("only checks here")


INFO = replace(data.info("mnist"), num_classes=3, input_shape=(1, 2, 2), train_size=4, test_size=3)


def part(count: int = 4, **changes: Any) -> tuple[Any, Any, int]:
    whole = {"x": np.zeros((count, 1, 2, 2), np.uint8), "labels": np.arange(count) % 3}
    whole |= changes
    return whole["x"], whole["labels"], 4


def test_sizes_and_labels_are_the_published_ones() -> None:
    loader = Counted(INFO, "bytes", ())
    loader._check_part("training", *part())
    x, labels, _ = part(3)
    dataset = Dataset.of("mnist", part()[:2], (x, labels))
    loader._check(dataset)
    with pytest.raises(ValueError, match="4 samples and 4 labels of 3 in the test part"):
        loader._check(Dataset.of("mnist", part()[:2], part()[:2]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (part(5), "^5 samples and 5 labels of 4 in the training part$"),
        (part(labels=np.arange(3)), "^4 samples and 3 labels of 4"),
        (part(x=np.zeros((4, 1, 2, 3), np.uint8)), r"samples of shape \(1, 2, 3\) \(uint8\), not"),
        (part(x=np.zeros((4, 1, 2, 2), np.int64)), r"\(int64\), not \(1, 2, 2\)$"),
        (part(labels=np.array([0, 1, 2, 3])), r"labels 0 to 3 that must be in \[0, 2\]$"),
        (part(labels=np.array([0, 1, 2, -1])), r"labels -1 to 2 that must be"),
        (part(labels=np.array([0, 1, 1, 0])), "^2 of 3 classes in the training part$"),
    ],
)
def test_other_sizes_and_labels_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Counted(INFO, "bytes", ())._check_part("training", *given)


def test_numbers_that_nobody_published_are_not_compared() -> None:
    class Uncounted(Counted):
        counted = False

    loader = Uncounted(INFO, "bytes", ())
    loader._check_part("training", *part(1))
    loader._check_part("training", *part(5, labels=np.zeros(5, np.int64)))
    with pytest.raises(ValueError, match=r"^0 samples and 0 labels of 1"):
        loader._check_part("training", *part(0))


def test_copies_lie_apart_by_what_they_depend_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    places = {place_of_copy(*given) for given in (("a", ["x"]), ("a", ["y"]), ("b", ["x"]))}
    assert len(places) == 3
    assert {place.parent for place in places} == {tmp_path / "fedkd-bench"}
    assert all(len(place.name) == 2 + 12 for place in places)
    file = put(tmp_path / "file")
    before = stamp_of([file])
    assert stamp_of([file]) == before
    put(file, b"longer content")
    assert stamp_of([file]) != before
    assert stamp_of([]) != before


def test_a_hash_is_of_types_shapes_and_values() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    big = array.astype(">i4")
    assert content_hash([array]) == content_hash([big]) == content_hash([np.asfortranarray(array)])
    others = [[array.T], [array.ravel()], [array.astype(np.int64)], [array + 1], [array, array], []]
    assert len({content_hash(other) for other in [[array], *others]}) == 7
