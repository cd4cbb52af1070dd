"""Between rows (mappings), arrow tables (files) and pandas frames (analysis)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from leaderboards.checks import CurvePoint
from leaderboards.schema import curves_schema, hyperparameter_columns, runs_schema

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def run_table(row: Mapping[str, Any]) -> pa.Table:
    """A table of one checked row; each `hp_*` column has the type of its value."""
    import pyarrow as pa

    # bool before int: a bool is an int in Python.
    kinds = ((bool, pa.bool_()), (int, pa.int64()), (float, pa.float64()), (str, pa.string()), (object, pa.null()))
    types = {
        name: next(arrow for kind, arrow in kinds if isinstance(row[name], kind))
        for name in hyperparameter_columns(row)
    }
    return pa.Table.from_pylist([dict(row)], schema=runs_schema(types))


def curve_table(row: Mapping[str, Any], curve: Sequence[CurvePoint]) -> pa.Table:
    """A table of a checked curve of the run `row`; values that are not finite become empty."""
    import pyarrow as pa

    rounds, metrics, values = zip(*curve, strict=True) if curve else ((), (), ())
    numbers = [value if value is not None and math.isfinite(value) else None for value in values]
    columns = [[row["run_key"]] * len(curve), [row["algorithm"]] * len(curve), rounds, metrics, numbers]
    schema = curves_schema()
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def concatenate(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows of several `runs` tables, with every `hp_*` column that one of them has, empty for the others.

    A hyper-parameter of unlike types becomes a float if all are numbers, else text.
    """
    import pyarrow as pa

    types: dict[str, set[pa.DataType]] = {}
    for table in tables:
        for name in hyperparameter_columns(table.column_names):
            types.setdefault(name, set()).add(table.schema.field(name).type)
    schema = runs_schema({name: _common_type(types[name] - {pa.null()}) for name in sorted(types)})
    return pa.concat_tables([schema.empty_table(), *(_fit(table, schema) for table in tables)])


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """`table` as a frame: nullable integers and booleans, so that an empty one does not make floats of the others."""
    import pandas as pd
    import pyarrow as pa

    mapper = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}.get
    frame: pd.DataFrame = table.to_pandas(types_mapper=mapper, maps_as_pydicts="strict")
    return frame


def _common_type(types: set[pa.DataType]) -> pa.DataType:
    import pyarrow as pa

    if len(types) <= 1:
        return next(iter(types), pa.null())
    return pa.float64() if types <= {pa.int64(), pa.float64()} else pa.string()


def _fit(table: pa.Table, schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    if table.schema.equals(schema):
        return table
    names = set(table.column_names)
    columns = [
        table[field.name].cast(field.type) if field.name in names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
