"""Files that are small on the disk and large in memory are refused; others are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import ROOT
from rows import curve_of, make_row, write

from bench.boards import main
from bench.data import parquet
from leaderboards import Store, StoreError
from leaderboards.rows import decoded, files
from leaderboards.rows.files import BrokenFileError, read_table

BOARD = ROOT / "leaderboards" / "reference"
LONG = "A" * 10**5


def changed(path: Path, change: Callable[[pa.Table], pa.Table], **options: Any) -> Path:
    """A file of rows with another table."""
    pq.write_table(change(pq.read_table(path)), path, compression="zstd", **options)
    return path


def with_column(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(
        at, table.schema.field(at), pa.array(values, table.schema.field(at).type)
    )


def repeated(table: pa.Table) -> pa.Table:
    """2,000 rows with one text of 100 kB."""
    return pa.concat_tables([with_column(table, "error", [LONG])] * 2_000)


def long_map(table: pa.Table) -> pa.Table:
    """A row with 2,000 versions of 100 kB."""
    return with_column(table, "versions", [[(str(name), LONG) for name in range(2_000)]])


def long_text(table: pa.Table) -> pa.Table:
    """A row with one text of 200 MB."""
    return with_column(table, "error", [LONG * 2_000])


@pytest.mark.parametrize("bomb", [repeated, long_map, long_text])
def test_a_small_file_decodes_to_little(
    bomb: Callable[[pa.Table], pa.Table], tmp_path: Path
) -> None:
    path = changed(Store(tmp_path).write(make_row(), curve_of(0)), bomb, row_group_size=2_000)
    assert path.stat().st_size < decoded.SMALLEST / 1_000
    before = pa.total_allocated_bytes()
    with pytest.raises(BrokenFileError) as raised:
        read_table(path, "runs")
    assert raised.value.path == path
    assert pa.total_allocated_bytes() - before < decoded.SMALLEST
    assert main(["validate", str(tmp_path)]) == 3


@pytest.mark.parametrize("kind", ["runs", "curves"])
def test_our_own_files_are_read_whole(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nothing but their size allows it, and where equal texts are stored once."""
    monkeypatch.setattr(decoded, "SMALLEST", 1)
    (path,) = (BOARD / kind).glob("*.parquet")
    assert decoded.expanding(pq.read_metadata(path), path.stat().st_size)
    assert read_table(path, kind).equals(pq.read_table(path))
    columns = ["run_key", "algorithm"]
    assert read_table(path, kind, columns).equals(pq.read_table(path, columns=columns))
    asked = read_table(path, kind, columns, dictionaries=("run_key",))
    assert pa.types.is_dictionary(asked.schema.field("run_key").type)
    assert asked.schema.field("algorithm").type == pa.string()


def test_a_small_file_is_read_whole(tmp_path: Path) -> None:
    path = Store(tmp_path).write(make_row(), curve_of(0))
    assert decoded.expanding(pq.read_metadata(path), path.stat().st_size) == []


def test_the_bound_grows_with_the_file(tmp_path: Path) -> None:
    table = pa.table({"text": pa.array(["A" * 1_000] * 2_000)})
    size = table.nbytes // decoded.TIMES
    decoded.check_size(table, decoded.SMALLEST)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoded, "SMALLEST", 1)
        decoded.check_size(table, size + 1)
        with pytest.raises(ValueError, match="decodes"):
            decoded.check_size(
                table.cast(pa.schema({"text": pa.dictionary(pa.int32(), pa.string())})), size - 100
            )


def images(path: Path, size: int, rows: int) -> Path:
    """A table with one image of so many bytes in each row."""
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    cell = pa.array([{"bytes": bytes(size), "path": None}], kind)
    pq.write_table(pa.table({"image": pa.chunked_array([cell] * rows)}), path, compression="zstd")
    return path


def test_tables_of_data_are_bounded_too(tmp_path: Path) -> None:
    small = images(tmp_path / "small.parquet", 10**4, 2_000)
    assert (
        parquet.read([small], ["image"])["image"] == [{"bytes": bytes(10**4), "path": None}] * 2_000
    )
    with pytest.raises(ValueError, match="decodes"):
        parquet.read([images(tmp_path / "large.parquet", 10**5, 2_000)], ["image"])


