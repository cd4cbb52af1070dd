"""A folder of results that several processes may write into; and several folders read as one."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leaderboards.numbers import Point, curve_of, numbers_of
from leaderboards.rows.checks import check_curve, check_row, table_problems
from leaderboards.rows.counted import counted, one_for_each_key, results_digests
from leaderboards.rows.file_names import TRACKED_NAME
from leaderboards.rows.files import (
    BrokenFileError,
    StoreError,
    part_of,
    sweep_leftovers,
    write_by_content,
    write_table,
)
from leaderboards.rows.frames import curve_table, fit, run_table, to_pandas
from leaderboards.rows.index import Folder
from leaderboards.rows.reading import read_curves, read_rows
from leaderboards.rows.schema import (
    COLUMNS,
    TRACKED_COLUMN,
    curves_schema,
    environment_key,
    file_metadata,
)
from leaderboards.selection import DEFAULT_RULE
from leaderboards.shell_text import shell_command

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

BOARD = "leaderboard.parquet"
_LOG = logging.getLogger(__name__)


class Store:
    """The runs and curves in one folder, which the first write creates.

    Args:
        out: the folder; or, only to read, a file of rows such as `reproduced.parquet`, whose curves
            are in the file beside it whose name ends with `_curves`.
        data_hashes: data set -> hash of a copy of it. Rows of another copy are not read; rows
            without a hash are read.
    """

    def __init__(self, out: Path | str, data_hashes: Mapping[str, str] | None = None) -> None:
        self.out = Path(out)
        self._data_hashes = data_hashes or {}
        self._folder = Folder(self.out)
        self._swept = False

    def write(
        self,
        row: Mapping[str, Any],
        curve: Iterable[Point],
        replace: bool = False,
        tracked: Collection[str] = (),
    ) -> Path:
        """Store one run: its curve first, then its row.

        Nothing is written if its key and environment already have a finished row which makes this
        row unnecessary: this row is not finished, or has equal results and tracks no more.
        Different results of one environment are all kept; `validate` reports them.

        Args:
            row: every column of `leaderboards.COLUMNS`; see `check_row`. Numbers that it lacks are
                computed.
            curve: points `(round, metric, value)`.
            replace: whether a finished row replaces all rows that this environment stored for the
                key before.
            tracked: names of the row's files in the folder `tracked`. The row also names files of
                stored rows of the key that have another ending.

        Returns:
            The file that holds the run's row.

        Raises:
            ValueError: the row or the curve breaks the schema (`check_row`, `check_curve`).
            StoreError: a file of the run's rows is broken.
            OSError: the folder cannot be written or the disk is full; nothing half-written is left.
        """
        curve = list(curve)
        check_curve(curve)
        row = dict(row)
        for name, value in numbers_of(curve_of(curve)).items():
            if row.get(name) is None:
                row[name] = value
        check_row(row)
        forced = replace and row["status"] == "finished"
        written = datetime.now(UTC)
        names = {Path(name).suffix: name for name in tracked}
        if forced:  # the row counts before older rows, even if another machine's clock is ahead
            key = row["run_key"]
            with suppress(StoreError):  # a broken file of other rows must not lose this row
                index = self._folder.steady(lambda: self._folder.index([key]))
                for time in index["written"].drop_null().to_pylist():
                    written = max(written, time + timedelta(microseconds=1))
                names = self.tracked([key]).get(key, {}) | names
        listed = " ".join(sorted(names.values())) or None
        table = run_table({**row, "written": written, "forced": forced, "tracked": listed})
        if not self._swept:
            sweep_leftovers(self.out)
            sweep_leftovers(part_of(self.out, "runs"))
            sweep_leftovers(part_of(self.out, "curves"))
            self._swept = True
        if not forced:
            superseding = self._folder.steady(lambda: self._superseding_file(row, table))
            if superseding:
                return superseding
        stem = f"{row['run_key'][:16]}-{environment_key(row)}"
        points = curve_table(row, curve)
        schemas = (table.schema, points.schema)
        return write_by_content(self.out, stem, schemas, [table], [points])

    def tracked(self, keys: Collection[str] | None = None) -> dict[str, dict[str, str]]:
        """Return run key -> ending -> name of the tracked file, for the keys whose rows name any.

        If several rows of a key name files with one ending, the row of `runs` counts, then the row
        written last.
        """
        if not self.begun:
            return {}
        index = self._folder.steady(lambda: counted(self._folder.index(keys)))
        chosen = one_for_each_key(index)
        names: dict[str, dict[str, str]] = {}
        for rows in (index.sort_by("written"), chosen):  # the chosen rows come last, and count
            keys_of_rows = rows["run_key"].to_pylist()
            for key, listed in zip(keys_of_rows, rows["tracked"].to_pylist(), strict=True):
                for name in (listed or "").split():
                    if TRACKED_NAME.fullmatch(name) and name[:16] == str(key)[:16]:
                        names.setdefault(key, {})[Path(name).suffix] = name
        return names

    def status(self, keys: Collection[str] | None = None) -> dict[str, str]:
        """Return run key -> `finished`, `failed` or `stopped`, for the `keys` that have a row.

        None is all keys. A key with several rows is finished if one of them is; otherwise it has
        the latest status. Few columns are read.
        """
        if not self.begun:
            return {}
        index = self.index(keys)
        return dict(zip(index["run_key"].to_pylist(), index["status"].to_pylist(), strict=True))

    def finished(self, keys: Collection[str] | None = None) -> set[str]:
        """Return the keys (of `keys`, if given) that have a finished row."""
        return {key for key, status in self.status(keys).items() if status == "finished"}

    @property
    def begun(self) -> bool:
        """Return whether anything was stored.

        If not, a plan need not wait for imports of pandas and pyarrow.
        """
        return part_of(self.out, "runs").exists()

    def runs(
        self,
        replicates: bool = False,
        columns: Sequence[str] | None = None,
        keys: Collection[str] | None = None,
    ) -> pd.DataFrame:
        """Read all runs, one row per run key.

        It is the latest row of `--force`. Without one it is the first finished row, and without a
        finished row the latest.

        Args:
            replicates: return a row for each environment of a run key instead.
            columns: names to read, of `leaderboards.COLUMNS`; None is all.
            keys: run keys to read; None is all.

        Returns:
            `columns`, or all of them. Integers and booleans are pandas' nullable types, maps are
            dicts.

        Raises:
            StoreError: a file is broken, foreign, or of a newer schema, or a row breaks a rule that
                `table_problems` checks; the message names it and the next step.
            KeyError: a column does not exist.
        """
        names = [column.name for column in COLUMNS] if columns is None else [*columns]
        return to_pandas(self._folder.steady(lambda: self._checked_rows(names, keys, replicates)))

    def curves(self, keys: Collection[str] | None = None) -> pd.DataFrame:
        """Read the curves of the rows that `runs` returns, or of `keys` among them.

        Columns are run_key, algorithm, round, metric, value. A run whose curve file is missing is
        left out with a warning.
        """
        points, missing = self._folder.steady(lambda: read_curves(self._index_of_runs(keys)))
        for path, count in missing.items():
            _LOG.warning("%s is missing: %d run(s) without a curve", path, count)
        return to_pandas(fit(points, curves_schema()))

    def rebuild(
        self,
        runs: pd.DataFrame | None = None,
        tuned: Collection[str] = (),
        chosen_by: str = DEFAULT_RULE,
    ) -> Path:
        """Make leaderboard.parquet of all runs, or of `runs`, atomically.

        `tuned` and `chosen_by` are those of `leaderboards.board.leaderboard`.

        Raises:
            StoreError: a run's file is broken, foreign, or of a newer schema.
            OSError: the folder cannot be written; the old leaderboard stays.
        """
        import pyarrow as pa

        from leaderboards.board import leaderboard

        path = self.out / BOARD
        if runs is None:
            runs = self.runs()
        board = leaderboard(runs, tuned=tuned, chosen_by=chosen_by)
        table = pa.Table.from_pandas(board, preserve_index=False)
        metadata = {**(table.schema.metadata or {}), **file_metadata("leaderboard")}
        write_table(table.replace_schema_metadata(metadata), path)
        return path

    def index(self, keys: Collection[str] | None = None) -> pa.Table:
        """Return the index (`index.Folder`) of the rows that `runs` returns."""
        return self._folder.steady(lambda: self._index_of_runs(keys))

    def _checked_rows(
        self, names: Sequence[str], keys: Collection[str] | None, replicates: bool
    ) -> pa.Table:
        """Read the rows that `runs` returns; raises StoreError if one breaks a rule."""
        index = self._index_of_runs(keys, replicates)
        rows = read_rows(index, names)
        for at, problem in table_problems(rows):
            path = Path(index["holder"][at].as_py())
            key = index["run_key"][at].as_py()[:16]
            if self.out.is_file():
                raise BrokenFileError(path, f"{path}: run {key}: {problem}")
            command = shell_command("bench.boards", "validate", self.out)
            raise StoreError(
                path, f"{path}: run {key}: {problem}; `{command}` tells all and what to do"
            )
        return rows

    def _index_of_runs(self, keys: Collection[str] | None, replicates: bool = False) -> pa.Table:
        """Return the index of the rows that `runs` returns."""
        index = counted(_on_copies(self._folder.index(keys), self._data_hashes))
        return index.sort_by("file") if replicates else one_for_each_key(index)

    def _superseding_file(self, row: Mapping[str, Any], table: pa.Table) -> Path | None:
        """Find the file of a finished row that makes it unnecessary to write this one, if any."""
        import pyarrow.compute as pc

        index = self._folder.index([row["run_key"]])
        index = index.filter(pc.equal(index["environment"], environment_key(row)))
        index = index.filter(pc.equal(index["status"], "finished"))
        if not index.num_rows:
            return None
        if row["status"] != "finished":
            return Path(index["holder"][0].as_py())
        (own_results,) = results_digests(table)
        own_endings = _endings(table["tracked"][0].as_py())
        stored = read_rows(index)
        stored_results = results_digests(stored)
        stored_accuracies = stored[TRACKED_COLUMN].to_pylist()
        for at, other in enumerate(index.select(["holder", "tracked"]).to_pylist()):
            lacks_accuracy = stored_accuracies[at] is None and row[TRACKED_COLUMN] is not None
            lacks_tracked = not own_endings <= _endings(other["tracked"])
            if stored_results[at] == own_results and not lacks_accuracy and not lacks_tracked:
                return Path(other["holder"])
        return None


def _endings(tracked: str | None) -> set[str]:
    """Return the endings of a row's tracked files."""
    return {Path(name).suffix for name in (tracked or "").split()}


