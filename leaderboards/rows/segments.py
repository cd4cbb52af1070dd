"""The files of rows below a result folder: which rows there are, in which file, and which of them count."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from leaderboards.rows.files import read_metadata, read_table, write_by_content
from leaderboards.rows.frames import fit
from leaderboards.rows.identity import digest, environment_key
from leaderboards.rows.schema import COLUMNS, curves_schema, file_metadata, runs_schema

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

SEGMENT_NAME = re.compile(r"packed-[0-9a-f]{32}\.parquet")
ROW_NAME = re.compile(r"([0-9a-f]{16})-([0-9a-f]{8})(-[0-9a-f]{8}|-[0-9a-f]{16})?\.parquet")  # key, environment
TRACKED = "local_accuracy_mean"  # only of runs that were asked for it, whose other results are equal
RESULTS = [column.name for column in COLUMNS if column.group == "results" and column.name != TRACKED]
ENOUGH = 300  # files of one row from which on a sweep compacts them at its end

_BEST_FIRST = ("finished", "stopped", "failed")
_ENVIRONMENT = ("device", "cpu", "threads", "backend", "pack", "versions")
_REPLACES = "fedkd_replaces"
HASHED_NAME = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}-[0-9a-f]{16}\.parquet|" + SEGMENT_NAME.pattern)
_ATTEMPTS = 20  # at reading while others compact
_ROWS = 4_096  # of a row group of rows
_POINTS = 2**18  # of a row group of points, at most
_RUNS = 1_000  # whose points are held at once
_T = TypeVar("_T")


@dataclass(frozen=True)
class Segment:
    """A file of many rows. `replaces`: names of the files that it stands in for, beside those in its column `file`."""

    path: Path
    replaces: frozenset[str]
    index: pa.Table

    def names(self) -> set[str]:
        """The names of all files that it stands in for."""
        return {*self.replaces, *self.index["file"].to_pylist()}


def read_segment(path: Path) -> Segment:
    """Read what a segment holds. Raises as `read_table` does."""
    replaces = json.loads(read_metadata(path, "runs").get(_REPLACES.encode(), b"[]"))
    return Segment(path, frozenset(replaces), _index_of(path))


@dataclass(frozen=True)
class Files:
    """The files of rows at one moment.

    `singles` are all but segments, most of one row; `segments` those that no other replaces; `replaced` those that
    another one does, which a killed compaction left. All are sorted by name.
    """

    singles: tuple[Path, ...]
    segments: tuple[Segment, ...]
    replaced: tuple[Path, ...]

    @property
    def paths(self) -> tuple[Path, ...]:
        """Files whose rows may count."""
        return *self.singles, *(segment.path for segment in self.segments)

    def held(self) -> set[str]:
        """The names of the files that segments stand in for."""
        return set[str]().union(*(segment.names() for segment in self.segments))


class Folder:
    """The rows below a result folder, by an index.

    An index is a table with the columns run_key, environment (as of `environment_key`), status, finished, written,
    forced, preferred (forced, or with tracked accuracies), file (its name alone), holder (path of the file that holds
    it) and row (its position there).
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self._segments: dict[str, Segment] = {}  # by name: files never change
        self._singles: dict[tuple[str, bool], pa.Table] = {}

    def steady(self, action: Callable[[], _T]) -> _T:
        """Call `action` again until no file vanishes meanwhile, and return its result.

        Raises:
            FileNotFoundError: a file cannot be found again and again.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                return action()
            except FileNotFoundError:
                continue
        return action()

    def files(self, without: Collection[str] = ()) -> Files:
        """List the files of rows, but for the names `without`."""
        names, again = self._names(), self._names()
        while {*filter(SEGMENT_NAME.fullmatch, names)} != {*filter(SEGMENT_NAME.fullmatch, again)}:
            names, again = again, self._names()  # the second may be during a compaction, and miss old files and new
        paths = [self.out / "runs" / name for name in names if name not in without]
        segments = [path for path in paths if SEGMENT_NAME.fullmatch(path.name)]
        self._segments = {path.name: self._segments.get(path.name) or read_segment(path) for path in segments}
        replaced = frozenset[str]().union(*(segment.replaces for segment in self._segments.values()))
        return Files(
            tuple(path for path in paths if path.name not in self._segments),
            tuple(segment for name, segment in self._segments.items() if name not in replaced),
            tuple(segment.path for name, segment in self._segments.items() if name in replaced),
        )

    def index(self, keys: Collection[str] | None = None, files: Files | None = None) -> pa.Table:
        """The index of all rows, or of the run keys `keys`, in the order of their names."""
        import pyarrow as pa
        import pyarrow.compute as pc

        files = files or self.files()
        starts = None if keys is None else {key[:16] for key in keys}
        tables = [_empty_index(), *(segment.index for segment in files.segments)]
        packed = {*pa.concat_tables(tables)["file"].to_pylist()} if files.singles and files.segments else {*()}
        for path in files.singles:
            if starts is None or path.name[:16] in starts or not ROW_NAME.fullmatch(path.name):
                # An earlier version took a row out of its pack by a small file of the same name; copies have a hash.
                hashed, row = HASHED_NAME.fullmatch(path.name), ROW_NAME.fullmatch(path.name)
                forced = (f"{row[1]}-{row[2]}.parquet" if hashed and row else path.name) in packed
                if not hashed or (path.name, forced) not in self._singles:
                    self._singles[path.name, forced] = _index_of(path, forced)
                tables.append(self._singles[path.name, forced])
        index = pa.concat_tables(tables)
        if keys is not None:
            index = index.filter(pc.is_in(index["run_key"], pa.array([*keys], pa.string())))
        return index.sort_by([("file", "ascending"), ("holder", "ascending")])

    def _names(self) -> list[str]:
        return sorted(path.name for path in (self.out / "runs").glob("*.parquet"))


def _index_of(path: Path, forced: bool = False) -> pa.Table:
    """The index of the rows in a file. `forced`: all of them are, if the file does not say."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    table = read_table(path, "runs", ("run_key", "status", "finished", TRACKED, "written", "forced", "file"))
    count = table.num_rows
    names = set(table.column_names)
    files = table["file"] if "file" in names else pa.chunked_array([pa.array([path.name] * count, pa.string())])
    if pc.all(pc.match_substring_regex(files, f"^({ROW_NAME.pattern})$"), min_count=0).as_py():
        environments = pc.utf8_slice_codeunits(files, 17, 25)
    else:
        rows = read_table(path, "runs", _ENVIRONMENT).to_pylist(maps_as_pydicts="strict")
        environments = pa.array([environment_key(row) if row["versions"] is not None else "" for row in rows])
    marked = pc.fill_null(table["forced"], False) if "forced" in names else pa.array(np.full(count, forced))
    columns = {
        "run_key": table["run_key"],
        "environment": environments,
        "status": table["status"],
        "finished": table["finished"],
        "written": pc.coalesce(table["written"], table["finished"]) if "written" in names else table["finished"],
        "forced": marked,
        "preferred": pc.or_(marked, pc.is_valid(table[TRACKED])),
        "file": files,
        "holder": pa.array([str(path)] * count, pa.string()),
        "row": pa.array(np.arange(count)),
    }
    return fit(pa.table(columns), _empty_index().schema)


