"""Tracked files are named by their content, and rows name them."""

from __future__ import annotations

import io
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import START, curve_of, sound_row

from bench import artifacts
from bench.boards import main
from bench.engine.tracking import load_model
from bench.errors import EnvironmentProblem
from leaderboards import Store, StoreError
from leaderboards.rows.compaction import compact

ROW = sound_row(curve_of(0))
KEY = ROW["run_key"]


def track(out: Path, forced: bool = False, row: dict[str, Any] = ROW, **arrays: float) -> list[str]:
    """Store a row with the model `weight`, if given, and arrays; the names of its files."""
    names = []
    if "weight" in arrays:
        model = {"weight": np.full(3, arrays.pop("weight"), np.float32)}
        names.append(artifacts.write_tensors(out, row["run_key"], model, {}))
    if arrays:
        named = {f"{name}/value": np.array(value) for name, value in arrays.items()}
        names.append(artifacts.write_arrays(out, row["run_key"], named))
    Store(out).write(row, curve_of(0), forced, names)
    return names


def weight(out: Path, key: str = KEY) -> float:
    return float(load_model(out, key)["weight"][0])


def values(out: Path) -> dict[str, float]:
    return {name: float(value) for name, value in artifacts.arrays(out, KEY).items()}


def test_a_row_names_its_latest_files(tmp_path: Path) -> None:
    names = track(tmp_path, weight=1, classes=1)
    before = {path.name: path.read_bytes() for path in (tmp_path / "tracked").iterdir()}
    again = track(tmp_path, forced=True, weight=2, classes=2)
    assert (weight(tmp_path), weight(tmp_path, KEY[:16])) == (2, 2)
    assert values(tmp_path) == {"classes/value": 2}
    assert Store(tmp_path).tracked() == {KEY: {Path(name).suffix: name for name in again}}
    for name in names:
        assert (tmp_path / "tracked" / name).read_bytes() == before[name], "never changed"


def test_files_of_an_earlier_run_stay_named(tmp_path: Path) -> None:
    track(tmp_path, weight=1, local=1)
    track(tmp_path, forced=True, classes=2)
    track(tmp_path, forced=True)
    assert weight(tmp_path) == 1
    assert values(tmp_path) == {"local/value": 1, "classes/value": 2}
    assert artifacts.Tracked(tmp_path, [KEY]).names(KEY) == {"models", "local", "classes"}


def test_compaction_and_merging_keep_names(tmp_path: Path) -> None:
    track(tmp_path / "out", weight=1, classes=1)
    track(tmp_path / "out", forced=True, weight=2, classes=2)
    track(tmp_path / "out", row=sound_row(curve_of(0), seed=1), weight=3)
    compact(tmp_path / "out")
    assert main(["merge", str(tmp_path / "out"), "--out", str(tmp_path / "all")]) == 0
    for out in (tmp_path / "out", tmp_path / "all"):
        assert (weight(out), weight(out, sound_row(curve_of(0), seed=1)["run_key"])) == (2, 3)
        assert values(out) == {"classes/value": 2}


def test_rows_of_two_environments_name_their_own(tmp_path: Path) -> None:
    """That of the row which readers take counts; where it names none, the other's."""
    later = sound_row(curve_of(0), device="gpu", finished=START + timedelta(days=1))
    track(tmp_path, weight=1)
    track(tmp_path, row=later, weight=2, classes=2)
    assert weight(tmp_path) == 1
    assert values(tmp_path) == {"classes/value": 2}
    track(tmp_path, forced=True, row=later, weight=3)
    assert weight(tmp_path) == 3


def test_names_of_earlier_versions_are_read(tmp_path: Path) -> None:
    Store(tmp_path).write(ROW, curve_of(0))
    (new,) = track(tmp_path / "other", weight=1)
    old = tmp_path / "tracked" / f"{KEY[:16]}.safetensors"
    old.parent.mkdir()
    (tmp_path / "other" / "tracked" / new).rename(old)
    assert weight(tmp_path) == 1
    track(tmp_path, forced=True, weight=2)
    assert weight(tmp_path) == 2