def _on_copies(index: pa.Table, data_hashes: Mapping[str, str]) -> pa.Table:
    """Leave out the rows of an index whose data have other hashes than `data_hashes`."""
    import pyarrow.compute as pc

    for dataset, digest in data_hashes.items():
        same_set = pc.equal(index["dataset"], dataset)
        other_copy = pc.fill_null(pc.not_equal(index["dataset_hash"], digest), False)
        left_out = pc.and_(same_set, other_copy)
        index = index.filter(pc.invert(left_out))
    return index


class Folders:
    """Several folders or files of rows, each read once, as if they were one `Store`.

    If several have a run key, one of the rows that count in each is chosen as `Store.runs` does.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.stores = [Store(path) for path in dict.fromkeys(folders)]

    def runs(self) -> pd.DataFrame:
        """Read the runs, as `Store.runs` does, with a column `out`: the folder of each.

        Raises:
            StoreError: a file is broken, foreign, or of a newer schema.
        """
        return self._runs

    def curves(self, keys: Collection[str] | None = None) -> pd.DataFrame:
        """Read the curves of the rows that `runs` returns, as `Store.curves` does."""
        import pandas as pd

        chosen = self._runs
        if keys is not None:
            chosen = chosen[chosen["run_key"].isin(set(keys))]
        frames = []
        for store in self.stores:
            own_keys = chosen.loc[chosen["out"] == str(store.out), "run_key"]
            frames.append(store.curves(set(own_keys)))
        return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)

    def only(self, runs: pd.DataFrame) -> Folders:
        """Return the same folders with only `runs`, which are some of their rows."""
        reduced = copy(self)
        reduced._runs = runs
        return reduced

    @cached_property
    def _runs(self) -> pd.DataFrame:
        import pandas as pd

        first, *others = self.stores
        if not others:
            return first.runs().assign(out=str(first.out))
        frames = []
        for store, keys in zip(self.stores, self._chosen_keys(), strict=True):
            frames.append(store.runs(keys=keys).assign(out=str(store.out)))
        frames = [frame for frame in frames if len(frame)] or frames[:1]
        return pd.concat(frames, ignore_index=True)

    def _chosen_keys(self) -> list[set[str]]:
        """Return the run keys whose rows are read from each of the stores."""
        import pyarrow as pa

        indexes = []
        for place, store in enumerate(self.stores):
            index = store.index()
            places = pa.array([place] * index.num_rows, pa.int64())
            indexes.append(index.append_column("store", places))
        keys: list[set[str]] = [set() for _ in self.stores]
        chosen = one_for_each_key(pa.concat_tables(indexes))
        for row in chosen.select(["store", "run_key"]).to_pylist():
            keys[row["store"]].add(row["run_key"])
        return keys