def _empty_index() -> pa.Table:
    import pyarrow as pa

    time, text = pa.timestamp("us", tz="UTC"), pa.string()
    kinds = {"run_key": text, "environment": text, "status": text, "finished": time, "written": time}
    kinds |= {"forced": pa.bool_(), "preferred": pa.bool_(), "file": text, "holder": text, "row": pa.int64()}
    return pa.schema(kinds).empty_table()


# Which rows count


def counted(index: pa.Table) -> pa.Table:
    """The part of an index that counts: the best row of each run key and environment."""
    return _first_of_each(_best_first(index), ("run_key", "environment"))


def one_for_each_key(index: pa.Table) -> pa.Table:
    """Select, of rows that count, one for each run key: the one that finished first, else the latest."""
    import pyarrow as pa
    import pyarrow.compute as pc

    done, time = pc.equal(index["status"], "finished"), index["finished"].cast(pa.int64())
    index = index.append_column("late", pc.invert(done).cast(pa.int8()))
    index = index.append_column("time", pc.if_else(done, time, pc.negate(time)))
    index = index.sort_by([(name, "ascending") for name in ("run_key", "late", "time", "file")])
    return _first_of_each(index, ("run_key",)).drop_columns(["late", "time"]).sort_by("file")


def _best_first(index: pa.Table) -> pa.Table:
    """An index by run key and environment, the row that counts before the others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    index = index.append_column("rank", pc.index_in(index["status"], pa.array(_BEST_FIRST)))
    up, down = "ascending", "descending"
    order = {"run_key": up, "environment": up, "rank": up, "preferred": down, "written": down, "file": up, "holder": up}
    return index.sort_by(list(order.items())).drop_columns(["rank"])


def _first_of_each(index: pa.Table, names: Collection[str]) -> pa.Table:
    """The first row of each run of rows that agree in the columns `names`."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    first = np.zeros(index.num_rows, bool)
    first[:1] = True
    for name in names:
        column = index[name].combine_chunks()
        first[1:] |= pc.fill_null(pc.not_equal(column[1:], column[:-1]), True).to_numpy(zero_copy_only=False)
    return index.filter(pa.array(first))


