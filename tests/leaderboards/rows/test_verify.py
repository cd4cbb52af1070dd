"""Everything that a check of a folder finds: counts, files, problems and next steps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rows import CURVE, START, Pair, failed_row, sound_row, write

from leaderboards import Store
from leaderboards.rows.compaction import compact
from leaderboards.rows.schema import environment_key
from leaderboards.rows.verify import FolderCheck, examine, validate

STEP = "delete its row and curve, and give the sweep's command again"
FORCE = "give the sweep's command again with --force"


def stored(out: Path, seed: int = 0, **columns: Any) -> Path:
    return Store(out).write(sound_row(CURVE, seed=seed, **columns), CURVE)


def faults(out: Path) -> list[tuple[str, str, str]]:
    """The faults of a folder, whose path is OUT."""
    found = []
    for fault in validate(out).faults:
        texts = (fault.file, fault.problem, fault.next_step)
        found.append(tuple(text.replace(str(out), "OUT") for text in texts))
    return found


def counts(check: FolderCheck) -> tuple[int, int, int]:
    return check.files, check.rows, check.points


def put(path: Path, name: str, value: Any) -> None:
    """Change a column of a file of one row."""
    table = pq.read_table(path)
    place = table.column_names.index(name)
    field = table.field(place)
    pq.write_table(table.set_column(place, field, pa.array([value], field.type)), path)


def renamed(path: Path) -> Path:
    """A file of rows and its curve, by another name that has no hash."""
    for kind in ("runs", "curves"):
        file = path.parent.parent / kind / path.name
        file.rename(file.with_name("other.parquet"))
    return path.with_name("other.parquet")


def test_a_sound_folder_is_counted(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for seed in range(3):
        stored(out, seed)
    Store(out).write(failed_row("moon"), [])
    (out / "curves" / ".notes").touch()
    Store(out).rebuild()
    checked = validate(out)
    assert checked.faults == []
    assert counts(checked) == counts(examine(out)) == (8, 4, 9)
    assert (checked.broken, checked.without_curve) == (set(), [])
    assert checked.index.num_rows == 4
    assert counts(validate(tmp_path / "none")) == (0, 0, 0)
    compact(out)
    assert validate(out).faults == []


def test_what_is_no_parquet_file_is_named(tmp_path: Path) -> None:
    path = stored(tmp_path)
    for place in ("runs/notes.txt", "curves/a.csv", "runs/.hidden", "other.txt"):
        (tmp_path / place).touch()
    broken = tmp_path / "leaderboard.parquet"
    broken.write_bytes(b"PAR1")
    found = faults(tmp_path)
    assert found[:2] == [
        ("curves/a.csv", "not a parquet file", "move it away"),
        ("runs/notes.txt", "not a parquet file", "move it away"),
    ]
    assert found[2][0] == "leaderboard.parquet"
    assert found[2][1].startswith("is no readable parquet file (4 bytes; ")
    assert found[2][2] == "delete it; the next sweep rebuilds it"
    assert len(found) == 3
    assert path.exists()


def test_broken_files_are_told(tmp_path: Path) -> None:
    rows, lone = (renamed(stored(tmp_path / str(seed), seed)) for seed in range(2))
    paths = (rows, lone.parent.parent / "curves" / lone.name)
    for path in paths:
        path.write_bytes(path.read_bytes()[:-40])
        checked = validate(path.parent.parent)
        assert checked.broken == {path}
        (fault,) = checked.faults
        assert fault.file == f"{path.parent.name}/other.parquet"
        assert fault.problem.startswith("is no readable parquet file (")
        assert fault.next_step.startswith("delete it")
        assert checked.without_curve == []
    assert [counts(validate(path.parent.parent)) for path in paths] == [(2, 0, 0), (2, 1, 0)]


def test_a_curve_without_a_row(tmp_path: Path) -> None:
    path = stored(tmp_path)
    path.unlink()
    told = "delete it, or bring back the row's file"
    assert faults(tmp_path) == [(f"curves/{path.name}", "a curve without a row", told)]


def test_a_finished_row_without_a_curve(tmp_path: Path) -> None:
    path = stored(tmp_path)
    other = Store(tmp_path).write(failed_row("moon"), [])
    for file in (path, other):
        (tmp_path / "curves" / file.name).unlink()
    key = path.name[:16]
    step = f"bring back curves/{path.name}, or {STEP}"
    assert faults(tmp_path) == [(f"runs/{path.name}", f"run {key} has no curve", step)]
    packed = tmp_path / "packed"
    for seed in range(2):
        stored(packed, seed)
    compact(packed)
    (segment,) = (packed / "runs").iterdir()
    (packed / "curves" / segment.name).unlink()
    step = f"bring back curves/{segment.name}, or {FORCE}"
    assert [fault[2] for fault in faults(packed)] == [step, step]


@pytest.mark.parametrize("kind", ["runs", "curves"])
def test_a_changed_file_has_another_hash(kind: str, tmp_path: Path) -> None:
    path = stored(tmp_path)
    file = tmp_path / kind / path.name
    pq.write_table(pq.read_table(file), file, compression="gzip")
    (fault,) = faults(tmp_path)
    assert fault[:2] == (f"{kind}/{path.name}", "changed since it was written: another hash")
    assert fault[2].startswith("delete it")
    renamed(path)
    assert faults(tmp_path) == [], "no name tells what it was"


def test_a_contradicted_row_is_told_with_its_numbers(tmp_path: Path) -> None:
    path = stored(tmp_path, final_accuracy=0.75, best_round=1)
    stopped = {"status": "stopped", "final_accuracy": 0.25}
    other = Store(tmp_path).write(sound_row(CURVE, "moon", **stopped), CURVE)
    found = faults(tmp_path)
    problem = "contradicts its curve: best_round is 1, not 2; final_accuracy is 0.75, not 0.5"
    assert (f"runs/{path.name}", f"run {path.name[:16]} {problem}", STEP) in found
    problem = "contradicts its curve: final_accuracy is 0.25, not 0.5"
    assert (f"runs/{other.name}", f"run {other.name[:16]} {problem}", STEP) in found
    assert len(found) == 2
    assert [fault.file for fault in examine(tmp_path).faults] == [fault[0] for fault in found]


def test_a_failed_rows_numbers_are_not_compared(tmp_path: Path) -> None:
    row = sound_row(CURVE, status="failed", error="x", final_accuracy=0.25)
    Store(tmp_path).write(row, CURVE)
    assert faults(tmp_path) == []


def changed_identity(path: Path) -> None:
    put(path, "seed", 7)


def impossible(path: Path) -> None:
    put(path, "lr", -1.0)
    put(path, "seed", 7)


KEY = sound_row(CURVE)["run_key"][:16]
OTHER = sound_row(CURVE, seed=7)["run_key"][:16]
WRONG: list[tuple[Callable[[Path], None], list[str]]] = [
    (
        changed_identity,
        [f"fedavg seed 7 ({KEY}): run_key is {KEY}, its identity columns give {OTHER}"],
    ),
    (
        impossible,
        [
            f"fedavg seed 7 ({KEY}): lr must be >= 0, got -1.0",
            f"fedavg seed 7 ({KEY}): setting_json and the columns disagree about lr: "
            "setting_json is",
        ],
    ),
]


@pytest.mark.parametrize(("change", "problems"), WRONG)
def test_a_row_that_lies_is_told(
    change: Callable[[Path], None], problems: list[str], tmp_path: Path
) -> None:
    path = renamed(stored(tmp_path))
    change(path)
    found = [(file, problem) for file, problem, _ in faults(tmp_path)]
    assert len(found) == len(problems)
    for (file, problem), expected in zip(found, problems, strict=True):
        assert file == "runs/other.parquet"
        assert problem.startswith(expected)


def test_a_file_of_another_rows_name(tmp_path: Path) -> None:
    path = stored(tmp_path)
    row = sound_row(CURVE)
    right = f"{KEY}-{environment_key(row)}"
    wrong = f"{OTHER}-{environment_key(row)}.parquet"
    for kind in ("runs", "curves"):
        (tmp_path / kind / path.name).rename(tmp_path / kind / wrong)
    problem = (
        f"it is named {wrong}, but its key and environment are {right}: by name it is not found"
    )
    assert faults(tmp_path) == [(f"runs/{wrong}", f"fedavg seed 0 ({KEY}): {problem}", STEP)]


def test_disagreeing_results_are_listed_by_age(tmp_path: Path) -> None:
    paths = []
    for day, final in ((2, 0.5), (1, 0.25), (3, 0.75)):
        curve = [(1, "accuracy", final)]
        finished = START + timedelta(days=day)
        paths.append(Store(tmp_path).write(sound_row(curve, finished=finished), curve))
    told = [
        f"{path} ({final}, 2026-01-0{2 + day} 03:04)"
        for path, (day, final) in zip(paths, ((2, 0.5), (1, 0.25), (3, 0.75)), strict=True)
    ]
    (fault,) = validate(tmp_path).faults
    assert fault.file == f"runs/{paths[0].name}", "in the order in which they were stored"
    problem = f"3 results of run {KEY} in one environment disagree: {', '.join(told)}"
    assert fault.problem == problem
    command = f"`python -m bench.sweep reproduce {KEY} --out {tmp_path}`"
    assert fault.next_step == f"{command} shows which one is right; run it again with --force"


def copies(status: str = "finished") -> list[Pair]:
    """Runs on two copies of the data; that on the second has a status."""
    odd = sound_row(CURVE, seed=1, dataset_hash="ef56", status=status, error="x")
    return [(sound_row(CURVE), CURVE), (odd, CURVE)]


def test_copies_are_told_of_finished_runs(tmp_path: Path) -> None:
    (fault,) = faults(write(tmp_path / "two", copies()))
    assert fault[0] == "runs"
    assert fault[1].startswith("runs on 2 copies of digits, which do not compare: ")
    assert fault[2].startswith("tables mark them; keep each copy's runs in a folder of their own")
    assert faults(write(tmp_path / "one", copies("failed"))) == []
    out = write(tmp_path / "more", copies())
    (out / "runs" / "notes.txt").touch()
    assert [fault[0] for fault in faults(out)] == ["runs/notes.txt"], "other faults come first"


def claiming(out: Path, names: list[str]) -> Path:
    """The segment of a folder, which claims to replace these files."""
    compact(out)
    (path,) = (out / "runs").glob("packed-*")
    table = pq.read_table(path)
    metadata = {**table.schema.metadata, b"fedkd_replaces": json.dumps(names).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    digits = hashlib.sha256(path.read_bytes()).hexdigest()[:32]
    (out / "curves" / path.name).rename(out / "curves" / f"packed-{digits}.parquet")
    return path.rename(path.with_name(f"packed-{digits}.parquet"))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_claim_without_rows_is_told(count: int, tmp_path: Path) -> None:
    for seed in range(2):
        stored(tmp_path, seed)
    names = [f"{at}" * 16 + "-" + "a" * 8 + "-" + "b" * 16 + ".parquet" for at in range(count)]
    segment = claiming(tmp_path, names)
    more = f" and {count - 1} more" if count > 1 else ""
    problem = f"claims to replace {names[0]}{more}, and has no row of that run and environment"
    step = "nothing follows the claim; ask who made the file, or move it and its curves away"
    assert faults(tmp_path) == [(f"runs/{segment.name}", problem, step)]


def test_a_claim_to_a_better_row_is_told(tmp_path: Path) -> None:
    out = tmp_path / "out"
    better = stored(tmp_path / "better")
    Store(out).write(failed_row(), [])
    stored(out, 1)
    claiming(out, [better.name])
    for kind in ("runs", "curves"):
        (better.parent.parent / kind / better.name).rename(out / kind / better.name)
    problem = "a segment claims to replace it, and has no row as good"
    found = faults(out)
    assert [fault[:2] for fault in found] == [(f"runs/{better.name}", problem)]


def test_leftovers_of_a_killed_compaction_are_no_fault(tmp_path: Path) -> None:
    path = stored(tmp_path)
    stored(tmp_path, 1)
    curve = (tmp_path / "curves" / path.name).read_bytes()
    compact(tmp_path)
    (tmp_path / "curves" / path.name).write_bytes(curve)
    assert faults(tmp_path) == []
    points = Store(tmp_path).curves()
    assert len(points) == 2 * len(CURVE)
