"""Segments: many files become few, no row changes, and what cannot be packed is left alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rows import CURVE, START, curve_of, failed_row, make_row, sound_row

from leaderboards import Store
from leaderboards.rows import compaction
from leaderboards.rows.compaction import Compacted, compact, compact_if_many
from leaderboards.rows.files import BrokenFileError, read_table
from leaderboards.rows.index import Folder
from leaderboards.rows.verify import validate

View = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]


def put(store: Store, curve: list[tuple[int, str, float]], *arguments: Any, **columns: Any) -> None:
    """Store a run whose results are those of its curve."""
    store.write(sound_row(curve, *arguments, **columns), curve)


def fill(store: Store, seeds: range) -> None:
    for seed in seeds:
        put(store, curve_of(seed), "fedgkd", {"gamma": 0.2, "buffer": 5}, seed=seed)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Finished runs, a replicate, a failed run, and a failed one that was run again."""
    made = Store(tmp_path / "out")
    fill(made, range(3))
    put(made, curve_of(50), "fedgkd", {"gamma": 0.2, "buffer": 5}, device="gpu")
    made.write(failed_row("fedprox", {"mu": 1}), [])
    made.write(failed_row("other", {"buffer": 0.5, "mu": None}), [])
    put(made, curve_of(80), "other", {"buffer": 0.5, "mu": None})
    return made


def view(store: Store) -> View:
    """What a reader that has just come sees."""
    fresh = Store(store.out)
    curves = fresh.curves().sort_values(["run_key", "round"], ignore_index=True)
    return fresh.runs(replicates=True), fresh.runs(), curves


def assert_same(seen: View, expected: View) -> None:
    for ours, theirs in zip(seen, expected, strict=True):
        pd.testing.assert_frame_equal(ours, theirs)


def names(store: Store, kind: str = "runs") -> list[str]:
    return sorted(path.name for path in (store.out / kind).glob("*.parquet"))


def test_a_segment_holds_all_rows_unchanged(store):
    before = view(store)
    done = compact(store.out)
    assert (done.before, done.after) == (7, 1)
    assert names(store) == names(store, "curves")
    assert_same(view(store), before)
    assert pq.read_table(store.out / "runs").num_rows == 6, (
        "no reader needs the failed row of a finished run"
    )
    unchanged = {path: path.stat().st_mtime_ns for path in store.out.rglob("*.parquet")}
    compact(store.out)
    assert {path: path.stat().st_mtime_ns for path in store.out.rglob("*.parquet")} == unchanged
    assert not validate(store.out).faults


def test_new_runs_lie_beside_segments(store):
    compact(store.out)
    fill(store, range(10, 13))
    before = view(store)
    assert (len(names(store)), len(before[0])) == (4, 9)
    columns = ["hp_json", "seed", "best_accuracy"]
    pd.testing.assert_frame_equal(Store(store.out).runs(True, columns), before[0][columns])
    compact(store.out)
    assert len(names(store)) == 1
    assert_same(view(store), before)


def test_a_row_in_a_segment_is_kept(store):
    compact(store.out)
    before = view(store)
    row = sound_row(curve_of(1), "fedgkd", {"gamma": 0.2, "buffer": 5}, seed=1)
    assert store.write(row, curve_of(1)).name == names(store)[0]
    store.write(failed_row("fedgkd", {"gamma": 0.2, "buffer": 5}, seed=1), [])
    assert_same(view(store), before)


@pytest.mark.parametrize("force", [False, True])
def test_a_row_replaces_one_in_a_segment(store, force):
    compact(store.out)
    values = {"gamma": 0.2, "buffer": 5} if force else {"mu": 1}
    row = make_row("fedgkd" if force else "fedprox", values, best_accuracy=0.875)
    store.write(row, curve_of(70), replace=force)
    for _ in range(2):
        runs = Store(store.out).runs(replicates=True)
        mine = runs[(runs["run_key"] == row["run_key"]) & (runs["device"] == "cpu")]
        assert mine["best_accuracy"].tolist() == [0.875]
        assert len(runs) == 6
        compact(store.out)
    assert pq.read_table(store.out / "runs").num_rows == 6


# Sweeps


def test_a_sweep_packs_only_many_files(tmp_path, monkeypatch):
    store = Store(tmp_path / "out")
    monkeypatch.setattr(compaction, "ENOUGH", 5)
    fill(store, range(5))
    assert compact_if_many(store.out) is None
    assert len(names(store)) == 5
    fill(store, range(6))
    assert compact_if_many(store.out).before == 6
    assert len(names(store)) == 1


# What compaction does not touch