@dataclass(frozen=True)
class Judged:
    """The rows of an index, told apart.

    `outdated` has (holder, row) of those that no reader needs. `disagreeing` has, for each run key and environment with
    unlike results, one finished row of each, best first.
    """

    outdated: set[tuple[str, int]]
    disagreeing: list[list[dict[str, Any]]]


def judge(index: pa.Table) -> Judged:
    """Tell rows that are needed from those that are not. Reads the results of rows that share key and environment."""
    import pyarrow.compute as pc

    ordered = _best_first(index)
    identity = pc.binary_join_element_wise(ordered["run_key"], ordered["environment"], "-")
    counts = identity.value_counts()
    shared = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    rivals = ordered.filter(pc.is_in(identity, shared))
    rows = rivals.to_pylist()
    for row, results in zip(rows, results_digests(read_rows(rivals, RESULTS)), strict=True):
        row["results"] = results
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["run_key"], row["environment"]), []).append(row)
    judged = Judged(set(), [])
    for best, *others in groups.values():
        forced = [row["written"] for row in (best, *others) if row["forced"] and row["status"] == "finished"]
        kept = {best["results"]: best}
        for row in others:
            needed = row["status"] == best["status"] == "finished" and not (forced and row["written"] < max(forced))
            if needed and row["results"] not in kept:
                kept[row["results"]] = row
            else:
                judged.outdated.add((row["holder"], row["row"]))
        judged.disagreeing.extend([[*kept.values()]] if len(kept) > 1 else [])
    return judged


def results_digests(rows: pa.Table) -> list[str]:
    """For each row 64 digits that are equal for equal results."""
    return [digest({"results": str([row])}) for row in rows.select(RESULTS).to_pylist()]


# Reading


