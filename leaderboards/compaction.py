"""Making few files of many without changing a row: what `python -m bench.boards compact` and long sweeps do.

A reader, or a process killed at any point, finds each row once (`leaderboards.packed` says how); writers wait for some
seconds at most. Failed and stopped rows are packed, too: a later one of the same name hides them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leaderboards.files import Groups, read_metadata, read_table, write_together
from leaderboards.frames import fit, hyperparameter_types
from leaderboards.packed import (
    PACKED_NAME,
    SLOT_NAME,
    Files,
    Folder,
    PackedFile,
    empty_index,
    gather_curves,
    in_order,
    new_name,
    packed_schema,
    rows_in_pack,
    single_index,
    with_text,
)
from leaderboards.schema import SCHEMA_VERSION
from leaderboards.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

ENOUGH = 300  # small files from which on a sweep packs them at its end
_BATCH = 2_000  # small files packed while the lock is held
_ROWS = 4_096  # runs in a row group of rows
_CURVES = 1_000  # runs whose points are held at once
_POINTS = 2**18  # at most in a row group of points
_Types = dict[str, Any]


@dataclass(frozen=True)
class Compacted:
    """What was done. `before` and `after`: files of rows in the folder; `packed`: small files that vanished."""

    before: int
    after: int
    packed: int


@dataclass
class Batch:
    """What goes into one pack: files whose hyper-parameters have no unlike types, so that no value changes its type.

    Args:
        types: of the hyper-parameters' columns.
        singles: small file -> its rows.
        packs: whole packs.
    """

    types: _Types
    singles: dict[str, pa.Table] = field(default_factory=dict)
    packs: list[PackedFile] = field(default_factory=list)

    def takes(self, types: _Types) -> bool:
        """Whether it has no other type for one of these."""
        return all(kind == self.types.get(name, kind) for name, kind in _known(types).items())


def compact(store: Store, everything: bool = True, patience: float = -1) -> Compacted:
    """Pack the small files of a folder.

    Args:
        store: the folder.
        everything: make one pack of all packs, too (more only where hyper-parameters have unlike types); else only of
            those that are not much larger than what is packed anyway, so that a growing folder is not written anew
            each time.
        patience: seconds to wait for writers before giving up; -1 waits for ever.

    Raises:
        StoreError: a file is broken, foreign, or of a schema that cannot be read; nothing of its batch is packed.
        filelock.Timeout: others held the lock for longer than `patience`.
        OSError: the folder cannot be written; nothing is lost.
    """
    folder, packed, more = store.folder, 0, True
    before = folder.read(_count)
    while more:
        with store.locked("runs", patience):
            files = folder.files()
            _tidy(folder.out, files)
            names = [name for name in files.singles if SLOT_NAME.fullmatch(name)]
            more, names = len(names) > _BATCH, names[:_BATCH]
            _pack(folder, files, names, [] if more else _tier(files.packs, len(names), everything))
            packed += len(names)
    return Compacted(before, folder.read(_count), packed)


def compact_if_many(store: Store, patience: float = 2.0) -> Compacted | None:
    """What a sweep does at its end: pack the small files if they are more than `ENOUGH`. Arguments as of `compact`."""
    if len(store.folder.read(lambda files: files.singles)) <= ENOUGH:
        return None
    return compact(store, everything=False, patience=patience)


def forget(folder: Folder, names: Collection[str]) -> None:
    """Remove the rows of these names and their curves; the caller holds the lock. Packs are written without them."""
    files = folder.files()
    _tidy(folder.out, files)
    index = files.packed()
    for pack in files.packs:
        rows = rows_of(pack, index)
        kept = [name for name in rows["file"].to_pylist() if name not in names]
        if len(kept) < rows.num_rows:
            batch = Batch(_types_of(pack), {}, [pack])
            _write(folder.out, batch, in_order(rows, kept))
            _remove(folder, [pack], [])
    _remove(folder, [], [name for name in names if name in files.singles])


def rows_of(pack: PackedFile, index: pa.Table) -> pa.Table:
    """The part of an index that lies in a pack."""
    import pyarrow.compute as pc

    return index.filter(pc.equal(index["holder"], pack.path.name))


def write_pack(
    out: Path, types: _Types, replaces: Iterable[str], rows: Iterable[pa.Table], points: Iterable[pa.Table]
) -> str:
    """Write a pack of rows and one of their points, sorted by run key; returns its name.

    Args:
        out: the result folder.
        types: of the hyper-parameters' columns.
        replaces: names of the packs that do not count any more.
        rows: tables with the column `file`, each a row group.
        points: likewise, of any size.
    """
    name, schema, curves = new_name(), packed_schema("runs", types, replaces), packed_schema("curves", {})
    written = [
        (Groups(curves, (fit(part, curves) for table in points for part in _slices(table))), out / "curves" / name),
        (Groups(schema, (fit(table, schema) for table in rows)), out / "runs" / name),
    ]
    write_together(written)
    return name


def _count(files: Files) -> int:
    return len(files.singles) + len(files.packs) + len(files.leftovers)


def _tier(packs: Sequence[PackedFile], rows: int, everything: bool) -> list[PackedFile]:
    """The packs to be written anew beside `rows` rows: all, or those that are at most twice what is there already."""
    if everything:
        return list(packs)
    chosen = []
    for pack in sorted(packs, key=lambda pack: pack.index.num_rows):
        if pack.index.num_rows > 2 * rows:
            break
        chosen.append(pack)
        rows += pack.index.num_rows
    return chosen


def _pack(folder: Folder, files: Files, names: Sequence[str], packs: Sequence[PackedFile]) -> None:
    """Pack these small files, and these packs with those that have rows of the same names."""
    own = set(names)
    taken = [pack for pack in files.packs if pack in packs or not own.isdisjoint(pack.index["file"].to_pylist())]
    index, written = files.packed(), []
    singles = {name: with_text(read_table(files.folder / name, "runs"), "file", name) for name in names}
    for batch in in_batches(singles, taken):
        rows = _index_of(batch, index, files.folder)
        if _worth_it(batch, rows):
            _write(folder.out, batch, rows)
            written.append(batch)
    if written:
        _remove(folder, [pack for batch in written for pack in batch.packs], names)


def in_batches(singles: Mapping[str, pa.Table], packs: Sequence[PackedFile] = ()) -> list[Batch]:
    """Tables and packs in as few packs as the types of their hyper-parameters allow, first come first."""
    batches: list[Batch] = []
    for pack in packs:
        _batch_for(batches, _types_of(pack)).packs.append(pack)
    for name, table in singles.items():
        _batch_for(batches, hyperparameter_types(table.schema)).singles[name] = table
    return batches


def _batch_for(batches: list[Batch], types: _Types) -> Batch:
    found = next((batch for batch in batches if batch.takes(types)), None)
    if found is None:
        found = Batch({})
        batches.append(found)
    found.types = types | found.types | _known(types)
    return found


def _known(types: _Types) -> _Types:
    """Those of values: a column that is empty in every row has no type of its own."""
    import pyarrow as pa

    return {name: kind for name, kind in types.items() if kind != pa.null()}


def _types_of(pack: PackedFile) -> _Types:
    return hyperparameter_types(read_table(pack.path, "runs", keys=[]).schema)


def _index_of(batch: Batch, packed: pa.Table, folder: Path) -> pa.Table:
    """The index of a batch in the order of its pack: by run key, then by name."""
    import pyarrow as pa

    parts = [rows_of(pack, packed) for pack in batch.packs]
    parts += [single_index(folder / name) for name in batch.singles]
    return pa.concat_tables([empty_index(), *parts]).sort_by([("run_key", "ascending"), ("file", "ascending")])


def _worth_it(batch: Batch, rows: pa.Table) -> bool:
    """Whether writing it changes anything: not if it is one pack, all of whose rows count, of the present schema."""
    if batch.singles or len(batch.packs) != 1:
        return True
    pack = batch.packs[0]
    version = read_metadata(pack.path, "runs")[b"fedkd_schema_version"]
    return rows.num_rows < pack.index.num_rows or int(version) < SCHEMA_VERSION


def _write(out: Path, batch: Batch, rows: pa.Table) -> None:
    replaces = [pack.path.name for pack in batch.packs]  # what they replaced is gone: see _tidy
    curves = (gather_curves(out / "curves", rows.slice(i, _CURVES))[0] for i in range(0, rows.num_rows, _CURVES))
    write_pack(out, batch.types, replaces, _row_groups(batch, rows), curves)


def _row_groups(batch: Batch, rows: pa.Table) -> Iterator[pa.Table]:
    """The rows of a batch, some thousand at a time."""
    import pyarrow as pa

    schema = packed_schema("runs", batch.types)
    singles = pa.concat_tables([schema.empty_table(), *(fit(table, schema) for table in batch.singles.values())])
    for start in range(0, rows.num_rows, _ROWS):
        part = rows.slice(start, _ROWS)
        names, keys = part["file"].to_pylist(), part["run_key"].to_pylist()
        tables = [fit(rows_in_pack(pack, part, keys), schema) for pack in batch.packs]
        yield in_order(pa.concat_tables([in_order(singles, names), *tables]), names)


def _slices(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, _POINTS):
        yield table.slice(start, _POINTS)


def _remove(folder: Folder, packs: Sequence[PackedFile], names: Sequence[str]) -> None:
    """Remove files whose rows are elsewhere by now. Rows first: a curve without its row is nobody's."""
    folder.announce()
    for name in [*names, *(pack.path.name for pack in packs)]:
        (folder.out / "runs" / name).unlink(missing_ok=True)
        (folder.out / "curves" / name).unlink(missing_ok=True)


def _tidy(out: Path, files: Files) -> None:
    """Remove what a compaction left when it was killed: packs that do not count, and curves of rows that went on."""
    for name in files.leftovers:
        (files.folder / name).unlink()
    counted = {pack.path.name for pack in files.packs}
    moved = set(files.packed()["file"].to_pylist()) - set(files.singles)
    for path in list((out / "curves").glob("*.parquet")):
        if path.name in moved or (PACKED_NAME.fullmatch(path.name) and path.name not in counted):
            path.unlink()
