"""Both sides of the limits of what is read, dealt and split."""

from __future__ import annotations

import os
import pickle
import pickletools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_own_files import _home, images, table
from test_partition import LABELS, parts_of

from bench import data
from bench.data import dealing, dirichlet, own, pickled
from bench.data.dataset import Dataset
from bench.data.dealing import Wanted, batches, class_sizes, tries
from bench.data.partition import partition
from bench.data.pickled import ForbiddenPickle, load_arrays, with_text_keys
from bench.data.splits import _own_counts, public_set, split
from bench.errors import UsageError
from search_spaces import Setting

__all__ = ["_home"]
Call = Callable[[], object]

# A user's own files


def refused(call: Call, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


def reads_images() -> object:
    own._loaded.cache_clear()
    return data.named("folder:d")


def reads_table() -> object:
    own._loaded.cache_clear()
    return data.named("csv:t.csv", "kind")


@pytest.mark.parametrize(
    ("name", "just", "read", "message"),
    [
        ("MOST_PIXELS", 36, reads_images, "has 6x6 pixels, and at most 35 are allowed"),
        ("MOST_BYTES", 20 * 3 * 36, reads_images, "20 images decode to 2,160 bytes, and at most"),
        ("MOST_COLUMNS", 3, reads_table, "has 3 columns, and at most 2 are allowed"),
        ("MOST_CLASSES", 3, reads_table, "has 3 values in 30 rows, and at most 2 classes"),
    ],
)
def test_own_files_have_their_limits(
    name: str, just: int, read: Call, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images(tmp_path / "d")
    table(tmp_path / "t.csv")
    monkeypatch.setattr(own, name, just - 1)
    refused(read, message)
    monkeypatch.setattr(own, name, just)
    assert read()


@pytest.mark.parametrize("row", [0, 1, 6, 12, 13])
def test_the_first_bad_number_is_found(row: int, tmp_path: Path) -> None:
    cells = [str(number) for number in range(14)]
    cells[row] = "?"
    cells[13] = "?"
    lines = ["x,kind", *(f"{cell},{number % 2}" for number, cell in enumerate(cells))]
    table(tmp_path / "t.csv", "\n".join(lines))
    refused(reads_table, rf"row {row + 1}, column 'x': '\?' is no finite number of 32 bits")


@pytest.mark.parametrize(
    ("labels", "order"),
    [
        (["10", "9", "-1"], ["-1", "9", "10"]),
        (["10", "9", "b"], ["10", "9", "b"]),
        (["1234567", "9"], ["9", "1234567"]),
        (["12345678", "9"], ["12345678", "9"]),
        ([" b ", "a"], ["a", "b"]),
        (["snan", "nan", "1e9", "inf"], ["1e9", "inf", "nan", "snan"]),
    ],
)
def test_labels_are_numbered_in_order(labels: list[str], order: list[str], tmp_path: Path) -> None:
    file = own.CsvFile(tmp_path / "t.csv", "kind")
    numbers = [order.index(label.strip()) for label in labels]
    assert file._labels(labels).tolist() == numbers


@pytest.mark.parametrize(
    ("path", "most", "read"),
    [("d/cat/0.png", 2**26, reads_images), ("t.csv", 2**30, reads_table)],
)
def test_files_have_their_most_bytes(path: str, most: int, read: Call, tmp_path: Path) -> None:
    images(tmp_path / "d")
    table(tmp_path / "t.csv")
    os.truncate(tmp_path / path, most + 1)  # takes no room
    refused(read, f"more than {most:,} bytes")


def test_only_tables_have_a_label() -> None:
    assert data.named("mnist") == "mnist"
    refused(lambda: data.named("mnist", "kind"), "label=kind names a column .* the data set is mn")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "none"),
        (1, "0"),
        (8, "0, 1, 2, 3, 4, 5, 6, 7"),
        (9, "0, 1, 2, 3, 4, 5, 6, 7 and 1 more"),
    ],
)
def test_messages_list_few_names(count: int, text: str) -> None:
    assert own._some([Path(f"somewhere/{number}") for number in range(count)]) == text


