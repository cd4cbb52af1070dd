"""States in a mirror, file by file: what is written, replaced, removed and fetched."""

from __future__ import annotations

import hashlib
import json
import platform
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from bench.state_files import files_of, folders, manifest_of, remove, saved_runs
from bench.sync.mirrored_states import MirroredStates
from bench.sync.place import open_place
from leaderboards import Store

KEY = "ab" * 32
OTHER = "cd" * 32


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def save(out: Path, key: str, round_number: int, client: bytes = b"client") -> dict[str, Any]:
    """Write a state; return its manifest."""
    folder = out / "state" / key
    folder.mkdir(parents=True, exist_ok=True)
    server = f"server-{round_number}.pt"
    files = {server: f"server {round_number}".encode(), "memory-3-1.pt": client}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    manifest = {
        "round": round_number,
        "server": server,
        "memories": {"3": "memory-3-1.pt", "4": None},
        "sha256": {name: digest(content) for name, content in files.items()},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return manifest


class Machine:
    """A result folder with a mirror."""

    def __init__(self, folder: Path, name: str) -> None:
        self.out = folder / name
        Store(self.out)
        self.out.mkdir(exist_ok=True)
        self.mirror = folder / "mirror"
        self.states = MirroredStates(self.out, open_place(str(self.mirror)))
        place = f"{platform.node()}:{self.out}".encode()
        self.writer = hashlib.sha256(place).hexdigest()[:12]

    def mirrored(self, key: str = KEY) -> set[str]:
        """List the mirror's files of this machine's state."""
        folder = self.mirror / "state" / key / self.writer
        return {path.name for path in folder.glob("*")}

    def kept(self, key: str = KEY) -> set[str]:
        """List the files of the local state."""
        return {path.name for path in (self.out / "state" / key).glob("*")}


@pytest.fixture
def one(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "one")


@pytest.fixture
def two(tmp_path: Path) -> Machine:
    return Machine(tmp_path, "two")


def blob(name: str, content: bytes) -> str:
    return f"{name}.{digest(content)[:16]}"


def test_a_state_is_written_under_its_writer(one: Machine) -> None:
    manifest = save(one.out, KEY, 5)
    assert one.states.push(()) == 1
    server, memory = blob("server-5.pt", b"server 5"), blob("memory-3-1.pt", b"client")
    assert one.mirrored() == {"manifest.json", server, memory}
    folder = one.mirror / "state" / KEY / one.writer
    assert json.loads((folder / "manifest.json").read_bytes()) == {
        "manifest": manifest,
        "files": {
            "server-5.pt": {"blob": server, "sha256": digest(b"server 5"), "bytes": 8},
            "memory-3-1.pt": {"blob": memory, "sha256": digest(b"client"), "bytes": 6},
        },
    }
    assert (folder / server).read_bytes() == b"server 5"


def test_only_what_is_new_is_written(one: Machine) -> None:
    save(one.out, KEY, 5)
    one.states.push(())
    assert one.states.push(()) == 0
    folder = one.mirror / "state" / KEY / one.writer
    memory = folder / blob("memory-3-1.pt", b"client")
    memory.write_bytes(b"CLIENT")  # as large: it is taken for the same
    save(one.out, KEY, 6)
    assert one.states.push(()) == 1
    server = blob("server-6.pt", b"server 6")
    assert one.mirrored() == {"manifest.json", server, memory.name}
    assert memory.read_bytes() == b"CLIENT"
    memory.write_bytes(b"short")
    save(one.out, KEY, 7)
    one.states.push(())
    assert memory.read_bytes() == b"client"
    (folder / "manifest.json").unlink()
    assert one.states.push(()) == 1


def test_a_finished_runs_state_is_removed(one: Machine, two: Machine) -> None:
    for machine in (one, two):
        save(machine.out, KEY, 5)
        save(machine.out, OTHER, 5)
        assert machine.states.push(()) == 2
    assert one.states.push([KEY]) == 0
    assert one.mirrored() == two.mirrored() == set()
    assert one.mirrored(OTHER) == two.mirrored(OTHER) != set()
    assert one.kept() == {"manifest.json", "server-5.pt", "memory-3-1.pt"}


def test_a_manifest_is_removed_first(one: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    save(one.out, KEY, 5)
    one.states.push(())
    removed: list[str] = []
    monkeypatch.setattr(one.states._place, "remove", removed.append)
    one.states.push([KEY])
    assert removed[0] == f"state/{KEY}/{one.writer}/manifest.json"
    assert len(removed) == 3


def test_a_state_in_change_is_left_for_later(one: Machine) -> None:
    save(one.out, KEY, 5)
    (one.out / "state" / KEY / "server-5.pt").write_bytes(b"another")
    save(one.out, OTHER, 5)
    assert one.states.push(()) == 1
    assert one.mirrored() <= {blob("memory-3-1.pt", b"client")}
    assert len(one.mirrored(OTHER)) == 3


def test_another_push_goes_first(one: Machine) -> None:
    save(one.out, KEY, 5)
    with FileLock(one.out / "mirror.lock"):
        assert one.states.push(()) == 0
    assert one.mirrored() == set()


def test_the_furthest_state_is_fetched(one: Machine, two: Machine, tmp_path: Path) -> None:
    three = Machine(tmp_path, "three")
    save(one.out, KEY, 5, b"five")
    manifest = save(two.out, KEY, 10, b"ten")
    for machine in (one, two):
        machine.states.push(())
    assert three.states.pull() == (1, [])
    assert three.kept() == {"manifest.json", "server-10.pt", "memory-3-1.pt"}
    assert manifest_of(three.out / "state" / KEY) == manifest
    assert three.states.pull() == (0, [])
    assert one.states.pull() == (0, [])  # it has its own
    assert one.kept() == {"manifest.json", "server-5.pt", "memory-3-1.pt"}


def test_a_damaged_state_gives_way_to_an_older(one: Machine, two: Machine, tmp_path: Path) -> None:
    three = Machine(tmp_path, "three")
    save(one.out, KEY, 5)
    save(two.out, KEY, 10)
    for machine in (one, two):
        machine.states.push(())
    server = blob("server-10.pt", b"server 10")
    folder = two.mirror / "state" / KEY / two.writer
    (folder / server).write_bytes(b"SERVER 10")
    assert three.states.pull() == (1, [])
    assert three.kept() == {"manifest.json", "server-5.pt", "memory-3-1.pt"}


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"manifest": {"round": 3}, "files": {}}',
        b'{"manifest": {"round": "x"}}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_state_alone_is_told(one: Machine, two: Machine, text: bytes) -> None:
    save(one.out, KEY, 5)
    save(one.out, OTHER, 5)
    one.states.push(())
    (one.mirror / "state" / KEY / one.writer / "manifest.json").write_bytes(text)
    said = f"the state of run {KEY[:16]} in the mirror is damaged: it begins anew"
    assert two.states.pull() == (1, [said])
    assert not (two.out / "state" / KEY).exists()
    assert two.kept(OTHER) == {"manifest.json", "server-5.pt", "memory-3-1.pt"}


@pytest.mark.parametrize("field", ["blob", "sha256", "bytes"])
def test_a_file_is_as_stated(one: Machine, two: Machine, field: str) -> None:
    save(one.out, KEY, 5)
    one.states.push(())
    path = one.mirror / "state" / KEY / one.writer / "manifest.json"
    content = json.loads(path.read_bytes())
    content["files"]["server-5.pt"][field] = 7 if field == "bytes" else "0" * 64
    path.write_text(json.dumps(content))
    assert two.states.pull()[0] == 0
    assert two.kept() == set()


def test_only_wanted_and_free_states_are_fetched(one: Machine, two: Machine) -> None:
    save(one.out, KEY, 5)
    save(one.out, OTHER, 5)
    one.states.push(())
    assert two.states.pull([]) == (0, [])
    assert two.states.pull([OTHER]) == (1, [])
    assert two.kept() == set()
    with FileLock(two.out / "state" / f"{KEY}.lock"):
        assert two.states.pull() == (0, [])
    assert two.states.pull() == (1, [])


def test_other_files_of_a_mirror_are_no_states(one: Machine, two: Machine) -> None:
    save(one.out, KEY, 5)
    one.states.push(())
    state = one.mirror / "state"
    for name in (
        f"{KEY}/manifest.json",
        f"{KEY}/a/b/manifest.json",
        f"{OTHER[:63]}x/w/manifest.json",
    ):
        path = state / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    assert two.states.pull() == (1, [])
    one.states.push([KEY])
    assert (state / KEY / "manifest.json").exists()
    assert (state / KEY / "a" / "b" / "manifest.json").exists()


# Files of a state


GOOD: dict[str, Any] = {
    "server": "server-5.pt",
    "memories": {"3": None},
    "sha256": {"server-5.pt": "0" * 64},
}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (None, "it does not list its files"),
        ({"sha256": []}, "it does not list its files"),
        ({"memories": []}, "it does not list its files"),
        (
            {"sha256": {"server-5.pt": "0" * 64, "../x.pt": "0" * 64}},
            "it names '../x.pt', which is no file of a state",
        ),
        (
            {"sha256": {"server-5.pt": "0" * 63}},
            "it names 'server-5.pt', which is no file of a state",
        ),
        ({"sha256": {"server-5.pt": 0}}, "it names 'server-5.pt', which is no file of a state"),
        ({"server": "server-6.pt"}, "it has no checksum of 'server-6.pt'"),
        ({"server": None}, "it has no checksum of None"),
        ({"memories": {"3": "memory-3-1.pt"}}, "it has no checksum of 'memory-3-1.pt'"),
        ({"memories": {"x": None}}, "it names clients that are no numbers"),
        ({"memories": {"²": None}}, "it names clients that are no numbers"),
    ],
)
def test_a_manifest_is_refused_in_words(change: dict[str, Any] | None, problem: str) -> None:
    assert files_of(GOOD) == GOOD["sha256"]
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        files_of([] if change is None else {**GOOD, **change})
    assert str(refused.value) == problem


