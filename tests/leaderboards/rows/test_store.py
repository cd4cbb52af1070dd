"""The store: rows come back as they were written, whole or not at all, whoever else writes and whatever is killed."""

from __future__ import annotations

import errno
import math
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rows import CURVE, START, failed_row, make_row, sound_row

from leaderboards import (
    COLUMNS,
    SCHEMA_VERSION,
    Store,
    StoreError,
    canonical_json,
    run_key,
)
from leaderboards.board import leaderboard
from leaderboards.rows.checks import check_curve, check_row
from leaderboards.rows.compaction import compact
from leaderboards.rows.file_names import curve_path
from leaderboards.rows.files import BrokenFileError
from leaderboards.rows.frames import curve_table
from leaderboards.rows.schema import environment_key
from leaderboards.rows.verify import validate

HYPERPARAMETERS = {"gamma": 0.2, "buffer": 5, "warm": True, "variant": "paper", "limit": None}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "out")


# Identity


def test_run_keys_depend_on_every_part():
    key = run_key("fedgkd", 1, {"a": 0.2, "b": 1}, {"lr": 0.1, "alpha": None}, 0)
    assert len(key) == 64
    assert key == run_key("fedgkd", 1, {"b": 1, "a": 0.2}, {"alpha": None, "lr": 0.1}, 0)
    others = [
        run_key("fedavg", 1, {"a": 0.2, "b": 1}, {"lr": 0.1, "alpha": None}, 0),
        run_key("fedgkd", 2, {"a": 0.2, "b": 1}, {"lr": 0.1, "alpha": None}, 0),
        run_key("fedgkd", 1, {"a": 0.3, "b": 1}, {"lr": 0.1, "alpha": None}, 0),
        run_key("fedgkd", 1, {"a": 0.2, "b": 1.0}, {"lr": 0.1, "alpha": None}, 0),
        run_key("fedgkd", 1, {"a": 0.2, "b": 1}, {"lr": 0.1, "alpha": 0.5}, 0),
        run_key("fedgkd", 1, {"a": 0.2, "b": 1}, {"lr": 0.1, "alpha": None}, 1),
    ]
    assert len({key, *others}) == 7


def test_run_keys_are_unchanged():
    """Stored results are found by it: a change of this value orphans every result folder."""
    assert run_key("fedavg", 1, {}, {"dataset": "digits"}, 0) == (
        "706638ed1e821df9cf25cdf14465c9314d4f6c0532ea78dfb98b755b3171df37"
    )


def test_canonical_json_is_sorted_and_dense():
    assert (
        canonical_json({"b": 1, "a": [1.0, None, True, "ä"]}) == '{"a":[1.0,null,true,"ä"],"b":1}'
    )


@pytest.mark.parametrize("mapping", [{"a": math.nan}, {"a": math.inf}, {"a": {1, 2}}, {1: 2}])
def test_canonical_json_refuses_ambiguous_values(mapping):
    with pytest.raises(ValueError, match="must be"):
        canonical_json(mapping)


def test_the_environment_key_ignores_the_host():
    row = make_row()
    assert len(environment_key(row)) == 8
    assert environment_key(row) == environment_key(
        row | {"host": "elsewhere", "seconds": 1.0, "seed": 9}
    )
    changes = [
        {"device": "gpu"},
        {"cpu": "x"},
        {"threads": 2},
        {"backend": "stacked"},
        {"pack": 4},
        {"versions": {}},
    ]
    assert len({environment_key(row | change) for change in changes} | {environment_key(row)}) == 7


# Checks