def test_what_is_read_is_described(tmp_path: Path) -> None:
    images(tmp_path / "d")
    info = data.info(data.named("folder:d"))
    half = ((0.5,) * 3, (0.5,) * 3)
    assert info.normalizations == {"standard": half, "none": ((0.0,) * 3, (1.0,) * 3)}
    assert (info.scale, info.kind, info.flip, info.download) == (255, "images", True, 0)
    assert info.title == "d (own images)"
    table(tmp_path / "t.csv")
    info = data.info(data.named("csv:t.csv", "kind"))
    assert info.normalizations == {"none": ((), ())}
    assert (info.scale, info.kind, info.title) == (1, "vectors", "t.csv (own vectors)")
    with pytest.raises(UsageError, match=r"^'csv:': name a path behind it, as csv:PATH$"):
        own.define("csv:")


# Pickles


def test_a_pickle_has_few_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    blob = pickle.dumps({"x": [1, 2, 3]}, 2)
    count = len(list(pickletools.genops(blob)))
    monkeypatch.setattr(pickled, "MOST_INSTRUCTIONS", count)
    assert load_arrays(blob) == {"x": [1, 2, 3]}
    monkeypatch.setattr(pickled, "MOST_INSTRUCTIONS", count - 1)
    with pytest.raises(ForbiddenPickle, match=rf"^more than {count - 1} instructions$"):
        load_arrays(blob)


@pytest.mark.parametrize("blob", [b"\x80\x02s.", b"\x80\x02}U\x01xN(N\x86s."])
def test_an_instruction_takes_nothing_below_a_mark(blob: bytes) -> None:
    with pytest.raises(ForbiddenPickle, match=r"^an instruction lacks its values$"):
        load_arrays(blob)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_tuples_and_shapes_have_their_limits(protocol: int) -> None:
    widest = {"x": tuple(range(16))}
    assert load_arrays(pickle.dumps(widest, protocol)) == widest
    with pytest.raises(ForbiddenPickle, match="at most 16 plain values"):
        load_arrays(pickle.dumps({"x": tuple(range(17))}, protocol))
    if protocol:
        most = {"x": np.arange(16, dtype=np.uint8).reshape(2, 2, 2, 2)}
        assert np.array_equal(load_arrays(pickle.dumps(most, protocol))["x"], most["x"])
    if protocol == 4:
        for shape in ((1, 1, 1, 1, 1), (0,), (2, 0)):
            with pytest.raises(ForbiddenPickle, match="up to four whole numbers >= 1"):
                load_arrays(pickle.dumps({"x": np.zeros(shape, np.uint8)}, protocol))


@pytest.mark.parametrize("dtype", ["u1", "i1", "<u2", ">i2", "<u4", ">i4", "<u8", ">i8"])
def test_whole_numbers_of_any_width_are_read(dtype: str) -> None:
    kept = np.arange(6, dtype=dtype).reshape(2, 3)
    for array in (kept, np.asfortranarray(kept)):
        loaded = load_arrays(pickle.dumps({"x": array}, 2))["x"]
        assert loaded.dtype == kept.dtype
        assert np.array_equal(loaded, kept)


@pytest.mark.parametrize("dtype", ["f4", "f8", "?", "S3", "c8"])
def test_other_types_are_refused(dtype: str) -> None:
    with pytest.raises(ForbiddenPickle):
        load_arrays(pickle.dumps({"x": np.zeros(2, dtype)}, 2))


def test_keys_become_text() -> None:
    assert with_text_keys({b"data": 1, "labels": 2}) == {"data": 1, "labels": 2}


# Partitions


@pytest.mark.parametrize(
    ("numbers", "most", "sizes"),
    [
        (1, 1, [1]),
        (1, 30, [1, 4, 16, 9]),
        (100_000, 10, [1, 2, 2, 2, 2, 1]),
        (200_001, 3, [1, 1, 1]),
        (50_000_000, 9, [1, 1]),
        (100_000_001, 9, [1]),
    ],
)
def test_tries_are_as_many_as_time_allows(numbers: int, most: int, sizes: list[int]) -> None:
    assert list(batches(numbers, most)) == sizes
    assert tries(numbers, most) == sum(sizes)


