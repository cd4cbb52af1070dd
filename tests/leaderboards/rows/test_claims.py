"""A segment's claim to replace other files is believed only as far as its rows go."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rows import START, curve_of, failed_row, make_row, sound_row

from bench.boards import main
from leaderboards import Store
from leaderboards.rows.compaction import Claims, compact
from leaderboards.rows.index import Folder, index_of
from leaderboards.rows.verify import validate

LATER = START + timedelta(days=1)


def fill(out: Path, seeds: Iterable[int], **columns: Any) -> list[Path]:
    return [
        Store(out).write(sound_row(curve_of(seed), seed=seed, **columns), curve_of(seed))
        for seed in seeds
    ]


def claiming(out: Path, names: Iterable[str]) -> Path:
    """The segment of a compacted folder, which now claims to replace these files."""
    compact(out)
    (path,) = (out / "runs").glob("packed-*")
    table = pq.read_table(path)
    metadata = {**table.schema.metadata, b"fedkd_replaces": json.dumps(list(names)).encode()}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    named = path.with_name(f"packed-{hashlib.sha256(path.read_bytes()).hexdigest()[:32]}.parquet")
    (out / "curves" / path.name).rename(out / "curves" / named.name)
    return path.rename(named)


def claims_of(out: Path) -> Claims:
    return Claims(Folder(out), Folder(out).segments())


def test_a_strangers_files_are_not_replaced(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    theirs = tmp_path / "theirs"
    names = {path.name for path in fill(mine, range(2))}
    fill(theirs, range(2, 4))
    segment = claiming(theirs, names)
    assert claims_of(theirs).unfounded == {segment: names}
    assert [fault.file for fault in validate(theirs).faults] == [f"runs/{segment.name}"]
    assert main(["merge", str(theirs), "--out", str(mine)]) == 0
    assert len(Store(mine).runs()) == 4
    other = tmp_path / "other"
    for source in (theirs, mine):  # the segment first
        assert main(["merge", str(source), "--out", str(other)]) == 0
    assert len(Store(other).runs()) == 4, "what it claims to replace is still taken"


def test_a_better_row_is_not_replaced(tmp_path: Path) -> None:
    """A failed row of the same run and environment, which the name cannot tell."""
    mine = tmp_path / "mine"
    theirs = tmp_path / "theirs"
    (path,) = fill(mine, [0])
    Store(theirs).write(failed_row(seed=0), [])
    Store(theirs).write(sound_row(curve_of(1), seed=1), curve_of(1))
    claiming(theirs, [path.name])
    assert path.name in claims_of(theirs).names
    assert not claims_of(theirs).cover(index_of(path))
    assert main(["merge", str(mine), "--out", str(theirs)]) == 0
    assert set(Store(theirs).runs()["status"]) == {"finished"}
    assert [fault.file for fault in validate(theirs).faults] == [f"runs/{path.name}"]


@pytest.mark.parametrize(
    ("ours", "theirs", "covered"),
    [
        ({}, {}, True),
        ({"finished": LATER}, {}, True),
        ({"best_accuracy": 0.75}, {}, False),
        ({"replace": True, "best_accuracy": 0.75}, {}, True),
        ({"local_accuracy_mean": None}, {"local_accuracy_mean": None, "replace": True}, False),
        ({"local_accuracy_mean": None}, {}, False),
        ({}, {"local_accuracy_mean": None}, True),
    ],
)
def test_a_row_covers_needless_rows(
    ours: dict[str, Any], theirs: dict[str, Any], covered: bool, tmp_path: Path
) -> None:
    other = Store(tmp_path / "other")
    path = other.write(make_row(**without(theirs)), curve_of(0), bool(theirs.get("replace")))
    own = Store(tmp_path / "own")
    own.write(make_row(**without(ours)), curve_of(0), bool(ours.get("replace")))
    own.write(make_row(seed=1), curve_of(1))
    compact(own.out)
    assert claims_of(own.out).cover(index_of(path)) == covered


def without(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in columns.items() if name != "replace"}


def test_compaction_claims_only_what_it_has(tmp_path: Path) -> None:
    names = {path.name for path in fill(tmp_path, range(3))}
    better = [(0, "accuracy", 0.75)]
    names.add(Store(tmp_path).write(sound_row(better, seed=0), better, replace=True).name)
    compact(tmp_path)
    names |= {path.name for path in fill(tmp_path, range(3, 4))}
    compact(tmp_path)
    assert claims_of(tmp_path).names >= names
    assert not claims_of(tmp_path).unfounded
    assert not validate(tmp_path).faults


@pytest.mark.parametrize("stated", [b"7", b"{", b"[[]]", b"[" * 10**5])
def test_a_claim_must_be_a_list(stated: bytes, tmp_path: Path) -> None:
    fill(tmp_path, range(2))
    segment = claiming(tmp_path, [])
    table = pq.read_table(segment)
    pq.write_table(
        table.replace_schema_metadata({**table.schema.metadata, b"fedkd_replaces": stated}), segment
    )
    assert main(["compact", str(tmp_path)]) == 3
