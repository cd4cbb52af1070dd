"""The files of rows in a folder: an index, the choice of rows that count, and compaction.

A segment states which files it replaces. Anyone can write that, so a statement is a claim
(`Claims`). The name of a file begins with its run and environment, and the claim to it is believed
only if the segment has a row of these. The file itself gives way only if that row is at least as
good.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from leaderboards.numbers import Curve, curve_of
from leaderboards.rows.files import (
    BrokenFileError,
    content_hash,
    part_of,
    read_table,
    write_by_content,
)
from leaderboards.rows.frames import fill_numbers, fit, lacking_numbers
from leaderboards.rows.schema import (
    COLUMNS,
    ENVIRONMENT,
    curves_schema,
    digest,
    environment_key,
    file_metadata,
    runs_schema,
)
from leaderboards.shell_text import is_text

if TYPE_CHECKING:
    import pyarrow as pa

SEGMENT_NAME = re.compile(r"packed-[0-9a-f]{32}\.parquet")
ROW_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}(-[0-9a-f]+)*\.parquet")  # key, environment
HASHED_NAME = re.compile(r".*-[0-9a-f]{16}\.parquet|" + SEGMENT_NAME.pattern)
# Key, content: in the folder `tracked`.
TRACKED_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}\.(npz|safetensors)")
# Only in runs that were asked for it; their other results are the same.
TRACKED = "local_accuracy_mean"
RESULTS = [
    column.name for column in COLUMNS if column.group == "results" and column.name != TRACKED
]
ENOUGH = 300  # with more files of one row than this, a sweep compacts them at its end

_BEST_FIRST = ("finished", "stopped", "failed")
_INDEXED = (
    *("run_key", "dataset", "dataset_hash", "status", "finished"),
    *(TRACKED, "written", "forced", "tracked"),
)
_REPLACES = "fedkd_replaces"
_STEM = 25  # characters of a file's name: 16 of the run key, a hyphen, 8 of the environment
_ATTEMPTS = 20  # to read while other processes compact
_ROWS = 4_096  # in a row group of rows
_POINTS = 2**18  # in a row group of points, at most
_RUNS = 1_000  # whose points are in memory at once
_T = TypeVar("_T")


class Folder:
    """The rows in a result folder or in a single file of rows, found through an index.

    An index is a table with the columns run_key, dataset, dataset_hash, environment (its
    `environment_key`), status, finished, written, forced, tracked (names of its tracked files, or
    None), preferred (forced, or tracked), file (the name of the row's own file in every folder),
    holder (path of the file that holds it) and row (its position there).
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        # By file name; only files named by their content, which never change.
        self._indexes: dict[str, pa.Table] = {}

    def steady(self, action: Callable[[], _T]) -> _T:
        """Call `action`, again if a file vanishes meanwhile, and return its result.

        Raises:
            FileNotFoundError: a file was missing in every attempt.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                return action()
            except FileNotFoundError:
                continue
        return action()

    def paths(self) -> list[Path]:
        """List the paths of the files of rows, sorted by name."""
        if self.out.is_file():
            return [self.out.resolve()]  # which the user has named: a link to it is followed
        names = self._names()
        listed_again = self._names()
        # A listing during a compaction may miss old files and new.
        while _segments_in(names) != _segments_in(listed_again):
            names = listed_again
            listed_again = self._names()
        return [self.out / "runs" / name for name in names]

    def segments(self) -> list[Path]:
        """List the paths of the segments."""
        return [path for path in self.paths() if SEGMENT_NAME.fullmatch(path.name)]

    def index(
        self, keys: Collection[str] | None = None, paths: Iterable[Path] | None = None
    ) -> pa.Table:
        """Make the index of all rows, or of the run keys `keys`, sorted by file name.

        `paths`: the files to read.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        starts = None if keys is None else {key[:16] for key in keys}
        tables = [_index_schema().empty_table()]
        for path in self.paths() if paths is None else paths:
            name = path.name
            # A file of other names than a row's may hold any run.
            if starts is not None and name[:16] not in starts and ROW_NAME.fullmatch(name):
                continue
            if name not in self._indexes or not HASHED_NAME.fullmatch(name):
                self._indexes[name] = index_of(path)
            tables.append(self._indexes[name])
        index = pa.concat_tables(tables)
        if keys is not None:
            wanted = pa.array([*keys], pa.string())
            index = index.filter(pc.is_in(index["run_key"], wanted))
        return index.sort_by([("file", "ascending"), ("holder", "ascending")])

    def _names(self) -> list[str]:
        paths = sorted(part_of(self.out, "runs").glob("[!.]*.parquet"))
        for path in paths:
            if not is_text(path.name):
                problem = f"{path.name!a} in {path.parent} is no name in UTF-8"
                raise BrokenFileError(path, problem, "rename the file")
        return [path.name for path in paths]


def _segments_in(names: Iterable[str]) -> set[str]:
    return {name for name in names if SEGMENT_NAME.fullmatch(name)}


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
        for row in _with_results(self._index.filter(same_key)):
            rivals.setdefault((row["run_key"], row["environment"]), []).append(row)
        for row in _with_results(index):
            own_rivals = rivals.get((row["run_key"], row["environment"]), ())
            if not any(_as_good(rival, row) for rival in own_rivals):
                return False
        return True


def _stated_names(path: Path) -> list[str]:
    """Read the names of files that a segment states to replace.

    Raises BrokenFileError if the statement is no list of names.
    """
    metadata = read_table(path, "runs", []).schema.metadata
    stated = metadata.get(_REPLACES.encode(), b"[]")
    try:
        names = json.loads(stated)
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BrokenFileError(
            path, f"{path} does not state which files it replaces as a list of names"
        )
    return names


def _with_results(index: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of an index, each with `results`, a digest, and `final_accuracy`."""
    stored = read_rows(index, RESULTS)
    rows: list[dict[str, Any]]
    rows = index.append_column("final_accuracy", stored["final_accuracy"]).to_pylist()
    for row, results in zip(rows, results_digests(stored), strict=True):
        row["results"] = results
    return rows


def _as_good(row: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether readers need `other` no more beside `row`, of the same run."""
    if row["status"] != other["status"]:
        statuses = (*_BEST_FIRST, row["status"], other["status"])  # unknown statuses come last
        return statuses.index(row["status"]) < statuses.index(other["status"])
    later = _age(row) >= _age(other)
    if row["status"] == "finished" and row["results"] != other["results"]:
        return row["forced"] and later
    return later if row["preferred"] == other["preferred"] else row["preferred"]


def _age(row: Mapping[str, Any]) -> tuple[bool, Any]:
    """Return a sort key of when a row was written; a row that does not state it comes first."""
    return row["written"] is not None, row["written"]


def shared_name(path: Path) -> str:
    """Return the name of a file of rows in other folders.

    It always has a hash, which the name here may lack.
    """
    if HASHED_NAME.fullmatch(path.name):
        return path.name
    return f"{path.stem}-{content_hash(path)[:16]}.parquet"


def curve_path(path: Path) -> Path:
    """Return the path of the curves of a file of rows.

    Raises StoreError if the folder of curves is a link.
    """
    beside = path.with_name(f"{path.stem}_curves.parquet")
    if path.parent.name != "runs" or beside.exists():  # a file that is in no result folder
        return beside
    return part_of(path.parent.parent, "curves") / path.name


def index_of(path: Path) -> pa.Table:
    """Make the index of the rows in a file."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    stored = runs_schema(stored=True)
    fields = [stored.field(name) for name in _INDEXED]
    wanted = pa.schema([*fields, pa.field("file", pa.string())])
    table = fit(read_table(path, "runs", wanted.names), wanted)
    files = pc.fill_null(table["file"], shared_name(path))
    are_row_names = pc.match_substring_regex(files, f"^({ROW_NAME.pattern})$")
    if pc.all(are_row_names, min_count=0).as_py():
        environments = pc.utf8_slice_codeunits(files, 17, 25)
    else:
        environments = pa.array(_environments(path))
    forced = pc.fill_null(table["forced"], False)
    has_tracked = pc.or_(pc.is_valid(table[TRACKED]), pc.is_valid(table["tracked"]))
    columns = {
        "run_key": table["run_key"],
        "dataset": table["dataset"],
        "dataset_hash": table["dataset_hash"],
        "environment": environments,
        "status": table["status"],
        "finished": table["finished"],
        "written": pc.coalesce(table["written"], table["finished"]),
        "forced": forced,
        "tracked": table["tracked"],
        "preferred": pc.or_(forced, has_tracked),
        "file": files,
        "holder": pa.array([str(path)] * table.num_rows, pa.string()),
        "row": pa.array(np.arange(table.num_rows)),
    }
    return pa.table(columns, schema=_index_schema())


def _environments(path: Path) -> list[str]:
    """Compute the environment key of each row of a file; empty for a row without versions."""
    rows = read_table(path, "runs", ENVIRONMENT).to_pylist(maps_as_pydicts="strict")
    return [environment_key(row) if row["versions"] is not None else "" for row in rows]


def _index_schema() -> pa.Schema:
    import pyarrow as pa

    time = pa.timestamp("us", tz="UTC")
    text = pa.string()
    fields = {
        "run_key": text,
        "dataset": text,
        "dataset_hash": text,
        "environment": text,
        "status": text,
        "finished": time,
        "written": time,
        "forced": pa.bool_(),
        "tracked": text,
        "preferred": pa.bool_(),
        "file": text,
        "holder": text,
        "row": pa.int64(),
    }
    return pa.schema(fields)


# Which rows count


def counted(index: pa.Table) -> pa.Table:
    """Select the rows of an index that count: the best of each run key and environment."""
    return _first_of_each(_best_first(index), ["run_key", "environment"])


def one_for_each_key(index: pa.Table) -> pa.Table:
    """Select one row for each run key from rows that count.

    It is the latest row of `--force`. Without one it is the earliest finished row, and without a
    finished row the latest.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    done = pc.equal(index["status"], "finished")
    by_file = ("file", "ascending")
    forced = index.filter(index["forced"]).sort_by([("written", "descending"), by_file])
    earliest = index.filter(done).sort_by([("finished", "ascending"), by_file])
    latest = index.filter(pc.invert(done)).sort_by([("finished", "descending"), by_file])
    in_order = pa.concat_tables([forced, earliest, latest])
    return _first_of_each(in_order, ["run_key"]).sort_by("file")


def _best_first(index: pa.Table) -> pa.Table:
    """Sort an index by run key and environment, with the row that counts before the others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    ranks = pc.index_in(index["status"], pa.array(_BEST_FIRST))
    index = index.append_column("rank", ranks)
    order = [
        ("run_key", "ascending"),
        ("environment", "ascending"),
        ("rank", "ascending"),
        ("preferred", "descending"),
        ("written", "descending"),
        ("file", "ascending"),
        ("holder", "ascending"),
    ]
    return index.sort_by(order).drop_columns(["rank"])


def _first_of_each(index: pa.Table, names: list[str]) -> pa.Table:
    """Select the first row of each group that agrees in the columns `names`."""
    import numpy as np
    import pyarrow as pa

    numbered = index.append_column("place", pa.array(np.arange(index.num_rows)))
    first = numbered.group_by(names).aggregate([("place", "min")])["place_min"]
    return index.take(first.sort())


def judge(index: pa.Table) -> tuple[set[tuple[str, int]], list[list[dict[str, Any]]]]:
    """Find rows that no reader needs, and results that disagree.

    Both are among rows that share run key and environment. Results on different copies of the data
    neither disagree nor replace each other.

    Returns:
        (holder, row) of the rows that no reader needs; and, for each run key and environment with
        different results, one finished row of each result on one copy of the data, best first: its
        columns of the index, and `final_accuracy`.
    """
    import pyarrow.compute as pc

    ordered = _best_first(index)
    identity = pc.binary_join_element_wise(ordered["run_key"], ordered["environment"], "-")
    counts = identity.value_counts()
    is_shared = pc.greater(counts.field("counts"), 1)
    shared = counts.field("values").filter(is_shared)
    rivals = ordered.filter(pc.is_in(identity, shared))
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in _with_results(rivals):
        groups.setdefault((row["run_key"], row["environment"]), []).append(row)
    outdated = set[tuple[str, int]]()
    disagreeing = []
    for rows in groups.values():
        best, *others = rows
        forced_at = _last_forced(rows)
        results_by_copy = {best["dataset_hash"]: {best["results"]: best}}
        for row in others:
            copy = row["dataset_hash"]
            distinct = results_by_copy.setdefault(copy, {})
            replaced = row["written"] < forced_at.get(copy, row["written"])
            needed = row["status"] == best["status"] == "finished" and not replaced
            if needed and row["results"] not in distinct:
                distinct[row["results"]] = row
            else:
                outdated.add((row["holder"], row["row"]))
        for distinct in results_by_copy.values():
            if len(distinct) > 1:
                disagreeing.append(list(distinct.values()))
    return outdated, disagreeing


def _last_forced(rows: Iterable[Mapping[str, Any]]) -> dict[str | None, Any]:
    """Return when the last forced row was written, by copy of the data."""
    forced_at: dict[str | None, Any] = {}
    for row in rows:
        if row["forced"] and row["status"] == "finished":
            copy = row["dataset_hash"]
            forced_at[copy] = max(row["written"], forced_at.get(copy, row["written"]))
    return forced_at


def results_digests(rows: pa.Table) -> list[str]:
    """Compute 64 digits for each row, which are equal for equal results."""
    return [digest({"results": str([row])}) for row in rows.select(RESULTS).to_pylist()]


# Reading


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
    for start in range(0, len(positions), _RUNS):
        batch = positions[start : start + _RUNS]
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


# Writing


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
    starts = range(0, rows.num_rows, _ROWS)
    row_groups = (fit(rows.slice(start, _ROWS), schema) for start in starts)
    point_groups = (fit(points, points_schema) for points in _point_groups(index))
    write_by_content(out, "packed", (schema, points_schema), row_groups, point_groups)


def _point_groups(index: pa.Table) -> Iterator[pa.Table]:
    """Yield the points of the rows of an index, in its order, at most `_POINTS` at a time."""
    for start in range(0, index.num_rows, _RUNS):
        points = _points_in_order(index.slice(start, _RUNS))
        for at in range(0, points.num_rows, _POINTS):
            yield points.slice(at, _POINTS)


def _points_in_order(index: pa.Table) -> pa.Table:
    """Read the points of the rows of an index, in its order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    points, _ = read_curves(index)
    files = points["file"].cast(pa.string())
    places = pc.index_in(files, value_set=index["file"].combine_chunks())
    return points.take(pc.sort_indices(places))
