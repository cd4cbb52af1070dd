"""One result folder of several: what `python -m bench.boards merge` does.

Sources are only read. What is to be written is decided first, so that a problem is met before anything is. Rows that
are new to the destination arrive together in one packed file (`leaderboards.packed`; more only where hyper-parameters
have unlike types), those that take the place of an unfinished or less tracked row of its own one by one. So a merge
that was killed leaves a folder in order, and the same command goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from leaderboards.compaction import Batch, in_batches, write_pack
from leaderboards.files import StoreError, read_table, write_together
from leaderboards.frames import fit, hyperparameter_types
from leaderboards.packed import (
    PACKED_NAME,
    SLOT_NAME,
    empty_index,
    gather_curves,
    in_order,
    packed_schema,
    positions,
)
from leaderboards.schema import curves_schema, runs_schema
from leaderboards.store import Store
from leaderboards.validation import Checked, Finding, Record, disagreements, examine

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE = 1_000  # runs whose points are held at once


class MergeError(StoreError):
    """Folders that cannot be merged as they are. `findings` says why, one each."""

    def __init__(self, out: Path, findings: Sequence[Finding]) -> None:
        super().__init__(out, "nothing was merged:\n" + "\n".join(f"  {finding}" for finding in findings))
        self.findings = tuple(findings)


@dataclass(frozen=True)
class Merged:
    """What was done.

    Args:
        files: read, of rows and of curves.
        rows: read, those of the destination included.
        new: rows that came to the destination.
        replaced: of these, how many took the place of a failed or stopped row there, or of one with equal results and
            less tracked.
        collapsed: rows that were left out because an equal result of the same key and environment is there.
        yielded: failed and stopped rows left out for a finished one of their key, or a later one of their environment.
        replicates: run keys that have finished rows from several environments now.
        beside: rows kept beside an unlike result of the same key and environment.
    """

    files: int
    rows: int
    new: int
    replaced: int
    collapsed: int
    yielded: int
    replicates: int
    beside: int


@dataclass
class _Plan:
    """Rows to be written, each under its name in the destination."""

    new: list[tuple[Record, str]] = field(default_factory=list)
    replacing: list[tuple[Record, str]] = field(default_factory=list)
    collapsed: int = 0
    yielded: int = 0
    replicates: int = 0
    beside: int = 0


def merge(sources: Sequence[Path], out: Path, keep_both: bool = False) -> Merged:
    """Bring the rows and curves of several result folders into one.

    Args:
        sources: result folders; they are only read.
        out: the destination; made if need be, else its own rows take part.
        keep_both: keep results of one key and environment that disagree side by side, as `Store.write` does; the
            leaderboard takes the first finished of them.

    Raises:
        MergeError: a file or row breaks the schema, or, without `keep_both`, results of one key and environment
            disagree; all such places are named and nothing was written.
        OSError: a folder cannot be read or written.
    """
    store = Store(out)
    with store.locked("runs"):
        checked = {folder: examine(folder) for folder in (out, *sources)}
        records = [record for found in checked.values() for record in found.records]
        findings = [
            replace(finding, file=str(folder / finding.file))
            for folder, found in checked.items()
            for finding in found.findings
        ]
        findings += [] if keep_both else disagreements(records)
        if findings:
            raise MergeError(out, findings)
        plan = _plan(out, records)
        try:
            _write(out, plan)
        except FileNotFoundError as error:
            problem = f"{error.filename or error} went away while it was read: give the same command again"
            raise StoreError(out, problem) from None
    return _report([*checked.values()], plan)


def _report(checked: Sequence[Checked], plan: _Plan) -> Merged:
    return Merged(
        files=sum(found.files for found in checked),
        rows=sum(found.rows for found in checked),
        new=len(plan.new) + len(plan.replacing),
        replaced=len(plan.replacing),
        collapsed=plan.collapsed,
        yielded=plan.yielded,
        replicates=plan.replicates,
        beside=plan.beside,
    )


def _plan(out: Path, records: Sequence[Record]) -> _Plan:
    """What becomes of each row; the destination's own come first among `records`."""
    plan, finished, environments = _Plan(), set[str](), dict[str, set[str]]()
    by_stem: dict[str, list[Record]] = {}
    for record in records:
        by_stem.setdefault(record.stem, []).append(record)
        if record.status == "finished":
            finished.add(record.run_key)
            environments.setdefault(record.run_key, set()).add(record.stem)
    for stem, rows in by_stem.items():
        done = [row for row in rows if row.status == "finished"]
        unfinished = [row for row in rows if row.status != "finished"]
        _plan_finished(out, stem, done, unfinished, plan)
        if not done:
            _plan_unfinished(out, stem, unfinished, rows[0].run_key in finished, plan)
    plan.replicates = sum(len(stems) > 1 for stems in environments.values())
    return plan


