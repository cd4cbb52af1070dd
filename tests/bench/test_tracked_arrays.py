"""Arrays of `--track`: those that figures can index, and the file that a run's key stands for."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rows import CURVE, make_row
from safetensors import safe_open

from bench import artifacts
from bench.artifacts import MOST, Tracked, path_of, write_arrays, write_tensors
from bench.errors import EnvironmentProblem
from leaderboards import Store

KEY = "ab" * 32
SOUND: dict[str, Any] = {
    "local/rounds": [1, 2],
    "local/clients": [[0, 1, 2], [3, 4, 5]],
    "local/accuracy": [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]],
    "classes/counts": np.zeros((6, 2), int),
    "classes/clients": [3, 4, 5],
    "classes/local": np.zeros((3, 2)),
    "features/labels": [0, 1],
    "features/client": 3,
    "features/local": np.zeros((2, 4)),
    "run/key": KEY,
}


def read(out: Path, **changed: Any) -> dict[str, Any]:
    """Write arrays and read them; names have a double underscore for the slash."""
    arrays = SOUND | {name.replace("__", "/"): value for name, value in changed.items()}
    write_arrays(out, KEY, arrays)
    return artifacts.arrays(out, KEY)


def test_sound_arrays_are_read(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert found.keys() == SOUND.keys()
    assert found["local/clients"].tolist() == SOUND["local/clients"]
    assert str(found["run/key"]) == KEY


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"local__rounds": ["a", "b"]}, "its local/rounds is of type <U1"),
        ({"run__key": 3}, "its run/key is of type int64"),
        ({"local__rounds": [[1, 2]]}, "its local/rounds has the shape (1, 2), for axes (R)"),
        ({"local__rounds": []}, "its local/rounds has the shape (0,), for axes (R)"),
        ({"local__rounds": [1, 2, 3]}, "its local/clients has another number R than other arrays"),
        ({"classes__local": np.zeros((3, 3))}, "its classes/local has another number C than other"),
        ({"features__client": 2}, "its features/client is none of the last round"),
        ({"classes__clients": [3, 4, 6]}, "its classes/clients are no whole numbers from 0 to 5"),
        ({"classes__clients": [-1, 4, 5]}, "its classes/clients are no whole numbers from 0 to 5"),
        ({"classes__clients": [3.0, 4, 5]}, "its classes/clients are no whole numbers from 0 to 5"),
        (
            {"features__labels": [0, MOST]},
            f"its features/labels are no whole numbers from 0 to {MOST - 1}",
        ),
    ],
)
def test_other_arrays_are_damaged(changed: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem) as refused:
        read(tmp_path, **changed)
    path = path_of(tmp_path, KEY)
    start = f"{path} is not a readable file of tracked data ({problem}"
    assert str(refused.value).startswith(start)
    assert str(refused.value).endswith("): delete it; --track with --force makes it again")


def test_the_largest_numbers_are_allowed(tmp_path: Path) -> None:
    read(tmp_path, features__labels=[0, MOST - 1], classes__clients=[0, 4, 5])
    assert MOST == 1024 * 1024


def test_without_counts_clients_have_a_limit(tmp_path: Path) -> None:
    arrays = {"classes/clients": [MOST - 1]}
    write_arrays(tmp_path, KEY, arrays)
    assert artifacts.arrays(tmp_path, KEY)["classes/clients"].tolist() == [MOST - 1]
    write_arrays(tmp_path, "cd" * 32, {"classes/clients": [MOST]})
    with pytest.raises(EnvironmentProblem, match="no whole numbers from 0 to 1048575"):
        artifacts.arrays(tmp_path, "cd" * 32)


def test_packed_arrays_are_refused(tmp_path: Path) -> None:
    """They could be larger in memory than the file says."""
    path = tmp_path / "tracked" / f"{KEY[:16]}.npz"
    path.parent.mkdir()
    with path.open("wb") as file:
        np.savez_compressed(file, **{"local/rounds": np.arange(2)})
    with pytest.raises(EnvironmentProblem, match="its arrays are compressed or overlap, which"):
        artifacts.arrays(tmp_path, KEY)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("local/rounds.npy", b"x")
    with pytest.raises(EnvironmentProblem, match="is not a readable file of tracked data"):
        artifacts.arrays(tmp_path, KEY)


class Payload:
    """An object that makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return self.file.touch, ()


def test_nothing_is_unpickled_from_arrays(tmp_path: Path) -> None:
    mark = tmp_path / "unpickled"
    write_arrays(tmp_path, KEY, {"local/rounds": np.array([Payload(mark)], object)})
    with pytest.raises(EnvironmentProblem, match="is not a readable file of tracked data"):
        artifacts.arrays(tmp_path, KEY)
    assert not mark.exists()


