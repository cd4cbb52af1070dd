"""Packed results: the rows or points of many runs in one file, and which files of a folder count at a moment.

    OUT/runs/packed-<32 hex>.parquet      rows, sorted by run key; `file` names the small file each of them came from
    OUT/curves/packed-<32 hex>.parquet    their points, in the same order, `file` likewise

A pack is such a file here; runs that train together are packs elsewhere.

A row is in one place for every reader, whatever compaction was doing when it was killed:

1. a packed file that another one says it replaces does not count;
2. a small file hides the rows of its name in packs, and a pack those in packs of a later name;
3. `OUT/runs/.generation` changes after new packs have appeared and before what they replace vanishes: a reader that
   finds it changed, or a file gone, reads again.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from leaderboards.files import BrokenFileError, StoreError, read_metadata, read_table
from leaderboards.frames import fit
from leaderboards.schema import CURVE_COLUMNS, curves_schema, file_metadata, runs_schema

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

PACKED_NAME = re.compile(r"packed-[0-9a-f]{32}\.parquet")
SLOT_NAME = re.compile(r"([0-9a-f]{16})-([0-9a-f]{8})(-[0-9a-f]{8})?\.parquet")  # of a small file: key, environment
INDEX = ("run_key", "status", "finished")
TEXTS = ("run_key", "algorithm", "metric", "file")  # of points: few values, many times

_POINT = tuple(column.name for column in CURVE_COLUMNS)
_REPLACES = b"fedkd_replaces"
_ATTEMPTS = 20  # at reading between compactions: each has to end before the next begins
_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class PackedFile:
    """A packed file of rows. `index`: run_key, status, finished, file and holder (its own name) of each row."""

    path: Path
    replaces: frozenset[str]
    index: pa.Table


@dataclass(frozen=True)
class Files:
    """The files of rows that a folder has at one moment.

    Args:
        folder: OUT/runs.
        singles: names of small files, sorted; whatever else is no pack is among them.
        packs: that count, by name.
        leftovers: names of packs that do not count any more.
    """

    folder: Path
    singles: tuple[str, ...]
    packs: tuple[PackedFile, ...]
    leftovers: tuple[str, ...]

    def packed(self, keys: Collection[str] | None = None) -> pa.Table:
        """The index of the rows in packs that count, of all run keys or of `keys`."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        tables = [empty_index(), *(pack.index for pack in self.packs)]
        if keys is not None:
            wanted = pa.array(list(keys), pa.string())
            tables = [table.filter(pc.is_in(table["run_key"], wanted)) for table in tables]
        index = pa.concat_tables(tables)
        index = index.filter(pc.invert(pc.is_in(index["file"], pa.array(self.singles, pa.string()))))
        if len(self.packs) < 2:
            return index
        codes = index["file"].combine_chunks().dictionary_encode().indices.to_numpy()
        return index.take(np.sort(np.unique(codes, return_index=True)[1]))


