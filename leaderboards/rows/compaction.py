"""Compaction: one segment in place of many files of rows.

A segment states which files it replaces. Anyone can write that, so a statement is a claim
(`Claims`). The name of a file begins with its run and environment, and the claim to it is believed
only if the segment has a row of these. The file itself gives way only if that row is at least as
good.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leaderboards.rows.counted import as_good, judge, with_results
from leaderboards.rows.file_names import ROW_NAME, SEGMENT_NAME, curve_path, shared_name
from leaderboards.rows.files import part_of, read_table, write_by_content
from leaderboards.rows.frames import fit, slices
from leaderboards.rows.index import Folder
from leaderboards.rows.reading import AT_ONCE, read_curves, read_rows
from leaderboards.rows.schema import curves_schema, file_metadata, runs_schema

if TYPE_CHECKING:
    import pyarrow as pa

ENOUGH = 300  # with more files of one row than this, a sweep compacts them at its end
_REPLACES = "fedkd_replaces"
_STEM = 25  # characters of a file's name: 16 of the run key, a hyphen, 8 of the environment
_ROWS = 4_096  # in a row group of rows
_POINTS = 2**18  # in a row group of points, at most


class Claims:
    """The names of files that segments replace, in whatever folder these files are.

    Attributes:
        names: of files of whose run and environment the segment has a row, and of other segments.
        unfounded: each segment's other names.
    """

    def __init__(self, folder: Folder, segments: Iterable[Path]) -> None:
        segments = list(segments)
        self.names = set[str]()
        self.unfounded: dict[Path, set[str]] = {}
        self._index = folder.index(paths=segments)
        for path in segments:
            index = folder.index(paths=[path])
            stems = set()
            claimed = set(_stated_names(path))
            for row in index.select(["run_key", "environment", "file"]).to_pylist():
                stems.add(f"{str(row['run_key'])[:16]}-{row['environment']}")
                claimed.add(row["file"])
            founded = {
                name for name in claimed if SEGMENT_NAME.fullmatch(name) or name[:_STEM] in stems
            }
            self.names |= founded
            if claimed > founded:
                self.unfounded[path] = claimed - founded

    def cover(self, index: pa.Table) -> bool:
        """Return whether the segments have a row as good for each row of `index`."""
        import pyarrow.compute as pc

        same_key = pc.is_in(self._index["run_key"], index["run_key"].unique())
        rivals: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in with_results(self._index.filter(same_key)):
            rivals.setdefault((row["run_key"], row["environment"]), []).append(row)
        for row in with_results(index):
            own_rivals = rivals.get((row["run_key"], row["environment"]), ())
            if not any(as_good(rival, row) for rival in own_rivals):
                return False
        return True


def _stated_names(path: Path) -> list[str]:
    """Read the names of files that a segment states to replace."""
    metadata = read_table(path, "runs", []).schema.metadata
    names: list[str] = json.loads(metadata.get(_REPLACES.encode(), b"[]"))
    return names


@dataclass(frozen=True)
class Compacted:
    """Numbers of files of rows before and after a compaction."""

    before: int
    after: int


def compact(out: Path) -> Compacted:
    """Write one segment to replace many files, without needless rows; then delete these files.

    Other processes may read, write and compact the folder meanwhile. A kill leaves duplicate rows
    and points, of which readers take one, or the curves of a file that is already deleted.

    Raises:
        StoreError: a file is broken, foreign, or of a schema that cannot be read; nothing is
            packed.
        OSError: the folder cannot be written; nothing is lost.
    """
    folder = Folder(out)
    return folder.steady(lambda: _compact(folder))


def compact_if_many(out: Path) -> Compacted | None:
    """Compact the folder at the end of a sweep, if it has more than `ENOUGH` files of one row."""
    folder = Folder(out)
    paths = folder.steady(folder.paths)
    singles = [path for path in paths if not SEGMENT_NAME.fullmatch(path.name)]
    return compact(out) if len(singles) > ENOUGH else None


def _compact(folder: Folder) -> Compacted:
    import pyarrow as pa

    paths = folder.paths()
    packed = []
    for path in paths:
        is_ours = ROW_NAME.fullmatch(path.name) or SEGMENT_NAME.fullmatch(path.name)
        # A row without a curve must not replace another row that has its curve.
        if is_ours and curve_path(path).exists():
            packed.append(path)
    index = folder.index(paths=packed)
    outdated, _ = judge(index)
    if len(packed) > 1 or outdated:
        rows = index.select(["holder", "row"]).to_pylist()
        needed = [(row["holder"], row["row"]) not in outdated for row in rows]
        index = index.filter(pa.array(needed, pa.bool_()))
        segments = [path for path in packed if SEGMENT_NAME.fullmatch(path.name)]
        replaces = Claims(folder, segments).names | set(map(shared_name, packed))
        _write_segment(folder.out, index, replaces.difference(index["file"].to_pylist()))
        for path in packed:  # rows first: readers ignore a curve without its row
            path.unlink(missing_ok=True)
            curve_path(path).unlink(missing_ok=True)
    remaining = folder.paths()
    claimed = Claims(folder, folder.segments()).names
    orphans = claimed - {path.name for path in remaining}
    for path in part_of(folder.out, "curves").glob("[!.]*.parquet"):
        if path.name in orphans:  # of a compaction that was killed
            path.unlink(missing_ok=True)
    return Compacted(len(paths), len(remaining))


def _write_segment(out: Path, index: pa.Table, replaces: Collection[str]) -> None:
    """Write the rows of an index as a segment.

    `replaces`: names of files that it replaces, beside its rows' own.
    """
    import pyarrow as pa

    index = index.sort_by([("run_key", "ascending"), ("file", "ascending")])
    rows = read_rows(index)
    for name in ("written", "forced", "tracked", "file"):
        rows = rows.append_column(name, index[name])
    file = pa.field("file", pa.string(), nullable=False)
    metadata = {**file_metadata("runs"), _REPLACES: json.dumps(sorted(replaces))}
    schema = pa.schema([*runs_schema(stored=True), file], metadata=metadata)
    points_schema = curves_schema().append(file)
    row_groups = (fit(part, schema) for part in slices(rows, _ROWS))
    point_groups = (fit(points, points_schema) for points in _point_groups(index))
    write_by_content(out, "packed", (schema, points_schema), row_groups, point_groups)


def _point_groups(index: pa.Table) -> Iterator[pa.Table]:
    """Yield the points of the rows of an index, in its order, at most `_POINTS` at a time."""
    for part in slices(index, AT_ONCE):
        yield from slices(_points_in_order(part), _POINTS)


def _points_in_order(index: pa.Table) -> pa.Table:
    """Read the points of the rows of an index, in its order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    points, _ = read_curves(index)
    files = points["file"].cast(pa.string())
    places = pc.index_in(files, value_set=index["file"].combine_chunks())
    return points.take(pc.sort_indices(places))
