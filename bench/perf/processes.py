"""Benchmarks of whole processes: start-up of commands, leaderboards and pages of large folders.

The commands train nothing. The folders are made up, with the columns of real ones, in few files of
many rows.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bench
from bench.errors import EnvironmentProblem
from bench.machine import largest_resident
from bench.perf.measure import Record, Say, Spent, figure, seconds_of
from leaderboards import COLUMNS, SCHEMA_VERSION, identity_columns
from leaderboards.rows.files import write_table
from leaderboards.rows.schema import curves_schema, environment_key, runs_schema
from search_spaces import Setting

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

# Arguments of the interpreter, and the seconds allowed beyond the time of the bare interpreter.
COMMANDS: dict[str, tuple[tuple[str, ...], float]] = {
    "help": (("-m", "bench.sweep", "--help"), 0.3),
    "list": (("-m", "bench.sweep", "--list"), 0.3),
    "dry_run": (
        ("-m", "bench.sweep", "--algo", "fedcad", "--dataset", "cifar10", "--dry-run"),
        2.0,
    ),
    "paper_dry_run": (("-m", "bench.sweep", "--paper", "fedgkd", "--table", "3", "--dry-run"), 2.0),
}
# Targets.
LEADERBOARD_SECONDS = 5.0
LEADERBOARD_MEGABYTES = 2_000.0
COMPARE_SECONDS = 3.0
REPORT_SECONDS = 15.0
REPORT_MEGABYTES = 5.0  # of the page's file
REPORTED = 1_000  # runs of a page
ROUNDS = 10  # of a curve, for each of its metrics
POINTS = (
    *("accuracy", "val_accuracy", "loss", "train_loss", "local_accuracy"),
    *("communications", "bytes_down", "bytes_up", "train_steps", "drift"),
)
ALGORITHMS = 25
SEEDS = 5
# Data set, alpha, participation.
CELLS = tuple(product(("cifar10", "cifar100"), (0.05, 0.1, 0.5, 1.0), (0.1, 1.0)))
_WRITE = (
    "from pathlib import Path; from bench.perf.processes import write_folder; "
    "write_folder(Path({!r}), {})"
)
_TABLE = (
    "from leaderboards import Store; from leaderboards.board import leaderboard; "
    "leaderboard(Store({!r}).runs())"
)
_BATCH = 5_000  # runs of a file


def run_python(arguments: Sequence[str], **environment: str) -> Spent:
    """Run the interpreter to its end, with this source tree importable and the output discarded.

    `environment` overrides the user's variables. Raises EnvironmentProblem if it failed.
    """
    path = str(bench.ROOT)
    if os.environ.get("PYTHONPATH"):
        path += os.pathsep + os.environ["PYTHONPATH"]
    before = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - before
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise EnvironmentProblem(
            f"`python {' '.join(arguments)}` ended with status {process.returncode}: "
            "try it yourself"
        )
    return Spent(seconds, usage.ru_utime + usage.ru_stime, largest_resident(usage))


def measure_startup(record: Record, folder: Path, repetitions: int, say: Say) -> None:
    """Time each command, in turn with the bare interpreter; the record gets figures by command.

    `folder` has the data sets whose labels a dry run reads. One more repetition, not counted, warms
    the file cache.
    """
    say(f"start-up: {repetitions} repetitions")
    commands = {
        "interpreter": ("-c", "pass"),
        **{name: arguments for name, (arguments, _) in COMMANDS.items()},
    }
    with tempfile.TemporaryDirectory() as out:
        # An empty result folder, these data sets, and no measurement of the machine, which a dry
        # run would make once.
        places = {"FEDKD_OUT": out, "FEDKD_DATA": str(folder), "FEDKD_MEASURE_SECONDS": "0"}
        turns = []
        for _ in range(repetitions + 1):
            turn = {name: run_python(arguments, **places) for name, arguments in commands.items()}
            turns.append(turn)
        del turns[0]
    for name in commands:
        record[name] = seconds_of([turn[name] for turn in turns])
        if name in COMMANDS:
            beyond = [turn[name].seconds - turn["interpreter"].seconds for turn in turns]
            record[name]["beyond_interpreter"] = figure(beyond, "s", COMMANDS[name][1])


def measure_boards(record: Record, runs: int, repetitions: int, say: Say) -> None:
    """Time the leaderboard of `runs` runs, and the commands that print and draw it.

    These are `bench.compare` of a tenth, and `bench.report` of `REPORTED` at most. For each command
    the record gets `runs` and `points` in the folder, and figures of whole processes: seconds,
    processor time, largest memory; of a report also the size of its file. One more repetition, not
    counted, warms the file cache.
    """
    with tempfile.TemporaryDirectory() as place:
        page = Path(place) / "page.html"
        # Runs of the folder, and goals in seconds and megabytes.
        cases = {
            "leaderboard": (runs, LEADERBOARD_SECONDS, LEADERBOARD_MEGABYTES),
            "compare": (max(runs // 10, 1), COMPARE_SECONDS, None),
            "report": (min(runs, REPORTED), REPORT_SECONDS, None),
        }
        for name, (count, seconds, megabytes) in cases.items():
            folder = str(Path(place) / name)
            commands = {
                "leaderboard": ("-c", _TABLE.format(folder)),
                "compare": ("-m", "bench.compare", "--out", folder),
                "report": ("-m", "bench.report", "--out", folder, "--to", str(page)),
            }
            say(f"boards: {name} of a made-up folder of {count:,} runs, {repetitions} repetitions")
            # In its own process, because the largest memory of a child includes that of its parent
            # at the start.
            run_python(("-c", _WRITE.format(folder, count)))
            run_python(commands[name])
            times = [run_python(commands[name]) for _ in range(repetitions)]
            memory = figure([spent.memory / 1e6 for spent in times], "MB", megabytes)
            sizes = {"runs": count, "points": count * ROUNDS * len(POINTS)}
            record[name] = {**sizes, **seconds_of(times, seconds), "memory": memory}
        record["report"]["file"] = figure([page.stat().st_size / 1e6], "MB", REPORT_MEGABYTES)


def write_folder(out: Path, runs: int) -> None:
    """Write a made-up result folder: finished runs of `ALGORITHMS` algorithms in `CELLS`.

    Each has a curve. Seeds vary fastest, then cells, algorithms and configurations.
    """
    import numpy as np
    import pyarrow as pa

    random = np.random.default_rng(0)
    constants = _constants()
    settings = []
    for dataset, alpha, participation in CELLS:
        setting = Setting(dataset=dataset, alpha=alpha, participation=participation)
        settings.append(replace(setting, validation_fraction=0.1).as_dict())
    file = pa.field("file", pa.string(), nullable=False)
    schema = runs_schema(stored=True).append(file)
    environment = environment_key(constants)
    for start in range(0, runs, _BATCH):
        numbers = range(start, min(start + _BATCH, runs))
        rows = [_row(number, settings, constants, random) for number in numbers]
        for number, row in enumerate(rows, start):  # as a compacted folder has them
            row |= {"written": row["finished"], "forced": False}
            row["file"] = f"{row['run_key'][:16]}-{environment}-{number:016x}.parquet"
        table = pa.Table.from_pylist(rows, schema=schema)
        name = f"packed-{start:032x}.parquet"
        write_table(_curves(rows, random), out / "curves" / name)
        write_table(table, out / "runs" / name)


def _row(
    place: int,
    settings: Sequence[dict[str, Any]],
    constants: dict[str, Any],
    random: np.random.Generator,
) -> dict[str, Any]:
    """Return the row of a run; results are random."""
    seedless, seed = divmod(place, SEEDS)
    method, cell = divmod(seedless, len(settings))
    configuration, algorithm = divmod(method, ALGORITHMS)
    name = f"algorithm_{algorithm:02}"
    x = configuration / 8
    identity = identity_columns(name, 1, {"x": x}, settings[cell], seed)
    values = random.uniform(0.1, 0.9, len(COLUMNS))
    results: dict[str, float] = {}
    for column, value in zip(COLUMNS, values, strict=True):
        scale = 1 if column.unit.startswith("fraction") else 100
        number = float(scale * value)
        results[column.name] = round(number) if column.type == "int64" else number
    return {**results, **constants, **settings[cell], **identity}


def _constants() -> dict[str, Any]:
    """Return the columns that are equal in all rows."""
    from bench.provenance import command_columns, process_columns

    return {
        **command_columns("bench.perf"),
        **process_columns("cpu"),
        "schema_version": SCHEMA_VERSION,
        "status": "finished",
        "error": None,
        "diverged": False,
        "personal": False,
        "selected_on": "validation",
        "shortened": False,
        "certified": True,
        "threads": 1,
        "pack": 1,
        "partition_hash": "ab12",
        "dataset_hash": "cd34",
        "backend": "loop",
        "paper": None,
        "started": datetime.now(UTC),
        "finished": datetime.now(UTC),
    }


def _curves(rows: Sequence[dict[str, Any]], random: np.random.Generator) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    points = ROUNDS * len(POINTS)
    columns = {}
    for name in ("run_key", "algorithm", "file"):
        columns[name] = np.repeat([row[name] for row in rows], points)
    rounds = np.repeat(np.arange(1, ROUNDS + 1), len(POINTS))
    columns["round"] = np.tile(rounds, len(rows))
    columns["metric"] = np.tile(POINTS, ROUNDS * len(rows))
    columns["value"] = random.uniform(size=points * len(rows))
    schema = curves_schema().append(pa.field("file", pa.string(), nullable=False))
    return pa.table({name: pa.array(columns[name]) for name in schema.names}).cast(schema)
