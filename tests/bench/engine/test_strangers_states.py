"""Saved states that a stranger may have made: nothing outside is read, written or deleted."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import simulate, trained

from bench import state_files
from bench.engine.state import StateFolder, _check_archive
from bench.errors import UnusableState
from bench.state_files import saved_runs
from leaderboards import StoreError
from leaderboards.rows.schema import digest

KEY = "ab" * 32
CPU = torch.device("cpu")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Files of the user, among them some that are named as those of a state."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("thesis.tex", "server-1.pt", "manifest.json"):
        (home / name).write_text("years of work")
    return home


@pytest.fixture
def folder(tmp_path: Path) -> StateFolder:
    return StateFolder(tmp_path / "state" / KEY)


def save(folder: StateFolder, round: int = 1) -> None:
    folder.save(round, {"number": round}, {0: {"number": round}, 1: {}}, {})


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_link_is_no_state(folder: StateFolder, home: Path) -> None:
    folder.path.parent.mkdir()
    folder.path.symlink_to(home)
    before = content(home)
    for action in (lambda: save(folder), folder.remove, folder.manifest):
        with pytest.raises(UnusableState):
            action()
    with pytest.raises(StoreError):
        state_files.remove(folder.path)
    assert content(home) == before
    assert saved_runs(folder.path.parent.parent) == {KEY: {}}


def test_links_named_as_its_files_are_replaced(folder: StateFolder, home: Path) -> None:
    save(folder)
    before = content(home)
    for name in ("server-2.pt", "memory-0-2.pt", "server-3.pt"):
        (folder.path / name).symlink_to(home / "thesis.tex")
    save(folder, 2)
    assert content(home) == before
    manifest = folder.manifest()
    assert manifest
    assert folder.load(manifest, CPU) == ({"number": 2}, {0: {"number": 2}, 1: {}})
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "manifest.json",
        "memory-0-2.pt",
        "server-2.pt",
    ]


def test_only_files_of_states_are_deleted(folder: StateFolder) -> None:
    save(folder)
    for name in ("notes.txt", "server.pt", "server-1.pt.bak", f".{'0' * 32}.tmp", "memory-7-1.pt"):
        (folder.path / name).write_text("content")
    (folder.path / "server-old").mkdir()
    kept = {"notes.txt", "server.pt", "server-1.pt.bak", "server-old"}
    save(folder, 2)
    assert {path.name for path in folder.path.iterdir()} == kept | {
        "manifest.json",
        "memory-0-2.pt",
        "server-2.pt",
    }
    folder.remove()
    assert {path.name for path in folder.path.iterdir()} == kept
    for name in kept - {"server-old"}:
        (folder.path / name).unlink()
    (folder.path / "server-old").rmdir()
    folder.remove()
    assert not folder.path.exists()


def test_a_killed_removal_leaves_no_state(
    folder: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(folder)
    unlink = Path.unlink
    deleted: list[str] = []

    def kill(path: Path, missing_ok: bool = False) -> None:
        if deleted:
            raise KeyboardInterrupt
        deleted.append(path.name)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", kill)
    with pytest.raises(KeyboardInterrupt):
        folder.remove()
    assert folder.manifest() is None


def rewrite(folder: StateFolder, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the manifest, and make its digest right again."""
    manifest = folder.manifest()
    assert manifest
    del manifest["digest"]
    manifest = change(manifest)
    (folder.path / state_files.MANIFEST).write_text(
        json.dumps(manifest | {"digest": digest(manifest)})
    )


OUTSIDE = "../../home/thesis.tex"


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": {OUTSIDE: "0" * 64}},
        {"server": OUTSIDE},
        {"memories": {"0": OUTSIDE}},
        {"memories": {"../0": ""}},
        {"memories": []},
        {"sha256": None},
        {"server": ["server-1.pt"]},
        {"sha256": {"server-1.pt": "../.."}},
    ],
)
def test_other_names_than_a_states_are_refused(change: dict[str, Any], folder: StateFolder) -> None:
    save(folder)
    rewrite(folder, lambda manifest: manifest | change)
    with pytest.raises(UnusableState):
        folder.manifest()


@pytest.mark.parametrize("text", ["[]", "7", "{", "[" * 10**5])
def test_a_manifest_that_is_none_is_named(text: str, folder: StateFolder) -> None:
    save(folder)
    (folder.path / state_files.MANIFEST).write_text(text)
    with pytest.raises(UnusableState):
        folder.manifest()
    assert saved_runs(folder.path.parent.parent) == {KEY: {}}