@pytest.mark.parametrize("damage", ["broken", "without its curve", "of another name"])
def test_what_it_cannot_pack_it_leaves_alone(store, damage):
    path = store.out / "runs" / names(store)[0]
    content = path.read_bytes()
    curve = store.out / "curves" / path.name
    if damage == "broken":
        path.write_bytes(content[:-50])
        with pytest.raises(BrokenFileError, match=path.name):
            compact(store.out)
        assert len(names(store)) == 7
        return
    if damage == "of another name":
        path, curve = (
            old.rename(old.with_name("from_a_colleague.parquet")) for old in (path, curve)
        )
    else:
        curve.unlink()
    expected = view(store)
    compact(store.out)
    assert path.exists()
    for ours, theirs in zip(view(store), expected, strict=True):
        pd.testing.assert_frame_equal(ours, theirs)


def test_a_lost_curve_costs_no_other(tmp_path):
    row = make_row("fedgkd", {"gamma": 0.2, "buffer": 5})
    early, late = (
        Store(tmp_path / "early").write(row, curve_of(1)),
        Store(tmp_path / "late").write(row, curve_of(1)),
    )
    (late.parent.parent / "curves" / late.name).unlink()
    for kind in ("curves", "runs"):
        shutil.copy(early.parent.parent / kind / early.name, late.parent.parent / kind)
    compact(tmp_path / "late")
    late.unlink()
    assert len(Store(tmp_path / "late").curves()) == len(curve_of(1))


# What a segment is like


def test_rows_of_a_segment_are_sorted_and_whole(store, monkeypatch):
    monkeypatch.setattr(compaction, "_ROWS", 4)
    monkeypatch.setattr(compaction, "_POINTS", 5)
    monkeypatch.setattr(compaction, "AT_ONCE", 3)
    before = view(store)
    files = set(names(store))
    compact(store.out)
    assert_same(view(store), before)
    (path,) = (store.out / "runs").iterdir()
    metadata = pq.read_metadata(path)
    assert [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)] == [4, 2]
    rows = read_table(path, "runs")
    assert rows["run_key"].to_pylist() == sorted(rows["run_key"].to_pylist())
    assert set(rows["file"].to_pylist()) < files
    assert rows.schema.field("file").nullable is False
    points = pq.read_metadata(store.out / "curves" / path.name)
    sizes = [points.row_group(at).num_rows for at in range(points.num_row_groups)]
    assert sizes == [5, 4, 5, 1] or sum(sizes) == 15
    assert max(sizes) == 5


def test_one_file_is_packed_only_for_its_needless_rows(tmp_path):
    store = Store(tmp_path / "out")
    fill(store, range(1))
    assert compact(store.out) == Compacted(1, 1)
    assert not names(store)[0].startswith("packed-")
    fill(store, range(1, 2))
    assert compact(store.out) == Compacted(2, 1)
    (segment,) = names(store)
    assert segment.startswith("packed-")
    assert compact(store.out) == Compacted(1, 1)
    assert names(store) == [segment]


def test_leftovers_of_a_kill_are_deleted(store):
    """Curves of files whose rows are in a segment; no other curve."""
    (name, *_) = names(store)
    content = (store.out / "curves" / name).read_bytes()
    compact(store.out)
    for leftover in (name, "other.parquet"):
        (store.out / "curves" / leftover).write_bytes(content)
    compact(store.out)
    assert names(store, "curves") == sorted([*names(store), "other.parquet"])


def test_files_gone_meanwhile_are_no_error(store, monkeypatch):
    """Another process packs the same files."""
    written = compaction._write_segment

    def and_delete(*arguments: Any) -> None:
        written(*arguments)
        for kind in ("runs", "curves"):
            for path in (store.out / kind).glob("[!p]*.parquet"):
                path.unlink()

    before = view(store)
    monkeypatch.setattr(compaction, "_write_segment", and_delete)
    compact(store.out)
    assert_same(view(store), before)


# Which rows count


def test_results_that_no_reader_needs_are_left_out(tmp_path):
    """Of one environment: a failed row, equal results, and results before those of `--force`."""
    store = Store(tmp_path)
    for value, force in ((0.3, False), (0.4, False), (0.5, True), (0.6, False)):
        curve = [(1, "accuracy", value)]
        store.write(sound_row(curve), curve, replace=force)
    other = [(1, "accuracy", 0.7)]
    store.write(sound_row(other, dataset_hash="ef56"), other)
    store.write(sound_row(other, threads=2, status="stopped"), other)
    compact(store.out)
    (path,) = (store.out / "runs").iterdir()
    kept = sorted(read_table(path, "runs")["final_accuracy"].to_pylist())
    assert kept == [0.5, 0.6, 0.7, 0.7]
    assert len(validate(store.out).faults) == 1
    assert store.runs()["final_accuracy"].tolist() == [0.5]


