"""Between rows (mappings), arrow tables (files) and pandas frames (analysis)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from leaderboards.rows.checks import CurvePoint
from leaderboards.rows.schema import curves_schema, runs_schema
from leaderboards.shell_text import CONTROL, REPLACED

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def run_table(row: Mapping[str, Any]) -> pa.Table:
    """A table of one checked row; with `written` and `forced` if the row has them."""
    import pyarrow as pa

    return pa.Table.from_pylist([dict(row)], schema=runs_schema(stored="written" in row))


def curve_table(row: Mapping[str, Any], curve: Sequence[CurvePoint]) -> pa.Table:
    """A table of a checked curve of the run `row`; values that are not finite become empty."""
    import pyarrow as pa

    rounds, metrics, values = zip(*curve, strict=True) if curve else ((), (), ())
    numbers = [value if value is not None and math.isfinite(value) else None for value in values]
    columns = [[row["run_key"]] * len(curve), [row["algorithm"]] * len(curve), rounds, metrics, numbers]
    schema = curves_schema()
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def fit(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """`table` with the columns of `schema`: cast, left out, or empty where it has none."""
    import pyarrow as pa

    if table.schema.equals(schema):
        return table
    columns = []
    for field in schema:
        column = table[field.name] if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """`table` as a frame: nullable integers and booleans, so that an empty one does not make floats of the others.

    Text is `printable`: whoever wrote the file, what is shown of it is.
    """
    import pandas as pd
    import pyarrow as pa

    table = pa.Table.from_arrays([_printable(column) for column in table.columns], schema=table.schema)
    mapper = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}.get
    maps = [field.name for field in table.schema if pa.types.is_map(field.type)]
    frame: pd.DataFrame = table.drop_columns(maps).to_pandas(types_mapper=mapper)
    dicts = pd.DataFrame({name: _dicts(table[name]) for name in maps}, index=frame.index, dtype=object)
    return pd.concat([frame, dicts], axis=1)[table.column_names] if maps else frame


def _printable(column: Any) -> Any:
    """A column with printable text; as it is if it has no other."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_string(column.type):
        return column
    if not re.search(CONTROL, " ".join(column.unique().drop_null().to_pylist())):
        return column
    return pc.replace_substring_regex(column, CONTROL, REPLACED)


def _dicts(column: pa.ChunkedArray) -> list[dict[Any, Any] | None]:
    """Each map as a dict; keys and values become Python objects at once, which saves most of the time."""
    found: list[dict[Any, Any] | None] = []
    for chunk in column.chunks:
        keys, values = (_printable(part).to_pylist() for part in (chunk.keys, chunk.items))
        ends = chunk.offsets.to_pylist()
        parts = zip(ends, ends[1:], chunk.is_valid().to_pylist(), strict=False)
        found += [
            dict(zip(keys[begin:end], values[begin:end], strict=True)) if valid else None for begin, end, valid in parts
        ]
    return found


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as plain mappings, None for what is empty."""
    filled = frame.astype(object).where(frame.notna(), None)
    return [{str(name): value for name, value in row.items()} for row in filled.to_dict("records")]


def by_run(curves: pd.DataFrame) -> dict[str, dict[str, dict[int, float]]]:
    """Points as run key -> metric -> round -> value, without those that have no value."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    known = curves.dropna(subset=["value"])
    columns = (known[name].tolist() for name in ("run_key", "metric", "round", "value"))
    for key, metric, at, value in zip(*columns, strict=True):
        found.setdefault(key, {}).setdefault(metric, {})[int(at)] = float(value)
    return found