@pytest.mark.parametrize("name", ["manifest.json", "server-1.pt"])
def test_pipes_and_devices_are_not_waited_for(name: str, folder: StateFolder) -> None:
    save(folder)
    manifest = folder.manifest()
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        (folder.path / name).unlink()
        make(folder.path / name)
        with pytest.raises(UnusableState):
            folder.load(folder.manifest() or {}, CPU)
    assert manifest


def forge(folder: Path, server: Callable[[Any], Any], manifest: Callable[[Any], Any]) -> None:
    """Change what a state holds; all its hashes are right again."""
    stated = json.loads((folder / "manifest.json").read_text())
    del stated["digest"]
    file = folder / stated["server"]
    torch.save(server(torch.load(file, weights_only=True)), file)
    stated["sha256"][file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    stated = manifest(stated)
    (folder / "manifest.json").write_text(json.dumps(stated | {"digest": digest(stated)}))


def params(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    def changed(server: Any) -> Any:
        return {**server, "params": {name: change(v) for name, v in server["params"].items()}}

    return changed


def progress(**fields: Any) -> Callable[[Any], Any]:
    return lambda server: {**server, "progress": {**server["progress"], **fields}}


def curve(*point: Any) -> Callable[[Any], Any]:
    return progress(curves={"": [point]})


SERVERS: dict[str, Callable[[Any], Any]] = {
    "a list": lambda server: [1, 2],
    "nothing": lambda server: {},
    "no parameters": lambda server: {**server, "params": None},
    "other shapes": params(lambda value: torch.zeros(3)),
    "other types": params(lambda value: value.long()),
    "sparse": params(torch.Tensor.to_sparse),
    "without content": params(lambda value: value.to("meta")),
    "a terabyte": lambda server: {**server, "extra": {"x": torch.zeros(1).expand(2**38)}},
    "a number as extra": lambda server: {**server, "extra": 5},
    "tracking of a number": lambda server: {**server, "tracking": 5},
    "progress of a list": lambda server: {**server, "progress": []},
    "another counter": progress(evil=1),
    "traffic of another kind": progress(traffic={"evil": 1}),
    "seconds in words": progress(seconds="long"),
    "a start after the year 9999": progress(started=1e300),
    "no number of samples": progress(samples=float("nan")),
    "a curve of words": curve(1, "accuracy", "high"),
    "a curve of a later round": curve(2**70, "accuracy", 0.5),
    "a curve of another row": progress(curves={"../../x": [(1, "accuracy", 0.5)]}),
}
MANIFESTS: dict[str, dict[str, Any]] = {
    "a round in words": {"round": "2"},
    "a negative round": {"round": -7},
    "a truth as round": {"round": True},
    "another backend": {"backend": "evil"},
    "a backend of lists": {"backend": []},
    "memories of others": {"memories": {"99999": ""}},
}


@pytest.mark.parametrize("name", [*SERVERS, *MANIFESTS])
def test_a_state_of_other_content_is_refused(name: str, folder: StateFolder) -> None:
    trained("fedavg", rounds=1, folder=folder).save()
    server = SERVERS.get(name, lambda server: server)
    forge(folder.path, server, lambda manifest: manifest | MANIFESTS.get(name, {}))
    run = simulate("fedavg", folder=folder)
    with pytest.raises(UnusableState):
        run.load()
    assert run.round == 0


def test_overlapping_parts_are_not_unpacked(tmp_path: Path) -> None:
    """Two entries of one place: together they have more bytes than the file."""
    file = tmp_path / "archive"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", bytes(1000))
    _check_archive(file)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", bytes(1000))
        archive.filelist += archive.filelist
    with pytest.raises(ValueError, match="its parts overlap"):
        _check_archive(file)


def test_a_state_that_swells_is_not_unpacked(folder: StateFolder) -> None:
    """Compressed parts may be a thousand times as large once they are read."""
    trained("fedavg", rounds=1, folder=folder).save()
    file = folder.path / "server-1.pt"
    with zipfile.ZipFile(file) as archive:
        parts = {part: archive.read(part) for part in archive.namelist()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, content in parts.items():
            archive.writestr(part, content)
    stated = json.loads((folder.path / "manifest.json").read_text())
    del stated["digest"]
    stated["sha256"][file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
    (folder.path / "manifest.json").write_text(json.dumps(stated | {"digest": digest(stated)}))
    with pytest.raises(UnusableState, match="compressed"):
        simulate("fedavg", folder=folder).load()
