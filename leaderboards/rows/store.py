"""A folder of results that several processes may write into: a row per run, found whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leaderboards.rows.checks import CurvePoint, check_curve, check_row, identity_problems
from leaderboards.rows.files import StoreError, sweep_leftovers, write_by_content, write_together
from leaderboards.rows.frames import curve_table, fit, run_table, to_pandas
from leaderboards.rows.identity import environment_key
from leaderboards.rows.schema import COLUMNS, curves_schema, file_metadata
from leaderboards.rows.segments import (
    TRACKED,
    Folder,
    counted,
    one_for_each_key,
    read_curves,
    read_rows,
    results_digests,
)
from leaderboards.shell_text import shell_command

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

BOARD = "leaderboard.parquet"
_LOG = logging.getLogger(__name__)


class Store:
    """The runs and curves below one folder.

    Args:
        out: the folder; made when first written to.
    """

    def __init__(self, out: Path | str) -> None:
        self.out = Path(out)
        self._folder = Folder(self.out)
        self._swept = False

    def write(self, row: Mapping[str, Any], curve: Iterable[CurvePoint], replace: bool = False) -> Path:
        """Store one run: its curve first, then its row.

        Nothing is written if its key and environment have a finished row already, and this one is not finished, or has
        equal results and no more tracked. Unlike results of one environment are both kept, which `validate` reports.

        Args:
            row: every column of `leaderboards.COLUMNS`; see `check_row`.
            curve: points `(round, metric, value)`.
            replace: a finished row takes the place of whatever this environment stored for the key before.

        Returns:
            The file that holds the run's row.

        Raises:
            ValueError: the row or the curve breaks the schema (`check_row`, `check_curve`).
            StoreError: a file of the run's rows is broken.
            OSError: the folder cannot be written or the disk is full; nothing half-written is left.
        """
        curve = list(curve)
        check_row(row)
        check_curve(curve)
        forced = replace and row["status"] == "finished"
        table = run_table({**row, "written": datetime.now(UTC), "forced": forced})
        if not self._swept:
            for folder in (self.out, self.out / "runs", self.out / "curves"):
                sweep_leftovers(folder)
            self._swept = True
        there = None if forced else self._folder.steady(lambda: self._stands_for(row, table))
        stem = f"{row['run_key'][:16]}-{environment_key(row)}"
        points = curve_table(row, curve)
        return there or write_by_content(self.out, stem, (table.schema, points.schema), [table], [points])

    def status(self, keys: Collection[str] | None = None) -> dict[str, str]:
        """Return run key -> `finished`, `failed` or `stopped` of those of `keys` that have a row; None asks for all.

        A key with several rows is finished if one of them is, else what the latest says. Few columns are read.
        """
        if not self.begun:
            return {}
        index = self._folder.steady(lambda: self._chosen(keys))
        return dict(zip(index["run_key"].to_pylist(), index["status"].to_pylist(), strict=True))

    def finished(self, keys: Collection[str] | None = None) -> set[str]:
        """The keys (of `keys`, if given) that have a finished row."""
        return {key for key, status in self.status(keys).items() if status == "finished"}

    @property
    def begun(self) -> bool:
        """Whether anything was stored; a plan for a new folder need not wait for pandas and pyarrow."""
        return (self.out / "runs").exists()

    def runs(self, replicates: bool = False, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Read all runs, one row per run key: the first finished one, or the latest if none is finished.

        Args:
            replicates: give a row for each environment of a run key instead.
            columns: names to read, of `leaderboards.COLUMNS`; None is all.

        Returns:
            `columns`, or all of them. Integers and booleans are pandas' nullable types, maps are dicts.

        Raises:
            StoreError: a file is broken, foreign, or of a newer schema, or a row does not say who it is; the
                message names it and the next step.
            KeyError: a column that there is not.
        """
        names = [column.name for column in COLUMNS] if columns is None else [*columns]
        table = self._folder.steady(lambda: read_rows(self._chosen(None, replicates), names))
        for problem in identity_problems(table):
            which = shell_command("bench.boards", "validate", self.out)
            raise StoreError(self.out, f"{self.out}: {problem}; `{which}` names the file and what to do")
        return to_pandas(table)

    def curves(self, keys: Collection[str] | None = None) -> pd.DataFrame:
        """Read the curves of the rows that `runs` gives, or of `keys` among them.

        Columns are run_key, algorithm, round, metric, value. A run whose curve file is not there is left out with a
        warning.
        """
        points, missing = self._folder.steady(lambda: read_curves(self._chosen(keys)))
        for path, count in missing.items():
            _LOG.warning("%s is missing: %d run(s) without a curve", path, count)
        return to_pandas(fit(points, curves_schema()))

    def rebuild(self) -> Path:
        """Make leaderboard.parquet from the runs, atomically.

        Raises:
            StoreError: a run's file is broken, foreign, or of a newer schema.
            OSError: the folder cannot be written; the old leaderboard stays.
        """
        import pyarrow as pa

        from leaderboards.board import leaderboard

        path = self.out / BOARD
        table = pa.Table.from_pandas(leaderboard(self.runs()), preserve_index=False)
        metadata = {**(table.schema.metadata or {}), **file_metadata("leaderboard")}
        write_together([(table.replace_schema_metadata(metadata), path)])
        return path

    def _chosen(self, keys: Collection[str] | None, replicates: bool = False) -> pa.Table:
        """The index of the rows that `runs` gives."""
        index = counted(self._folder.index(keys))
        return index.sort_by("file") if replicates else one_for_each_key(index)

    def _stands_for(self, row: Mapping[str, Any], table: pa.Table) -> Path | None:
        """The file of a finished row that makes it needless to write this one, or None."""
        import pyarrow.compute as pc

        index = self._folder.index([row["run_key"]])
        index = index.filter(pc.equal(index["environment"], environment_key(row)))
        index = index.filter(pc.equal(index["status"], "finished"))
        if not index.num_rows:
            return None
        if row["status"] != "finished":
            return Path(index["holder"][0].as_py())
        stored = read_rows(index)
        for holder, tracked, results in zip(
            index["holder"].to_pylist(), stored[TRACKED].to_pylist(), results_digests(stored), strict=True
        ):
            if results == results_digests(table)[0] and (tracked is not None or row[TRACKED] is None):
                return Path(holder)
        return None
