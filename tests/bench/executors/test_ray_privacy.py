"""Ray's folder and token, when a sweep starts Ray, are its user's alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.errors import EnvironmentProblem
from bench.executors.runner import import_executor

import_executor("ray")  # which sets Ray's variables before it is imported

from bench.executors import ray_cluster  # noqa: E402


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without a token; a umask that lets others read."""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    return tmp_path


def mode(path: Path) -> int:
    return path.lstat().st_mode & 0o777


def test_the_token_is_private(home: Path) -> None:
    ray_cluster.protect_token()
    token = home / ".ray" / "auth_token"
    assert (mode(token), mode(token.parent)) == (0o600, 0o700)
    assert len(token.read_text()) == 64
    assert list(token.parent.iterdir()) == [token]


def test_a_token_appears_whole(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    link = os.link

    def look(source: str, target: Path) -> None:
        sizes.append(len(Path(source).read_text()))
        link(source, target)

    monkeypatch.setattr(os, "link", look)
    ray_cluster.protect_token()
    assert sizes == [64]


def test_a_token_that_is_there_becomes_private(home: Path) -> None:
    token = home / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("secret")
    token.chmod(0o644)
    ray_cluster.protect_token()
    assert (mode(token), token.read_text()) == (0o600, "secret")


def test_a_home_that_cannot_be_written(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then Ray would not start: it writes its token there."""
    (home / "file").touch()
    monkeypatch.setenv("HOME", str(home / "file"))
    monkeypatch.setenv("RAY_AUTH_TOKEN", "")
    monkeypatch.delenv("RAY_AUTH_TOKEN")  # what is set there goes after the test
    ray_cluster.protect_token()
    assert len(os.environ["RAY_AUTH_TOKEN"]) == 64
    assert "Ray's token is in RAY_AUTH_TOKEN" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"])
def test_what_the_user_chose_stays(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "disabled")
    ray_cluster.protect_token()
    assert not (home / ".ray").exists()


def test_the_folder_is_private(home: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "chmod", lambda path, mode: None)  # it is private from the beginning
        folder = ray_cluster.private_folder()
    assert folder.parent == home
    assert mode(folder) == 0o700
    folder.chmod(0o777)
    assert ray_cluster.private_folder() == folder
    assert mode(folder) == 0o700


@pytest.mark.parametrize("kind", ["link", "anothers"])
def test_a_folder_of_others_is_not_taken(
    kind: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "elsewhere").mkdir()
    user = os.getuid() + (kind == "anothers")
    taken = home / f"fedkd-{user}"
    taken.symlink_to(home / "elsewhere")
    if kind == "anothers":
        taken.unlink()
        taken.mkdir()
        monkeypatch.setattr("os.getuid", lambda: user)
    folder = ray_cluster.private_folder()
    assert folder != taken
    assert mode(folder) == 0o700


def test_no_room_for_the_folder_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").touch()
    monkeypatch.setenv("RAY_TMPDIR", str(home / "file"))
    with pytest.raises(EnvironmentProblem):
        ray_cluster.private_folder()