def read_rows(index: pa.Table, columns: Collection[str] | None = None) -> pa.Table:
    """The rows of an index, in its order. `columns`: of `leaderboards.COLUMNS`; None is all."""
    import numpy as np
    import pyarrow as pa

    schema = runs_schema()
    names = schema.names if columns is None else list(columns)
    schema = pa.schema([schema.field(name) for name in names], metadata=schema.metadata)
    tables, positions = [schema.empty_table()], [np.empty(0, np.int64)]
    for holder, at in _by_holder(index):
        table = fit(read_table(Path(holder), "runs", names), schema)
        tables.append(table.take(index["row"].take(pa.array(at))) if len(at) < table.num_rows or len(at) > 1 else table)
        positions.append(at)
    order = np.argsort(np.concatenate(positions), kind="stable")
    table = pa.concat_tables(tables)
    return table if bool((np.diff(order) > 0).all()) else table.take(pa.array(order))


def read_curves(index: pa.Table) -> tuple[pa.Table, dict[Path, int]]:
    """Read the points of the rows of an index.

    Returns:
        The columns of `CURVE_COLUMNS`, and `file`, texts as dictionaries; and the missing files, each with its
        number of rows.

    Raises:
        FileNotFoundError: rows of the index are elsewhere by now.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pa.dictionary(pa.int32(), pa.string())
    fields = [pa.field(f.name, texts if f.type == pa.string() else f.type) for f in curves_schema()]
    tables, missing = [pa.schema([*fields, pa.field("file", texts)]).empty_table()], dict[Path, int]()
    for holder, at in _by_holder(index):
        path = Path(holder).parent.parent / "curves" / Path(holder).name
        rows = index.take(pa.array(at))
        if not path.exists():
            if not Path(holder).exists():
                raise FileNotFoundError(f"{holder} went away")
            missing[path] = len(at)
            continue
        keys = rows["run_key"].to_pylist()
        table = read_table(path, "curves", keys=keys, dictionaries=("run_key", "algorithm", "metric", "file"))
        if "file" in table.column_names:
            table = table.filter(pc.is_in(table["file"].cast(pa.string()), rows["file"].combine_chunks()))
        else:
            table = table.filter(pc.is_in(table["run_key"].cast(pa.string()), pa.array(keys)))
            table = table.append_column("file", pa.array([path.name] * table.num_rows, pa.string()))
        tables.append(fit(table, tables[0].schema))
    return pa.concat_tables(tables), missing


def _by_holder(index: pa.Table) -> Iterator[tuple[str, np.ndarray]]:
    """Each file of an index, in the order of its first row, with the positions of its rows."""
    import numpy as np

    if not index.num_rows:
        return
    coded = index["holder"].combine_chunks().dictionary_encode()
    codes = coded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
    yield from zip(coded.dictionary.to_pylist(), parts, strict=True)


# Writing


def shared_name(path: Path) -> str:
    """The name of a file of rows in every other folder: with a hash, whatever it is called here."""
    row = ROW_NAME.fullmatch(path.name)
    if HASHED_NAME.fullmatch(path.name) or (row and row[3]):  # 8 digits of an earlier version are of the results
        return path.name
    content = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    stem = f"{row[1]}-{row[2]}" if row else path.stem.removesuffix(f"-{content}")
    return f"{stem}-{content}.parquet"


@dataclass(frozen=True)
class Compacted:
    """What was done. `before` and `after`: files of rows; `packed`: files of one row that vanished."""

    before: int
    after: int
    packed: int


def compact(out: Path) -> Compacted:
    """Write one segment in the place of many files, without the rows that no reader needs; then delete these files.

    Others may read, write and compact the folder meanwhile.

    Raises:
        StoreError: a file is broken, foreign, or of a schema that cannot be read; nothing is packed.
        OSError: the folder cannot be written; nothing is lost.
    """
    folder = Folder(out)
    return folder.steady(lambda: _compact(folder))


def compact_if_many(out: Path) -> Compacted | None:
    """Compact at the end of a sweep: if there are more than `ENOUGH` files of one row."""
    folder = Folder(out)
    if len(folder.steady(folder.files).singles) <= ENOUGH:
        return None
    return compact(out)


def _compact(folder: Folder) -> Compacted:
    import pyarrow as pa
    import pyarrow.compute as pc

    files = folder.files()
    before = len(files.paths) + len(files.replaced)
    index = folder.index(files=files)
    singles = [path for path in files.singles if ROW_NAME.fullmatch(path.name) and _curve_of(path).exists()]
    taken = [*singles, *(segment.path for segment in files.segments)]
    mine = index.filter(pc.is_in(index["holder"], pa.array([*map(str, taken)], pa.string())))
    judged = judge(mine)  # among those with curves: one without does not make another's curve needless
    if singles or len(files.segments) > 1 or judged.outdated:
        names = {str(path): shared_name(path) for path in singles}
        replaces = {segment.path.name for segment in files.segments}
        replaces = replaces.union(*(segment.replaces for segment in files.segments))
        kept = dict[int, str]()  # position -> name
        for at, row in enumerate(mine.select(["file", "holder", "row"]).to_pylist()):
            name = names.get(row["holder"], row["file"])
            if (row["holder"], row["row"]) in judged.outdated:
                replaces.add(name)
            else:
                kept[at] = name
        _write_segment(folder.out, mine.take(pa.array([*kept], pa.int64())), [*kept.values()], replaces)
        _delete(taken)
    _delete(files.replaced)
    left = folder.files()
    _delete_lone_curves(folder.out, left)
    return Compacted(before, len(left.paths), len(singles))


def _write_segment(out: Path, index: pa.Table, names: list[str], replaces: Collection[str]) -> None:
    """Write the rows of an index, under these names, as a segment. `replaces`: as of `Segment`."""
    import pyarrow as pa

    index = index.append_column("name", pa.array(names, pa.string()))
    index = index.sort_by([("run_key", "ascending"), ("name", "ascending")])
    rows = read_rows(index)
    for name in ("written", "forced", "name"):
        rows = rows.append_column("file" if name == "name" else name, index[name])
    file = pa.field("file", pa.string(), nullable=False)
    metadata = {**file_metadata("runs"), _REPLACES: json.dumps(sorted(replaces))}
    runs, curves = pa.schema([*runs_schema(stored=True), file], metadata=metadata), curves_schema().append(file)
    parts = (_renamed_points(index.slice(at, _RUNS)) for at in range(0, index.num_rows, _RUNS))
    write_by_content(
        out,
        "packed",
        (runs, curves),
        (fit(rows.slice(at, _ROWS), runs) for at in range(0, rows.num_rows, _ROWS)),
        (fit(part.slice(at, _POINTS), curves) for part in parts for at in range(0, part.num_rows, _POINTS)),
    )


def _renamed_points(index: pa.Table) -> pa.Table:
    """The points of an index in the order of its rows, each under the `name` of its row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    points, _ = read_curves(index)
    identity = pc.binary_join_element_wise(points["run_key"].cast(pa.string()), points["file"].cast(pa.string()), "/")
    order = pc.binary_join_element_wise(index["run_key"], index["file"], "/").combine_chunks()
    place = pc.index_in(identity, value_set=order)
    points = points.drop_columns(["file"]).append_column(
        "file", index["name"].combine_chunks().take(place.combine_chunks())
    )
    return points.take(pc.sort_indices(place))


def _curve_of(path: Path) -> Path:
    return path.parent.parent / "curves" / path.name


def _delete(paths: Iterable[Path]) -> None:
    """Delete files whose rows are elsewhere by now. Rows first: a curve without its row is nobody's."""
    for path in paths:
        path.unlink(missing_ok=True)
        _curve_of(path).unlink(missing_ok=True)


def _delete_lone_curves(out: Path, files: Files) -> None:
    """Delete the curves that a killed compaction left, and after a day those that a killed writer did."""
    there = {path.name for path in files.paths}
    held, yesterday = files.held(), time.time() - 24 * 60 * 60
    for path in list((out / "curves").glob("*.parquet")):
        if path.name not in there and (path.name in held or path.stat().st_mtime < yesterday):
            path.unlink(missing_ok=True)
