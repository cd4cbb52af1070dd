"""Compaction: many files become few, no row changes, and neither a kill nor a reader in between sees it happen."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from commands import ROOT
from rows import curve_of, failed_row, make_row, sound_row

from leaderboards import Store
from leaderboards.rows import compaction, files
from leaderboards.rows.compaction import compact, compact_if_many
from leaderboards.rows.files import BrokenFileError
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


# Kills and crowds

CHANGES = [(Path, "replace"), (Path, "unlink"), (files, "_write")]


class Killed(BaseException):
    """Nothing runs after it but what reads."""


@contextmanager
def before_each_change(
    monkeypatch: pytest.MonkeyPatch, action: Callable[[int], None]
) -> Iterator[list[int]]:
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
    """The state in which most is at stake: a segment, files in the place of rows of it, and new ones."""
    compact(store.out)
    put(store, curve_of(7), "fedprox", {"mu": 1})
    put(store, curve_of(9), "fedgkd", {"gamma": 0.2, "buffer": 5}, seed=9)
    return store


def test_a_reader_sees_each_row_once(store, monkeypatch):
    expected = view(retried(store))
    with before_each_change(monkeypatch, lambda _: assert_same(view(store), expected)) as changes:
        compact(store.out)
    assert len(changes) > 8
    assert_same(view(store), expected)


def test_a_kill_loses_and_doubles_nothing(store, monkeypatch, tmp_path):
    expected = view(retried(store))
    for last in range(1, 100):
        copy = Store(shutil.copytree(store.out, tmp_path / str(last)))

        def die(change: int, last: int = last) -> None:
            if change >= last:
                raise Killed

        try:
            with before_each_change(monkeypatch, die):
                compact(copy.out)
        except Killed:
            assert_same(view(copy), expected)
            lone = [fault.file for fault in validate(copy.out).faults]
            assert all(file.startswith("curves/packed-") for file in lone), (
                "written before its rows"
            )
            compact(copy.out)
            assert_same(view(copy), expected)
            assert len(names(copy)) == len(names(copy, "curves")) == 1
            assert pq.read_table(copy.out / "runs").num_rows == len(expected[0])
        else:
            break
    assert last > 8


@pytest.mark.parametrize("read", [lambda s: s.runs(replicates=True), Store.curves])
@pytest.mark.parametrize("missed", [False, True])
def test_a_reader_of_vanished_files_retries(store, monkeypatch, read, missed):
    """Also one whose first listing missed both the old files and the new: entries are not listed at one moment."""
    expected, reader, listed, looks = read(store), Store(store.out), Folder._names, []

    def disturbed(self: Folder) -> list[str]:
        first, looks[:] = not looks, [1]
        here = listed(self)
        if first:
            monkeypatch.undo()
            compact(store.out)
            monkeypatch.setattr(Folder, "_names", disturbed)
        return [] if first and missed else here

    monkeypatch.setattr(Folder, "_names", disturbed)
    pd.testing.assert_frame_equal(read(reader), expected)


WRITER = """
import sys
sys.path.insert(0, {tests!r})
from rows import make_row
from leaderboards import Store
for seed in range(20):
    Store({out!r}).write(make_row(seed=seed), [(t, "accuracy", t / 50) for t in range(50)])
"""


def test_concurrent_writes_and_compactions_lose_nothing(tmp_path):
    store = Store(tmp_path / "out")
    code = WRITER.format(tests=str(ROOT / "tests"), out=str(store.out))
    writer = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    seen = 0
    with ThreadPoolExecutor(2) as pool:
        while writer.poll() is None:
            for done in [pool.submit(compact, store.out) for _ in range(2)]:
                done.result()
            runs, curves = Store(store.out).runs(replicates=True), Store(store.out).curves()
            assert len(runs) == runs["run_key"].nunique() >= seen
            assert curves.groupby("run_key").size().eq(50).all()
            seen = len(runs)
    assert writer.returncode == 0
    compact(store.out)
    assert (
        len(Store(store.out).runs(replicates=True))
        == pq.read_table(store.out / "runs").num_rows
        == 20
    )
    assert len(names(store)) == 1


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
    content, curve = path.read_bytes(), store.out / "curves" / path.name
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
