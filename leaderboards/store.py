"""A folder of results that several processes may write into: a small parquet file per run that appears whole or not.

    OUT/runs/<key16>-<env8>.parquet      one row: what was run, what came out (leaderboards.COLUMNS)
    OUT/curves/<key16>-<env8>.parquet    its curve (leaderboards.CURVE_COLUMNS)
    OUT/leaderboard.parquet              made from the runs by `Store.rebuild`

`key16` begins the run key and `env8` is the environment class, so that results of one key from unlike environments
lie side by side as replicates. Files are found by their ending and read by their content: several rows in one are fine.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from leaderboards.checks import CurvePoint, check_curve, check_row
from leaderboards.files import read_table, sweep_leftovers, write_together
from leaderboards.frames import concatenate, curve_table, run_table, to_pandas
from leaderboards.identity import digest, environment_key
from leaderboards.schema import COLUMNS, curves_schema, file_metadata

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_LOG = logging.getLogger(__name__)
_RESULTS = [column.name for column in COLUMNS if column.group == "results"]
_OUR_NAME = re.compile(r"([0-9a-f]{16})-[0-9a-f]{8}(-[0-9a-f]{8})?\.parquet")


class _Entry(NamedTuple):
    """What the index knows of one row."""

    key: str
    status: str
    finished: datetime
    file: str


_INDEX = ("run_key", "status", "finished")  # the columns that an _Entry is made of


class Store:
    """The runs and curves below one folder.

    Args:
        out: the folder; made when first written to.
    """

    def __init__(self, out: Path | str) -> None:
        self.out = Path(out)
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
        with self._locked("runs"):
            path, wanted, outdated = self._place(row, run, replace)
            if wanted:
                write_together([(points, self.out / "curves" / path.name), (run, path)])
            for old in outdated:
                old.unlink()
        return path

    def status(self, keys: Collection[str] | None = None) -> dict[str, str]:
        """Run key -> `finished`, `failed` or `stopped`; keys without a row are left out. None asks for all.

        A key with several rows is finished if one of them is, else what the latest says. Only three columns are read.
        """
        entries = self._index(keys)
        chosen = (entries[i] for i in _choose(entries))
        return {entry.key: entry.status for entry in chosen if keys is None or entry.key in keys}

    def finished(self, keys: Collection[str] | None = None) -> set[str]:
        """The keys (of `keys`, if given) that have a finished row."""
        return {key for key, status in self.status(keys).items() if status == "finished"}

    def failed(self, keys: Collection[str] | None = None) -> set[str]:
        """The keys (of `keys`, if given) whose latest row failed and that have no finished one."""
        return {key for key, status in self.status(keys).items() if status == "failed"}

    def runs(self, replicates: bool = False) -> pd.DataFrame:
        """All runs, one row per run key: the first finished one, or the latest if none is finished.

        Args:
            replicates: give every row instead, several of one key included.

        Returns:
            The columns of `leaderboards.COLUMNS` and every `hp_*` that some row has, empty for the others. A
            hyper-parameter that is a number for some algorithm and text for another is text. Integers and booleans
            are pandas' nullable types, maps are dicts.

        Raises:
            StoreError: a file is broken, foreign, or of a newer schema; the message names it and the next step.
        """
        import pyarrow as pa

        table = concatenate([read_table(path, "runs") for path in self._files()])
        if not replicates:
            table = table.take(pa.array(_choose(_entries(table)), pa.int64()))
        return to_pandas(table)

    def curves(self, keys: Collection[str] | None = None) -> pd.DataFrame:
        """The curves of the rows that `runs` gives: columns run_key, algorithm, round, metric, value.

        Args:
            keys: run keys to read; None is all. A run whose curve file is not there is left out with a warning.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        entries = self._index(keys)
        wanted: dict[str, list[str]] = {}
        for entry in (entries[i] for i in _choose(entries)):
            if keys is None or entry.key in keys:
                wanted.setdefault(entry.file, []).append(entry.key)
        tables = [curves_schema().empty_table()]
        for name, members in wanted.items():
            path = self.out / "curves" / name
            if path.exists():
                table = read_table(path, "curves")
                tables.append(table.filter(pc.is_in(table["run_key"], pa.array(members))))
            else:
                _LOG.warning("%s is missing: %d run(s) without a curve", path, len(members))
        return to_pandas(pa.concat_tables(tables))

    def rebuild(self) -> Path:
        """Make leaderboard.parquet from the runs, atomically; one process at a time.

        Raises:
            StoreError: a run's file is broken, foreign, or of a newer schema.
            OSError: the folder cannot be written; the old leaderboard stays.
        """
        import pyarrow as pa

        from leaderboards.boards import leaderboard

        path = self.out / "leaderboard.parquet"
        with self._locked("leaderboard"):
            table = pa.Table.from_pandas(leaderboard(self.runs()), preserve_index=False)
            metadata = {**(table.schema.metadata or {}), **file_metadata("leaderboard")}
            write_together([(table.replace_schema_metadata(metadata), path)])
        return path

    def _place(self, row: Mapping[str, Any], run: pa.Table, replace: bool) -> tuple[Path, bool, list[Path]]:
        """Where a row belongs, whether it is to be written there, and which files it makes outdated."""
        stem = f"{row['run_key'][:16]}-{environment_key(row)}"
        path = self.out / "runs" / f"{stem}.parquet"
        if replace and row["status"] == "finished":
            return path, True, sorted(path.parent.glob(f"{stem}-*.parquet"))
        there = read_table(path, "runs") if path.exists() else None
        if there is None or there["status"][0].as_py() != "finished":
            return path, True, []
        if row["status"] != "finished" or there.select(_RESULTS).equals(run.select(_RESULTS)):
            return path, False, []
        results = digest({"results": str(run.select(_RESULTS).to_pylist())})
        path = path.with_name(f"{stem}-{results[:8]}.parquet")
        return path, not path.exists(), []

    def _index(self, keys: Collection[str] | None) -> list[_Entry]:
        """Key, status, end and file of each row that may belong to `keys`."""
        starts = None if keys is None else {key[:16] for key in keys}
        entries = []
        for path in self._files():
            name = _OUR_NAME.fullmatch(path.name)
            if name and starts is not None and name[1] not in starts:
                continue
            entries += _entries(read_table(path, "runs", _INDEX), path.name)
        return entries

    def _files(self) -> list[Path]:
        folder = self.out / "runs"
        return sorted(folder.glob("*.parquet")) if folder.exists() else []

    def _locked(self, name: str) -> Any:
        from filelock import FileLock

        self.out.mkdir(parents=True, exist_ok=True)
        return FileLock(self.out / f"{name}.lock")

    def _sweep_once(self) -> None:
        if not self._swept:
            for folder in (self.out, self.out / "runs", self.out / "curves"):
                sweep_leftovers(folder)
            self._swept = True


def _entries(table: pa.Table, file: str = "") -> list[_Entry]:
    columns = (table[name].to_pylist() for name in _INDEX)
    return [_Entry(key, status, finished, file) for key, status, finished in zip(*columns, strict=True)]


def _choose(entries: Sequence[_Entry]) -> list[int]:
    """The position of one entry per key: the first finished, else the latest; ties by position."""
    best: dict[str, int] = {}
    for i, entry in enumerate(entries):
        held = best.setdefault(entry.key, i)
        best[entry.key] = min(held, i, key=lambda j: _preference(entries[j], j))
    return sorted(best.values())


def _preference(entry: _Entry, position: int) -> tuple[bool, float, int]:
    time = entry.finished.timestamp()
    return entry.status != "finished", time if entry.status == "finished" else -time, position
