"""Faults of a result folder, which `python -m bench.boards validate` reports.

A merge looks for them first. Nothing is changed. Rows are compared with their curves a thousand
runs at a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leaderboards.rows.checks import curve_problems, table_problems
from leaderboards.rows.compaction import Claims
from leaderboards.rows.counted import counted, judge, one_for_each_key
from leaderboards.rows.file_names import HASHED_NAME, ROW_NAME, curve_path
from leaderboards.rows.files import (
    CURVES_HASH,
    StoreError,
    content_hash,
    is_regular,
    part_of,
    read_table,
    remedy,
)
from leaderboards.rows.frames import slices, to_pandas
from leaderboards.rows.index import Folder
from leaderboards.rows.reading import (
    AT_ONCE,
    curves_of_rows,
    read_curves,
    read_rows,
    row_names,
)
from leaderboards.rows.schema import FILE_COLUMNS, READ_OFF_CURVES, environment_key, run_key
from leaderboards.shell_text import printable, shell_command

if TYPE_CHECKING:
    import pyarrow as pa

_COPY_COLUMNS = ("dataset", "setting_json", "seed", "status", "dataset_hash", "partition_hash")


@dataclass(frozen=True)
class Fault:
    """A fault of a result folder.

    `file` is relative to the folder; `next_step` is what to do about it.
    """

    file: str
    problem: str
    next_step: str

    def __str__(self) -> str:
        return printable(f"{self.file}: {self.problem}; {self.next_step}")


@dataclass
class FolderCheck:
    """Counts and faults of the files and rows of a folder.

    Args:
        files: number of files of rows and of curves.
        rows: number of rows.
        points: number of points of the curves that were compared with their rows.
        faults: what is wrong.
        index: of the rows in sound files (`Folder`).
        broken: paths of the other files.
        without_curve: the finished rows of the index that have no curve.
    """

    files: int = 0
    rows: int = 0
    points: int = 0
    faults: list[Fault] = field(default_factory=list)
    index: pa.Table = None
    broken: set[Path] = field(default_factory=set)
    without_curve: list[dict[str, Any]] = field(default_factory=list)

    def read(self, path: Path, kind: str) -> pa.Table | None:
        """Read a file; return None and add a fault if it cannot be used."""
        self.files += 1
        try:
            names = [*(column.name for column in FILE_COLUMNS[kind]), "file"]
            repeated = ("run_key", "algorithm", "metric", "file") if kind == "curves" else ()
            return read_table(path, kind, names, dictionaries=repeated)
        except StoreError as error:
            problem, _, step = str(error).removeprefix(f"{path} ").rpartition(": ")
            self.faults.append(Fault(f"{kind}/{path.name}", problem, step))
            self.broken.add(path)
            return None


def validate(out: Path) -> FolderCheck:
    """Find all faults of a result folder."""
    folder = Folder(out)
    return folder.steady(lambda: _validated(folder))


def examine(out: Path) -> FolderCheck:
    """Find the files and the rows of a folder that must not be merged.

    Rows that their curves contradict are among them.
    """
    folder = Folder(out)
    return folder.steady(lambda: _examined(folder))


def disagreements(index: pa.Table) -> list[Fault]:
    """Return a fault for each run key and environment with different finished results.

    It names all of these rows.
    """
    _, disagreeing = judge(index)
    faults = []
    for rows in disagreeing:
        in_order = sorted(rows, key=lambda row: row["written"])
        faults.append(_disagreement(in_order))
    return faults


def _disagreement(rows: Sequence[Mapping[str, Any]]) -> Fault:
    path = Path(rows[0]["holder"])
    key = rows[0]["run_key"][:16]
    results = []
    for row in rows:
        written = f"{row['finished']:%Y-%m-%d %H:%M}"
        results.append(f"{row['holder']} ({row['final_accuracy']}, {written})")
    command = shell_command("bench.sweep", "reproduce", key, "--out", path.parent.parent)
    return Fault(
        f"runs/{path.name}",
        f"{len(rows)} results of run {key} in one environment disagree: {', '.join(results)}",
        f"`{command}` shows which one is right; run it again with --force",
    )


def _validated(folder: Folder) -> FolderCheck:
    checked = _examined(folder)
    checked.faults += disagreements(checked.index)
    runs = folder.out / "runs"
    curves = folder.out / "curves"
    for path in sorted([*curves.glob("*"), *runs.glob("*")]):
        if path.suffix != ".parquet" and not path.name.startswith("."):
            name = f"{path.parent.name}/{path.name}"
            checked.faults.append(Fault(name, "not a parquet file", "move it away"))
    checked.faults += _leaderboard_problems(folder.out)
    sound_segments = [path for path in folder.segments() if path not in checked.broken]
    claims = Claims(folder, sound_segments)
    checked.faults += _claim_problems(folder, claims, checked.broken)
    if not checked.faults:  # with faults, rows may be unreadable
        checked.faults += _copy_problems(checked.index)
    # A killed compaction leaves curves of files that a segment has replaced; the next one deletes
    # them.
    for path in sorted(part_of(folder.out, "curves").glob("[!.]*.parquet")):
        is_orphan = path.name not in claims.names and not (runs / path.name).exists()
        if is_orphan and path not in checked.broken:
            step = "delete it, or bring back the row's file"
            checked.faults.append(Fault(f"curves/{path.name}", "a curve without a row", step))
    for row in checked.without_curve:
        name = Path(row["holder"]).name
        problem = f"run {row['run_key'][:16]} has no curve"
        step = f"bring back curves/{name}, or {_how_to_repeat(name)}"
        checked.faults.append(Fault(f"runs/{name}", problem, step))
    return checked


def _claim_problems(folder: Folder, claims: Claims, broken: Collection[Path]) -> Iterator[Fault]:
    """Find segments that claim to replace rows, but have no such rows, or worse ones."""
    step = "nothing follows the claim; ask who made the file, or move it and its curves away"
    for path, names in claims.unfounded.items():
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        problem = (
            f"claims to replace {min(names)}{others}, and has no row of that run and environment"
        )
        yield Fault(f"runs/{path.name}", problem, step)
    for path in folder.paths():
        claimed = path not in broken and path.name in claims.names
        if claimed and not claims.cover(folder.index(paths=[path])):
            yield Fault(
                f"runs/{path.name}", "a segment claims to replace it, and has no row as good", step
            )


def _examined(folder: Folder) -> FolderCheck:
    """Read all rows and curves, and compare them."""
    checked = FolderCheck()
    sound = []
    for path in folder.paths():
        table = checked.read(path, "runs")
        if table is None:
            continue
        sound.append(path)
        checked.rows += table.num_rows
        curves_hash = table.schema.metadata.get(CURVES_HASH, b"").decode()
        checked.faults += _hash_problems(path, curves_hash)
        step = _how_to_repeat(path.name)
        for part in slices(table, AT_ONCE):
            for problem in _row_problems(part, path.name):
                checked.faults.append(Fault(f"runs/{path.name}", problem, step))
    for path in sorted(part_of(folder.out, "curves").glob("[!.]*.parquet")):
        checked.read(path, "curves")
    checked.index = folder.index(paths=sound)
    for part in slices(checked.index, AT_ONCE):
        _compare_with_curves(part, checked)
    return checked


def _hash_problems(path: Path, stated: str) -> Iterator[Fault]:
    """Find changes in a file of rows, or its curves, since it was written.

    `stated`: recorded hash of the curves.
    """
    if not stated or not HASHED_NAME.fullmatch(path.name):  # earlier versions stated none
        return
    stated_in_name = path.stem.rpartition("-")[2]
    for file, digest in ((path, stated_in_name), (curve_path(path), stated)):
        if is_regular(file) and not content_hash(file).startswith(digest):
            problem = "changed since it was written: another hash"
            yield Fault(f"{file.parent.name}/{file.name}", problem, remedy(file))


def _row_problems(table: pa.Table, file: str) -> Iterator[str]:
    """Yield the faults of stored rows, each after the run. `file`: name of the rows' file."""
    problems: dict[int, list[str]] = {}
    for at, problem in table_problems(table):
        problems.setdefault(at, []).append(problem)
    for at, row in enumerate(table.to_pylist(maps_as_pydicts="strict")):
        for problem in problems.get(at) or _identity_problems(row, row.get("file", file)):
            yield f"{row['algorithm']} seed {row['seed']} ({row['run_key'][:16]}): {problem}"