def test_want_of_memory_condemns_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, [(make_row(), curve_of(0))]) / "runs" / "all.parquet"

    def fail(*_: object, **__: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 64 failed")

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", fail)
    with pytest.raises(StoreError) as raised:
        read_table(path, "runs")
    assert not isinstance(raised.value, BrokenFileError), "whose advice is to delete it"
    assert main(["validate", str(tmp_path)]) == 3


def test_a_file_that_states_too_little_is_refused_once_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = changed(Store(tmp_path).write(make_row(), curve_of(0)), long_text)
    monkeypatch.setattr(files, "expanding", lambda metadata, size: [])
    with pytest.raises(BrokenFileError, match="it decodes to"):
        read_table(path, "runs")


TEXT = pa.array(["abc", "abc", None, "de"])
ENCODED = TEXT.dictionary_encode()
MAPS = pa.array([[("a", "bc"), ("d", "e")], []], pa.map_(pa.string(), pa.string()))
SIZES = [
    (pa.array([1, 2, 3]), 24),
    (ENCODED, 8 + 4 * 8),
    (ENCODED.slice(0, 1), 3 + 8),
    (ENCODED.slice(2, 1), 8),
    (pa.StructArray.from_arrays([ENCODED, pa.array([1, 2, 3, 4])], ["a", "b"]), 40 + 32),
    (
        pa.MapArray.from_arrays(
            [0, 2, 2], MAPS.keys.dictionary_encode(), MAPS.items.dictionary_encode()
        ),
        (2 + 2 * 8) + (3 + 2 * 8) + 2 * 8,
    ),
]


@pytest.mark.parametrize(("array", "size"), SIZES)
def test_decoded_sizes_are_counted_exactly(
    array: pa.Array, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"a": array, "b": array})
    monkeypatch.setattr(decoded, "SMALLEST", 2 * size)
    decoded.check_size(table, 0)
    monkeypatch.setattr(decoded, "SMALLEST", 2 * size - 1)
    with pytest.raises(ValueError, match=f"it decodes to {2 * size:,} bytes, and a file of its"):
        decoded.check_size(table, 0)


def chunk(name: str, kind: str, size: int, values: int, repeats: bool) -> SimpleNamespace:
    """What a file states of a column in a row group."""
    return SimpleNamespace(
        path_in_schema=name,
        physical_type=kind,
        total_uncompressed_size=size,
        num_values=values,
        has_dictionary_page=repeats,
    )


def stated(*groups: list[SimpleNamespace]) -> SimpleNamespace:
    """The metadata of a file with these row groups."""
    rows = [SimpleNamespace(num_columns=len(group), column=group.__getitem__) for group in groups]
    return SimpleNamespace(num_row_groups=len(rows), row_group=rows.__getitem__)


def test_stated_sizes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    text = chunk("text", "BYTE_ARRAY", 50, 10, True)
    number = chunk("number", "INT64", 80, 10, True)
    plain = chunk("plain", "BYTE_ARRAY", 90, 10, False)
    file = stated([text, number], [text, plain])
    whole = 50 + 80 + 50 + 90 + 8 * 40
    monkeypatch.setattr(decoded, "SMALLEST", 2 * 500)  # what the texts may take if repeated
    assert decoded.expanding(file, 0) == []
    monkeypatch.setattr(decoded, "SMALLEST", 2 * 500 - 1)
    assert decoded.expanding(file, 0) == ["text"]
    monkeypatch.setattr(decoded, "SMALLEST", whole)
    assert decoded.expanding(file, 0) == ["text"]
    monkeypatch.setattr(decoded, "SMALLEST", whole - 1)
    with pytest.raises(ValueError, match="it decodes to 590 bytes"):
        decoded.expanding(file, 0)
    assert decoded.expanding(file, 3) == ["text"], "200 times its size"


def test_files_of_any_size_may_decode_to_128_megabytes() -> None:
    assert decoded.plain_type(ENCODED.type) == pa.string()
    assert decoded.plain_type(pa.map_(ENCODED.type, ENCODED.type)) == MAPS.type
    for size, bound in ((1, 2**27), (2**27 // 200 + 1, 200 * (2**27 // 200 + 1))):
        fits = stated([chunk("number", "INT64", bound - 8, 1, False)])
        assert decoded.expanding(fits, size) == []
        with pytest.raises(ValueError, match=f"may to {bound:,}"):
            decoded.expanding(stated([chunk("number", "INT64", bound - 7, 1, False)]), size)


def test_only_kept_columns_stay_encoded() -> None:
    table = pa.table({"a": ENCODED, "b": ENCODED, "c": TEXT})
    decoded_table = decoded.plain(table, ["b"])
    kinds = [str(field.type) for field in decoded_table.schema]
    assert kinds == ["string", str(ENCODED.type), "string"]
    assert decoded_table.to_pydict() == table.to_pydict()
    assert decoded.plain(table, ["a", "b"]) is table
