"""Large result folders: the time of a leaderboard of a hundred thousand runs, of `bench.compare`, of `bench.report`.

The folders are made up, written as compaction leaves them: the same schema, files and row groups as real ones.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.perf.interpreter import Ran, run
from bench.perf.measure import figure
from bench.tuning.results import MILESTONES, TARGETS
from leaderboards import COLUMNS, SCHEMA_VERSION, canonical_json, environment_key, run_key
from leaderboards.rows.segments import storage_schema, write_segment
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


def measure_boards(runs: int, repetitions: int, say: Callable[[str], None]) -> dict[str, Any]:
    """The leaderboard of a folder of `runs` runs, `bench.compare` of a tenth, `bench.report` of `REPORTED` at most.

    Args:
        runs: in the largest folder.
        repetitions: of each; one more, not counted, warms the file cache.
        say: told what is being done.

    Returns:
        For `leaderboard`, `compare` and `report`: `runs` and `points` in the folder, and figures: seconds of the whole
        process, its processor time and its largest memory; of a report also the size of its file.
    """
    sizes = {"leaderboard": runs, "compare": max(runs // 10, 1), "report": min(runs, REPORTED)}
    with tempfile.TemporaryDirectory() as place:
        page = Path(place) / "page.html"
        folders = {name: Path(place) / name for name in sizes}
        for name, folder in folders.items():
            say(f"boards: making up a folder of {sizes[name]:,} runs")
            write_folder(folder, sizes[name])
        say(f"boards: {repetitions} repetitions")
        commands = {
            "leaderboard": ("-c", _TABLE.format(str(folders["leaderboard"]))),
            "compare": ("-m", "bench.compare", "--out", str(folders["compare"])),
            "report": ("-m", "bench.report", "--out", str(folders["report"]), "--to", str(page)),
        }
        spent = {name: [run(command) for _ in range(repetitions + 1)][1:] for name, command in commands.items()}
        megabytes = page.stat().st_size / 1e6
    limits = {
        "leaderboard": (LEADERBOARD_SECONDS, LEADERBOARD_MEGABYTES),
        "compare": (COMPARE_SECONDS, None),
        "report": (REPORT_SECONDS, None),
    }
    found = {name: _sizes(sizes[name]) | _figures(spent[name], *limits[name]) for name in sizes}
    found["report"]["file"] = figure([megabytes], "MB", REPORT_MEGABYTES)
    return found


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
    write_segment(out, (), [table.slice(i, 4_096) for i in range(0, runs, 4_096)], points)


def _identity(number: int) -> dict[str, Any]:
    """Who the run of a number is."""
    rest, seed = divmod(number, SEEDS)
    rest, cell = divmod(rest, len(CELLS))
    configuration, algorithm = divmod(rest, ALGORITHMS)
    name, hyperparameters = f"algorithm_{algorithm:02}", {"x": configuration / 8}
    setting = _SETTINGS[cell]
    key = run_key(name, 1, hyperparameters, setting, seed)
    identity = {"run_key": key, "algorithm": name, "seed": seed, "hp_json": canonical_json(hyperparameters)}
    return {**setting, **identity, "setting_json": _SETTING_TEXTS[cell]}


def _constants() -> dict[str, Any]:
    """The columns that are equal in all rows."""
    from bench import provenance
    from bench.tuning.results import now

    here = {**provenance.of_command(["made", "up"]), **provenance.of_process("cpu"), "schema_version": SCHEMA_VERSION}
    state = {"status": "finished", "error": None, "diverged": False, "selected_on": "validation", "shortened": False}
    costs = {"communications": 100, "bytes_down": 4_000_000, "bytes_up": 2_000_000, "train_steps": 12_000.0}
    rounds = {"best_round": 90, "selected_round": 80, "peak_memory_bytes": 500_000_000, "threads": 1, "pack": 1}
    texts = {"partition_hash": "ab12", "dataset_hash": "cd34", "backend": "loop", "paper": None}
    at = {"algorithm_version": 1, "started": now(), "finished": now(), "written": now(), "forced": False}
    return {**here, **state, **costs, **rounds, **texts, **at}


def _columns(rows: Sequence[dict[str, Any]], constants: dict[str, Any]) -> dict[str, pa.Array]:
    """Every column of a packed file of rows; results are random."""
    import numpy as np
    import pyarrow as pa

    random, schema = np.random.default_rng(0), storage_schema("runs")
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


def _settings() -> Iterator[dict[str, Any]]:
    for dataset, alpha, participation in CELLS:
        yield Setting(dataset=dataset, alpha=alpha, participation=participation, validation_fraction=0.1).as_dict()


_SETTINGS = tuple(_settings())
_SETTING_TEXTS = tuple(canonical_json(setting) for setting in _SETTINGS)


def _sizes(runs: int) -> dict[str, Any]:
    return {"runs": runs, "points": runs * ROUNDS * len(POINTS)}


def _figures(turns: Sequence[Ran], seconds: float, memory: float | None) -> dict[str, Any]:
    return {
        "seconds": figure([ran.seconds for ran in turns], "s", seconds),
        "cpu_seconds": figure([ran.cpu_seconds for ran in turns], "s"),
        "memory": figure([ran.memory / 1e6 for ran in turns], "MB", memory),
    }
