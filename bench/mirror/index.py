"""Rows by their index: which a folder has, where they lie, and what they and their points are called in a mirror."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from leaderboards.packed import (
    SLOT_NAME,
    Files,
    empty_index,
    gather_curves,
    in_order,
    rows_in_pack,
    single_index,
    with_text,
)

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE = 1_000  # rows of a segment, with their points
Identity = tuple[str, str, Any]  # run key, status, when it ended: no two rows share it


def is_rows(name: str) -> bool:
    """Whether a file of a mirror's folder `runs` holds rows."""
    return name.endswith(".parquet") and "/" not in name and not name.startswith(".")


def index_of(files: Files, known: dict[str, tuple[tuple[int, int], pa.Table]]) -> pa.Table:
    """run_key, status, finished, file and holder of every row; `known` remembers small files."""
    import pyarrow as pa

    tables = [empty_index(), files.packed()]
    for name in files.singles:
        found = (files.folder / name).stat()
        sign = (found.st_mtime_ns, found.st_size)
        if known.get(name, (None,))[0] != sign:
            known[name] = (sign, single_index(files.folder / name))
        tables.append(known[name][1])
    return pa.concat_tables(tables)


def identities(index: pa.Table) -> Iterator[Identity]:
    """Of the rows of an index, in order."""
    return zip(*(index[name].to_pylist() for name in ("run_key", "status", "finished")), strict=True)


def parts_of(index: pa.Table) -> Iterator[pa.Table]:
    """Some rows at a time; those of a file under a strange name, which may hold several, one by one."""
    strange = [i for i, name in enumerate(index["file"].to_pylist()) if not SLOT_NAME.fullmatch(name)]
    usual = sorted({*range(index.num_rows)} - {*strange})
    for start in range(0, len(usual), AT_ONCE):
        yield taken(index, usual[start : start + AT_ONCE])
    for i in strange:
        yield index.slice(i, 1)


def taken(index: pa.Table, positions: Sequence[int]) -> pa.Table:
    """The rows at these positions, of which there may be none."""
    import pyarrow as pa

    return index.take(pa.array(positions, pa.int64()))


def is_in(column: pa.ChunkedArray, values: set[str]) -> Any:
    """A mask: which texts of a column are among `values`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.is_in(column, pa.array(sorted(values), pa.string()))


def tables_of(files: Files, index: pa.Table) -> list[tuple[str, pa.Table]]:
    """The rows of an index, by the file that holds them, with the column `file`."""
    from leaderboards.files import read_table

    names, keys = dict.fromkeys(index["holder"].to_pylist()), set(index["run_key"].to_pylist())
    found = []
    for pack in files.packs:
        if pack.path.name in names:
            found.append((pack.path.name, rows_in_pack(pack, index)))
            del names[pack.path.name]
    for holder in names:  # FileNotFoundError, if compaction took it: the caller looks again
        table = read_table(files.folder / holder, "runs")
        table = table.filter(is_in(table["run_key"], keys))
        found.append((holder, with_text(table, "file", holder)))
    return found


class MirrorName(NamedTuple):
    """What a row is called.

    Args:
        here: in the folder.
        there: in a mirror.
        untracked: there, with the same results but nothing that `--track local` measures; itself, if it has none.
        tracked: there, with that; itself, if it has it.
    """

    here: str
    there: str
    untracked: str
    tracked: str


def mirror_names(table: pa.Table) -> list[MirrorName]:
    """`<key16>-<env8>-<res8>.parquet` of each row. `table`: rows with the column `file`."""
    from leaderboards.identity import environment_key
    from leaderboards.store import TRACKED, results_digests

    names = ["run_key", "device", "cpu", "threads", "backend", "pack", "versions", "file", TRACKED]
    found = []
    for row, digest in zip(
        table.select(names).to_pylist(maps_as_pydicts="strict"), results_digests(table), strict=True
    ):
        stem = f"{row['run_key'][:16]}-{environment_key(row)}"
        untracked, tracked = f"{stem}-{digest[:8]}.parquet", f"{stem}-{digest[8:16]}.parquet"
        found.append(MirrorName(row["file"], untracked if row[TRACKED] is None else tracked, untracked, tracked))
    return found


def renamed_rows(table: pa.Table, names: dict[str, str]) -> pa.Table:
    """Rows under their names in a mirror. `names`: name in the folder -> there."""
    import pyarrow as pa

    column = pa.array([names[name] for name in table["file"].to_pylist()], pa.string())
    return table.set_column(table.column_names.index("file"), table.schema.field("file"), column)


def renamed_points(folder: Path, index: pa.Table, names: Sequence[str], renamed: dict[str, str]) -> pa.Table:
    """The points of rows, in the order of `names`, under their names in a mirror."""
    import pyarrow as pa

    points, _ = gather_curves(folder, in_order(index, names))
    points = points.unify_dictionaries()
    at = points.column_names.index("file")
    chunks = []
    for chunk in points["file"].chunks:
        words = pa.array([renamed.get(word, word) for word in chunk.dictionary.to_pylist()], pa.string())
        chunks.append(pa.DictionaryArray.from_arrays(chunk.indices, words))
    column = pa.chunked_array(chunks, points.schema.field("file").type)
    return points.set_column(at, points.schema.field("file"), column)