class Folder:
    """The files of rows below a result folder, and a way to read them that a compaction meanwhile does not disturb.

    Args:
        out: the result folder.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self._known: dict[str, PackedFile] = {}  # a packed file never changes

    def read(self, action: Callable[[Files], _T]) -> _T:
        """What `action` makes of the files, all of one moment. Raises as `steady` does."""
        return self.steady(lambda: action(self.files()))

    def steady(self, action: Callable[[], _T]) -> _T:
        """What `action` gives while no file went away; it is called again until that is so.

        Raises:
            StoreError: files went away again and again.
        """
        problem: Exception = StoreError(
            self.out, f"{self.out} is compacted faster than it can be read: give the same command again"
        )
        for _ in range(_ATTEMPTS):
            before = self._generation()
            try:
                found = action()
            except FileNotFoundError as error:
                problem = error
                continue
            if self._generation() == before:
                return found
        raise problem

    def files(self, without: Collection[str] = ()) -> Files:
        """What is there now, but for the names `without`. Without the folder's lock, ask `read`."""
        folder = self.out / "runs"
        names = sorted({path.name for path in folder.glob("*.parquet")} - {*without}) if folder.exists() else []
        found = {name: self._pack(folder / name) for name in names if PACKED_NAME.fullmatch(name)}
        self._known = found
        replaced = frozenset[str]().union(*(pack.replaces for pack in found.values()))
        return Files(
            folder,
            singles=tuple(name for name in names if name not in found),
            packs=tuple(pack for name, pack in found.items() if name not in replaced),
            leftovers=tuple(name for name in found if name in replaced),
        )

    def announce(self) -> None:
        """Tell readers that files are about to vanish."""
        path = self.out / "runs" / ".generation"
        temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
        temporary.write_text(uuid.uuid4().hex)
        temporary.replace(path)

    def _generation(self) -> str:
        try:
            return (self.out / "runs" / ".generation").read_text()
        except OSError:  # nothing was compacted here yet
            return ""

    def _pack(self, path: Path) -> PackedFile:
        if path.name in self._known:
            return self._known[path.name]
        index = read_table(path, "runs", (*INDEX, "file"))
        if "file" not in index.column_names:
            raise BrokenFileError(path, f"{path} lacks the column file of a packed file", "rename it, or move it away")
        replaces = json.loads(read_metadata(path, "runs").get(_REPLACES, b"[]"))
        index = fit(with_text(index, "holder", path.name), empty_index().schema)
        return PackedFile(path, frozenset(replaces), index)


def new_name() -> str:
    """A name for a pack that no other machine gives to one."""
    return f"packed-{uuid.uuid4().hex}.parquet"


def packed_schema(kind: str, types: dict[str, Any], replaces: Iterable[str] = ()) -> pa.Schema:
    """The pyarrow schema of a pack.

    Args:
        kind: `runs` or `curves`.
        types: of the hyper-parameters' columns; none for curves.
        replaces: names of the packs that do not count once this one is there.
    """
    import pyarrow as pa

    schema = runs_schema(types) if kind == "runs" else curves_schema()
    metadata = {**file_metadata(kind), _REPLACES.decode(): json.dumps(sorted(replaces))}
    return schema.append(pa.field("file", pa.string(), nullable=False)).with_metadata(metadata)


def with_file(table: pa.Table, names: Sequence[str], counts: Sequence[int]) -> pa.Table:
    """`table` with the column `file`: the first name for the first `counts[0]` rows, and so on."""
    import numpy as np
    import pyarrow as pa

    codes = np.repeat(np.arange(len(names), dtype=np.int32), counts)
    return table.append_column("file", pa.DictionaryArray.from_arrays(codes, pa.array(names, pa.string())))


def with_text(table: pa.Table, name: str, text: str) -> pa.Table:
    """`table` with one more column, the same text in every row."""
    import pyarrow as pa

    return table.append_column(
        pa.field(name, pa.string(), nullable=False), pa.array([text] * table.num_rows, pa.string())
    )


def single_index(path: Path) -> pa.Table:
    """The index of the rows in a small file: run_key, status, finished, file and holder."""
    table = read_table(path, "runs", INDEX)
    return fit(with_text(with_text(table, "file", path.name), "holder", path.name), empty_index().schema)


def rows_in_pack(
    pack: PackedFile, index: pa.Table, keys: Collection[str] | None = None, columns: Collection[str] | None = None
) -> pa.Table:
    """The rows of a pack that an index names, in its order; of `keys` and with `columns` only, if given."""
    import pyarrow.compute as pc

    mine = index.filter(pc.equal(index["holder"], pack.path.name))["file"]
    wanted = None if columns is None else ["file", *columns]
    return in_order(read_table(pack.path, "runs", wanted, keys), mine.to_pylist())