def test_one_runs_files_are_looked_for_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(artifacts.Store, "tracked", lambda store, keys: asked.append(keys) or {})
    for keys in ([KEY], [KEY[:16]], None):
        Tracked(tmp_path, keys)
    assert asked == [[KEY], None, None]


def test_equal_models_have_one_name(tmp_path: Path) -> None:
    model = {"a": np.ones((2, 3), np.float32), "b": np.arange(2)}
    facts = {name: f'"{name}" ü' for name in "stuvwxyz"}
    names = [write_tensors(tmp_path, KEY, model, dict(facts)) for _ in range(8)]
    assert len(set(names)) == 1
    with safe_open(tmp_path / "tracked" / names[0], "np") as stored:
        assert stored.metadata() == facts
        for name, array in model.items():
            np.testing.assert_array_equal(stored.get_tensor(name), array)


def test_old_files_of_killed_writers_go(tmp_path: Path) -> None:
    left = tmp_path / "tracked" / f".{'0' * 32}.tmp"
    left.parent.mkdir()
    left.touch()
    os.utime(left, (0, 0))
    name = write_arrays(tmp_path, KEY, {"local/rounds": [1]})
    assert [path.name for path in left.parent.iterdir()] == [name]


def test_no_arrays_are_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as refused:
        artifacts.arrays(tmp_path, KEY)
    assert str(refused.value) == (
        f"{tmp_path / 'tracked' / KEY[:16]}.npz: run {KEY[:16]} has no tracked data; run it with "
        "--track, and --force if it is stored"
    )


# Which file


def test_the_file_of_a_run(tmp_path: Path) -> None:
    """The one that its row names, else that of earlier versions, else the latest."""
    folder = tmp_path / "tracked"
    row = make_row()
    key = row["run_key"]
    old = folder / f"{key[:16]}.npz"
    assert path_of(tmp_path, key) == old
    names = [write_arrays(tmp_path, key, {"local/rounds": [at]}) for at in (1, 2, 3)]
    for age, name in enumerate(names):
        os.utime(folder / name, (age % 2, age % 2))
    assert path_of(tmp_path, key).name == names[1]
    assert path_of(tmp_path, key[:16]).name == names[1]
    old.touch()
    assert path_of(tmp_path, key) == old
    Store(tmp_path).write(row, CURVE, False, [names[2]])
    for keys in (None, [key], [key[:16]]):
        tracked = Tracked(tmp_path, keys)
        assert tracked.path(key).name == names[2]
        assert tracked.has(key)
        assert not tracked.has(key, "safetensors")
    assert Tracked(tmp_path, ["cd" * 32]).path(key) == old


def test_parts_of_a_run_have_names(tmp_path: Path) -> None:
    assert Tracked(tmp_path).names(KEY) == set()
    write_arrays(tmp_path, KEY, {"local/rounds": [1], "run/key": KEY, "other/x": [1]})
    assert Tracked(tmp_path).names(KEY) == {"local"}
    write_tensors(tmp_path, KEY, {"w": np.zeros(2, np.float32)}, {})
    assert Tracked(tmp_path).names(KEY) == {"local", "models"}
    path = Tracked(tmp_path).path(KEY, "safetensors")
    assert artifacts.tensor_names(path) == ["w"]
    path.write_bytes(b"damaged")
    with pytest.raises(EnvironmentProblem, match=r"is no readable model .*: delete it; --track"):
        artifacts.tensor_names(path)


def test_earlier_parts_are_kept(tmp_path: Path) -> None:
    first = write_arrays(tmp_path, KEY, {"local/rounds": [1], "classes/rounds": [1]})
    os.utime(tmp_path / "tracked" / first, (0, 0))
    write_arrays(tmp_path, KEY, {"local/rounds": [2], "local/clients": [[7]]})
    found = {name: array.tolist() for name, array in artifacts.arrays(tmp_path, KEY).items()}
    assert found == {"local/rounds": [2], "local/clients": [[7]], "classes/rounds": [1]}
    assert (tmp_path / "tracked" / first).exists()


def test_files_are_copied_once(tmp_path: Path) -> None:
    source = tmp_path / "source"
    out = tmp_path / "out"
    name = write_arrays(source, KEY, {"local/rounds": [1]})
    model = write_tensors(source, KEY, {"w": np.zeros(2, np.float32)}, {})
    other = write_arrays(source, "cd" * 32, {"local/rounds": [1]})
    (source / "tracked" / "notes.txt").touch()
    artifacts.copy([source], out, KEY)
    assert {path.name for path in (out / "tracked").iterdir()} == {name, model}
    (out / "tracked" / name).write_bytes(b"own")
    artifacts.copy([source], out)
    assert {path.name for path in (out / "tracked").iterdir()} == {name, model, other}
    assert (out / "tracked" / name).read_bytes() == b"own"
    artifacts.copy([source], out, KEY)
    assert (out / "tracked" / name).read_bytes() != b"own"
