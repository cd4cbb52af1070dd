"""Runs of the papers' own problems, whole, that this repository keeps: `reproduced.parquet` and their curves.

`python -m leaderboards.reproduced DIR [DIR ...]` adds the finished, unshortened runs of result folders. What tells of a
machine without telling of the result, its name and its folders, is left out.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from leaderboards.files import read_table, write_together
from leaderboards.schema import curves_schema

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

REPRODUCED = Path(__file__).with_name("reproduced.parquet")
CURVES = REPRODUCED.with_name("reproduced_curves.parquet")
_CURVE_ORDER = [("run_key", "ascending"), ("round", "ascending"), ("metric", "ascending")]
_FOLDERS = ("--out", "--data-dir")  # options that name a folder of the machine


def keep(folders: Sequence[Path], runs: Path = REPRODUCED, curves: Path = CURVES) -> int:
    """Add the finished and unshortened runs of result folders; of a key that is there already, the new one counts.

    Args:
        folders: read, not changed.
        runs: the file of rows, made if need be.
        curves: that of their curves.

    Returns:
        How many runs were added or replaced.

    Raises:
        leaderboards.StoreError: a file is broken, foreign, or of a newer schema.
        OSError: a file cannot be written; both are then as before.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from leaderboards.frames import concatenate

    rows = concatenate(_tables(folders, "runs"))
    rows = rows.filter(pc.and_(pc.equal(rows["status"], "finished"), pc.invert(rows["shortened"])))
    first = dict(zip(reversed(rows["run_key"].to_pylist()), reversed(range(len(rows))), strict=True))
    rows = rows.take(pa.array(sorted(first.values()), pa.int64()))
    points = pa.concat_tables([curves_schema().empty_table(), *_tables(folders, "curves")])
    points = points.filter(pc.is_in(points["run_key"], pa.array(list(first), pa.string())))
    old_rows, old_points = _others(runs, "runs", first), _others(curves, "curves", first)
    write_together(
        [
            (pa.concat_tables([*old_points, points]).sort_by(_CURVE_ORDER), curves),
            (concatenate([*old_rows, _plain(rows)]).sort_by("run_key"), runs),
        ]
    )
    return len(first)


class RowFile:
    """Reads such a pair of files as `Store` reads a folder.

    Args:
        path: of the rows; the curves lie beside it, `_curves` behind its name.
    """

    def __init__(self, path: Path) -> None:
        self.out = path
        self._curves = path.with_name(f"{path.stem}_curves.parquet")

    def runs(self) -> pd.DataFrame:
        """As `Store.runs`.

        Raises:
            StoreError: the file is broken, foreign, or of a newer schema.
        """
        from leaderboards.frames import to_pandas

        return to_pandas(read_table(self.out, "runs"))

    def curves(self, keys: Collection[str] | None = None) -> pd.DataFrame:
        """As `Store.curves`; no points where there is no file of curves."""
        from leaderboards.frames import to_pandas

        table = read_table(self._curves, "curves") if self._curves.exists() else curves_schema().empty_table()
        frame = to_pandas(table)
        return frame if keys is None else frame[frame["run_key"].isin(set(keys))].reset_index(drop=True)


def _tables(folders: Sequence[Path], kind: str) -> list[pa.Table]:
    return [read_table(path, kind) for folder in folders for path in sorted((folder / kind).glob("*.parquet"))]


def _others(path: Path, kind: str, keys: Collection[str]) -> list[pa.Table]:
    """What the file holds of other keys."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not path.exists():
        return []
    old = read_table(path, kind)
    return [old.filter(pc.invert(pc.is_in(old["run_key"], pa.array(list(keys), pa.string()))))]


def _plain(rows: pa.Table) -> pa.Table:
    """Rows without the machine's name and folders."""
    import pyarrow as pa

    changed = {"host": [""] * len(rows), "command": [_without_folders(text) for text in rows["command"].to_pylist()]}
    for name, values in changed.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), pa.array(values, rows.schema.field(at).type))
    return rows


def _without_folders(command: str) -> str:
    words = shlex.split(command)
    kept: list[str] = []
    for word in words:
        if kept and kept[-1] in _FOLDERS:
            kept.pop()
        elif word.partition("=")[0] not in _FOLDERS or "=" not in word:
            kept.append(word)
    return shlex.join(kept)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m leaderboards.reproduced`. Returns the exit status."""
    folders = [Path(word) for word in (sys.argv[1:] if argv is None else argv)]
    if not folders:
        sys.stderr.write("usage: python -m leaderboards.reproduced DIR [DIR ...]\n")
        return 2
    sys.stdout.write(f"{keep(folders)} runs kept in {REPRODUCED}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
