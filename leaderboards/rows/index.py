"""The index of the rows in a folder: where each one is, and what decides whether it counts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from leaderboards.rows.file_names import HASHED_NAME, ROW_NAME, SEGMENT_NAME, shared_name
from leaderboards.rows.files import BrokenFileError, part_of, read_table
from leaderboards.rows.frames import fit
from leaderboards.rows.schema import ENVIRONMENT, TRACKED_COLUMN, environment_key, runs_schema
from leaderboards.shell_text import is_text

if TYPE_CHECKING:
    import pyarrow as pa

_INDEXED = (
    *("run_key", "dataset", "dataset_hash", "status", "finished"),
    *(TRACKED_COLUMN, "written", "forced", "tracked"),
)
_ATTEMPTS = 20  # to read while other processes compact
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
    if pc.all(are_row_names).as_py():
        environments = pc.utf8_slice_codeunits(files, 17, 25)
    else:
        environments = pa.array(_environments(path))
    forced = pc.fill_null(table["forced"], False)
    has_tracked = pc.or_(pc.is_valid(table[TRACKED_COLUMN]), pc.is_valid(table["tracked"]))
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