NEW, OLD = (START, START.replace(year=2025))
GOOD: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({}, {}, True),
    ({"written": OLD}, {}, False),
    ({}, {"written": OLD}, True),
    ({"results": "b"}, {}, False),
    ({"results": "b", "forced": True}, {}, True),
    ({"results": "b", "forced": True, "written": OLD}, {}, False),
    ({"status": "stopped"}, {}, False),
    ({}, {"status": "stopped"}, True),
    ({"status": "stopped"}, {"status": "failed"}, True),
    ({"status": "failed"}, {"status": "stopped"}, False),
    ({"status": "failed"}, {"status": "none"}, True),
    ({"status": "stopped", "results": "b"}, {"status": "stopped"}, True),
    ({"preferred": True, "written": OLD}, {}, True),
    ({}, {"preferred": True}, False),
    ({"preferred": True, "written": OLD}, {"preferred": True}, False),
]


@pytest.mark.parametrize(("ours", "theirs", "expected"), GOOD)
def test_whether_a_row_makes_another_needless(ours, theirs, expected):
    plain = {"status": "finished", "results": "a", "written": NEW}
    plain |= {"forced": False, "preferred": False}
    assert compaction.as_good(plain | ours, plain | theirs) is expected


# The index


def test_an_index_finds_rows_by_key(tmp_path):
    store = Store(tmp_path)
    paths = [store.write(make_row(seed=seed), CURVE) for seed in range(3)]
    keys = [make_row(seed=seed)["run_key"] for seed in range(3)]
    folder = Folder(tmp_path)
    index = folder.index([keys[1]])
    assert index.select(["run_key", "holder", "file", "row"]).to_pylist() == [
        {"run_key": keys[1], "holder": str(paths[1]), "file": paths[1].name, "row": 0}
    ]
    assert index["environment"].to_pylist() == [paths[1].name[17:25]]
    assert folder.index([]).num_rows == 0
    assert folder.index().num_rows == 3
    assert folder.index(paths=paths[:2])["file"].to_pylist() == sorted(
        path.name for path in paths[:2]
    )
    fresh = Folder(tmp_path)
    assert fresh.index([keys[1]])["run_key"].to_pylist() == [keys[1]]
    for path in paths:
        path.unlink()
    assert fresh.index([keys[1]], paths[1:2]).num_rows == 1, "read once: it cannot change"
    with pytest.raises(FileNotFoundError):
        fresh.index([keys[0]], paths[:1])


def test_a_file_of_another_name_is_read_anew(tmp_path):
    path = Store(tmp_path).write(make_row(), CURVE)
    other = path.rename(path.with_name("other.parquet"))
    folder = Folder(tmp_path)
    assert folder.index()["row"].to_pylist() == [0]
    row = folder.index([make_row()["run_key"]]).to_pylist()[0]
    assert row["file"].startswith("other-")
    assert row["environment"] == path.name[17:25]
    table = pq.read_table(other)
    pq.write_table(pa.concat_tables([table, table]), other)
    assert folder.index()["row"].to_pylist() == [0, 1]


@pytest.mark.parametrize("failures", [0, 19, 20])
def test_a_read_is_tried_twenty_times(failures, tmp_path):
    tried = []

    def vanish() -> str:
        tried.append(1)
        if len(tried) <= failures:
            raise FileNotFoundError
        return "read"

    if failures < 20:
        assert Folder(tmp_path).steady(vanish) == "read"
    else:
        with pytest.raises(FileNotFoundError):
            Folder(tmp_path).steady(vanish)
    assert len(tried) == min(failures + 1, 20)


def test_a_listing_is_repeated_until_segments_stay(tmp_path, monkeypatch):
    first, second = (f"packed-{digit * 32}.parquet" for digit in "01")
    listings = [[first, "a.parquet"], [second], [second], ["never"]]
    monkeypatch.setattr(Folder, "_names", lambda self: listings.pop(0))
    assert [path.name for path in Folder(tmp_path).paths()] == [second]
    assert listings == [["never"]]


def test_names_are_text(tmp_path):
    (tmp_path / "runs").mkdir()
    try:
        (tmp_path / "runs" / "a\udcff.parquet").touch()
    except OSError:
        pytest.skip("this file system has names in UTF-8 alone")
    with pytest.raises(BrokenFileError, match="is no name in UTF-8: rename the file"):
        Folder(tmp_path).paths()


def test_stored_rows_have_their_status(tmp_path):
    store = Store(tmp_path)
    store.write(make_row(), CURVE)
    store.write(failed_row("moon"), [])
    keys = [make_row()["run_key"], failed_row("moon")["run_key"]]
    assert store.status() == dict(zip(keys, ("finished", "failed"), strict=True))
    assert store.status(keys[1:]) == {keys[1]: "failed"}
    assert store.finished() == {keys[0]}
    assert store.finished(keys[1:]) == set()
    assert store.runs(columns=["seed"]).columns.tolist() == ["seed"]
    assert store.runs(keys=keys[1:])["algorithm"].tolist() == ["moon"]
