"""Files and rows that nobody's run can have made: each is named, with exit status 3, and no number of it is shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rows import CURVE, make_row, sound_row, table_of

from bench import boards, status
from bench.compare import command as compare
from bench.report import command as report
from leaderboards import Store, run_key
from leaderboards.rows.files import BrokenFileError, read_table, write_table
from leaderboards.rows.frames import curve_table
from leaderboards.rows.index import Folder
from leaderboards.rows.schema import environment_key

COMMANDS: dict[str, Callable[[str], int]] = {
    "compare": lambda out: compare.main(["--out", out]),
    "diff": lambda out: compare.main(["diff", "0", "1", "--out", out]),
    "status": lambda out: status.main(["--out", out]),
    "report": lambda out: report.main(["--out", out, "--to", f"{out}.html"]),
    "validate": lambda out: boards.main(["validate", out]),
    "merge": lambda out: boards.main(["merge", out, "--out", f"{out}-merged"]),
}
MICROSECONDS = pa.timestamp("us", tz="UTC")
TEXTS = pa.map_(pa.string(), pa.string())


def put(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, values)


def marked(table: pa.Table, **metadata: bytes) -> pa.Table:
    added = {name.encode(): value for name, value in metadata.items()}
    return table.replace_schema_metadata({**table.schema.metadata, **added})


WRONG_SCHEMAS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "a column twice": lambda table: table.append_column("run_key", table["run_key"]),
    "a list": lambda table: put(table, "run_key", pa.array([["a"]])),
    "text for a time": lambda table: put(table, "finished", pa.array(["x"])),
    "text for a number": lambda table: put(table, "final_accuracy", pa.array(["x"])),
    "a number for text": lambda table: put(table, "hp_json", pa.array([1])),
    "another time zone": lambda table: put(
        table, "finished", pa.array([0], pa.timestamp("us", tz="Nowhere/Else"))
    ),
    "a time far off": lambda table: put(table, "finished", pa.array([2**62], MICROSECONDS)),
    "a map with one key twice": lambda table: put(
        table, "versions", pa.array([[("a", "1"), ("a", "2")]], TEXTS)
    ),
    "a map with an empty value": lambda table: put(
        table, "versions", pa.array([[("a", None)]], TEXTS)
    ),
    "a list for a map": lambda table: put(table, "versions", pa.array([["a"]])),
    "no run key": lambda table: put(table, "run_key", pa.array([None], pa.string())),
    "no end": lambda table: put(table, "finished", pa.array([None], MICROSECONDS)),
    "no host": lambda table: put(table, "host", pa.array([None], pa.string())),
    "no status": lambda table: table.drop_columns(["status"]),
    "bytes that are no text": lambda table: marked(table, fedkd_curves_sha256=b"\xff"),
    "a list that is none": lambda table: marked(table, fedkd_replaces=b"{"),
    "a number for a list": lambda table: marked(table, fedkd_replaces=b"7"),
    "a deep list": lambda table: marked(table, fedkd_replaces=b"[" * 100_000),
}


def one_row(out: Path, **columns: Any) -> Path:
    """A folder with one row, as far as its schema takes it; the file of the row."""
    write_table(curve_table(make_row(), CURVE), out / "curves" / "row.parquet")
    path = out / "runs" / "row.parquet"
    table = table_of([sound_row(CURVE)])
    for name, value in columns.items():
        table = put(table, name, pa.array([value], table.schema.field(name).type))
    write_table(table, path)
    return path


@pytest.mark.parametrize("wrong", WRONG_SCHEMAS)
def test_a_file_of_another_schema_is_named(
    wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    path = one_row(out)
    pq.write_table(WRONG_SCHEMAS[wrong](pq.read_table(path)), path)
    with pytest.raises(BrokenFileError) as error:
        read_table(path, "runs")
    assert error.value.path == path
    for command, run in COMMANDS.items():
        assert run(str(out)) == 3, command
        shown = capsys.readouterr()
        assert "row.parquet" in shown.out + shown.err, command
    assert not list((tmp_path / "out-merged").rglob("*.parquet"))


@pytest.mark.parametrize("metric", [pa.array([1]), pa.array([None], pa.string())])
def test_a_curve_of_another_schema_is_named(metric: pa.Array, tmp_path: Path) -> None:
    path = one_row(tmp_path)
    curve = tmp_path / "curves" / path.name
    table = pq.read_table(curve)
    pq.write_table(put(table, "metric", pa.concat_arrays([metric] * len(table))), curve)
    with pytest.raises(BrokenFileError) as error:
        Store(tmp_path).curves()
    assert error.value.path == curve
    assert boards.main(["validate", str(tmp_path)]) == 3


def test_segments_name_each_rows_file(tmp_path: Path) -> None:
    path = one_row(tmp_path)
    packed = path.with_name(f"packed-{'0' * 32}.parquet")
    path.rename(packed)
    with pytest.raises(BrokenFileError):
        Store(tmp_path).runs()
    table = pq.read_table(packed)
    pq.write_table(table.append_column("file", pa.array([None], pa.string())), packed)
    with pytest.raises(BrokenFileError):
        Store(tmp_path).runs()


HUGE = int("9" * 400)
IMPOSSIBLE = {
    "above one": {"final_accuracy": 5.0},
    "below zero": {"final_accuracy": -3.0},
    "infinite": {"final_accuracy": float("inf")},
    "not a number": {"best_val_accuracy": float("nan")},
    "negative bytes": {"bytes_up": -1},
    "no status": {"status": "done"},
    "no key": {"run_key": ""},
    "no device": {"device": None},
    "no duration": {"seconds": None},
}


@pytest.mark.parametrize("forged", IMPOSSIBLE)
def test_an_impossible_row_is_named(
    forged: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    one_row(out, **IMPOSSIBLE[forged])
    for command in ("compare", "status", "report", "validate", "merge"):
        assert COMMANDS[command](str(out)) == 3, command
        shown = capsys.readouterr()
        assert next(iter(IMPOSSIBLE[forged])) in shown.out + shown.err
    assert not list((tmp_path / "out-merged").rglob("*.parquet"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hp_json", {"mu": HUGE}),
        ("hp_json", {"json": 1}),
        ("setting_json", {"extra": HUGE}),
        ("setting_json", {"partition_seed": -1.5}),
        ("setting_json", {"partition_seed": "x"}),
        ("setting_json", {"partition_seed": -5}),
        ("setting_json", {"partition_seed": True}),
        ("setting_json", {"client_models": 7}),
    ],
)
def test_a_poisoned_identity_is_found(
    name: str, value: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = make_row()
    values = {column: json.loads(row[column]) for column in ("hp_json", "setting_json")}
    values[name] |= value
    texts = {
        column: json.dumps(each, sort_keys=True, separators=(",", ":"))
        for column, each in values.items()
    }
    key = run_key("fedavg", 1, values["hp_json"], values["setting_json"], 0)
    out = tmp_path / "out"
    one_row(out, run_key=key, **texts)
    for command in ("compare", "status", "report", "validate", "merge"):
        assert COMMANDS[command](str(out)) == 3, command
        shown = capsys.readouterr()
        assert name in shown.out + shown.err
    assert not list((tmp_path / "out-merged").rglob("*.parquet"))


CONTRADICTED = [
    {"final_accuracy": 0.999},
    {"best_round": 1},
    {"best_val_accuracy": 0.5},
    {"bytes_up": 7},
]


@pytest.mark.parametrize("forged", CONTRADICTED)
def test_a_contradicted_number_stops_a_merge(forged: dict[str, Any], tmp_path: Path) -> None:
    one_row(tmp_path / "theirs", **forged)
    mine = Store(tmp_path / "mine")
    mine.write(sound_row(CURVE, seed=5), CURVE)
    before = {path: path.read_bytes() for path in mine.out.rglob("*.parquet")}
    assert boards.main(["validate", str(tmp_path / "theirs")]) == 3
    assert boards.main(["merge", str(tmp_path / "theirs"), "--out", str(mine.out)]) == 3
    assert {path: path.read_bytes() for path in mine.out.rglob("*.parquet")} == before


@pytest.mark.parametrize(("late", "status"), [(0, 0), (1, 3), (2**61, 3)])
def test_a_point_after_the_last_round_is_found(late: int, status: int, tmp_path: Path) -> None:
    row = sound_row(CURVE)
    Store(tmp_path).write(row, [*CURVE, (row["rounds"] + late, "train_loss", 0.5)])
    assert boards.main(["validate", str(tmp_path)]) == status


def test_a_curve_of_impossible_accuracies_is_found(tmp_path: Path) -> None:
    curve = [(1, "accuracy", 0.5), (1, "client_mean", 5.0), (2, "accuracy", 0.5)]
    Store(tmp_path).write(sound_row(curve), curve)
    assert boards.main(["validate", str(tmp_path)]) == 3


def test_too_large_values_count_as_none(tmp_path: Path) -> None:
    curve = [*CURVE, (1, "train_loss", 1e308), (2, "train_loss", 1e308)]
    Store(tmp_path / "out").write(sound_row(curve), curve)
    assert COMMANDS["report"](str(tmp_path / "out")) == 0
    assert compare.main(["--out", str(tmp_path / "out"), "--metric", "train_loss,best"]) == 0


@pytest.mark.parametrize("packed", [False, True])
def test_a_row_may_lack_a_number(packed: bool, tmp_path: Path) -> None:
    path = one_row(tmp_path)
    write_table(
        pq.read_table(path).drop_columns(["final_accuracy", "ema_accuracy", "selected_round"]), path
    )
    if packed:
        Store(tmp_path).write(sound_row(CURVE, seed=1), CURVE)
        row = make_row()
        name = f"{row['run_key'][:16]}-{environment_key(row)}.parquet"
        for kind in ("runs", "curves"):
            (tmp_path / kind / "row.parquet").rename(tmp_path / kind / name)
        assert boards.main(["compact", str(tmp_path)]) == 0
    runs = Store(tmp_path).runs()
    assert runs["final_accuracy"].tolist() == [0.5] * len(runs)
    assert runs["ema_accuracy"].tolist() == [0.35] * len(runs)
    assert boards.main(["validate", str(tmp_path)]) == 0


def test_unknown_columns_are_ignored_with_their_values(tmp_path: Path) -> None:
    path = one_row(tmp_path)
    strange = pa.array([[{"a": 1}]])
    write_table(pq.read_table(path).append_column("of_a_later_version", strange), path)
    assert Store(tmp_path).runs()["final_accuracy"].tolist() == [0.5]
    assert boards.main(["validate", str(tmp_path)]) == 0


def test_only_forced_and_tracked_rows_are_preferred(tmp_path: Path) -> None:
    plain = sound_row(CURVE, local_accuracy_mean=None, amp=None, fm=None, wlp=None)
    Store(tmp_path).write(plain, CURVE)
    (path,) = (tmp_path / "runs").glob("*.parquet")
    table = pq.read_table(path)
    preferred = []
    path.unlink()
    files = [table.drop_columns(["forced"])]  # as of an earlier version
    files += [put(table, "forced", pa.array([forced])) for forced in (False, True)]
    for file in files:
        write_table(file, path.with_name("row.parquet"))
        preferred += Folder(tmp_path).index()["preferred"].to_pylist()
    assert preferred == [False, False, True]
