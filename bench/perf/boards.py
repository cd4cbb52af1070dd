"""Large result folders: the time of a leaderboard of a hundred thousand runs, of `bench.compare`, of `bench.report`.

The folders are made up, written as compaction leaves them: the same schema, files and row groups as real ones.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.perf.measure import Record, Say, figure, run_python, seconds_of
from bench.tuning.results import MILESTONES, TARGETS
from leaderboards import COLUMNS, SCHEMA_VERSION, canonical_json, environment_key, run_key
from leaderboards.compaction import write_pack
from search_spaces import Setting

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

LEADERBOARD_SECONDS, LEADERBOARD_MEGABYTES, COMPARE_SECONDS = 5.0, 2_000.0, 3.0  # targets
REPORT_SECONDS, REPORT_MEGABYTES = 15.0, 5.0  # of the page's time and of its file
REPORTED = 1_000  # runs of a page
ROUNDS = 10  # that a curve has, of each of its metrics
POINTS = (
    *("accuracy", "val_accuracy", "loss", "train_loss", "local_accuracy"),
    *("communications", "bytes_down", "bytes_up", "train_steps", "drift"),
)
ALGORITHMS, SEEDS = 25, 5
CELLS = tuple(product(("cifar10", "cifar100"), (0.05, 0.1, 0.5, 1.0), (0.1, 1.0)))  # data set, alpha, participation
_TABLE = "from leaderboards import Store; from leaderboards.boards import leaderboard; leaderboard(Store({!r}).runs())"
_GROUP = 1_000  # runs whose points are made at once


def measure_boards(record: Record, runs: int, repetitions: int, say: Say) -> None:
    """Time the leaderboard of `runs` runs, `bench.compare` of a tenth, `bench.report` of `REPORTED` at most.

    Args:
        record: for `leaderboard`, `compare` and `report` gets `runs` and `points` in the folder, and figures of whole
            processes: seconds, processor time, largest memory; of a report also the size of its file.
        runs: in the largest folder.
        repetitions: of each; one more, not counted, warms the file cache.
        say: told what is being done.
    """
    with tempfile.TemporaryDirectory() as place:
        page = Path(place) / "page.html"
        for name, count, seconds, megabytes in (
            ("leaderboard", runs, LEADERBOARD_SECONDS, LEADERBOARD_MEGABYTES),
            ("compare", max(runs // 10, 1), COMPARE_SECONDS, None),
            ("report", min(runs, REPORTED), REPORT_SECONDS, None),
        ):
            folder = Path(place) / name
            say(f"boards: {name} of a made-up folder of {count:,} runs, {repetitions} repetitions")
            write_folder(folder, count)
            command = {
                "leaderboard": ("-c", _TABLE.format(str(folder))),
                "compare": ("-m", "bench.compare", "--out", str(folder)),
                "report": ("-m", "bench.report", "--out", str(folder), "--to", str(page)),
            }[name]
            times = [run_python(command) for _ in range(repetitions + 1)][1:]
            memory = figure([spent.memory / 1e6 for spent in times], "MB", megabytes)
            sizes = {"runs": count, "points": count * ROUNDS * len(POINTS)}
            record[name] = {**sizes, **seconds_of(times, seconds), "memory": memory}
        record["report"]["file"] = figure([page.stat().st_size / 1e6], "MB", REPORT_MEGABYTES)


def write_folder(out: Path, runs: int) -> None:
    """Write a made-up result folder: finished runs of `ALGORITHMS` algorithms in `CELLS`, each with a curve.

    Args:
        out: the folder.
        runs: how many; seeds come first, then cells, algorithms and configurations.
    """
    import pyarrow as pa

    rows = sorted((_identity(number) for number in range(runs)), key=lambda row: row["run_key"])
    columns = _columns(rows, _constants())
    table = pa.table(columns)
    keys, algorithms, files = (columns[name] for name in ("run_key", "algorithm", "file"))
    points = (
        _points(keys[start : start + _GROUP], algorithms[start : start + _GROUP], files[start : start + _GROUP])
        for start in range(0, runs, _GROUP)
    )
    write_pack(out, {"hp_x": pa.float64()}, (), [table.slice(i, 4_096) for i in range(0, runs, 4_096)], points)


def _identity(number: int) -> dict[str, Any]:
    """Who the run of a number is."""
    rest, seed = divmod(number, SEEDS)
    rest, cell = divmod(rest, len(CELLS))
    configuration, algorithm = divmod(rest, ALGORITHMS)
    name, hyperparameters = f"algorithm_{algorithm:02}", {"x": configuration / 8}
    setting = _SETTINGS[cell]
    key = run_key(name, 1, hyperparameters, setting, seed)
    identity = {"run_key": key, "algorithm": name, "seed": seed, "hp_json": canonical_json(hyperparameters)}
    return {**setting, **identity, "hp_x": hyperparameters["x"], "setting_json": _SETTING_TEXTS[cell]}


def _constants() -> dict[str, Any]:
    """The columns that are equal in all rows."""
    from bench import provenance
    from bench.tuning.results import now

    here = {**provenance.of_command(["made", "up"]), **provenance.of_process("cpu"), "schema_version": SCHEMA_VERSION}
    state = {"status": "finished", "error": None, "diverged": False, "selected_on": "validation", "shortened": False}
    costs = {"communications": 100, "bytes_down": 4_000_000, "bytes_up": 2_000_000, "train_steps": 12_000.0}
    rounds = {"best_round": 90, "selected_round": 80, "peak_memory_bytes": 500_000_000, "threads": 1, "pack": 1}
    texts = {"partition_hash": "ab12", "dataset_hash": "cd34", "backend": "loop", "paper": None}
    at = {"algorithm_version": 1, "started": now(), "finished": now()}
    return {**here, **state, **costs, **rounds, **texts, **at}


def _columns(rows: Sequence[dict[str, Any]], constants: dict[str, Any]) -> dict[str, pa.Array]:
    """Every column of a packed file of rows; results are random."""
    import numpy as np
    import pyarrow as pa

    from leaderboards.packed import packed_schema

    random, schema = np.random.default_rng(0), packed_schema("runs", {"hp_x": pa.float64()})
    units, made = {column.name: column.unit for column in COLUMNS}, {}
    environment = environment_key(constants)
    constants = constants | {"accuracy_at": None, "rounds_to": None}
    for field in schema:
        if field.name == "file":
            made[field.name] = pa.array([f"{row['run_key'][:16]}-{environment}.parquet" for row in rows])
        elif field.name in rows[0]:
            made[field.name] = pa.array([row[field.name] for row in rows], field.type)
        elif field.name in ("accuracy_at", "rounds_to"):
            made[field.name] = _maps(field, random, len(rows))
        elif field.name in constants:
            made[field.name] = pa.array([constants[field.name]] * len(rows), field.type)
        else:
            values = random.uniform(0.1, 0.9, len(rows))
            made[field.name] = pa.array(values if units[field.name].startswith("fraction") else 100 * values)
    return made


def _maps(field: pa.Field, random: np.random.Generator, rows: int) -> pa.Array:
    """As long as those of real runs of 100 rounds that reach three quarters."""
    import numpy as np
    import pyarrow as pa

    rounds = [at for at in MILESTONES if at <= 100]
    keys = rounds if field.name == "accuracy_at" else TARGETS[:15]
    items = random.uniform(0.1, 0.9, len(keys) * rows)
    values = items if field.name == "accuracy_at" else (100 * items).astype(np.int32)
    offsets = np.arange(rows + 1, dtype=np.int32) * len(keys)
    return pa.MapArray.from_arrays(
        pa.array(offsets), pa.array(list(keys) * rows, field.type.key_type), pa.array(values, field.type.item_type)
    )


def _points(keys: pa.Array, algorithms: pa.Array, files: pa.Array) -> pa.Table:
    """The curves of some runs."""
    import numpy as np
    import pyarrow as pa

    each = ROUNDS * len(POINTS)
    of_run = np.repeat(np.arange(len(keys), dtype=np.int32), each)
    metrics = np.tile(np.arange(len(POINTS), dtype=np.int32), ROUNDS * len(keys))
    return pa.table(
        {
            "run_key": pa.DictionaryArray.from_arrays(of_run, keys),
            "algorithm": algorithms.take(pa.array(of_run)),
            "round": pa.array(np.tile(np.repeat(np.arange(1, ROUNDS + 1), len(POINTS)), len(keys))),
            "metric": pa.DictionaryArray.from_arrays(metrics, pa.array(POINTS)),
            "value": pa.array(np.random.default_rng(len(keys)).uniform(size=len(keys) * each)),
            "file": pa.DictionaryArray.from_arrays(of_run, files),
        }
    )


_SETTINGS = tuple(
    Setting(dataset=dataset, alpha=alpha, participation=participation, validation_fraction=0.1).as_dict()
    for dataset, alpha, participation in CELLS
)
_SETTING_TEXTS = tuple(canonical_json(setting) for setting in _SETTINGS)