@pytest.mark.parametrize(
    ("clients", "groups"), [(1, [1]), (9, [9]), (10, [10]), (11, [10, 1]), (20, [10, 10])]
)
def test_clients_form_groups_of_ten(clients: int, groups: list[int]) -> None:
    assert dirichlet._group_sizes(clients, 10) == groups


def test_all_samples_may_be_just_enough() -> None:
    ten = LABELS[:10]
    (everything,) = parts_of("lda", num_clients=1, labels=ten)
    assert everything.tolist() == list(range(10))
    refused(lambda: parts_of("lda", num_clients=1, labels=ten[:9]), "at least 10 samples, and .* 9")
    twenty = np.arange(20) % 2
    refused(lambda: parts_of("lda", num_clients=2, labels=twenty, max_tries=1), "none of 1 draws")
    refused(lambda: parts_of("lda", num_clients=3, labels=twenty), "num_clients must be <= 2")
    classes = np.arange(60) % 6
    assert len(parts_of("pathological", num_clients=2, labels=classes)) == 2
    refused(lambda: parts_of("pathological", labels=classes % 5), "classes, and the data have 5")
    whole = parts_of("shards", num_clients=5, labels=ten, classes=2)
    assert [len(part) for part in whole] == [2] * 5
    refused(lambda: parts_of("shards", num_clients=5, labels=ten, classes=3), "is 15 shards")
    assert len(parts_of("k_classes", num_clients=6, labels=classes, classes=6)) == 6
    refused(lambda: parts_of("k_classes", labels=classes, classes=7), "must be <= 6")
    writers = np.arange(60) % 13
    assert len(parts_of("by_writer", labels=classes, groups=writers)) == 13
    refused(lambda: parts_of("by_writer", 0, 14, labels=classes, groups=writers), "<= 13")


def test_two_thousand_writers_are_drawn() -> None:
    writers = np.arange(2_001)
    labels = writers % 2
    parts = parts_of("by_writer_2000", 0, 5, labels=labels, groups=writers)
    assert [len(part) for part in parts] == [400] * 5
    parts_of("by_writer_2000", 0, 5, labels=labels[1:], groups=writers[1:])
    short = partial(parts_of, "by_writer_2000", 0, 5, labels=labels[2:], groups=writers[2:])
    refused(short, "draws 2,000 writers, and the training data have 1,999")


def test_a_hopeless_partition_says_how_many_draws() -> None:
    wanted = Wanted(np.arange(600) % 10, 50, 0.01)
    deal = partition("lda").function
    draw = np.random.RandomState(0)
    refused(lambda: deal(wanted, draw), "in none of 100,000 draws would all")


def test_fedproto_deals_what_there_is() -> None:
    """Two clients of three classes each at most, of which both may have 140 samples."""
    labels = np.repeat(np.arange(3), 280)
    for seed in range(5):
        parts = parts_of("fedproto", seed, 2, labels=labels, classes=5)
        assert {len(np.unique(labels[part])) for part in parts} == {3}
    refused(lambda: parts_of("fedproto", labels=labels, classes=6), "at least 4 classes")
    few = np.repeat(np.arange(3), 277)
    refused(lambda: parts_of("fedproto", 0, 2, labels=few, classes=5), "there are 277: lower")


def test_pfllib_asks_for_half_a_fair_part() -> None:
    """10 clients of 800 samples have 40 at least, of 400 samples 20, and of 15 samples one."""
    for samples, least in ((800, 40), (400, 20), (15, 1)):
        labels = np.arange(samples) % 5
        sizes = []
        for seed in range(10):
            sizes += map(len, parts_of("pfllib", seed, 10, 1.0, labels))
        assert least <= min(sizes) < 2 * least + 1


def test_requests_have_a_sample_for_each_client() -> None:
    assert Wanted(LABELS[:3], 3).num_clients == 3
    for clients in (0, 4):
        refused(partial(Wanted, LABELS[:3], clients), r"in \[1, 3\], the samples")
    for alpha in (None, 0.0, -1.0, np.inf, np.nan):
        wanted = Wanted(LABELS[:3], 3, alpha)
        refused(wanted.concentration, "must be a number > 0, the Dirichlet concentration")
    assert Wanted(LABELS[:3], 3, 1e-9).concentration() == 1e-9


