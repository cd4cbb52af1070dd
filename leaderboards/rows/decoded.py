"""A bound on what a parquet file may decode to.

A text of 1 MB in each of many rows takes a few bytes on disk. A file may decode to `SMALLEST`
bytes, or to `TIMES` its size; the reference board's take 9 and 46 times theirs. Sizes that the file
states are checked before it is read. Text that is stored once for many rows is then read as it is
stored, and counted before it is repeated.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

SMALLEST = 2**27  # bytes that a file of any size may decode to
TIMES = 200  # what a larger file may decode to, in multiples of its size
_WIDTH = 8  # bytes of a number, or of a text's place


def expanding(metadata: Any, size: int) -> list[str]:
    """Name the text columns that may decode to too much, because equal texts are stored once.

    Args:
        metadata: the file's `pyarrow.parquet.FileMetaData`.
        size: of the file, in bytes.

    Returns:
        Paths of columns to read as dictionary arrays, and to decode with `plain`; none for an
        ordinary small file.

    Raises:
        ValueError: already the stored values are too large.
    """
    chunks = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks += [group.column(at) for at in range(group.num_columns)]
    stated = sum(chunk.total_uncompressed_size + _WIDTH * chunk.num_values for chunk in chunks)
    _refuse(stated, size)
    repeated = [
        chunk
        for chunk in chunks
        if chunk.physical_type == "BYTE_ARRAY" and chunk.has_dictionary_page
    ]
    if sum(chunk.num_values * chunk.total_uncompressed_size for chunk in repeated) <= _bound(size):
        return []
    return list(dict.fromkeys(chunk.path_in_schema for chunk in repeated))


def check_size(table: pa.Table, size: int) -> None:
    """Raise ValueError if a table would be too large with its dictionary arrays decoded.

    `size`: of its file.
    """
    decoded = 0
    for column in table.columns:
        decoded += sum(map(_decoded_bytes, column.chunks))
    _refuse(decoded, size)


def plain(table: pa.Table, kept: Collection[str]) -> pa.Table:
    """Decode the dictionary arrays of a table, except the columns `kept`."""
    import pyarrow as pa

    fields = [
        field if field.name in kept else field.with_type(plain_type(field.type))
        for field in table.schema
    ]
    schema = pa.schema(fields, metadata=table.schema.metadata)
    return table if schema == table.schema else table.cast(schema)


def _bound(size: int) -> int:
    return max(SMALLEST, TIMES * size)


def _refuse(decoded: int, size: int) -> None:
    if decoded > _bound(size):
        raise ValueError(
            f"it decodes to {decoded:,} bytes, and a file of its size may to {_bound(size):,}"
        )


def _decoded_bytes(array: Any) -> int:
    """Count the bytes of an array with its texts repeated."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_struct(array.type):
        return sum(map(_decoded_bytes, array.flatten()))
    if pa.types.is_map(array.type):
        return _decoded_bytes(array.keys) + _decoded_bytes(array.items) + _WIDTH * len(array)
    if not pa.types.is_dictionary(array.type):
        return int(array.nbytes)
    lengths = pc.binary_length(array.dictionary).take(array.indices)
    return (pc.sum(lengths).as_py() or 0) + _WIDTH * len(array)


def plain_type(kind: Any) -> Any:
    """Return a type without dictionaries."""
    import pyarrow as pa

    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    return kind.value_type if pa.types.is_dictionary(kind) else kind