def test_complete_rows_pass():
    check_row(make_row("fedgkd", HYPERPARAMETERS))
    check_row(failed_row())
    check_row(failed_row(status="stopped", error=None))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"best_accuracy": 70.0}, r"best_accuracy must be a fraction in \[0, 1\], got 70.0"),
        ({"versions": {"torch": 2}}, "versions must be of type map<string,string>"),
        ({"seconds": None}, "seconds is empty in a finished row"),
        ({"best_round": 1.5}, r"best_round must be of type int64, got 1.5 \(float\)"),
        ({"seconds": -1.0}, "seconds must be >= 0"),
        ({"status": "done"}, "status must be one of finished, failed, stopped, got 'done'"),
        ({"status": "failed"}, "error is empty in a failed row"),
        ({"seed": 2**63}, "seed must be of type int64"),
        ({"run_key": "abc"}, "run_key must be 64"),
        ({"accuracy": 0.5}, "unknown columns accuracy"),
        ({"hp_json": '{"gamma": 0.2}'}, "hp_json must be canonical JSON"),
        ({"lr": 0.5}, "setting_json and the columns disagree about lr"),
    ],
)
def test_a_wrong_row_is_refused_by_name(change, problem):
    with pytest.raises(ValueError, match=problem):
        check_row(make_row("fedgkd", {"gamma": 0.2}) | change)


@pytest.mark.parametrize(
    "curve", [[(1, "accuracy")], [("1", "a", 0.5)], [(-1, "a", 0.5)], [(1, "a", "0.5")]]
)
def test_a_wrong_curve_is_refused(curve):
    with pytest.raises(ValueError, match="a point is"):
        check_curve(curve)


def test_a_metric_has_one_value_a_round():
    with pytest.raises(ValueError, match="round 1 and metric 'a'"):
        check_curve([(1, "a", 0.5), (1, "a", 0.6)])


# Reading what was written


def test_every_column_comes_back(store):
    row = make_row("fedgkd", HYPERPARAMETERS)
    store.write(row, CURVE)
    frame = store.runs()
    assert set(frame.columns) == {column.name for column in COLUMNS}
    for name, value in row.items():
        assert frame[name].isna()[0] if value is None else frame[name][0] == value, name


def test_a_failed_row_comes_back_empty(store):
    store.write(failed_row(), [])
    found = store.runs().iloc[0]
    assert found["error"] == "out of memory"
    assert found[["best_accuracy", "best_round", "bytes_up", "seconds"]].isna().all()
    assert store.curves().empty


def test_the_curve_comes_back(store):
    row = make_row()
    store.write(row, [*CURVE, (3, "loss", math.inf), (4, "loss", None)])
    curve = store.curves()
    assert list(curve.columns) == ["run_key", "algorithm", "round", "metric", "value"]
    assert set(curve["run_key"]) == {row["run_key"]}
    assert list(curve[["round", "metric", "value"]].itertuples(index=False, name=None))[:3] == CURVE
    assert curve["value"].isna().tolist() == [False, False, False, True, True]
    assert store.curves([]).empty


def test_an_empty_folder_has_no_runs(store):
    assert store.status() == {}
    assert store.finished(["a"]) == set()
    assert store.runs().empty
    assert {column.name for column in COLUMNS} <= set(store.runs().columns)
    assert store.curves().empty
    assert not store.out.exists()


def test_a_missing_curve_is_reported(store, caplog):
    path = store.write(make_row(seed=0), CURVE)
    store.write(make_row(seed=1), CURVE)
    (store.out / "curves" / path.name).unlink()
    assert store.curves()["run_key"].nunique() == 1
    assert "is missing" in caplog.text


# Replicates and replacement


LATER = {"finished": START + timedelta(days=1)}
GPU_LATER = {"device": "gpu", **LATER}


def done(accuracy, **columns):
    return make_row(best_accuracy=accuracy, **columns)