def test_the_largest_alpha_deals_evenly() -> None:
    labels = np.repeat(np.arange(4), 250)
    for name in ("lda", "fl_bench", "hsu", "fedkf", "fedgkd_groups"):
        sizes = list(map(len, parts_of(name, 0, 10, 1e300, labels)))
        assert min(sizes) >= 80, name
        refused(partial(parts_of, name, 0, 10, 1e308, labels), "must be <= 1e\\+300")


def test_classes_are_those_that_occur() -> None:
    sizes, classes = class_sizes(np.array([7, 3, 7, 7]))
    assert sizes == (1, 3)
    assert classes.tolist() == [1, 0, 1, 1]


def test_classes_are_shared_equally() -> None:
    owned = np.array([[True, True, True], [False, True, True], [False, False, False]])
    shared = dealing._shared_equally(owned, (8, 5, 4))
    assert shared.tolist() == [[3, 3, 2], [0, 3, 2], [0, 0, 0]]


# Splits


@pytest.mark.parametrize(
    ("tests", "validation", "samples", "kept"),
    [
        (0.5, 0.0, 10, (5, 0)),
        (0.9, 0.0, 1, (0, 0)),
        (0.99, 0.0, 10, (9, 0)),
        (0.0, 0.0, 10, (0, 0)),
        (0.1, 0.1, 3, (1, 1)),
        (0.1, 0.1, 2, (0, 0)),
        (0.4, 0.5, 10, (4, 5)),
        (0.5, 0.49, 10, (0, 0)),
        (0.25, 0.2, 20, (5, 4)),
    ],
)
def test_a_client_keeps_a_sample_to_train_on(
    tests: float, validation: float, samples: int, kept: tuple[int, int]
) -> None:
    setting = Setting(local_test_fraction=tests, local_validation_fraction=validation)
    assert _own_counts(setting, samples) == kept


def test_a_split_may_take_all_but_one() -> None:
    labels = np.arange(40) % 2
    setting = Setting(partition="iid", alpha=None, num_clients=2)
    shares = split(replace(setting, auxiliary_per_class=19), labels, 0)
    assert (len(shares.auxiliary), sum(map(len, shares.clients))) == (38, 2)
    message = "must be < 20, the samples of class 0 that fraction=1 of digits has, got 20"
    refused(lambda: split(replace(setting, auxiliary_per_class=20), labels, 0), message)
    single = replace(setting, num_clients=1, validation_fraction=0.975)
    assert len(split(single, labels, 0).validation) == 39
    greedy = replace(single, auxiliary_per_class=1)
    refused(lambda: split(greedy, labels, 0), "39 of 40, of which auxiliary_per_class=1 leaves 38")
    few = replace(setting, fraction=0.025)
    assert sum(map(len, split(few, labels, 0).clients)) == 2
    refused(
        lambda: split(replace(setting, fraction=0.02), labels, 0), r"use fraction=0\.05 or more"
    )


def test_public_samples_are_at_most_all() -> None:
    x = np.arange(6, dtype=np.uint8).reshape(6, 1, 1, 1)
    labels = np.arange(6) % 2
    dataset = Dataset.of("mnist", (x, labels), (x, labels))

    def drawn(count: int, seed: int = 0, **fields: Any) -> Any:
        return public_set(Setting(public=f"mnist:{count}", **fields), seed, lambda name: dataset)

    assert drawn(6).dataset.train_x.ravel().tolist() == list(range(6))
    four = drawn(4)
    assert len(four.dataset.train_y) == 4
    kept = four.dataset.train_x.ravel()
    assert (np.diff(kept.astype(int)) > 0).all()
    assert np.array_equal(four.dataset.train_y, labels[kept])
    assert set(kept) <= set(drawn(5).dataset.train_x.ravel())
    assert len({drawn(4, seed).hash for seed in range(5)}) > 1
    assert {drawn(4, seed, partition_seed=0).hash for seed in range(5)} == {four.hash}
    assert four.info.normalizations == data.info("digits").normalizations
    refused(
        lambda: drawn(7), r"asks for 7 samples, and mnist has 6 to train on: use public=mnist:6"
    )
    assert public_set(Setting(), 0, lambda name: dataset) is None
    assert public_set(Setting(public="mnist:1"), 0, lambda name: None) is None
