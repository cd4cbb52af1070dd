"""Compaction: many files become few, no row changes, and neither a kill nor a reader in between sees it happen."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filelock import FileLock, Timeout
from rows import START, failed_row, make_row

from leaderboards import OlderSchemaError, Store, compaction, files, packed, upgrades
from leaderboards.compaction import compact, compact_if_many

LATER = START + timedelta(days=1)
View = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]


def curve_of(seed: int, rounds: int = 3) -> list[tuple[int, str, float]]:
    return [(t, "accuracy", (seed + t) / 1000) for t in range(rounds)]


def fill(store: Store, seeds: range) -> None:
    for seed in seeds:
        store.write(make_row("fedgkd", {"gamma": 0.2, "buffer": 5}, seed=seed), curve_of(seed))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Finished runs, a replicate, a disagreement, a failed one, and hyper-parameters of unlike types."""
    made = Store(tmp_path / "out")
    fill(made, range(3))
    made.write(make_row("fedgkd", {"gamma": 0.2, "buffer": 5}, device="gpu", best_accuracy=0.75), curve_of(50))
    made.write(make_row("fedgkd", {"gamma": 0.2, "buffer": 5}, best_accuracy=0.625), curve_of(60))
    made.write(failed_row("fedprox", {"mu": 1}), [])
    made.write(make_row("other", {"buffer": 0.5, "mu": None}), curve_of(80))
    made.write(make_row("third", {"buffer": "all"}), curve_of(90))
    return made


def view(store: Store) -> View:
    """What a reader that has just come sees."""
    fresh = Store(store.out)
    return fresh.runs(replicates=True), fresh.runs(), fresh.curves()


def assert_same(found: View, expected: View) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        pd.testing.assert_frame_equal(ours, theirs)


def names(store: Store, kind: str = "runs") -> list[str]:
    return sorted(path.name for path in (store.out / kind).glob("*.parquet"))


def test_few_files_hold_every_row_and_point_as_they_were(store):
    before = view(store)
    done = compact(store)
    # `buffer` is 5, 0.5 and "all": three packs, so that no value changes its type
    assert (done.before, done.after, done.packed) == (8, 3, 8)
    assert len(names(store)) == len(names(store, "curves")) == 3
    assert_same(view(store), before)
    types = {pq.read_schema(path).field("hp_buffer").type for path in (store.out / "runs").glob("*.parquet")}
    assert types == {pa.int64(), pa.float64(), pa.string()}


def test_compacting_again_changes_nothing(store):
    compact(store)
    before = {path: path.stat().st_mtime_ns for path in store.out.rglob("*.parquet")}
    compact(store)
    assert {path: path.stat().st_mtime_ns for path in store.out.rglob("*.parquet")} == before


def test_an_empty_folder_is_compacted_to_nothing(tmp_path):
    assert compact(Store(tmp_path / "out")).after == 0


@pytest.mark.parametrize("packs", [0, 1, 2])
def test_some_columns_are_those_of_whole_rows(store: Store, packs: int) -> None:
    """Of packs and small files alike; a row that another one replaces is left out whether or not its status is read."""
    for last in range(packs):
        compact(store)
        fill(store, range(10 + last, 12 + last))
    names = ["hp_buffer", "seed", "best_accuracy"]
    for replicates in (False, True):
        whole = Store(store.out).runs(replicates)[names]
        pd.testing.assert_frame_equal(Store(store.out).runs(replicates, names), whole)


def test_curves_of_replicates_stay_with_their_rows(store):
    compact(store)
    tables = [pq.read_table(path).to_pandas() for path in (store.out / "curves").glob("*.parquet")]
    points = pd.concat(tables).groupby("file")["value"].max()
    assert sorted(points) == [0.002, 0.003, 0.004, 0.052, 0.062, 0.082, 0.092]


def test_new_runs_lie_beside_packs_until_they_are_packed_too(store):
    compact(store)
    fill(store, range(10, 13))
    before = view(store)
    assert len(names(store)) == 6
    assert len(before[0]) == 11
    compact(store)
    assert len(names(store)) == 3
    assert_same(view(store), before)


