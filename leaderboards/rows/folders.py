"""Several result folders read as one, none of them changed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

import pandas as pd

from leaderboards.rows.checks import identity_problems
from leaderboards.rows.files import BrokenFileError, read_table
from leaderboards.rows.frames import concatenate, to_pandas
from leaderboards.rows.schema import COLUMNS, curves_schema
from leaderboards.rows.store import Store


class Results(Protocol):
    """Where runs and curves are read from: a `Store`, or several."""

    def runs(self) -> pd.DataFrame:
        """Read the runs, as `Store.runs` does."""

    def curves(self, keys: Collection[str] | None = None) -> pd.DataFrame:
        """Read the curves, as `Store.curves` does."""


class RowFile:
    """Reads a file of rows, such as `reproduced.parquet`, and its `_curves` beside it, as `Store` reads a folder."""

    def __init__(self, path: Path) -> None:
        self.out = path
        self._curves = path.with_name(f"{path.stem}_curves.parquet")

    def runs(self) -> pd.DataFrame:
        """Read the runs, as `Store.runs` does.

        Raises:
            StoreError: the file is broken, foreign, or of a newer schema.
        """
        try:
            table = read_table(self.out, "runs", [column.name for column in COLUMNS])
            for problem in identity_problems(table):
                raise BrokenFileError(self.out, f"{self.out}: {problem}")
            return to_pandas(concatenate([table]))
        except BrokenFileError as error:  # whoever named it by mistake shall not delete it
            raise BrokenFileError(self.out, error.problem, "name a result folder, or a file of rows") from error

    def curves(self, keys: Collection[str] | None = None) -> pd.DataFrame:
        """Read the curves, as `Store.curves` does; no points where there is no file of curves."""
        table = read_table(self._curves, "curves") if self._curves.exists() else curves_schema().empty_table()
        frame = to_pandas(table)
        return frame if keys is None else frame[frame["run_key"].isin(set(keys))].reset_index(drop=True)


class Folders:
    """What `Store` reads, over several folders or files of rows, read once.

    Of one key in several, the first finished row counts.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self.stores = [RowFile(path) if path.is_file() else Store(path) for path in dict.fromkeys(folders)]

    def runs(self) -> pd.DataFrame:
        """Read the runs, as `Store.runs` does, with a column `out`: the folder of each.

        Raises:
            StoreError: a file is broken, foreign, or of a newer schema.
        """
        return self._runs

    def curves(self, keys: Collection[str] | None = None) -> pd.DataFrame:
        """Read the curves of the rows that `runs` gives, as `Store.curves` does."""
        if len(self.stores) == 1:
            return self.stores[0].curves(keys)
        chosen = self._runs if keys is None else self._runs[self._runs["run_key"].isin(set(keys))]
        parts = [store.curves(set(chosen.loc[chosen["out"] == str(store.out), "run_key"])) for store in self.stores]
        return pd.concat(parts, ignore_index=True)

    @cached_property
    def _runs(self) -> pd.DataFrame:
        frames = [store.runs().assign(out=str(store.out)) for store in self.stores]
        frames = [frame for frame in frames if len(frame)] or frames[:1]
        if len(frames) == 1:
            return frames[0]
        runs = pd.concat(frames, ignore_index=True)
        done = runs["status"] == "finished"
        seconds = runs["finished"].astype("int64")
        order = runs.assign(_done=~done, _time=seconds.where(done, -seconds)).sort_values(
            ["_done", "_time"], kind="stable"
        )
        kept = order.drop_duplicates("run_key").index.sort_values()
        return runs.loc[kept].reset_index(drop=True)