def in_order(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows of `table` whose `file` is among the distinct `names`, in their order."""
    import numpy as np

    place = positions(table["file"], names)
    kept = np.flatnonzero(place >= 0)
    order = kept[np.argsort(place[kept], kind="stable")]
    if len(order) == table.num_rows and bool((order[1:] > order[:-1]).all()):
        return table
    return table.unify_dictionaries().take(order)


def positions(column: pa.ChunkedArray, names: Sequence[str]) -> np.ndarray:
    """Where in `names` each text of a column is, -1 for others."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted, parts = pa.array(names, pa.string()), [np.empty(0, np.int64)]
    for chunk in column.chunks:
        coded = chunk if isinstance(chunk, pa.DictionaryArray) else chunk.dictionary_encode()
        found = pc.fill_null(pc.index_in(coded.dictionary, value_set=wanted), -1).to_numpy(zero_copy_only=False)
        parts.append(found[coded.indices.to_numpy(zero_copy_only=False)])
    return np.concatenate(parts)


def gather_curves(folder: Path, index: pa.Table) -> tuple[pa.Table, dict[Path, int]]:
    """The points of the rows of an index, in the order of its names.

    Args:
        folder: OUT/curves.
        index: run_key, file and holder of each row.

    Returns:
        The columns of a packed file, those of `TEXTS` as dictionaries; and the files that are not there, each with
        the number of its rows.

    Raises:
        FileNotFoundError: rows of the index are elsewhere by now.
    """
    import pyarrow as pa

    wanted: dict[str, tuple[list[str], list[str]]] = {}
    columns = (index[name].to_pylist() for name in ("holder", "run_key", "file"))
    for holder, key, file in zip(*columns, strict=True):
        keys, names = wanted.setdefault(holder, ([], []))
        keys.append(key)
        names.append(file)
    there = {holder: _is_there(folder / holder) for holder in wanted}
    packs = [holder for holder in wanted if there[holder] and PACKED_NAME.fullmatch(holder)]
    singles = {holder: wanted[holder][0] for holder in wanted if there[holder] and holder not in packs}
    tables = [_points_in_pack(folder / holder, *wanted[holder]) for holder in packs]
    tables.append(_points_in_singles(folder, singles))
    names = list(dict.fromkeys(index["file"].to_pylist()))
    missing = {folder / holder: len(keys) for holder, (keys, _) in wanted.items() if not there[holder]}
    return in_order(pa.concat_tables(tables), names), missing


def _is_there(path: Path) -> bool:
    """Whether a curve file is.

    Raises:
        FileNotFoundError: its rows are gone as well: compaction, which removes rows first, is at work.
    """
    if path.exists():
        return True
    if not (path.parent.parent / "runs" / path.name).exists():
        raise FileNotFoundError(f"{path.name} went away")
    return False


def _points_in_pack(path: Path, keys: list[str], names: list[str]) -> pa.Table:
    return _as_points(in_order(read_table(path, "curves", keys=keys, dictionaries=TEXTS), names))


def _points_in_singles(folder: Path, singles: dict[str, list[str]]) -> pa.Table:
    """The points of the given run keys in each small file."""
    import pyarrow as pa
    import pyarrow.compute as pc

    tables = []
    for name, keys in singles.items():
        table = read_table(folder / name, "curves")
        tables.append(table.filter(pc.is_in(table["run_key"], pa.array(keys, pa.string()))))
    points = pa.concat_tables([curves_schema().empty_table(), *(table.select(_POINT) for table in tables)])
    return _as_points(with_file(points, list(singles), [table.num_rows for table in tables]))


def _as_points(table: pa.Table) -> pa.Table:
    """Texts as dictionaries, everything else as it is, nothing about the file it came from."""
    import pyarrow as pa

    texts = pa.dictionary(pa.int32(), pa.string())
    fields = [pa.field(f.name, texts if f.name in TEXTS else f.type) for f in packed_schema("curves", {})]
    columns = [table[f.name] for f in fields]
    encoded = [
        column.dictionary_encode() if f.type == texts and not pa.types.is_dictionary(column.type) else column
        for column, f in zip(columns, fields, strict=True)
    ]
    return pa.Table.from_arrays(encoded, schema=pa.schema(fields))


def empty_index() -> pa.Table:
    """An index of no rows: run_key, status, finished, file and holder."""
    import pyarrow as pa

    schema = runs_schema({})
    texts = [pa.field(name, pa.string(), nullable=False) for name in ("file", "holder")]
    return pa.schema([*(schema.field(name) for name in INDEX), *texts]).empty_table()