def test_packs_are_sorted_and_one_key_is_read_from_one_row_group(store, monkeypatch):
    monkeypatch.setattr(compaction, "_ROWS", 4)
    monkeypatch.setattr(compaction, "_CURVES", 2)
    fill(store, range(20))
    compact(store)
    largest = max((store.out / "curves").glob("*.parquet"), key=lambda path: path.stat().st_size)
    for kind, groups in (("runs", 6), ("curves", 12)):
        file = pq.ParquetFile(store.out / kind / largest.name)
        keys = file.read().column("run_key").to_pylist()
        assert keys == sorted(keys)
        assert file.num_row_groups == groups
    monkeypatch.setattr(files, "_READ_WHOLE", 0)
    key = keys[25]
    part = files.read_table(largest, "curves", keys=[key])
    assert key in part["run_key"].to_pylist()
    assert len(set(part["run_key"].to_pylist())) <= 2
    assert len(Store(store.out).curves([key])) == 3


# What writers find


def test_a_finished_row_in_a_pack_is_kept_and_not_written_again(store):
    compact(store)
    before = view(store)
    row = make_row("fedgkd", {"gamma": 0.2, "buffer": 5}, seed=1)
    path = store.write(row, curve_of(1))
    assert packed.PACKED_NAME.fullmatch(path.name)
    store.write(failed_row("fedgkd", {"gamma": 0.2, "buffer": 5}, seed=1), [])
    store.write(make_row("fedgkd", {"gamma": 0.2, "buffer": 5}, best_accuracy=0.625), curve_of(60))
    assert_same(view(store), before)
    assert store.finished([row["run_key"]]) == {row["run_key"]}


def test_a_finished_row_takes_the_place_of_a_failed_one_in_a_pack(store):
    compact(store)
    row = make_row("fedprox", {"mu": 1}, best_accuracy=0.25)
    store.write(row, curve_of(7))
    for _ in range(2):
        runs = Store(store.out).runs(replicates=True).set_index("algorithm")
        assert runs.loc["fedprox", "status"] == "finished"
        assert len(Store(store.out).curves([row["run_key"]])) == 3
        compact(store)
    assert len(names(store)) == 3


def test_replacing_removes_disagreeing_rows_from_packs(store):
    compact(store)
    row = make_row("fedgkd", {"gamma": 0.2, "buffer": 5}, best_accuracy=0.875)
    store.write(row, curve_of(70), replace=True)
    for _ in range(2):
        runs = Store(store.out).runs(replicates=True)
        found = runs[runs["run_key"] == row["run_key"]]
        assert sorted(found["best_accuracy"]) == [0.75, 0.875]  # the other environment's stays
        assert len(runs) == 7
        points = pd.concat(pd.read_parquet(path) for path in (store.out / "curves").glob("*.parquet"))
        assert {0.07, 0.05} <= set(points["value"])
        assert 0.06 not in set(points["value"])
        compact(store)


# Kills and crowds

CHANGES = [(Path, "replace"), (Path, "unlink"), (Path, "write_text"), (files, "_write_synchronised")]


class Killed(BaseException):
    """Nothing runs after it but what reads."""


@contextmanager
def before_each_change(monkeypatch: pytest.MonkeyPatch, action: Callable[[int], None]) -> Iterator[list[int]]:
    """Call `action` with a number before each change to the file system."""
    counted: list[int] = []

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            counted.append(1)
            action(len(counted))
            return original(*arguments, **named)

        return call

    with monkeypatch.context() as patch:
        for owner, name in CHANGES:
            patch.setattr(owner, name, watched(getattr(owner, name)))
        yield counted


def retried(store: Store) -> Store:
    """The state in which most is at stake: packs, small files that hide rows of theirs, and new ones."""
    compact(store)
    store.write(make_row("fedprox", {"mu": 1}, best_accuracy=0.25), curve_of(7))
    store.write(make_row("fedgkd", {"gamma": 0.2, "buffer": 5}, seed=9), curve_of(9))
    return store


def test_a_reader_sees_each_row_once_at_every_moment(store, monkeypatch):
    expected = view(retried(store))
    with before_each_change(monkeypatch, lambda _: assert_same(view(store), expected)) as changes:
        compact(store)
    assert len(changes) > 10
    assert_same(view(store), expected)


