"""A folder of results that several processes may write into: a small parquet file per run that appears whole or not.

    OUT/runs/<key16>-<env8>.parquet      one row: what was run, what came out (leaderboards.COLUMNS)
    OUT/curves/<key16>-<env8>.parquet    its curve (leaderboards.CURVE_COLUMNS)
    OUT/leaderboard.parquet              made from the runs by `Store.rebuild`

`key16` begins the run key and `env8` is the environment class, so that results of one key from unlike environments
lie side by side as replicates. Files are found by their ending and read by their content: several rows in one are fine.
`leaderboards.compaction` makes few files of many; `leaderboards.packed` says what they are.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leaderboards.checks import CurvePoint, check_curve, check_row, identity_problems
from leaderboards.commands import shell_command
from leaderboards.files import StoreError, read_table, sweep_leftovers, write_together
from leaderboards.frames import concatenate, curve_table, fit, run_table, to_pandas
from leaderboards.identity import digest, environment_key
from leaderboards.packed import (
    PACKED_NAME,
    SLOT_NAME,
    Files,
    Folder,
    empty_index,
    gather_curves,
    in_order,
    rows_in_pack,
    single_index,
    with_text,
)
from leaderboards.schema import COLUMNS, curves_schema, file_metadata

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa

TRACKED = "local_accuracy_mean"  # only of runs that were asked for it, with results equal to those that were not
BOARD = "leaderboard.parquet"
CHOSEN_BY = ("run_key", "status", "finished")  # which of several rows of one run counts
RESULTS = [column.name for column in COLUMNS if column.group == "results" and column.name != TRACKED]
_LOG = logging.getLogger(__name__)


class Store:
    """The runs and curves below one folder.

    Args:
        out: the folder; made when first written to.
    """

    def __init__(self, out: Path | str) -> None:
        self.out = Path(out)
        self.folder = Folder(self.out)
        self._swept = False

    def write(self, row: Mapping[str, Any], curve: Iterable[CurvePoint], replace: bool = False) -> Path:
        """Store one run: its curve first, then its row.

        A row replaces a failed or stopped one of the same key and environment. A finished one is never replaced: a
        failed or stopped row is then dropped, an equal result is not written again, and a different one is kept beside
        it under a name of its own, because results of one environment should agree to the last digit.

        Args:
            row: every column of `leaderboards.COLUMNS` and one `hp_<name>` per hyper-parameter; see `check_row`.
            curve: points `(round, metric, value)`.
            replace: a finished row takes the place of whatever this environment stored for the key before.

        Returns:
            The file that holds the run's row.

        Raises:
            ValueError: the row or the curve breaks the schema.
            StoreError: the file in its place is broken.
            OSError: the folder cannot be written or the disk is full; nothing half-written is left.
        """
        curve = list(curve)
        check_row(row)
        check_curve(curve)
        run, points = run_table(row), curve_table(row, curve)
        self._sweep_once()
        with self.locked("runs"):
            files = self.folder.files()
            path, wanted, outdated = self._place(files, row, run, replace)
            if wanted:
                write_together([(points, self.out / "curves" / path.name), (run, path)])
            if outdated:
                from leaderboards.compaction import forget

                forget(self.folder, outdated)
        return path

    def status(self, keys: Collection[str] | None = None) -> dict[str, str]:
        """Run key -> `finished`, `failed` or `stopped`; keys without a row are left out. None asks for all.

        A key with several rows is finished if one of them is, else what the latest says. Only three columns are read.
        """
        if not self.begun:
            return {}
        index = self.folder.read(lambda files: _index(files, keys))
        index = index.take(first_choices(index))
        found = zip(index["run_key"].to_pylist(), index["status"].to_pylist(), strict=True)
        return {key: status for key, status in found if keys is None or key in keys}

    def finished(self, keys: Collection[str] | None = None) -> set[str]:
        """The keys (of `keys`, if given) that have a finished row."""
        return {key for key, status in self.status(keys).items() if status == "finished"}

    def failed(self, keys: Collection[str] | None = None) -> set[str]:
        """The keys (of `keys`, if given) whose latest row failed and that have no finished one."""
        return {key for key, status in self.status(keys).items() if status == "failed"}

    @property
    def begun(self) -> bool:
        """Whether anything was stored; a plan for a new folder need not wait for pandas and pyarrow."""
        return (self.out / "runs").exists()

    def runs(self, replicates: bool = False, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """All runs, one row per run key: the first finished one, or the latest if none is finished.

        Args:
            replicates: give every row instead, several of one key included.
            columns: names to read, of `leaderboards.COLUMNS` or hyper-parameters that some row has; None is all.

        Returns:
            `columns`, or those of `leaderboards.COLUMNS` and every `hp_*` that some row has, empty for the others. A
            hyper-parameter that is a number for some algorithm and text for another is text. Integers and booleans
            are pandas' nullable types, maps are dicts.

        Raises:
            StoreError: a file is broken, foreign, or of a newer schema, or a row does not say who it is; the message
                names it and the next step.
            KeyError: a column that there is not.
        """
        wanted = None if columns is None else {*columns, *CHOSEN_BY}
        table = self.folder.read(lambda files: _rows(files, wanted))
        for problem in identity_problems(table if columns is None else table.select(columns)):
            which = shell_command("bench.boards", "validate", self.out)
            raise StoreError(self.out, f"{self.out}: {problem}; `{which}` names the file and what to do")
        table = table if replicates else table.take(first_choices(table))
        return to_pandas(table if columns is None else table.select(columns))

    def curves(self, keys: Collection[str] | None = None) -> pd.DataFrame:
        """The curves of the rows that `runs` gives: columns run_key, algorithm, round, metric, value.

        Args:
            keys: run keys to read; None is all. A run whose curve file is not there is left out with a warning.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        def points(files: Files) -> tuple[pa.Table, dict[Path, int]]:
            index = _index(files, keys)
            index = index.take(first_choices(index))
            if keys is not None:
                index = index.filter(pc.is_in(index["run_key"], pa.array(list(keys), pa.string())))
            return gather_curves(self.out / "curves", index)

        found, missing = self.folder.read(points)
        for path, count in missing.items():
            _LOG.warning("%s is missing: %d run(s) without a curve", path, count)
        return to_pandas(fit(found, curves_schema()))

    def rebuild(self) -> Path:
        """Make leaderboard.parquet from the runs, atomically; one process at a time.

        Raises:
            StoreError: a run's file is broken, foreign, or of a newer schema.
            OSError: the folder cannot be written; the old leaderboard stays.
        """
        import pyarrow as pa

        from leaderboards.boards import leaderboard

        path = self.out / BOARD
        with self.locked("leaderboard"):
            table = pa.Table.from_pandas(leaderboard(self.runs()), preserve_index=False)
            metadata = {**(table.schema.metadata or {}), **file_metadata("leaderboard")}
            write_together([(table.replace_schema_metadata(metadata), path)])
        return path

    def locked(self, name: str, patience: float = -1) -> Any:
        """A lock of the folder's, for a `with`.

        Args:
            name: `runs`, `leaderboard`, or `mirror`: of who pushes.
            patience: seconds to wait for it before filelock.Timeout; -1 waits for ever.
        """
        from filelock import FileLock

        self.out.mkdir(parents=True, exist_ok=True)
        return FileLock(self.out / f"{name}.lock", timeout=patience)

    def _place(
        self, files: Files, row: Mapping[str, Any], run: pa.Table, replace: bool
    ) -> tuple[Path, bool, list[str]]:
        """Where a row belongs, whether it is to be written there, and the names of the rows it makes outdated."""
        stem = f"{row['run_key'][:16]}-{environment_key(row)}"
        packed = files.packed([row["run_key"]])
        holders = dict(zip(packed["file"].to_pylist(), packed["holder"].to_pylist(), strict=True))
        holders |= {name: name for name in files.singles if name.startswith(stem)}
        name = f"{stem}.parquet"
        path = files.folder / name
        if replace and row["status"] == "finished":
            return path, True, sorted(other for other in holders if other.startswith(f"{stem}-"))
        if name not in holders:
            return path, True, []
        there = _row_in(files.folder / holders[name], name, row["run_key"])
        if there["status"][0].as_py() != "finished":
            return path, True, []
        if row[TRACKED] is not None and there[TRACKED][0].as_py() is None and same_results(there, run):
            return path, True, []
        if row["status"] != "finished" or same_results(there, run):
            return files.folder / holders[name], False, []
        name = beside(stem, run)
        return files.folder / holders.get(name, name), name not in holders, []

    def _sweep_once(self) -> None:
        if not self._swept:
            for folder in (self.out, self.out / "runs", self.out / "curves"):
                sweep_leftovers(folder)
            self._swept = True