def _plan_finished(out: Path, stem: str, done: list[Record], unfinished: list[Record], plan: _Plan) -> None:
    """One row of each distinct result: the destination's own, else the first finished; a tracked one before others."""
    results: dict[str, list[Record]] = {}
    for row in sorted(done, key=lambda row: (not row.tracked, row.out != out, row.finished)):
        results.setdefault(row.results, []).append(row)
    if not done:
        return
    plan.yielded += sum(row.out != out for row in unfinished)
    plan.collapsed += sum(sum(row.out != out for row in rows[1:]) for rows in results.values())
    plan.beside += len(results) - 1
    taken = {row.file for row in done if row.out == out}
    there = {row.file for row in unfinished if row.out == out}
    for row, *others in sorted(results.values(), key=lambda rows: rows[0].finished):
        own = next((other.file for other in others if other.out == out), "")
        if row.out != out and SLOT_NAME.fullmatch(own):
            plan.replacing.append((row, own))
        elif row.out != out and not own:
            name = f"{stem}.parquet"
            name = f"{stem}-{row.results[:8]}.parquet" if name in taken else name
            taken.add(name)
            (plan.replacing if name in there else plan.new).append((row, name))


def _plan_unfinished(out: Path, stem: str, rows: list[Record], finished: bool, plan: _Plan) -> None:
    """The latest, unless its key finished in another environment."""
    others = [row for row in rows if row.out != out]
    latest = max(rows, key=lambda row: (row.finished, row.out == out))
    plan.yielded += len(others)
    if not finished and latest.out != out:
        plan.yielded -= 1
        name = f"{stem}.parquet"
        there = any(row.out == out and row.file == name for row in rows)
        (plan.replacing if there else plan.new).append((latest, name))


def _write(out: Path, plan: _Plan) -> None:
    for batch, chosen in _batches(plan.new):
        _write_batch(out, batch, chosen)
    for record, name in plan.replacing:
        row = _rows_of(record.out / "runs" / record.holder, [(record, name)])
        row = fit(row, runs_schema(_known_types(row)))
        points = fit(_points([(record, name)]), curves_schema())
        write_together([(points, out / "curves" / name), (row, out / "runs" / name)])


def _known_types(row: pa.Table) -> dict[str, pa.DataType]:
    """Of the hyper-parameters that the algorithm of a row has, not of others in the same file."""
    import json

    own = json.loads(row["hp_json"][0].as_py())
    return {name: kind for name, kind in hyperparameter_types(row.schema).items() if name.removeprefix("hp_") in own}


def _batches(chosen: Sequence[tuple[Record, str]]) -> Iterator[tuple[Batch, list[tuple[Record, str]]]]:
    """The rows of each pack to be written, and which they are, sorted by run key."""
    by_file: dict[Path, list[tuple[Record, str]]] = {}
    for record, name in chosen:
        by_file.setdefault(record.out / "runs" / record.holder, []).append((record, name))
    tables = {str(path): _rows_of(path, rows) for path, rows in by_file.items()}
    for batch in in_batches(tables):
        mine = [row for path in batch.singles for row in by_file[Path(path)]]
        yield batch, sorted(mine, key=lambda row: (row[0].run_key, row[1]))


def _rows_of(path: Path, chosen: Sequence[tuple[Record, str]]) -> pa.Table:
    """The rows of a file that are chosen, in that order, under their names in the destination."""
    import pyarrow as pa

    keys = [record.run_key for record, _ in chosen]
    table = read_table(path, "runs", keys=keys)
    if PACKED_NAME.fullmatch(path.name):
        table = in_order(table, [record.file for record, _ in chosen]).drop_columns(["file"])
    else:
        there = table["run_key"].to_pylist()
        table = table.take([there.index(key) for key in keys])
    return table.append_column("file", pa.array([name for _, name in chosen], pa.string()))


def _write_batch(out: Path, batch: Batch, chosen: Sequence[tuple[Record, str]]) -> None:
    import pyarrow as pa

    schema = packed_schema("runs", batch.types)
    table = pa.concat_tables(fit(part, schema) for part in batch.singles.values())
    table = in_order(table, [name for _, name in chosen])
    groups = (table.slice(start, _AT_ONCE) for start in range(0, table.num_rows, _AT_ONCE))
    points = (_points(chosen[start : start + _AT_ONCE]) for start in range(0, len(chosen), _AT_ONCE))
    write_pack(out, batch.types, (), groups, points)


def _points(chosen: Sequence[tuple[Record, str]]) -> pa.Table:
    """The points of the chosen rows, in that order, under their names in the destination."""
    import pyarrow as pa

    parts: dict[tuple[Path, str], list[tuple[Record, str]]] = {}
    for record, name in chosen:
        # A file of another name may hold several runs, which only their keys tell apart: one at a time, then.
        alone = "" if SLOT_NAME.fullmatch(record.file) else name
        parts.setdefault((record.out, alone), []).append((record, name))
    tables = [_renamed(out, rows) for (out, _), rows in parts.items()]
    return in_order(pa.concat_tables(tables), [name for _, name in chosen])


def _renamed(out: Path, rows: Sequence[tuple[Record, str]]) -> pa.Table:
    import pyarrow as pa

    columns = {name: [getattr(record, name) for record, _ in rows] for name in empty_index().schema.names}
    points, _ = gather_curves(out / "curves", pa.table(columns))
    codes = positions(points["file"], [record.file for record, _ in rows]).astype("int32")
    names = pa.DictionaryArray.from_arrays(codes, pa.array([name for _, name in rows], pa.string()))
    return points.set_column(points.column_names.index("file"), points.schema.field("file"), names)
