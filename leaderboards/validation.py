"""Reading a result folder with suspicion: what `python -m bench.boards validate` says, and what merging asks first.

Nothing is changed. Files are read one by one, points a row group or a thousand runs at a time.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leaderboards.checks import row_problems
from leaderboards.commands import printable, shell_command
from leaderboards.files import StoreError, read_groups, read_metadata, read_table, remedy
from leaderboards.identity import environment_key, run_key
from leaderboards.packed import (
    PACKED_NAME,
    SLOT_NAME,
    Files,
    Folder,
    empty_index,
    gather_curves,
    in_order,
    rows_in_pack,
    with_text,
)
from leaderboards.schema import COLUMNS, curves_schema, hyperparameter_columns, runs_schema
from leaderboards.store import TRACKED, results_digests

if TYPE_CHECKING:
    import pyarrow as pa

Summary = Callable[[Sequence[tuple[int, str, float]]], Mapping[str, Any]]
_AT_ONCE = 1_000  # rows, with their points, that are Python objects at a time
_RUN_AGAIN = "delete its row and curve, and give the sweep's command again"


@dataclass(frozen=True)
class Finding:
    """Something wrong. `file` is relative to the folder; `next_step` is what to do about it."""

    file: str
    problem: str
    next_step: str

    def __str__(self) -> str:
        return printable(f"{self.file}: {self.problem}; {self.next_step}")


@dataclass(frozen=True)
class Record:
    """What is remembered of a row.

    Args:
        out: the result folder.
        run_key: of the row.
        stem: key and environment class, `<key16>-<env8>`: rows that agree in it must agree in their results.
        status: finished, failed or stopped.
        finished: when.
        file: name of its small file, packed or not.
        holder: name of the file that it is in.
        results: digest of its results.
        tracked: whether it has what `--track local` measures besides.
        shown: its best and final accuracy, for messages.
    """

    out: Path
    run_key: str
    stem: str
    status: str
    finished: datetime
    file: str
    holder: str
    results: str
    tracked: bool
    shown: str


@dataclass
class Checked:
    """What was read, and what is wrong with it. `files` counts those of rows and of curves."""

    files: int = 0
    rows: int = 0
    points: int = 0
    findings: list[Finding] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)


def validate(out: Path, summarise: Summary | None = None) -> Checked:
    """Everything that is wrong with a result folder.

    Args:
        out: the folder.
        summarise: the result columns that a curve `(round, metric, value)` must have led to; None does not compare.
    """
    folder = Folder(out)
    found = folder.steady(lambda: _validated(folder, summarise))
    found.findings += disagreements(found.records)
    return found


def examine(out: Path) -> Checked:
    """The rows of a folder, and what of its files and rows breaks the schema; curves are not held against rows."""
    folder = Folder(out)
    return folder.steady(lambda: _examined(folder)[0])


def disagreements(records: Sequence[Record]) -> list[Finding]:
    """One finding for each key and environment class that has finished rows of unlike results, naming all of them."""
    by_stem: dict[str, list[Record]] = {}
    for record in records:
        if record.status == "finished":
            by_stem.setdefault(record.stem, []).append(record)
    return [_disagreement(rows) for rows in by_stem.values() if len({row.results for row in rows}) > 1]


def _disagreement(rows: Sequence[Record]) -> Finding:
    shows = shell_command("bench.sweep", "reproduce", rows[0].run_key[:16], "--out", rows[0].out)
    each = ", ".join(f"{row.out / 'runs' / row.holder} ({row.shown}, {row.finished:%Y-%m-%d %H:%M})" for row in rows)
    return Finding(
        f"runs/{rows[0].file}",
        f"{len(rows)} results of run {rows[0].run_key[:16]} in one environment disagree: {each}",
        f"`{shows}` shows which one is right; run it again with --force",
    )


def _validated(folder: Folder, summarise: Summary | None) -> Checked:
    found, files, broken = _examined(folder)
    found.findings += _foreign(folder.out)
    found.findings += _leaderboard(folder.out)
    keys = _keys_by_file(found.records, files)
    left = {*broken, *files.leftovers, *files.packed()["file"].to_pylist()}  # a killed compaction's: harmless
    for name in _names(folder.out / "curves"):
        if name not in left:
            found.findings += _without_rows(folder.out, name, keys.get(name, set()))
    readable = [record for record in found.records if record.holder not in broken]
    for start in range(0, len(readable), _AT_ONCE):
        _check_curves(folder.out, readable[start : start + _AT_ONCE], found, summarise)
    return found


def _examined(folder: Folder) -> tuple[Checked, Files, set[str]]:
    """What is read of rows and of the schemas of curves; the files that count; the names of broken curve files."""
    found, broken = Checked(), {"runs": set[str](), "curves": set[str]()}
    for kind, names in broken.items():
        for name in _names(folder.out / kind):
            table = _read(folder.out / kind / name, kind, found)
            if table is None:
                names.add(name)
            elif kind == "runs" and not PACKED_NAME.fullmatch(name):
                _check_rows(folder.out, with_text(table, "file", name), name, found)
    files = folder.files(broken["runs"])
    packed = files.packed()
    for pack in files.packs:
        _check_rows(folder.out, rows_in_pack(pack, packed), pack.path.name, found)
    return found, files, broken["curves"]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.parquet"))


def _read(path: Path, kind: str, found: Checked) -> pa.Table | None:
    """A file of rows, or the last row group of one of points, all of whose pages were read; None if it is not sound."""
    found.files += 1
    try:
        (table,) = deque([read_table(path, kind)] if kind == "runs" else read_groups(path, kind), maxlen=1)
    except StoreError as error:
        problem, _, step = str(error).removeprefix(f"{path} ").rpartition(": ")
        found.findings.append(Finding(f"{kind}/{path.name}", problem, step))
        return None
    wrong = _wrong_columns(table.schema, kind)
    if wrong:
        step = f"{remedy(path)}; its runs are then run again"
        found.findings.append(Finding(f"{kind}/{path.name}", f"wrong columns: {', '.join(wrong)}", step))
        return None
    return table


def _wrong_columns(schema: pa.Schema, kind: str) -> list[str]:
    expected = runs_schema({}) if kind == "runs" else curves_schema()
    wrong = [
        f"{f.name} is {schema.field(f.name).type}, not {f.type}"
        for f in expected
        if schema.field(f.name).type != f.type
    ]
    known = {*expected.names, *(hyperparameter_columns(schema.names) if kind == "runs" else []), "file"}
    return wrong + [f"{name} is no column of ours" for name in schema.names if name not in known]


def _check_rows(out: Path, table: pa.Table, holder: str, found: Checked) -> None:
    for start in range(0, table.num_rows, _AT_ONCE):
        part = table.slice(start, _AT_ONCE)
        rows = part.to_pylist(maps_as_pydicts="strict")
        for row, results in zip(rows, results_digests(part), strict=True):
            file = row.pop("file")
            found.rows += 1
            problems = list(_identity_problems(_with_own_hyperparameters(row), file))
            found.findings += [Finding(f"runs/{holder}", f"{_who(row)}: {p}", _RUN_AGAIN) for p in problems]
            if all(row[name] is not None for name in ("run_key", "versions", "status", "finished")):
                found.records.append(_record(out, row, file, holder, results))


def _record(out: Path, row: Mapping[str, Any], file: str, holder: str, results: str) -> Record:
    shown = ", ".join(f"{name} {_short(row[f'{name}_accuracy'])}" for name in ("best", "final"))
    identity = (out, row["run_key"], _stem(row), row["status"], row["finished"])
    return Record(*identity, file, holder, results, row[TRACKED] is not None, shown)


def _short(value: float | None) -> str:
    return "none" if value is None else f"{value:.10g}"


def _stem(row: Mapping[str, Any]) -> str:
    return f"{row['run_key'][:16]}-{environment_key(row)}"


def _with_own_hyperparameters(row: dict[str, Any]) -> dict[str, Any]:
    """Without the empty columns of other algorithms' hyper-parameters in the same file."""
    try:
        own = {f"hp_{name}" for name in json.loads(row["hp_json"])}
    except (TypeError, ValueError, RecursionError):  # to be found by the checks
        return row
    others = [name for name in hyperparameter_columns(row) if name not in own and row[name] is None]
    return {name: value for name, value in row.items() if name not in others}


