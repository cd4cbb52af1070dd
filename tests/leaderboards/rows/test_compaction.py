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
from rows import curve_of
from test_segments import assert_same, names, put, store, view

from leaderboards import Store
from leaderboards.rows import files
from leaderboards.rows.compaction import compact
from leaderboards.rows.index import Folder
from leaderboards.rows.verify import validate

__all__ = ["store"]  # a fixture

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