def same_results(left: pa.Table, right: pa.Table) -> bool:
    """Whether two tables of rows agree in every column of results that all runs have, to the last digit."""
    return bool(left.select(RESULTS).equals(right.select(RESULTS)))


def beside(stem: str, run: pa.Table) -> str:
    """The name of a row whose results differ from those of the row that has the name of its key and environment."""
    return f"{stem}-{results_digests(run)[0][:8]}.parquet"


def results_digests(rows: pa.Table) -> list[str]:
    """For each row 64 digits that are equal for equal results."""
    return [digest({"results": str([row])}) for row in rows.select(RESULTS).to_pylist()]


def first_choices(index: pa.Table) -> np.ndarray:
    """The position of one row per run key: the first finished, else the latest; ties by position.

    Args:
        index: the columns `CHOSEN_BY` at least.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    done = pc.equal(index["status"], "finished")
    time = index["finished"].cast(pa.int64())
    order = {"key": index["run_key"], "late": pc.invert(done).cast(pa.int8())}
    order |= {"time": pc.if_else(done, time, pc.negate(time)), "position": pa.array(np.arange(index.num_rows))}
    ordered = pa.table(order).sort_by([(name, "ascending") for name in order]).combine_chunks()
    key = ordered["key"]
    first = np.ones(index.num_rows, bool)
    first[1:] = pc.not_equal(key[1:], key[:-1]).to_numpy()
    return np.sort(ordered["position"].to_numpy()[first])


def _rows(files: Files, columns: Collection[str] | None = None) -> pa.Table:
    """All rows, in the order of the names of their small files, packed or not; of some columns only, if given."""
    import pyarrow as pa

    packed, wanted = files.packed(), None if columns is None else list(columns)
    tables = [with_text(read_table(files.folder / name, "runs", wanted), "file", name) for name in files.singles]
    tables += [rows_in_pack(pack, packed, columns=wanted) for pack in files.packs]
    names = pa.concat_tables([empty_index().select(["file"]), *(table.select(["file"]) for table in tables)])
    return _by_name(concatenate(tables), names["file"])


def _index(files: Files, keys: Collection[str] | None) -> pa.Table:
    """The index of each row that may belong to `keys`, in the order of names."""
    import pyarrow as pa

    starts = None if keys is None else {key[:16] for key in keys}
    tables = [files.packed(keys)]
    for name in files.singles:
        slot = SLOT_NAME.fullmatch(name)
        if starts is None or not slot or slot[1] in starts:
            tables.append(single_index(files.folder / name))
    index = pa.concat_tables(tables)
    return _by_name(index, index["file"])


def _by_name(table: pa.Table, names: pa.ChunkedArray) -> pa.Table:
    import pyarrow.compute as pc

    order = pc.sort_indices(names).to_numpy()
    return table if bool((order[1:] > order[:-1]).all()) else table.take(order)


def _row_in(path: Path, name: str, key: str) -> pa.Table:
    """The row of a name, in a file of its own or in a pack."""
    table = read_table(path, "runs", keys=[key])
    return in_order(table, [name]) if PACKED_NAME.fullmatch(path.name) else table