def _identity_problems(row: Mapping[str, Any], file: str) -> Iterator[str]:
    problems = list(row_problems(row))
    yield from problems
    if not problems:
        parts = (json.loads(row["hp_json"]), json.loads(row["setting_json"]))
        key = run_key(row["algorithm"], row["algorithm_version"], *parts, row["seed"])
        if key != row["run_key"]:
            yield f"run_key is {row['run_key'][:16]}, its identity columns give {key[:16]}"
        slot, stem = SLOT_NAME.fullmatch(file), _stem(row)
        if slot and f"{slot[1]}-{slot[2]}" != stem:
            yield f"it is called {file}, its key and environment are {stem}: looked for by name it is not found"


def _who(row: Mapping[str, Any]) -> str:
    return f"{row['algorithm']} seed {row['seed']} ({str(row['run_key'])[:16]})"


def _foreign(out: Path) -> list[Finding]:
    """Whatever lies among our files and is none."""
    others = [
        path
        for kind in ("runs", "curves")
        for path in sorted((out / kind).glob("*"))
        if path.suffix != ".parquet" and not path.name.startswith(".")
    ]
    return [Finding(f"{path.parent.name}/{path.name}", "no parquet file", "move it away") for path in others]


def _leaderboard(out: Path) -> list[Finding]:
    path = out / "leaderboard.parquet"
    try:
        if path.exists():
            read_metadata(path, "leaderboard")
    except StoreError as error:
        problem = str(error).removeprefix(f"{path} ").rpartition(": ")[0]
        return [Finding(path.name, problem, "delete it; the next sweep makes it anew")]
    return []