# Rows in the order in which they are written, then those that `--force` writes; the accuracy or
# status of the row that counts, and of all that are kept.
DISAGREEING = "of unlike results of one environment the last counts"
PRECEDENCE = {
    "of several environments the one that finished first counts": (
        [done(0.6, **GPU_LATER), done(0.5)],
        [],
        0.5,
        [0.5, 0.6],
    ),
    "a finished row replaces a failed one": ([failed_row(), done(0.5)], [], 0.5, [0.5]),
    "no failed row replaces a finished one": ([done(0.5), failed_row(**LATER)], [], 0.5, [0.5]),
    "no stopped row replaces a finished one": (
        [done(0.5), failed_row(status="stopped", **LATER)],
        [],
        0.5,
        [0.5],
    ),
    "a failed row elsewhere counts less": (
        [failed_row(**GPU_LATER), done(0.5)],
        [],
        0.5,
        ["failed", 0.5],
    ),
    "of rows that did not finish the latest counts": (
        [failed_row(status="stopped", **GPU_LATER), failed_row()],
        [],
        "stopped",
        ["failed", "stopped"],
    ),
    DISAGREEING: ([done(0.5), done(0.625), done(0.5)], [], 0.625, [0.625]),
    "a forced row replaces whatever was stored": (
        [done(0.5), done(0.625)],
        [done(0.75)],
        0.75,
        [0.75],
    ),
    "a forced row that failed replaces no finished one": ([done(0.5)], [failed_row()], 0.5, [0.5]),
    "a forced row counts before others elsewhere": (
        [done(0.5)],
        [done(0.625, threads=2)],
        0.625,
        [0.5, 0.625],
    ),
    "of forced rows the last counts": (
        [],
        [done(0.625, threads=2), done(0.75)],
        0.75,
        [0.625, 0.75],
    ),
}


@pytest.mark.parametrize("rule", PRECEDENCE)
def test_a_single_row_of_a_run_counts(store, rule):
    rows, forced, counting, kept = PRECEDENCE[rule]
    for row, replace in [*((row, False) for row in rows), *((row, True) for row in forced)]:
        points = [(1, "accuracy", row["best_accuracy"])] if row["status"] == "finished" else []
        store.write(row, points, replace=replace)
    finished = isinstance(counting, float)

    def outcomes(runs):
        results = zip(runs["status"], runs["best_accuracy"], strict=True)
        return sorted(
            (accuracy if status == "finished" else status for status, accuracy in results), key=str
        )

    assert outcomes(store.runs()) == [counting]
    assert outcomes(store.runs(replicates=True)) == sorted(kept, key=str)
    assert list(store.status().values()) == ["finished" if finished else counting]
    assert len(store.finished()) == finished
    assert store.curves()["value"].tolist() == [counting] * finished
    disagreeing = [fault for fault in validate(store.out).faults if "disagree" in fault.problem]
    assert bool(disagreeing) == (rule == DISAGREEING)
    for fault in disagreeing:
        key = store.runs(replicates=True)["run_key"].iloc[0]
        assert f"bench.sweep reproduce {key[:16]} --out {store.out}`" in fault.next_step


def test_a_forced_row_beats_later_clocks(store, monkeypatch):
    class Ahead(datetime):
        @classmethod
        def now(cls, tz=None):
            return super().now(tz) + timedelta(hours=2)

    with monkeypatch.context() as patched:
        patched.setattr("leaderboards.rows.store.datetime", Ahead)
        store.write(sound_row(CURVE), CURVE, replace=True)
    (store.out / "runs" / "._of_another_system.parquet").write_bytes(b"no parquet")
    better = [(1, "accuracy", 0.75)]
    store.write(sound_row(better), better, replace=True)
    assert store.runs()["best_accuracy"].tolist() == [0.75]
    assert not validate(store.out).faults


def test_an_equal_result_is_written_once(store):
    path = store.write(make_row(), CURVE)
    before = path.read_bytes()
    assert store.write(make_row(best_accuracy=0.625), CURVE) != path
    assert store.write(make_row(seconds=99.0), CURVE) == path
    assert path.read_bytes() == before


def test_a_row_with_tracked_accuracies_counts(store):
    for tracked in (None, 0.6, None):
        store.write(make_row(local_accuracy_mean=tracked), CURVE)
    assert store.runs(replicates=True)["local_accuracy_mean"].tolist() == [0.6]
    assert len(list((store.out / "runs").iterdir())) == 2


# Files that are not what they should be


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _rewritten(path: Path, **metadata: str) -> None:
    table = pq.read_table(path)
    added = {name.encode(): value.encode() for name, value in metadata.items()}
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, **added}), path)


