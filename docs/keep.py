"""Keep runs in this repository.

- `python docs/keep.py DIR [DIR ...]` adds the finished, unshortened runs of result folders to
  leaderboards/reproduced.parquet, which has runs of the papers' own problems.
- `python docs/keep.py --board NAME DIR [DIR ...]` adds all runs to the board `leaderboards/NAME`.
  Its leaderboard.parquet is made with the options in its board.toml.

The names of machines and of their folders are left out, because they say nothing of the result.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

import leaderboards
from bench.compare.boards import board_selection
from bench.stored.results import source_of
from leaderboards.numbers import Point
from leaderboards.rows.compaction import compact
from leaderboards.rows.files import read_table, write_table
from leaderboards.rows.frames import curve_table, fit, records, run_table
from leaderboards.rows.schema import COLUMNS, runs_schema
from leaderboards.rows.store import Folders, Store
from leaderboards.selection import ALL_RUNS, Selection

PACKAGE = Path(leaderboards.__file__).parent
REPRODUCED = PACKAGE / "reproduced.parquet"
CURVES = PACKAGE / "reproduced_curves.parquet"
_CURVE_ORDER = [("run_key", "ascending"), ("round", "ascending"), ("metric", "ascending")]
_FOLDERS = ("--out", "--data-dir", "--mirror")  # options that name a place of the user's


def keep(folders: Sequence[Path], runs: Path = REPRODUCED, curves: Path = CURVES) -> int:
    """Add the finished and unshortened runs of result folders.

    A new run replaces a kept one of the same key.

    Returns:
        How many runs were added or replaced.

    Raises:
        leaderboards.StoreError: a file is broken, foreign, or of a newer schema.
        OSError: a file cannot be written.
    """
    source = Folders(folders)
    rows = []
    for row in records(source.runs()):
        if row["status"] == "finished" and not row["shortened"]:
            rows.append(_anonymous(stored_row(row)))
    keys = {row["run_key"] for row in rows}
    points_by_key = source.curves(keys).groupby("run_key")
    curve_tables = _others(curves, "curves", keys)
    run_tables = _others(runs, "runs", keys)
    for row in rows:
        points = _points(points_by_key.get_group(row["run_key"]))
        curve_tables.append(curve_table(row, points))
        run_tables.append(run_table(row))
    write_table(pa.concat_tables(curve_tables).sort_by(_CURVE_ORDER), curves)
    schema = runs_schema()
    all_runs = pa.concat_tables([fit(table, schema) for table in run_tables])
    write_table(all_runs.sort_by("run_key"), runs)
    return len(rows)


def publish(folders: Sequence[Path], board: Path, selection: Selection = ALL_RUNS) -> int:
    """Add the runs of result folders to a board, itself a result folder, and compact it.

    Its leaderboard.parquet is made of the runs of `source_of`.

    Returns:
        The number of the runs of the result folders.

    Raises:
        UsageError: as `source_of`; the runs are added all the same.
        leaderboards.StoreError: a file is broken, foreign, or of a newer schema.
        OSError: the board cannot be written.
    """
    source = Folders(folders)
    store = Store(board)
    rows = [_anonymous(stored_row(row)) for row in records(source.runs())]
    curves_of = {key: _points(points) for key, points in source.curves().groupby("run_key")}
    for row in rows:
        store.write(row, curves_of.get(row["run_key"], []))
    compact(board)
    shown = source_of([board], selection)
    store.rebuild(shown.runs(), selection.tuned, selection.chosen_by)
    return len(rows)


def _anonymous(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"host": "", "command": _without_folders(row["command"])}


def _others(path: Path, kind: str, keys: Collection[str]) -> list[pa.Table]:
    """Return what the file holds of other keys."""
    if not path.exists():
        return []
    old = read_table(path, kind)
    is_replaced = pc.is_in(old["run_key"], pa.array(list(keys), pa.string()))
    return [old.filter(pc.invert(is_replaced))]


def _points(curve: pd.DataFrame) -> list[Point]:
    rounds = curve["round"].astype(int)
    values = curve["value"].astype(float)
    return list(zip(rounds, curve["metric"], values, strict=True))


def stored_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `frames.records` as it was stored."""
    stored = {column.name: row[column.name] for column in COLUMNS}
    return stored | {name: stored[name].to_pydatetime() for name in ("started", "finished")}


def _without_folders(command: str) -> str:
    words = shlex.split(command)
    kept: list[str] = []
    for word in words:
        if kept and kept[-1] in _FOLDERS:
            kept.pop()
        elif word.partition("=")[0] not in _FOLDERS or "=" not in word:
            kept.append(word)
    return shlex.join(kept)


def main() -> None:
    """Keep the runs that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--board", metavar="NAME")
    arguments = parser.parse_args()
    if arguments.board:
        target = PACKAGE / arguments.board
        count = publish(arguments.folders, target, board_selection(target))
    else:
        target = REPRODUCED
        count = keep(arguments.folders)
    print(f"{count} runs kept in {target}")  # noqa: T201


if __name__ == "__main__":
    main()
