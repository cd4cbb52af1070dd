"""Conversions between rows (mappings), arrow tables (files) and pandas frames (analysis)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from leaderboards.numbers import LARGEST, NUMBERS, Curve, Point, numbers_of
from leaderboards.rows.schema import READ_OFF_CURVES, curves_schema, runs_schema
from leaderboards.shell_text import CONTROL, REPLACED

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def run_table(row: Mapping[str, Any]) -> pa.Table:
    """Make a table of one checked row, with `written` and `forced` if the row has them."""
    import pyarrow as pa

    return pa.Table.from_pylist([dict(row)], schema=runs_schema(stored="written" in row))


def curve_table(row: Mapping[str, Any], curve: Sequence[Point]) -> pa.Table:
    """Make a table of a checked curve of the run `row`; values that are not finite become empty."""
    import pyarrow as pa

    columns: dict[str, list[Any]] = {
        "run_key": [row["run_key"]] * len(curve),
        "algorithm": [row["algorithm"]] * len(curve),
        "round": [],
        "metric": [],
        "value": [],
    }
    for at, metric, value in curve:
        finite = value is not None and math.isfinite(value)
        columns["round"].append(at)
        columns["metric"].append(metric)
        columns["value"].append(value if finite else None)
    return pa.table(columns, schema=curves_schema())


def fit(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Fit `table` to `schema`: cast its columns, drop unknown ones, add missing ones empty."""
    import pyarrow as pa

    if table.schema.equals(schema):
        return table
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        columns.append(table[field.name].cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def slices(table: pa.Table, size: int) -> Iterator[pa.Table]:
    """Yield the rows of a table in order, at most `size` at a time."""
    for start in range(0, table.num_rows, size):
        yield table.slice(start, size)


def lacking_numbers(table: pa.Table, names: Collection[str]) -> pa.Array:
    """Tell which rows of a file lack one of the numbers among `names`.

    A row lacks a number if its file has no such column, or if the value is empty. An optional
    number may be empty: its run did not measure it.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    lacking = pa.repeat(False, table.num_rows)
    for name in READ_OFF_CURVES:
        if name not in names:
            continue
        if name not in table.column_names:
            lacking = pa.repeat(True, table.num_rows)
        elif not NUMBERS[name].optional and table[name].null_count:
            lacking = pc.or_(lacking, pc.is_null(table[name]).combine_chunks())
    return lacking


def fill_numbers(rows: pa.Table, curves: Iterable[tuple[int, Curve]]) -> pa.Table:
    """Compute the empty numbers of some rows from their curves.

    `curves`: the position of a row, and its curve.
    """
    import pyarrow as pa

    columns = [name for name in rows.column_names if name in READ_OFF_CURVES]
    computed = {at: numbers_of(curve, columns) for at, curve in curves}
    if not computed:
        return rows
    for name in columns:
        values = rows[name].to_pylist()
        for at, numbers in computed.items():
            if values[at] is None:
                values[at] = numbers[name]
        place = rows.column_names.index(name)
        field = rows.schema.field(place)
        rows = rows.set_column(place, field, pa.array(values, field.type))
    return rows


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Convert `table` to a frame.

    Integers and booleans are nullable, so that an empty value makes no floats of the other values.
    Text is made `printable`, because anyone may have written the file.
    """
    import pandas as pd
    import pyarrow as pa

    columns = [_printable(column) for column in table.columns]
    table = pa.Table.from_arrays(columns, schema=table.schema)
    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    maps = [field.name for field in table.schema if pa.types.is_map(field.type)]
    frame: pd.DataFrame = table.drop_columns(maps).to_pandas(types_mapper=nullable.get)
    if not maps:
        return frame
    values = {name: _dicts(table[name]) for name in maps}
    dicts = pd.DataFrame(values, index=frame.index, dtype=object)
    combined: pd.DataFrame = pd.concat([frame, dicts], axis=1)[table.column_names]
    return combined


def _printable(column: Any) -> Any:
    """Make the text of a column printable; return any other column as it is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_string(column.type):
        return column
    texts = column.unique().drop_null().to_pylist()
    if not re.search(CONTROL, " ".join(texts)):
        return column
    return pc.replace_substring_regex(column, CONTROL, REPLACED)


def _dicts(column: pa.ChunkedArray) -> list[dict[Any, Any] | None]:
    """Convert each map to a dict."""
    dicts: list[dict[Any, Any] | None] = []
    for chunk in column.chunks:
        # All keys and values become Python objects at once, which saves most of the time.
        keys = _printable(chunk.keys).to_pylist()
        values = _printable(chunk.items).to_pylist()
        ranges = pairwise(chunk.offsets.to_pylist())
        for (begin, end), valid in zip(ranges, chunk.is_valid().to_pylist(), strict=True):
            items = zip(keys[begin:end], values[begin:end], strict=True)
            dicts.append(dict(items) if valid else None)
    return dicts


def by_text(texts: pd.Series, function: Callable[[str], Any]) -> pd.Series:
    """Apply a function to a column of texts, once to each distinct text."""
    return texts.map({text: function(text) for text in texts.unique()})


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Convert the rows of a frame to plain mappings, with None for empty values."""
    filled = frame.astype(object).where(frame.notna(), None)
    names = [str(name) for name in filled.columns]
    return [dict(zip(names, row.values(), strict=True)) for row in filled.to_dict("records")]


def by_run(curves: pd.DataFrame) -> dict[str, dict[str, dict[int, float]]]:
    """Arrange points as run key -> metric -> round -> value; `curve_of` omits the same points."""
    values: dict[str, dict[str, dict[int, float]]] = {}
    filled = curves[curves["value"].abs() <= LARGEST]
    columns = (filled[name].tolist() for name in ("run_key", "metric", "round", "value"))
    for key, metric, at, value in zip(*columns, strict=True):
        values.setdefault(key, {}).setdefault(metric, {})[int(at)] = float(value)
    return values