def _identity_problems(row: Mapping[str, Any], name: str) -> Iterator[str]:
    """Yield what is wrong with the run key of a row, and with the name of its own file."""
    hyperparameters = json.loads(row["hp_json"])
    setting = json.loads(row["setting_json"])
    key = run_key(row["algorithm"], row["algorithm_version"], hyperparameters, setting, row["seed"])
    if key != row["run_key"]:
        yield f"run_key is {row['run_key'][:16]}, its identity columns give {key[:16]}"
    stem = f"{row['run_key'][:16]}-{environment_key(row)}"
    if ROW_NAME.fullmatch(name) and not name.startswith(stem):
        yield (
            f"it is named {name}, but its key and environment are {stem}: by name it is not found"
        )


def _leaderboard_problems(out: Path) -> list[Fault]:
    path = out / "leaderboard.parquet"
    try:
        if os.path.lexists(path):
            read_table(path, "leaderboard", [])
    except StoreError as error:
        problem = str(error).removeprefix(f"{path} ").rpartition(": ")[0]
        return [Fault(path.name, problem, "delete it; the next sweep rebuilds it")]
    return []


def _copy_problems(index: pa.Table) -> list[Fault]:
    """Find data sets of which the rows that tables read were trained on several copies."""
    step = (
        "tables mark them; keep each copy's runs in a folder of their own, "
        "or give the sweep's command again with the copy that is to stay"
    )
    return [Fault("runs", phrase, step) for phrase in copies_read(index)]