def _keys_by_file(records: Sequence[Record], files: Files) -> dict[str, set[str]]:
    """The run keys of the rows in each file; of packs, those that do not count any more as well."""
    keys = {pack.path.name: set(pack.index["run_key"].to_pylist()) for pack in files.packs}
    for record in records:
        keys.setdefault(record.holder, set()).add(record.run_key)
    return keys


def _without_rows(out: Path, name: str, keys: set[str]) -> list[Finding]:
    """Points of a curve file that belong to none of the `keys` of its rows; no keys are those of a file not read."""
    if not (out / "runs" / name).exists():
        return [Finding(f"curves/{name}", "a curve without a row", "delete it, or bring back the row's file")]
    column = read_table(out / "curves" / name, "curves", ["run_key"], dictionaries=["run_key"])["run_key"]
    nobody = sorted(set(column.unique().to_pylist()) - keys) if keys else []
    return [
        Finding(f"curves/{name}", f"points of run {key[:16]}, which has no row there", _RUN_AGAIN) for key in nobody
    ]


def _check_curves(out: Path, records: Sequence[Record], found: Checked, summarise: Summary | None) -> None:
    """Whether finished rows have curves, and whether the curves lead to the rows' results."""
    import pyarrow as pa

    columns = {name: [getattr(record, name) for record in records] for name in empty_index().schema.names}
    points, _ = gather_curves(out / "curves", pa.table(columns))
    found.points += points.num_rows
    curves: dict[tuple[str, str], list[tuple[int, str, float]]] = {}
    names = ("file", "run_key", "round", "metric", "value")
    for file, key, at, metric, value in zip(*(points[name].to_pylist() for name in names), strict=True):
        curves.setdefault((file, key), []).append((at, metric, math.nan if value is None else value))
    rows = _results_of(out, records) if summarise else {}
    for record in records:
        curve = curves.get((record.file, record.run_key), [])
        if not curve and record.status == "finished":
            step = f"bring back curves/{record.holder}, or {_RUN_AGAIN}"
            found.findings.append(Finding(f"runs/{record.holder}", f"run {record.run_key[:16]} has no curve", step))
        elif curve and summarise and record.status != "failed":
            wrong = _contradictions(rows[record.file, record.run_key], curve, summarise)
            if wrong:
                problem = f"run {record.run_key[:16]} contradicts its curve: {'; '.join(wrong)}"
                found.findings.append(Finding(f"runs/{record.holder}", problem, _RUN_AGAIN))


def _results_of(out: Path, records: Sequence[Record]) -> dict[tuple[str, str], dict[str, Any]]:
    """The results of some rows, by name and run key."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    names = [column.name for column in COLUMNS if column.group == "results"]
    for holder in dict.fromkeys(record.holder for record in records):
        mine = [record for record in records if record.holder == holder]
        packed = PACKED_NAME.fullmatch(holder)
        wanted = ["run_key", *names, *(["file"] if packed else [])]
        table = read_table(out / "runs" / holder, "runs", wanted, keys=[record.run_key for record in mine])
        table = in_order(table, [record.file for record in mine]) if packed else with_text(table, "file", holder)
        for row in table.to_pylist(maps_as_pydicts="strict"):
            rows[row["file"], row["run_key"]] = row
    return rows


def _contradictions(row: Mapping[str, Any], curve: Sequence[tuple[int, str, float]], summarise: Summary) -> list[str]:
    try:
        expected = summarise(curve)
    except (KeyError, ValueError) as error:
        return [f"the curve has not all metrics ({error!r})"]
    return [f"{name} is {row[name]}, not {value}" for name, value in expected.items() if row[name] != value]