def test_states_are_listed_without_hidden_folders(tmp_path: Path) -> None:
    manifest = save(tmp_path, KEY, 5)
    (tmp_path / "state" / ".tune").mkdir()
    (tmp_path / "state" / f"{KEY}.lock").touch()
    (tmp_path / "state" / OTHER).mkdir()
    (tmp_path / "state" / "link").symlink_to(tmp_path / "state" / KEY)
    names = [KEY, OTHER, "link"]
    assert [path.name for path in folders(tmp_path)] == names
    assert saved_runs(tmp_path) == {KEY: manifest, "link": {}}
    (tmp_path / "state" / OTHER / "manifest.json").write_text("[]")
    assert saved_runs(tmp_path) == {KEY: manifest, OTHER: {}, "link": {}}
    with pytest.raises(ValueError, match=r"^a list, not an object$"):
        manifest_of(tmp_path / "state" / OTHER)


def test_own_files_alone_are_removed(tmp_path: Path) -> None:
    save(tmp_path, KEY, 5)
    folder = tmp_path / "state" / KEY
    remove(folder, ["server-5.pt"])
    assert [path.name for path in folder.iterdir()] == ["server-5.pt"]
    save(tmp_path, KEY, 5)
    (folder / "notes.txt").touch()
    remove(folder)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    (folder / "notes.txt").unlink()
    remove(folder)
    assert not folder.exists()
    remove(folder)