def copies_read(index: pa.Table) -> list[str]:
    """Name the data sets of which the rows that count are on several copies."""
    from leaderboards.data_copies import copies_named

    rows = read_rows(one_for_each_key(counted(index)), _COPY_COLUMNS)
    runs = to_pandas(rows)
    return list(copies_named(runs[runs["status"] == "finished"]))


def _compare_with_curves(index: pa.Table, checked: FolderCheck) -> None:
    """Find rows that their curves contradict, and note finished rows without a curve."""
    import pyarrow as pa

    paths = [curve_path(Path(holder)) for holder in index["holder"].to_pylist()]
    sound = [path not in checked.broken for path in paths]
    index = index.filter(pa.array(sound, pa.bool_()))
    points, _ = read_curves(index)
    checked.points += points.num_rows
    curves = curves_of_rows(points)
    stored = read_rows(index, [*READ_OFF_CURVES, "rounds"]).to_pylist()
    for row, name, numbers in zip(index.to_pylist(), row_names(index), stored, strict=True):
        if name not in curves and row["status"] == "finished":
            checked.without_curve.append(row)
        elif name in curves and row["status"] != "failed":
            contradictions = list(curve_problems(numbers, curves[name]))
            if contradictions:
                file = Path(row["holder"]).name
                run = f"run {row['run_key'][:16]}"
                problem = f"{run} contradicts its curve: {'; '.join(contradictions)}"
                checked.faults.append(Fault(f"runs/{file}", problem, _how_to_repeat(file)))


def _how_to_repeat(name: str) -> str:
    """Say how to repeat a run whose row is in the file `name`.

    A segment holds other runs as well, so it must not be deleted.
    """
    if ROW_NAME.fullmatch(name):
        return "delete its row and curve, and give the sweep's command again"
    return "give the sweep's command again with --force"
