"""Conversions between rows, arrow tables, frames and curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rows import CURVE, curve_of, failed_row, make_row, sound_row, table_of, write

from leaderboards import NUMBERS, Store
from leaderboards.numbers import LARGEST, numbers_of
from leaderboards.rows import reading
from leaderboards.rows.file_names import curve_path, shared_name
from leaderboards.rows.files import content_hash, write_table
from leaderboards.rows.frames import (
    by_run,
    curve_table,
    fill_numbers,
    fit,
    lacking_numbers,
    records,
    run_table,
    slices,
    to_pandas,
)
from leaderboards.rows.index import Folder
from leaderboards.rows.reading import read_curves, read_rows
from leaderboards.rows.schema import runs_schema

NUMBERS_READ = [name for name, number in NUMBERS.items() if number.rule]


def test_a_stored_row_has_three_more_columns() -> None:
    plain = run_table(make_row())
    assert plain.schema.equals(runs_schema())
    stored = run_table({**make_row(), "written": make_row()["finished"], "forced": True})
    assert stored.column_names == [*plain.column_names, "written", "forced", "tracked"]
    assert stored["forced"].to_pylist() == [True]
    added = [stored.schema.field(name) for name in ("written", "forced", "tracked")]
    assert [field.nullable for field in added] == [False, False, True]


def test_points_of_a_run_are_a_table() -> None:
    points = [(1, "a", 0.5), (2, "b", None), (3, "a", float("inf")), (4, "a", float("nan"))]
    row = make_row()
    assert curve_table(row, points).to_pydict() == {
        "run_key": [row["run_key"]] * 4,
        "algorithm": ["fedavg"] * 4,
        "round": [1, 2, 3, 4],
        "metric": ["a", "b", "a", "a"],
        "value": [0.5, None, None, None],
    }


def test_a_table_is_fitted_to_a_schema() -> None:
    schema = pa.schema({"a": pa.int64(), "b": pa.string(), "c": pa.float64()})
    table = pa.table({"c": pa.array([1, 2]), "other": [3, 4], "a": pa.array([5, 6])})
    fitted = fit(table, schema)
    assert fitted.schema == schema
    assert fitted.to_pydict() == {"a": [5, 6], "b": [None, None], "c": [1.0, 2.0]}
    assert fit(fitted, schema) is fitted


def test_slices_are_in_order() -> None:
    table = pa.table({"a": range(5)})
    assert [part["a"].to_pylist() for part in slices(table, 2)] == [[0, 1], [2, 3], [4]]
    assert list(slices(table.slice(0, 0), 2)) == []


def test_rows_that_lack_a_number() -> None:
    table = table_of([make_row(), make_row(final_accuracy=None), make_row(amp=None)])
    assert lacking_numbers(table, NUMBERS_READ).to_pylist() == [False, True, False]
    assert lacking_numbers(table, ["best_accuracy"]).to_pylist() == [False] * 3
    assert lacking_numbers(table, ["seed"]).to_pylist() == [False] * 3
    older = table.drop_columns(["ema_accuracy"])
    assert lacking_numbers(older, NUMBERS_READ).to_pylist() == [True] * 3
    assert lacking_numbers(older, ["best_accuracy"]).to_pylist() == [False] * 3


def test_only_empty_numbers_are_filled() -> None:
    columns = {"final_accuracy": None, "best_accuracy": 0.9, "amp": None}
    table = table_of([make_row(seed=seed, **columns) for seed in range(2)])
    table = table.select(["seed", "final_accuracy", "best_accuracy", "amp"])
    curve = {"accuracy": {1: 0.25, 2: 0.5}}
    filled = fill_numbers(table, [(1, curve)])
    assert filled.schema == table.schema
    assert filled.to_pydict() == {
        "seed": [0, 1],
        "final_accuracy": [None, 0.5],
        "best_accuracy": [0.9, 0.9],
        "amp": [None, None],
    }
    assert fill_numbers(table, []) is table


def test_frames_have_nullable_types_and_dicts() -> None:
    rows = [make_row(git_dirty=None, versions={"b": "1", "a": "2"}), make_row(best_round=None)]
    frame = to_pandas(table_of(rows))
    assert frame.columns.tolist() == runs_schema().names
    assert frame["versions"].tolist() == [{"b": "1", "a": "2"}, make_row()["versions"]]
    kinds = {name: str(frame[name].dtype) for name in ("best_round", "git_dirty", "lr")}
    assert kinds == {"best_round": "Int64", "git_dirty": "boolean", "lr": "float64"}
    assert frame["best_round"].isna().tolist() == [False, True]
    texts = to_pandas(pa.table({"a": ["x\x1by", None, "z"]}))
    assert texts["a"].tolist()[:1] == ["x\ufffdy"]
    maps = pa.array([[("k\x1b", "v\x1b")], None, []], pa.map_(pa.string(), pa.string()))
    assert to_pandas(pa.table({"m": maps}))["m"].tolist() == [{"k\ufffd": "v\ufffd"}, None, {}]


def test_records_have_none_for_nothing() -> None:
    frame = pd.DataFrame({"a": [1.5, float("nan")], "b": ["x", None]})
    assert records(frame) == [{"a": 1.5, "b": "x"}, {"a": None, "b": None}]


def test_points_are_arranged_by_run() -> None:
    values = [0.5, LARGEST, -LARGEST, 2 * LARGEST, None]
    curves = pd.DataFrame({"run_key": list("aabba"), "metric": list("xyxxx"), "value": values})
    found = by_run(curves.assign(round=[1, 2, 3, 4, 5]))
    assert found == {"a": {"x": {1: 0.5}, "y": {2: LARGEST}}, "b": {"x": {3: -LARGEST}}}


# Reading


def test_names_of_files_in_other_folders(tmp_path: Path) -> None:
    path = Store(tmp_path).write(make_row(), CURVE)
    assert shared_name(path) == path.name
    assert curve_path(path) == tmp_path / "curves" / path.name
    other = path.rename(path.with_name("all.parquet"))
    assert shared_name(other) == f"all-{content_hash(other)[:16]}.parquet"
    lone = tmp_path / "kept.parquet"
    assert curve_path(lone) == tmp_path / "kept_curves.parquet"
    beside = path.with_name("all_curves.parquet")
    assert curve_path(other) == tmp_path / "curves" / "all.parquet"
    beside.touch()
    assert curve_path(other) == beside


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """Rows in three files, each without one number; one failed, one has no curve."""
    pairs: list[Any] = [(sound_row(curve_of(seed), seed=seed), curve_of(seed)) for seed in range(4)]
    pairs.append((failed_row("moon"), []))
    pairs.append((sound_row(CURVE, "fedgkd"), []))
    for number in range(3):
        part = tmp_path / str(number)
        write(part, pairs[2 * number : 2 * number + 2])
        table = pq.read_table(part / "runs" / "all.parquet").drop_columns(["final_accuracy"])
        write_table(table, tmp_path / "out" / "runs" / f"{number}.parquet")
        curves = pq.read_table(part / "curves" / "all.parquet")
        write_table(curves, tmp_path / "out" / "curves" / f"{number}.parquet")
    return tmp_path / "out"


@pytest.mark.parametrize("at_once", [1, 2, 1_000])
def test_what_rows_lack_is_computed(
    at_once: int, several: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "AT_ONCE", at_once)
    index = Folder(several).index().sort_by([("row", "descending"), ("file", "ascending")])
    rows = read_rows(index)
    assert rows.schema.equals(runs_schema())
    assert rows["run_key"].to_pylist() == index["run_key"].to_pylist()
    finals = dict(zip(rows["run_key"].to_pylist(), rows["final_accuracy"].to_pylist(), strict=True))
    for seed in range(4):
        expected = numbers_of({"accuracy": {at: value for at, _, value in curve_of(seed)}})
        assert finals[make_row(seed=seed)["run_key"]] == expected["final_accuracy"]
    assert finals[failed_row("moon")["run_key"]] is None
    assert finals[make_row("fedgkd")["run_key"]] is None, "there is no curve"
    few = read_rows(index, ["seed", "final_accuracy"])
    assert few.column_names == ["seed", "final_accuracy"]
    assert few["final_accuracy"].equals(rows["final_accuracy"])
    assert read_rows(index.slice(0, 0)).num_rows == 0


def test_points_come_with_the_name_of_their_file(several: Path) -> None:
    index = Folder(several).index()
    points, missing = read_curves(index)
    assert missing == {}
    assert points.num_rows == 4 * 3
    texts = [field.name for field in points.schema if pa.types.is_dictionary(field.type)]
    assert texts == ["run_key", "algorithm", "metric", "file"]
    files = set(points["file"].to_pylist())
    assert files == {shared_name(path) for path in sorted((several / "runs").iterdir())[:2]}
    one, _ = read_curves(index.slice(0, 1))
    assert set(one["run_key"].to_pylist()) == {index["run_key"][0].as_py()}


def test_missing_curves_are_counted(several: Path) -> None:
    lost = several / "curves" / "0.parquet"
    lost.unlink()
    index = Folder(several).index()
    points, missing = read_curves(index)
    assert (points.num_rows, missing) == (6, {lost: 2})
    (several / "runs" / "0.parquet").unlink()
    with pytest.raises(FileNotFoundError, match="has disappeared"):
        read_curves(index)