def test_a_kill_between_any_two_changes_loses_and_doubles_nothing(store, monkeypatch, tmp_path):
    expected = view(retried(store))
    for last in range(1, 100):
        copy = Store(shutil.copytree(store.out, tmp_path / str(last)))

        def die(change: int, last: int = last) -> None:
            if change >= last:
                raise Killed

        try:
            with before_each_change(monkeypatch, die):
                compact(copy)
        except Killed:
            assert_same(view(copy), expected)
            compact(copy)
            assert_same(view(copy), expected)
            assert names(copy) == names(copy, "curves")
            assert len(names(copy)) == 3
        else:
            break
    assert last > 10


READS: list[Callable[[Store], pd.DataFrame]] = [lambda s: s.runs(replicates=True), lambda s: s.runs(), Store.curves]


def _disturbed(store: Store, first: Callable[[Callable[[], packed.Files]], packed.Files]) -> Store:
    """A reader whose first look at the folder is `first`, given how to look."""
    reader = Store(store.out)
    listed = reader.folder.files

    def once() -> packed.Files:
        reader.folder.files = listed  # type: ignore[method-assign]
        return first(listed)

    reader.folder.files = once  # type: ignore[method-assign]
    return reader


@pytest.mark.parametrize("read", READS)
def test_a_reader_whose_files_went_away_reads_again(store, read):
    expected = read(store)

    def compacted_after_listing(listed: Callable[[], packed.Files]) -> packed.Files:
        found = listed()
        compact(Store(store.out))
        return found

    pd.testing.assert_frame_equal(read(_disturbed(store, compacted_after_listing)), expected)


@pytest.mark.parametrize("read", READS)
def test_a_listing_that_missed_both_the_old_files_and_the_new_is_not_believed(store, read):
    """A folder's entries are not listed at one moment: those that come and go meanwhile may be missed."""
    expected = read(store)

    def compacted_while_listing(listed: Callable[[], packed.Files]) -> packed.Files:
        compact(Store(store.out))
        return packed.Files(listed().folder, (), (), ())

    pd.testing.assert_frame_equal(read(_disturbed(store, compacted_while_listing)), expected)


def test_a_file_that_cannot_be_found_again_and_again_is_an_error(store):
    (store.out / "runs" / "broken.parquet").symlink_to(store.out / "nothing")
    with pytest.raises(FileNotFoundError, match="broken"):
        store.runs()


WRITER = """
import sys
sys.path.insert(0, {tests!r})
from rows import make_row
from leaderboards import Store
for seed in range(40):
    Store({out!r}).write(make_row(seed=seed), [(t, "accuracy", t / 50) for t in range(50)])
"""


def test_a_writer_and_compactions_at_once_lose_nothing(tmp_path):
    store = Store(tmp_path / "out")
    code = WRITER.format(tests=str(Path(__file__).parent), out=str(store.out))
    writer = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parent.parent)
    seen = 0
    while writer.poll() is None:
        compact(store)
        runs, curves = Store(store.out).runs(replicates=True), Store(store.out).curves()
        assert len(runs) == runs["run_key"].nunique() >= seen
        assert curves.groupby("run_key").size().eq(50).all()
        seen = len(runs)
    assert writer.returncode == 0
    compact(store)
    assert len(Store(store.out).runs(replicates=True)) == 40
    assert len(names(store)) == 1


# Sweeps


def test_a_sweep_packs_only_many_files_and_waits_for_nobody_long(tmp_path, monkeypatch):
    store = Store(tmp_path / "out")
    monkeypatch.setattr(compaction, "ENOUGH", 5)
    fill(store, range(5))
    assert compact_if_many(store) is None
    assert len(names(store)) == 5
    fill(store, range(6))
    with FileLock(store.out / "runs.lock"), pytest.raises(Timeout):
        compact_if_many(store, patience=0.05)
    assert len(names(store)) == 6
    done = compact_if_many(store)
    assert done is not None
    assert done.packed == 6
    assert len(names(store)) == 1