DAMAGES: dict[str, tuple[Callable[[Path], object], type[StoreError], str]] = {
    "truncated": (_cut, BrokenFileError, "delete"),
    "foreign": (
        lambda path: pq.write_table(pa.table({"a": [1]}), path),
        BrokenFileError,
        "not written by fedkd-bench",
    ),
    "newer": (
        lambda path: _rewritten(path, fedkd_schema_version="2"),
        StoreError,
        "upgrade fedkd-bench",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_unusable_file_is_named(store, damage):
    path = store.write(make_row(), CURVE)
    make, kind, text = DAMAGES[damage]
    make(path)
    fresh = Store(store.out)
    for read in (fresh.runs, fresh.status, fresh.curves, lambda: fresh.write(make_row(), CURVE)):
        with pytest.raises(kind, match=text) as error:
            read()
        assert error.value.path == path
        assert str(path) in str(error.value)


@pytest.mark.parametrize("folder", ["runs", "curves"])
def test_a_changed_bit_changes_no_result(store, folder):
    store.write(make_row(), CURVE)
    runs, curves = store.runs(), store.curves()
    (path,) = (store.out / folder).glob("*.parquet")
    content, refused = path.read_bytes(), 0
    pages = range(4, len(content) - pq.read_metadata(path).serialized_size, 19)
    for at in pages:
        changed = bytearray(content)
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        fresh = Store(store.out)
        try:
            pd.testing.assert_frame_equal(fresh.runs(), runs)
            pd.testing.assert_frame_equal(fresh.curves(), curves)
        except StoreError:
            refused += 1
    assert refused > len(pages) / 2


def test_no_advice_deletes_a_damaged_segment(store):
    for seed in range(2):
        store.write(make_row(seed=seed), CURVE)
    compact(store.out)
    (path,) = (store.out / "runs").glob("*.parquet")
    _cut(path)
    with pytest.raises(BrokenFileError, match="backup"):
        Store(store.out).runs()


# Disks, crashes, crowds


@pytest.mark.parametrize("failing", [1, 2])
def test_a_full_disk_leaves_nothing_half_written(store, monkeypatch, failing):
    calls = []

    def fsync(_):
        calls.append(1)
        if len(calls) == failing:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("leaderboards.rows.files.os.fsync", fsync)
    with pytest.raises(OSError, match="No space left"):
        store.write(make_row(), CURVE)
    assert [path for path in store.out.rglob("*") if path.is_file()] == []
    store.write(make_row(), CURVE)
    assert len(store.runs()) == 1


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs the paths of open files")
def test_a_renamed_file_survives_a_power_cut(store, monkeypatch):
    """Its content is on the disk before it has its name, and its folder afterwards."""
    synced = []
    sizes = set()
    fsync = os.fsync

    def noting(descriptor):
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((path, {file.name for file in path.iterdir()} if path.is_dir() else None))
        sizes.add(os.fstat(descriptor).st_size)
        fsync(descriptor)

    monkeypatch.setattr("leaderboards.rows.files.os.fsync", noting)
    path = store.write(make_row(), CURVE)
    folders = {folder.name: names for folder, names in synced if names is not None}
    assert path.name in folders["runs"]
    assert path.name in folders["curves"]
    files = [folder.parent.name for folder, names in synced if names is None]
    assert sorted(files) == ["curves", "runs"]
    assert {path.stat().st_size, curve_path(path).stat().st_size} <= sizes, "they are whole then"


def test_leftovers_are_swept_after_a_day(store):
    path = store.write(make_row(), CURVE)
    old, new, foreign = (path.with_name(f".{name}.tmp") for name in ("0" * 32, "1" * 32, "notes"))
    yesterday = time.time() - 24 * 60 * 60 - 60
    for leftover in (old, new, foreign):
        leftover.write_bytes(b"half a file")
        os.utime(leftover, None if leftover == new else (yesterday, yesterday))
    assert len(store.runs()) == 1
    Store(store.out).write(make_row(seed=1), CURVE)
    assert not old.exists()
    assert new.exists()
    assert foreign.exists(), "not a name that a writer gives"


@pytest.mark.parametrize("folder", ["", "runs", "curves"])
def test_leftovers_are_swept_in_each_folder(store, folder):
    store.write(make_row(), CURVE)
    leftover = store.out / folder / f".{'0' * 32}.tmp"
    for swept in (False, True):
        leftover.write_bytes(b"half a file")
        os.utime(leftover, (0, 0))
        writer = Store(store.out) if swept else store
        writer.write(make_row(seed=1 + swept), CURVE)
        assert leftover.exists() != swept, "once by each writer"


def test_a_forced_row_is_the_next_one(store, monkeypatch):
    """By a microsecond, if the clock of another machine was ahead."""

    class Ahead(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(2100, 1, 1, tzinfo=tz)

    with monkeypatch.context() as patched:
        patched.setattr("leaderboards.rows.store.datetime", Ahead)
        store.write(make_row(), CURVE)
    path = store.write(make_row(), CURVE, replace=True)
    (written,) = pq.read_table(path)["written"].to_pylist()
    assert written == Ahead.now(UTC) + timedelta(microseconds=1)


def test_a_boards_file_may_be_of_some_runs(store):
    for seed in range(3):
        store.write(make_row(seed=seed), CURVE)
    runs = store.runs()
    path = store.rebuild(runs[runs["seed"] > 0])
    assert path == store.out / "leaderboard.parquet"
    table = pq.read_table(path)
    assert table["n"].to_pylist() == [2]
    assert "__index_level_0__" not in table.column_names
    assert table.schema.metadata[b"fedkd_kind"] == b"leaderboard"
    assert b"pandas" in table.schema.metadata


@pytest.mark.parametrize("lone", [False, True])
def test_a_forged_row_is_named_by_its_key(store, lone):
    path = store.write(make_row(), CURVE)
    table = pq.read_table(path)
    at = table.column_names.index("lr")
    pq.write_table(table.set_column(at, table.field(at), pa.array([-1.0])), path)
    source = path if lone else store.out
    with pytest.raises(StoreError) as raised:
        Store(source).runs()
    key = make_row()["run_key"][:16]
    assert f"{path}: run {key}: lr must be >= 0, got -1.0" in str(raised.value)
    assert isinstance(raised.value, BrokenFileError) == lone
    assert ("bench.boards validate" in str(raised.value)) != lone


def test_a_stored_file_is_returned_for_a_needless_row(store):
    first = store.write(make_row(local_accuracy_mean=None), CURVE)
    tracked = f"{make_row()['run_key'][:16]}-{'0' * 16}.npz"
    kept = store.write(make_row(local_accuracy_mean=None), CURVE, tracked=[tracked])
    assert kept != first
    assert store.write(make_row(local_accuracy_mean=None), CURVE, tracked=[tracked]) == kept
    assert store.write(make_row(local_accuracy_mean=None), CURVE) in (first, kept)
    assert store.write(failed_row(), []) in (first, kept)
    assert store.tracked() == {make_row()["run_key"]: {".npz": tracked}}
    assert store.tracked(["0" * 64]) == {}
    assert Store(store.out / "none").tracked() == {}
    assert store.write(make_row(local_accuracy_mean=0.7), CURVE) not in (first, kept)


def test_curves_appear_before_their_runs(store, monkeypatch):
    """A writer killed between its two renames leaves a curve without a run, which nobody reads."""
    rename = Path.replace

    def killed_after_one(source: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", lambda *_: pytest.fail("killed"))
        return rename(source, target)

    monkeypatch.setattr(Path, "replace", killed_after_one)
    with pytest.raises(pytest.fail.Exception):
        store.write(make_row(), CURVE)
    assert len(list(store.out.glob("curves/*.parquet"))) == 1
    assert store.runs().empty
    assert store.curves().empty


# The leaderboard file


def test_rebuild_writes_what_the_runs_say(store):
    for seed in range(3):
        store.write(make_row("fedgkd", HYPERPARAMETERS, seed=seed), CURVE)
    path = store.rebuild()
    pd.testing.assert_frame_equal(pd.read_parquet(path), leaderboard(store.runs()))
    assert pq.read_schema(path).metadata[b"fedkd_schema_version"] == str(SCHEMA_VERSION).encode()


def test_values_that_are_no_numbers_are_stored_empty():
    points = [(1, "loss", math.nan), (1, "accuracy", 0.5), (2, "loss", math.inf), (2, "x", None)]
    table = curve_table(make_row(), points)
    assert table["value"].to_pylist() == [None, 0.5, None, None]
    assert table["round"].to_pylist() == [1, 1, 2, 2]
