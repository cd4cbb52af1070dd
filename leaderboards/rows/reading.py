"""Rows and curves of an index, from the files that hold them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from leaderboards.numbers import Curve, curve_of
from leaderboards.rows.file_names import curve_path
from leaderboards.rows.files import read_table
from leaderboards.rows.frames import fill_numbers, fit, lacking_numbers
from leaderboards.rows.schema import curves_schema, runs_schema

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE = 1_000  # runs whose points are in memory


def read_rows(index: pa.Table, columns: Collection[str] | None = None) -> pa.Table:
    """Read the rows of an index, in its order. `columns`: of `leaderboards.COLUMNS`; None is all.

    Numbers that a row lacks are computed from its curve, if it has one.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = runs_schema()
    names = whole.names if columns is None else list(columns)
    schema = pa.schema([whole.field(name) for name in names], metadata=whole.metadata)
    holders = index["holder"].unique()
    files = [read_table(Path(holder), "runs", names) for holder in holders.to_pylist()]
    tables = [fit(file, schema) for file in files]
    sizes = [table.num_rows for table in tables]
    starts = pa.array(np.cumsum([0, *sizes]))
    start_of_row = starts.take(pc.index_in(index["holder"], holders))
    places = pc.add(start_of_row, index["row"])
    rows = pa.concat_tables([schema.empty_table(), *tables]).take(places)
    lacking_by_file = [lacking_numbers(file, names) for file in files]
    lacking = pa.chunked_array(lacking_by_file, pa.bool_()).take(places)
    lacking = pc.and_(lacking, pc.not_equal(index["status"], "failed"))
    positions = np.flatnonzero(lacking.to_numpy()).tolist()
    return fill_numbers(rows, _curves_at(index, positions))


def _curves_at(index: pa.Table, positions: list[int]) -> Iterator[tuple[int, Curve]]:
    """Yield the curve of the row at each of the positions in an index that has one."""
    for start in range(0, len(positions), AT_ONCE):
        batch = positions[start : start + AT_ONCE]
        batch_index = index.take(batch)
        points, _ = read_curves(batch_index)
        curves = curves_of_rows(points)
        for position, row_name in zip(batch, row_names(batch_index), strict=True):
            if row_name in curves:
                yield position, curves[row_name]


def row_names(index: pa.Table) -> list[tuple[str, str]]:
    """Return what tells each row of an index from all others: (name of its own file, run key)."""
    files = index["file"].to_pylist()
    return list(zip(files, index["run_key"].to_pylist(), strict=True))


def curves_of_rows(points: pa.Table) -> dict[tuple[str, str], Curve]:
    """Arrange points of `read_curves` as a curve for each row that has one, by `row_names`."""
    # Texts are compared as numbers of their dictionaries: Python's own text of each point would
    # take most of the time.
    texts = []
    columns = []
    for name in ("file", "run_key", "metric"):
        encoded = points[name].unify_dictionaries().combine_chunks()
        texts.append(encoded.dictionary.to_pylist())
        columns.append(encoded.indices.to_numpy().tolist())
    for name in ("round", "value"):
        columns.append(points[name].to_numpy().tolist())
    files, keys, metrics = texts
    grouped: dict[tuple[int, int], list[tuple[int, str, float | None]]] = {}
    for file, key, metric, at, value in zip(*columns, strict=True):
        grouped.setdefault((file, key), []).append((at, metrics[metric], value))
    return {(files[file], keys[key]): curve_of(curve) for (file, key), curve in grouped.items()}


def read_curves(index: pa.Table) -> tuple[pa.Table, dict[Path, int]]:
    """Read the points of the rows of an index.

    Returns:
        A table of `CURVE_COLUMNS` and `file`, with texts as dictionaries; and the missing files,
        each with its number of rows.

    Raises:
        FileNotFoundError: rows of the index are in other files by now.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pa.dictionary(pa.int32(), pa.string())
    fields = []
    for field in curves_schema():
        fields.append(field.with_type(texts) if field.type == pa.string() else field)
    schema = pa.schema([*fields, pa.field("file", texts)])
    tables = [schema.empty_table()]
    missing: dict[Path, int] = {}
    # In the order of the index, which arrow's groups may not have.
    holders: dict[str, list[dict[str, str]]] = {}
    for row in index.select(["holder", "run_key", "file"]).to_pylist():
        holders.setdefault(row["holder"], []).append(row)
    for holder, rows in holders.items():
        path = curve_path(Path(holder))
        keys = [row["run_key"] for row in rows]
        files = [row["file"] for row in rows]
        if not path.exists():
            if not Path(holder).exists():
                raise FileNotFoundError(f"{holder} has disappeared")
            missing[path] = len(keys)
            continue
        table = read_table(
            path, "curves", keys=keys, dictionaries=("run_key", "algorithm", "metric", "file")
        )
        if "file" in table.column_names:
            wanted = pc.is_in(table["file"].cast(pa.string()), pa.array(files))
            table = table.filter(wanted)
        else:
            wanted = pc.is_in(table["run_key"].cast(pa.string()), pa.array(keys))
            table = table.filter(wanted)
            file_of_points = pa.array(files[:1] * table.num_rows, pa.string())
            table = table.append_column("file", file_of_points)
        tables.append(fit(table, schema))
    return pa.concat_tables(tables), missing