@pytest.mark.parametrize("pack", [compact, compact_if_many])
def test_files_are_counted_while_others_compact(store, monkeypatch, pack):
    """A pack that was listed is gone when it is to be read: before the work, and after it, when no lock is held."""
    monkeypatch.setattr(compaction, "ENOUGH", 2)
    compact(store)
    fill(store, range(10, 13))
    reader, others = Store(store.out), Store(store.out)
    first_look, done = reader.folder._pack, set[str]()

    def look(path: Path) -> packed.PackedFile:
        try:
            FileLock(store.out / "runs.lock").acquire(timeout=0).lock.release()
            when = "after" if "within" in done else "before"
        except Timeout:
            when = "within"
        if when not in {*done, "within"}:
            seed = 20 if when == "before" else 30
            fill(others, range(seed, seed + 2))
            compact(others)
            fill(others, range(seed + 2, seed + 5))
        done.add(when)
        return first_look(path)

    monkeypatch.setattr(reader.folder, "_pack", look)
    assert pack(reader) is not None
    assert done == {"before", "within", "after"}


def test_a_growing_folder_is_not_written_anew_each_time(tmp_path):
    store = Store(tmp_path / "out")
    fill(store, range(12))
    compact(store)
    (large,) = names(store)
    for seed in (20, 21, 22):
        fill(store, range(seed, seed + 1))
        compact(store, everything=False)
        assert large in names(store)
        assert len(names(store)) == 2  # the small packs become one
    assert len(store.runs()) == 15


def test_the_lock_is_given_back_between_batches(store, monkeypatch):
    monkeypatch.setattr(compaction, "_BATCH", 2)
    expected, locks = view(store), []
    locked = store.locked
    monkeypatch.setattr(store, "locked", lambda *arguments: locks.append(1) or locked(*arguments))
    assert compact(store).packed == 8
    assert len(locks) == 4
    assert_same(view(store), expected)
    assert len(names(store)) == 3


# What compaction does not touch


def test_a_broken_file_stops_it_before_anything_is_packed(store):
    path = store.out / "runs" / names(store)[0]
    content = path.read_bytes()
    path.write_bytes(content[:-50])
    before = names(store)
    with pytest.raises(files.BrokenFileError, match=path.name):
        compact(store)
    assert names(store) == before
    path.write_bytes(content)
    compact(store)


def test_files_of_other_names_are_read_and_left_alone(store):
    (store.out / "runs" / names(store)[0]).rename(store.out / "runs" / "from_a_colleague.parquet")
    (store.out / "curves" / names(store, "curves")[0]).rename(store.out / "curves" / "from_a_colleague.parquet")
    expected = view(store)
    compact(store)
    assert "from_a_colleague.parquet" in names(store)
    for ours, theirs in zip(view(store), expected, strict=True):
        pd.testing.assert_frame_equal(ours, theirs)


# Older schemas


def test_an_older_schema_is_upgraded_on_reading_and_for_good_by_compaction(store, monkeypatch):
    expected = view(store)
    for path in (store.out / "runs").glob("*.parquet"):
        table = pq.read_table(path).drop_columns(["pack"])
        pq.write_table(table.replace_schema_metadata({"fedkd_kind": "runs", "fedkd_schema_version": "0"}), path)
    with pytest.raises(OlderSchemaError, match=r"schema version 0, which this package cannot upgrade to 1: run"):
        store.runs()

    def add_pack(table: pa.Table) -> pa.Table:
        return table.append_column("pack", pa.array([1] * table.num_rows))

    monkeypatch.setitem(upgrades.UPGRADES, ("runs", 0), add_pack)
    assert_same(view(store), expected)
    compact(store)
    monkeypatch.delitem(upgrades.UPGRADES, ("runs", 0))
    assert_same(view(store), expected)


def test_files_state_their_units_and_others_are_refused(store):
    path = store.out / "runs" / names(store)[0]
    table = pq.read_table(path)
    assert b'"seconds": "seconds"' in table.schema.metadata[b"fedkd_units"]
    units = {**table.schema.metadata, b"fedkd_units": b'{"seconds": "hours"}'}
    pq.write_table(table.replace_schema_metadata(units), path)
    with pytest.raises(files.BrokenFileError, match="other units \\(seconds in hours, not seconds\\)"):
        store.runs()
