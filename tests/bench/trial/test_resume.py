"""A run that was interrupted and one that was not are equal, bit for bit; the state survives whatever happens to it."""

from __future__ import annotations

import json
import random
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from conftest import simulate, trained

from bench.engine.state import MANIFEST, StateFolder
from bench.errors import EnvironmentProblem, UnusableState
from bench.state_files import STATE_VERSION
from leaderboards.rows.schema import digest


def test_a_kill_between_two_files_leaves_the_round_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained("fedgkd", rounds=1, folder=StateFolder(tmp_path))
    run.save()
    run.advance(1)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        run.save()
    monkeypatch.undo()
    again = simulate("fedgkd", folder=StateFolder(tmp_path))
    assert again.load()
    assert again.round == 1


def test_old_files_are_swept(tmp_path: Path) -> None:
    run = simulate("fedavg", folder=StateFolder(tmp_path))
    for _ in range(3):
        run.advance(1)
        run.save()
    assert sorted(file.name for file in tmp_path.iterdir()) == [MANIFEST, "server-3.pt"]


@pytest.mark.parametrize(("damage", "said"), [("remove", "server-1"), ("version", "version 99")])
def test_a_damaged_state_is_named_with_the_way_out(damage: str, said: str, tmp_path: Path) -> None:
    trained("fedavg", rounds=1, folder=StateFolder(tmp_path)).save()
    server, manifest = tmp_path / "server-1.pt", tmp_path / MANIFEST
    if damage == "remove":
        server.unlink()
    else:
        manifest.write_text(
            manifest.read_text().replace(f'"version": {STATE_VERSION}', '"version": 99')
        )
    with pytest.raises(EnvironmentProblem, match=f"{tmp_path}.*{said}"):
        simulate("fedavg", folder=StateFolder(tmp_path)).load()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A run after two rounds, with a memory of each client that took part."""
    run = simulate("moon", folder=StateFolder(tmp_path / "state"))
    for _ in range(2):
        run.advance(1)
        run.save()
    return tmp_path / "state"


def resumes(folder: Path) -> bool:
    return simulate("moon", folder=StateFolder(folder)).load()


def test_no_bit_of_a_state_may_change(saved: Path) -> None:
    """Weights with another sign bit are weights: nothing but a checksum tells."""
    assert resumes(saved)
    files, chance = sorted(saved.iterdir()), random.Random(0)
    assert len(files) > 2
    for file in files:
        sound = file.read_bytes()
        for place in (0, len(sound) - 1, chance.randrange(len(sound))):
            blob = bytearray(sound)
            blob[place] ^= 1 << chance.randrange(8)
            file.write_bytes(blob)
            with pytest.raises(UnusableState, match=rf"(?s){file}.*{saved}"):
                resumes(saved)
        file.write_bytes(sound)
    assert resumes(saved)


def test_a_state_that_does_not_fit_into_memory_is_not_called_damaged(
    saved: Path, monkeypatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "load", full)
    with pytest.raises(torch.OutOfMemoryError):
        resumes(saved)


def test_nothing_is_unpickled_from_a_state(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple:
            return (Path.touch, (tmp_path / "owned",))

    trained("fedavg", rounds=1, folder=StateFolder(tmp_path / "state")).save()
    server, manifest = tmp_path / "state" / "server-1.pt", tmp_path / "state" / MANIFEST
    torch.save({"params": Evil()}, server)
    content = json.loads(manifest.read_text()) | {
        "sha256": {server.name: sha256(server.read_bytes()).hexdigest()}
    }
    del content["digest"]
    manifest.write_text(json.dumps(content | {"digest": digest(content)}))
    with pytest.raises(EnvironmentProblem, match="weights_only"):
        simulate("fedavg", folder=StateFolder(tmp_path / "state")).load()
    assert not (tmp_path / "owned").exists()


def test_the_algorithm_does_not_move_the_data() -> None:
    """Same seed, same world: participants and batches are those of every other algorithm."""
    runs = [simulate(name, seed=5) for name in ("fedavg", "fedcad")]
    drawn = [
        [run.participants(number) for number in range(1, 20)]
        for run in (*runs, simulate("fedavg", seed=6))
    ]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
