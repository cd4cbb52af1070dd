"""The files of saved states: those that a manifest may name, and those that are deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import state_files
from leaderboards import StoreError

DIGEST = "ab" * 32
SOUND: dict[str, Any] = {
    "server": "server-3.pt",
    "memories": {"0": "memory-0-2.pt", "12": ""},
    "sha256": {"server-3.pt": DIGEST, "memory-0-2.pt": DIGEST},
}


def test_a_manifest_names_its_files() -> None:
    assert state_files.files_of(SOUND) == SOUND["sha256"]


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        ([], "it does not list its files"),
        (SOUND | {"sha256": None}, "it does not list its files"),
        (SOUND | {"memories": []}, "it does not list its files"),
        (SOUND | {"sha256": {"../x": DIGEST}}, "it names '../x', which is no file of a state"),
        (SOUND | {"sha256": {"server-3.pt": "ab"}}, "it names 'server-3.pt', which is no file"),
        (SOUND | {"sha256": {"server-3.pt": 7}}, "it names 'server-3.pt', which is no file"),
        (SOUND | {"server": "server-4.pt"}, "it has no checksum of 'server-4.pt'"),
        (SOUND | {"server": None}, "it has no checksum of None"),
        (SOUND | {"memories": {"0": "memory-0-9.pt"}}, "it has no checksum of 'memory-0-9.pt'"),
        (SOUND | {"memories": {"a": ""}}, "it names clients that are no numbers"),
        (SOUND | {"memories": {"²": ""}}, "it names clients that are no numbers"),
    ],
)
def test_a_wrong_manifest_is_refused(manifest: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=r"^it ") as refused:
        state_files.files_of(manifest)
    assert str(refused.value).startswith(problem)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state with a temporary file of a killed writer."""
    folder = tmp_path / "state" / DIGEST
    folder.mkdir(parents=True)
    for name in ("manifest.json", "server-3.pt", "memory-0-2.pt", f".{'0' * 32}.tmp"):
        (folder / name).write_text("{}")
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_removed_state_leaves_nothing(state: Path) -> None:
    state_files.remove(state)
    assert not state.exists()
    state_files.remove(state)


def test_kept_files_and_others_stay(state: Path) -> None:
    (state / "notes.txt").write_text("of the user")
    state_files.remove(state, ["manifest.json", "server-3.pt"])
    assert names(state) == ["manifest.json", "notes.txt", "server-3.pt"]
    state_files.remove(state)
    assert names(state) == ["notes.txt"]


def test_the_manifest_goes_first(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[str] = []

    def unlink(path: Path, missing_ok: bool) -> None:
        assert missing_ok, "another process may remove it, too"
        gone.append(path.name)

    monkeypatch.setattr(Path, "unlink", unlink)
    state_files.remove(state)
    assert gone[0] == "manifest.json"
    assert sorted(gone) == names(state)


def test_nothing_is_removed_through_a_link(state: Path) -> None:
    link = state.with_name("link")
    link.symlink_to(state)
    with pytest.raises(StoreError):
        state_files.remove(link)
    assert len(names(state)) == 4


def test_saved_runs_are_those_with_manifests(state: Path, tmp_path: Path) -> None:
    content = {"round": 3}
    (state / "manifest.json").write_text(json.dumps(content))
    for name, text in (("damaged", "{"), ("list", "[]"), (".hidden", "{}")):
        (state.parent / name).mkdir()
        (state.parent / name / "manifest.json").write_text(text)
    (state.parent / "empty").mkdir()
    (state.parent / "file").write_text("")
    (state.parent / "link").symlink_to(state)
    found = state_files.saved_runs(tmp_path)
    assert found == {DIGEST: content, "damaged": {}, "link": {}, "list": {}}
    listed = [folder.name for folder in state_files.folders(tmp_path)]
    assert listed == [DIGEST, "damaged", "empty", "link", "list"]
