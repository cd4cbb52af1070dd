"""Complete rows for the tests of stores, leaderboards and tables."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import pandas as pd
import pyarrow as pa

from leaderboards import COLUMNS, SCHEMA_VERSION, identity_columns, tables
from leaderboards.numbers import NUMBERS, numbers_of
from leaderboards.numbers import curve_of as curve_of_points
from leaderboards.rows.files import write_table
from leaderboards.rows.frames import curve_table, fit, records, run_table
from leaderboards.rows.schema import runs_schema
from leaderboards.tables import ResultTable
from search_spaces import Setting

DIGITS = "b79fad70078fcb7d46b5f05b272b2e68dad62fde69da2c27d901ea6fed8962d3"  # hash of the data set
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
Pair = tuple[dict[str, Any], list[tuple[int, str, float]]]  # a row and its curve
CURVE = [(1, "accuracy", 0.25), (2, "accuracy", 0.5), (2, "loss", 1.5)]


def tables_of(board: pd.DataFrame, *arguments: Any, **options: Any) -> list[ResultTable]:
    """The tables of a leaderboard."""
    return tables.tables_of(records(board), *arguments, **options)


def hyperparameter(runs: pd.DataFrame, name: str) -> pd.Series:
    """A hyper-parameter of each run."""
    return runs["hp_json"].map(lambda text: json.loads(text)[name])


def make_row(
    algorithm: str = "fedavg",
    hyperparameters: dict[str, Any] | None = None,
    setting: dict[str, Any] | None = None,
    seed: int = 0,
    version: int = 1,
    **columns: Any,
) -> dict[str, Any]:
    """A finished row; `columns` replace values at the end.

    Its validation accuracy is the same by both rules of selection, unless a column says otherwise.
    """
    fields = Setting(**({"validation_fraction": 0.1} | (setting or {}))).as_dict()
    row = {
        **identity_columns(algorithm, version, hyperparameters or {}, fields, seed),
        **{number.name: None if number.optional else 0.5 for number in NUMBERS.values()},
        "mean_last10_val_accuracy": columns.get("best_val_accuracy", 0.5),
        "ema_accuracy": 0.5,
        "best_round": 90,
        "selected_round": 80,
        "local_accuracy_mean": 0.6,
        "amp": 0.6,
        "fm": 0.01,
        "wlp": 0.3,
        "communications": 100,
        "bytes_down": 4_000_000,
        "bytes_up": 2_000_000,
        "train_steps": 12_000.0,
        "partition_hash": "ab12",
        "seconds": 12.5,
        "samples_per_second": 60_000.0,
        "peak_memory_bytes": 500_000_000,
        "status": "finished",
        "error": None,
        "diverged": False,
        "selected_on": "validation",
        "personal": False,
        "shortened": False,
        "paper": "fedgkd",
        "schema_version": SCHEMA_VERSION,
        "package_version": "0.1.0",
        "git_commit": "0" * 40,
        "certified": True,
        "git_dirty": False,
        "versions": {"torch": "2.9.0", "numpy": "2.1.0"},
        "device": "cpu",
        "cpu": "some processor",
        "threads": 1,
        "backend": "loop",
        "pack": 1,
        "host": "a1b2c3",
        "dataset_hash": DIGITS,
        "command": "python -m bench.sweep",
        # Of another run than the rows of other algorithms.
        "started": START + timedelta(microseconds=crc32(algorithm.encode()) % 10**6),
        "finished": START + timedelta(seconds=12.5),
    }
    return row | columns


def sound_row(
    curve: list[tuple[int, str, float]], *arguments: Any, **columns: Any
) -> dict[str, Any]:
    """A finished row whose numbers are those of its curve."""
    return make_row(*arguments, **(numbers_of(curve_of_points(curve)) | columns))


def failed_row(*arguments: Any, **columns: Any) -> dict[str, Any]:
    """A row of a run that failed before it had results."""
    empty = {column.name: None for column in COLUMNS if column.group in ("results", "cost")}
    return make_row(
        *arguments, **(empty | {"status": "failed", "error": "out of memory"} | columns)
    )


def curve_of(seed: int, rounds: int = 3) -> list[tuple[int, str, float]]:
    """A curve that no other seed has."""
    return [(t, "accuracy", (seed + t) / 1000) for t in range(rounds)]


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as one table."""
    schema = runs_schema()
    return pa.concat_tables([schema.empty_table(), *(fit(run_table(row), schema) for row in rows)])


def write(out: Path, pairs: list[Pair]) -> Path:
    """Store all runs in one file: a store finds rows by content, and one file is quick to write."""
    runs = table_of([row for row, _ in pairs])
    curves = pa.concat_tables([curve_table(row, points) for row, points in pairs])
    write_table(curves, out / "curves" / "all.parquet")
    write_table(runs, out / "runs" / "all.parquet")
    return out
