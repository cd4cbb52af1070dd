"""Rows and curves in a mirror: segments, files that are written once and say by their rows' names what they hold.

    URL/runs/packed-<32 hex>.parquet      rows that one push found missing (leaderboards.packed)
    URL/curves/packed-<32 hex>.parquet    their points, written first

In a segment a row's `file` is `<key16>-<env8>-<res8>.parquet`: its key, environment and results, which with tracked
data count as others, and as better. So equal results are one row whoever pushes them, unlike ones lie side by side, no
two machines ever write the same file, and how a result folder holds its rows - small files, packs, compacted or not -
is not seen there. A mirror is a result folder itself.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bench.mirror.index import (
    Identity,
    MirrorName,
    identities,
    index_of,
    is_in,
    is_rows,
    mirror_names,
    parts_of,
    renamed_points,
    renamed_rows,
    tables_of,
    taken,
)
from bench.mirror.place import MirrorProblem, Place, each, free_of
from leaderboards import Store, StoreError
from leaderboards.packed import PACKED_NAME, Files, Folder, in_order, packed_schema

if TYPE_CHECKING:
    import pyarrow as pa

ENOUGH = 300  # small segments from which on a push makes one of them
SMALL = 2**20  # bytes of rows
_STEM = 16 + 1 + 8  # letters of a name that are its key and environment
_ATTEMPTS = 5  # at reading a mirror that another machine tidies meanwhile
_T = TypeVar("_T")


class Rows:
    """The rows of a result folder and those of its mirror.

    Args:
        out: the result folder.
        place: the mirror.
        scratch: a folder for copies of the mirror's rows.
    """

    def __init__(self, out: Path, place: Place, scratch: Path) -> None:
        self.store, self._place = Store(out), place
        self._scratch, self._copy = scratch, scratch / "mirror"
        self._singles: dict[str, tuple[tuple[int, int], pa.Table]] = {}  # a small file is read again if it changed
        self._there: set[Identity] = set()

    @property
    def finished_there(self) -> set[str]:
        """Keys of the finished rows that the mirror, as far as is known, has."""
        return {key for key, status, _ in self._there if status == "finished"}

    def pull(self, first: Callable[[], None]) -> int:
        """Bring the rows that the folder lacks; returns how many.

        Of what is finished here only equal results with less tracked give way.

        Args:
            first: brings what rows must not be without. It is called when it is known which rows come.

        Raises:
            MirrorProblem: the mirror cannot be read.
            StoreError: a file here or there is broken, foreign or of a newer schema; the message names it.
            OSError: the folder cannot be written.
        """
        return self._steady(lambda: self._pull(first))

    def push(self, replace: bool, first: Callable[[], None]) -> int:
        """Write the rows that the mirror lacks; returns how many.

        Args:
            replace: as of `Store.write`: what is new here takes the place of other results of its key and environment.
            first: writes what rows must not be without. It is called when it is known which rows go.
        """
        known = self._steady(self._refresh)
        names, there = set(known["file"].to_pylist()), set(identities(known))
        mine = self._own_index()
        new = taken(mine, [i for i, row in enumerate(identities(mine)) if row not in there])
        first()
        pushed = [self._push(part, names) for part in parts_of(new)]
        finished = [name for _, found in pushed for name in found]
        self._steady(lambda: self._replace(finished, others=replace))
        self._there |= set(identities(new))  # those whose equal is there as well, which `_replace` may have forgotten
        return sum(count for count, _ in pushed)

    def pending(self) -> int:
        """Rows of the folder that, as far as is known, the mirror lacks."""
        return sum(row not in self._there for row in identities(self._own_index()))

    def tidy(self) -> int:
        """Make one segment of many small ones; returns how many went. What others wrote meanwhile stays."""
        return self._steady(self._tidy)

    def _steady(self, action: Callable[[], _T]) -> _T:
        """What `action` gives while no segment goes away that it was about to read."""
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError):  # another machine made one of them meanwhile
                return action()
        raise MirrorProblem(f"mirror {self._place.url}: tidied faster than it can be read: give the same command again")

    def _tidy(self) -> int:
        from leaderboards.compaction import compact

        self._refresh()
        sizes = self._place.files("runs")
        leftovers = [name for name in Folder(self._copy).files().leftovers if name in sizes]
        self._forget(leftovers)  # of a tidying that was killed: what replaced them is there
        alone = [name for name in self._place.old("curves") if name not in sizes]  # of a push that was killed
        self._place.remove(f"curves/{name}" for name in alone)
        small = [name for name, size in sizes.items() if size < SMALL and name not in leftovers and is_rows(name)]
        if len(small) <= ENOUGH:
            return 0
        folder = self._view(small)
        compact(Store(folder))
        return self._exchange(folder, small)

    def _pull(self, first: Callable[[], None]) -> int:
        from leaderboards.merging import merge

        theirs, mine = self._refresh(), self._own_index()
        first()
        holders = sorted(set(self._wanted(theirs, mine)["holder"].to_pylist()))
        if not holders:
            return 0
        folder = self._view(holders)
        try:
            return merge([folder], self.store.out, keep_both=True).new
        except StoreError as error:
            raise StoreError(error.path, str(error).replace(str(folder), self._place.url)) from error
        finally:
            free_of(folder)

    def _refresh(self) -> pa.Table:
        """The index of the mirror's rows; segments never change, so that each is read once."""
        folder = self._copy / "runs"
        folder.mkdir(parents=True, exist_ok=True)
        there = {name for name in self._place.files("runs") if is_rows(name)}
        have = {path.name for path in folder.glob("*.parquet")}
        for name in have - there:
            (folder / name).unlink()
        missing = sorted(name for name in there if name not in have or not PACKED_NAME.fullmatch(name))
        each(partial(self._place.fetch, f"runs/{name}", folder / name) for name in missing)
        try:
            index = index_of(Folder(self._copy).files(), {})
        except StoreError as error:
            raise StoreError(error.path, str(error).replace(str(self._copy), self._place.url)) from error
        self._there = set(identities(index))
        return index

    def _wanted(self, theirs: pa.Table, mine: pa.Table) -> pa.Table:
        """The rows of the mirror that the folder has neither as they are nor as an equal result of its own."""
        own = set(identities(mine))
        rows = list(identities(theirs))
        finished = {key for key, status, _ in own if status == "finished"}
        stored = {key for key, _, _ in own}
        new = [
            i
            for i, (key, status, _) in enumerate(rows)
            if rows[i] not in own and (status == "finished" or key not in stored)
        ]
        rivals = {rows[i][0] for i in new} & finished
        equal = set[str]()
        for name in self._names(mine.filter(is_in(mine["run_key"], rivals))) if rivals else ():
            equal |= {name.there, name.untracked}
        names = theirs["file"].to_pylist()
        return taken(theirs, [i for i in new if names[i] not in equal])

    def _names(self, index: pa.Table) -> list[MirrorName]:
        """What some rows of the folder are called in a mirror."""
        found = self.store.folder.read(lambda files: tables_of(files, self._present(files, index)))
        return [name for _, table in found for name in mirror_names(table)]

    def _present(self, files: Files, index: pa.Table) -> pa.Table:
        """The index, made anew if its rows lie elsewhere among the files: the folder may be compacted meanwhile."""
        if {*files.singles, *(pack.path.name for pack in files.packs)}.issuperset(index["holder"].to_pylist()):
            return index
        wanted, mine = set(identities(index)), index_of(files, self._singles)
        return taken(mine, [i for i, row in enumerate(identities(mine)) if row in wanted])

    def _push(self, index: pa.Table, names: set[str]) -> tuple[int, list[MirrorName]]:
        """Write some rows of the folder, but for those whose equal is there: how many, and the finished ones' names."""
        from leaderboards.compaction import write_pack

        found, finished = self.store.folder.read(lambda files: self._collected(files, index, names))
        folder = self._scratch / f"segment-{uuid.uuid4().hex[:8]}"
        for types, rows, points in found:
            self._write(folder, write_pack(folder, types, (), [rows], [points]))
            names.update(rows["file"].to_pylist())
        free_of(folder)
        self._there |= set(identities(index))
        return sum(rows.num_rows for _, rows, _ in found), finished

    def _collected(
        self, files: Files, index: pa.Table, names: set[str]
    ) -> tuple[list[tuple[dict[str, Any], pa.Table, pa.Table]], list[MirrorName]]:
        """Segments to be written: types of the hyper-parameters, rows and points under their names in a mirror.

        And the names of all finished rows, also of those whose equal is there.
        """
        import pyarrow as pa

        from leaderboards.compaction import in_batches
        from leaderboards.frames import fit

        index = self._present(files, index)
        parts, renamed, finished = dict[str, pa.Table](), dict[str, str](), list[MirrorName]()
        for holder, table in tables_of(files, index):
            for status, name in zip(table["status"].to_pylist(), mirror_names(table), strict=True):
                finished += [name] * (status == "finished")
                if names.isdisjoint((name.there, name.tracked)) and name.there not in renamed.values():
                    renamed[name.here] = name.there
            parts[holder] = in_order(table, [name for name in table["file"].to_pylist() if name in renamed])
        found = []
        for batch in in_batches({holder: table for holder, table in parts.items() if table.num_rows}):
            schema = packed_schema("runs", batch.types)
            rows = pa.concat_tables([fit(table, schema) for table in batch.singles.values()])
            rows = rows.sort_by([("run_key", "ascending"), ("file", "ascending")])
            points = renamed_points(self.store.out / "curves", index, rows["file"].to_pylist(), renamed)
            found.append((batch.types, renamed_rows(rows, renamed), points))
        return found, finished

    def _replace(self, new: Sequence[MirrorName], others: bool) -> None:
        """Rewrite the segments with what the new rows make outdated: the same results without what was tracked.

        Args:
            new: finished rows that are there now.
            others: other results of their keys and environments as well.
        """
        from leaderboards.compaction import forget

        names = {name.there for name in new}
        twins, stems = {name.untracked for name in new} - names, {name[:_STEM] for name in names if others}
        if not twins and not stems:
            return
        known = self._refresh()
        slots = zip(known["file"].to_pylist(), known["holder"].to_pylist(), strict=True)
        outdated = {
            name: holder for name, holder in slots if name in twins or (name[:_STEM] in stems and name not in names)
        }
        if outdated:
            holders = sorted(set(outdated.values()))
            folder = self._view(holders)
            forget(Folder(folder), list(outdated))
            self._exchange(folder, holders)

    def _exchange(self, folder: Path, names: Sequence[str]) -> int:
        """Write the segments that a view has become, then remove those it has no more; returns how many went."""
        there = {path.name for path in (folder / "runs").glob("*.parquet")}
        for name in sorted(there - set(names)):
            self._write(folder, name)
        gone = [name for name in names if name not in there]
        self._forget(gone)
        free_of(folder)
        return len(gone)

    def _write(self, folder: Path, name: str) -> None:
        """Curves first: a row in a mirror has its curve."""
        for kind in ("curves", "runs"):
            with (folder / kind / name).open("rb") as file:
                self._place.put(f"{kind}/{name}", file)
        shutil.copy(folder / "runs" / name, self._copy / "runs" / name)

    def _forget(self, names: Sequence[str]) -> None:
        for kind in ("runs", "curves"):  # rows first: a curve without its row is nobody's
            self._place.remove(f"{kind}/{name}" for name in names)

    def _view(self, names: Sequence[str]) -> Path:
        """A result folder of some of the mirror's files.

        Raises:
            FileNotFoundError: another machine has removed some of them.
        """
        there = self._place.files("curves")
        curves = [name for name in names if name in there]
        if len(curves) < len(names) and not self._place.files("runs").keys() >= {*names}:
            raise FileNotFoundError("rows went away: their curves did, and rows go first")
        folder = self._scratch / f"view-{uuid.uuid4().hex[:8]}"
        each(partial(self._place.fetch, f"curves/{name}", folder / "curves" / name) for name in curves)
        (folder / "runs").mkdir(parents=True)
        for name in names:
            shutil.copy(self._copy / "runs" / name, folder / "runs" / name)
        return folder

    def _own_index(self) -> pa.Table:
        return self.store.folder.read(lambda files: index_of(files, self._singles))