def test_a_file_without_a_row_is_found(tmp_path: Path) -> None:
    """As `reproduce` copies the model that a run starts from."""
    track(tmp_path / "out", weight=2)
    track(tmp_path / "out", forced=True, weight=1)
    artifacts.copy([tmp_path / "out"], tmp_path / "into", KEY)
    assert weight(tmp_path / "into") == 1
    track(tmp_path / "out", forced=True, weight=2)
    artifacts.copy([tmp_path / "out"], tmp_path / "into", KEY)
    assert weight(tmp_path / "into") == 2


def test_rows_name_only_their_runs_files(tmp_path: Path) -> None:
    other = sound_row(curve_of(0), seed=1)
    names = track(tmp_path, row=other, weight=1)
    Store(tmp_path).write(ROW, curve_of(0), True, [*names, "../../x.npz", f"{KEY[:16]}-x.npz"])
    assert Store(tmp_path).tracked() == {other["run_key"]: {".safetensors": names[0]}}
    assert not artifacts.path_of(tmp_path, KEY, "safetensors").exists()


def swollen() -> bytes:
    """Many zeros, compressed."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("classes/global.npy", bytes(2**24))
    return made.getvalue()


def endless(size: int) -> bytes:
    """An array of 2^53 bytes, or of more than a number of 64 bits, that is not there."""
    header = io.BytesIO()
    made = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": (size,)}
    )
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("classes/global.npy", header.getvalue())
    return made.getvalue()


def single() -> bytes:
    """An array outside an archive."""
    made = io.BytesIO()
    np.save(made, np.zeros(3))
    return made.getvalue()


@pytest.mark.parametrize("content", [swollen(), endless(2**50), endless(2**70), single(), b""])
def test_a_file_that_is_none_is_named(content: bytes, tmp_path: Path) -> None:
    (name,) = track(tmp_path, classes=1)
    (tmp_path / "tracked" / name).write_bytes(content)
    with pytest.raises(EnvironmentProblem):
        artifacts.arrays(tmp_path, KEY)


SOUND = {
    "classes/rounds": np.array([1, 2]),
    "classes/global": np.array([[0.5, np.nan], [0.25, 0.5]]),
    "classes/counts": np.array([[3, 1], [0, 4], [1, 1]]),
    "classes/clients": np.array([0, 2]),
    "classes/local": np.array([[0.5, 0.5], [0.25, 1.0]]),
    "features/labels": np.array([0, 1, 1]),
    "features/local": np.zeros((3, 4)),
    "features/client": np.array(2),
    "local/clients": np.array([[0, 1], [0, 2]]),
    "message/class_weights": np.ones((2, 2)),
}


@pytest.mark.parametrize(
    "changed",
    [
        {"classes/counts": np.array([["x", "y"]])},
        {"classes/counts": np.array(1.0)},
        {"classes/counts": np.ones((3, 2), complex)},
        {"classes/counts": np.zeros((3, 3))},
        {"classes/rounds": np.zeros(0)},
        {"classes/global": np.zeros((0, 2)), "classes/rounds": np.zeros(0)},
        {"classes/clients": np.array([0, 3])},
        {"classes/clients": np.array([-1, 2])},
        {"classes/clients": np.array([0.5, 2.0])},
        {"features/labels": np.array([0, 1, 2**62])},
        {"features/labels": np.array([0, 1])},
        {"features/client": np.array(1)},
        {"run/key": np.array(5)},
    ],
)
def test_arrays_that_no_run_tracks_are_named(changed: dict[str, Any], tmp_path: Path) -> None:
    artifacts.write_arrays(tmp_path, KEY, SOUND)
    assert artifacts.arrays(tmp_path, KEY).keys() == SOUND.keys()
    (path,) = (tmp_path / "tracked").iterdir()
    with path.open("wb") as file:
        np.savez(file, **(SOUND | changed))
    with pytest.raises(EnvironmentProblem, match="tracked data"):
        artifacts.arrays(tmp_path, KEY)


def test_links_are_no_tracked_files(tmp_path: Path) -> None:
    (name,) = track(tmp_path / "out", weight=1)
    path = tmp_path / "out" / "tracked" / name
    path.rename(tmp_path / name)
    path.symlink_to(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "out", KEY)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "tracked").symlink_to(tmp_path / "out" / "tracked")
    with pytest.raises(StoreError):
        artifacts.write_arrays(tmp_path / "linked", KEY, {"classes/value": 1})
