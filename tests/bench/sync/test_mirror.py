"""A result folder's copy elsewhere: nothing is lost, nothing twice, whoever is killed and whatever fails."""

from __future__ import annotations

import json
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import ROOT, assert_equal_results, command, kill_all, saved_round, wait_for
from filelock import FileLock
from pyarrow import fs
from rows import CURVE, START, curve_of, failed_row, make_row, sound_row

from bench import artifacts, boards
from bench.state_files import STATE_VERSION
from bench.sweep import command as sweep
from bench.sync import mirror
from bench.sync.mirror import Mirror, Moved, Pusher, open_mirror
from bench.sync.place import MirrorProblem, Place
from leaderboards import Store
from leaderboards.rows.compaction import compact
from leaderboards.rows.verify import validate

LATER = START + timedelta(days=1)
KEY = "ab" * 32
SWEEP = (
    "--algo",
    "fedavg,fedgkd",
    "--set",
    "gamma=0.2",
    "--rounds",
    "3",
    "--executor",
    "inline",
    "-q",
)


def fill(out: Path, seeds: range, higher: int = 0, **columns: Any) -> Store:
    store = Store(out)
    for seed in seeds:
        curve = curve_of(seed + higher)
        store.write(sound_row(curve, "fedgkd", {"gamma": 0.2}, seed=seed, **columns), curve)
    return store


def listed(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def view(out: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    store = Store(out)
    runs = store.runs(replicates=True).sort_values(["run_key", "finished"], ignore_index=True)
    return runs, store.curves().sort_values(["run_key", "round", "metric"]).reset_index(drop=True)


def assert_same(left: Path, right: Path) -> None:
    for ours, theirs in zip(view(left), view(right), strict=True):
        pd.testing.assert_frame_equal(ours, theirs, check_exact=True)
    assert not validate(right).faults


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The mirror."""
    return tmp_path / "mirror"


def push(out: Path, url: Path | str) -> Moved:
    return open_mirror(str(url), out).push()


def pull(out: Path, url: Path | str) -> Moved:
    return open_mirror(str(url), out).pull()


def save_state(out: Path, round: int, key: str = KEY, **contents: bytes) -> None:
    """What `bench.engine.state` leaves after a save: files of a round, the manifest last."""
    folder = out / "state" / key
    folder.mkdir(parents=True, exist_ok=True)
    server, memory = f"server-{round}.pt", f"memory-3-{round}.pt"
    blobs = {
        server: contents.get("server", b"server %d" % round),
        memory: contents.get("memory", b"memory %d" % round),
    }
    for name, blob in blobs.items():
        (folder / name).write_bytes(blob)
    content = {
        "version": STATE_VERSION,
        "round": round,
        "server": server,
        "memories": {"3": memory, "4": ""},
    }
    content["sha256"] = {name: sha256(blob).hexdigest() for name, blob in blobs.items()}
    (folder / "manifest.json").write_text(json.dumps(content))
    for path in folder.glob("*.pt"):
        if not path.stem.endswith(f"-{round}"):
            path.unlink()


class Failing:
    """The local file system; after so many `allowed` operations each one fails with `error`."""

    def __init__(self, allowed: float, error: Exception | None = None) -> None:
        self.inner, self.allowed = fs.LocalFileSystem(), allowed
        self.error = error or OSError("no route to host")

    def __getattr__(self, operation: str) -> Any:
        self.allowed -= 1
        if self.allowed < 0:
            raise self.error
        return getattr(self.inner, operation)


def over(system: Failing, out: Path, there: Path) -> Mirror:
    """A mirror through a file system that fails on demand."""
    return Mirror(out, Place("failing://x", system, str(there)))


def test_rows_curves_tracked_files_and_states_come_back_from_the_mirror_alone(
    tmp_path: Path, there: Path
) -> None:
    out = tmp_path / "out"
    store = fill(out, range(3))
    store.write(failed_row("fedprox", {"mu": 1}), [])
    store.write(sound_row(CURVE, "other", {"gamma": "all"}), CURVE)
    artifacts.write_arrays(out, KEY, {"run/seconds": 1.0, "classes/rounds": np.arange(3)})
    save_state(out, 5)
    done = push(out, there.as_uri())
    assert (done.rows, done.tracked, done.states) == (5, 1, 1)
    assert not validate(there).faults, "a mirror is a result folder"
    again = tmp_path / "again"
    found = pull(again, there.as_uri())
    assert (found.rows, found.tracked, found.states) == (5, 1, 1)
    assert_same(out, again)
    assert listed(again / "state") == sorted([*listed(out / "state"), f"{KEY}.lock"])
    for name in listed(out / "state"):
        assert (again / "state" / name).read_bytes() == (out / "state" / name).read_bytes()
    assert artifacts.arrays(again, KEY)["classes/rounds"].tolist() == [0, 1, 2]


def test_a_second_push_and_pull_change_nothing(tmp_path: Path, there: Path) -> None:
    out = tmp_path / "out"
    fill(out, range(3))
    save_state(out, 1)
    push(out, there)
    before = listed(there), listed(out)
    made = open_mirror(str(there), out)
    assert str(made.push()) == "1 state", "what a new process finds of a state it makes sure of"
    assert str(made.push()) == str(made.pull()) == "nothing new"
    assert (listed(there), listed(out)) == before


def test_a_curve_that_a_pull_missed_comes_with_the_next(tmp_path: Path, there: Path) -> None:
    fill(tmp_path / "left", range(2))
    push(tmp_path / "left", there)
    pull(tmp_path / "right", there)
    for curve in (tmp_path / "right" / "curves").iterdir():
        curve.unlink()
    pull(tmp_path / "right", there)
    assert_same(tmp_path / "left", tmp_path / "right")


def test_two_folders_meet_in_one_mirror(tmp_path: Path, there: Path) -> None:
    left, right = tmp_path / "left", tmp_path / "right"
    fill(left, range(3))
    fill(
        right, range(2, 5), finished=LATER, host="another"
    )  # seed 2: an equal result of the same environment
    fill(right, range(1), finished=LATER, device="gpu", higher=75)  # seed 0: a replicate
    fill(right, range(1, 2), finished=LATER, higher=62)  # unlike in one environment: kept beside
    push(left, there)
    push(right, there)
    for out in (left, right):
        pull(out, there)
        assert not push(out, there).rows, "all is there"
    keys = view(left)[0].run_key
    assert len(keys) == 6
    assert keys.nunique() == 5
    rows = [
        sorted(zip(r.run_key, r.device, r.best_accuracy, strict=True))
        for r, _ in map(view, (left, right, there))
    ]
    assert rows[0] == rows[1] == rows[2]
    assert "disagree" in validate(left).faults[0].problem


def test_compaction_of_the_folder_compacts_the_mirror(tmp_path: Path, there: Path) -> None:
    out, again = tmp_path / "out", tmp_path / "again"
    fill(out, range(4))
    push(out, there)
    pull(again, there)
    compact(out)
    assert push(out, there).rows == 4
    assert listed(there / "runs") == listed(there / "curves") == listed(out / "runs")
    assert not pull(out, there).rows
    fill(again, range(4, 6))
    pull(again, there)
    assert push(again, there).rows == 2, (
        "what the mirror's segment stands in for is not pushed again"
    )
    for folder in (again, tmp_path / "fresh"):
        pull(folder, there)
        assert_same(folder, there)


@pytest.mark.slow
@pytest.mark.parametrize("steps", range(1, 30, 7))
def test_a_kill_while_the_mirror_is_compacted(steps: int, tmp_path: Path, there: Path) -> None:
    """Wherever it falls, every row is there for a reader, and the next push takes the rest away."""
    out, again = tmp_path / "out", tmp_path / "again"
    fill(out, range(3))
    push(out, there)
    compact(out)
    with suppress(MirrorProblem):
        over(Failing(steps), out, there).push()
    pull(again, there)
    assert_same(out, again)
    push(out, there)
    assert listed(there / "runs") == listed(there / "curves") == listed(out / "runs")


@pytest.mark.slow
@pytest.mark.parametrize("steps", range(1, 46, 6))
def test_a_push_that_ends_anywhere_leaves_whole_things(
    steps: int, tmp_path: Path, there: Path
) -> None:
    """Rows have their curves, a state is of one round, and the next push completes it."""
    out = tmp_path / "out"
    fill(out, range(2))
    save_state(out, 1)
    artifacts.write_arrays(out, KEY, {"run/seconds": 1.0})
    push(out, there)
    fill(out, range(2, 4))
    save_state(out, 2)
    with suppress(MirrorProblem):
        over(Failing(steps), out, there).push()
    problems = {fault.problem for fault in validate(there).faults}
    assert not [
        one for one in problems if "not a parquet" not in one and "without a row" not in one
    ]
    early = tmp_path / "early"
    pull(early, there)
    round = saved_round(early)
    assert round in (1, 2)
    folder = early / "state" / KEY
    assert (folder / f"server-{round}.pt").read_bytes() == b"server %d" % round
    assert (folder / f"memory-3-{round}.pt").read_bytes() == b"memory %d" % round
    push(out, there)
    late = tmp_path / "late"
    pull(late, there)
    assert_same(out, late)
    assert saved_round(late) == 2


def test_a_run_that_is_at_work_here_keeps_its_state(tmp_path: Path, there: Path) -> None:
    left, right = tmp_path / "left", tmp_path / "right"
    save_state(left, 3)
    push(left, there)
    (right / "state").mkdir(parents=True)
    with FileLock(right / "state" / f"{KEY}.lock"):
        found = pull(right, there)
    assert not found.states
    assert not found.problems
    save_state(right, 1)
    assert not pull(right, there).states
    assert saved_round(right) == 1


def test_a_state_that_stayed_behind_its_row_is_not_pushed(tmp_path: Path, there: Path) -> None:
    out = tmp_path / "out"
    fill(out, [7])
    push(out, there)
    save_state(out, 3, view(out)[0].run_key.item())
    assert not push(out, there).states
    assert not [path for path in (there / "state").rglob("*") if path.is_file()]


def test_two_machines_at_one_run_keep_their_states_apart(tmp_path: Path, there: Path) -> None:
    """Not even equally named files of one round are mixed, and the furthest is taken."""
    left, right, fresh = tmp_path / "left", tmp_path / "right", tmp_path / "fresh"
    save_state(left, 2, server=b"left", memory=b"left")
    save_state(right, 2, server=b"rite", memory=b"rite")
    push(left, there)
    push(right, there)
    pull(fresh, there)
    assert len({path.read_bytes() for path in (fresh / "state" / KEY).glob("*.pt")}) == 1
    save_state(right, 3, server=b"rite", memory=b"rite")
    push(right, there)
    pull(tmp_path / "later", there)
    assert saved_round(tmp_path / "later") == 3


def test_the_state_of_a_run_that_ends_during_a_push_stays_until_its_row_is_there(
    tmp_path: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, row = tmp_path / "out", make_row(seed=7)
    save_state(out, 3, row["run_key"])
    push(out, there)
    push_rows = Mirror._push_files

    def meanwhile(self: Mirror) -> Any:
        done = push_rows(self)
        Store(out).write(row, CURVE)
        shutil.rmtree(out / "state" / row["run_key"])
        return done

    monkeypatch.setattr(Mirror, "_push_files", meanwhile)
    push(out, there)
    assert len(listed(there / "state")) == 3, "the only copy of the run"
    monkeypatch.undo()
    assert push(out, there).rows == 1
    assert listed(there / "state") == []


@pytest.mark.parametrize("damage", ["alter", "remove", "manifest"])
def test_a_damaged_state_in_the_mirror_is_named_unless_another_is_sound(
    damage: str, tmp_path: Path, there: Path
) -> None:
    near, far, fresh = tmp_path / "near", tmp_path / "far", tmp_path / "fresh"
    save_state(far, 50)
    push(far, there)
    (server,) = (there / "state").rglob("server-50.pt.*")
    if damage == "alter":
        server.write_bytes(b"SERVER 50")
    elif damage == "remove":
        server.unlink()
    else:
        next((there / "state").rglob("manifest.json")).write_text("{")
    found = pull(fresh, there)
    assert not found.states
    assert KEY[:16] in found.problems[0]
    assert not (fresh / "state" / KEY).exists()
    save_state(near, 10)
    push(near, there)
    assert pull(fresh, there) == Moved(states=1)
    assert saved_round(fresh) == 10


@pytest.mark.parametrize("content", ["junk", "{}"])
def test_a_damaged_state_here_keeps_no_other_from_the_mirror(
    content: str, tmp_path: Path, there: Path
) -> None:
    out, fresh = tmp_path / "out", tmp_path / "fresh"
    save_state(out, 3)
    damaged = out / "state" / ("0" * 64) / "manifest.json"
    damaged.parent.mkdir()
    damaged.write_text(content)
    push(out, there)
    assert pull(fresh, there) == Moved(states=1)
    assert saved_round(fresh) == 3


def test_a_broken_file_in_the_mirror_is_named(
    tmp_path: Path, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    fill(out, range(1))
    push(out, there)
    [broken] = (there / "runs").glob("*.parquet")
    broken.write_bytes(broken.read_bytes()[:500])
    assert sweep.main([*SWEEP, "--out", str(tmp_path / "other"), "--mirror", str(there)]) == 3
    assert str(broken) in capsys.readouterr().err
    assert boards.main(["push", str(there), str(out)]) == 0, "who has it whole brings it back"
    assert not validate(there).faults


def test_a_failing_mirror_is_said_once_and_caught_up(
    tmp_path: Path, there: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mirror, "EVERY_SECONDS", 0.02)
    out, system = tmp_path / "out", Failing(0)
    fill(out, range(2))
    pusher = Pusher(over(system, out, there))
    wait_for(lambda: system.allowed < -3)
    system.allowed = float("inf")
    wait_for(lambda: len(listed(there)) == 4)
    pusher.finish()
    said = capsys.readouterr().err
    assert said.count("no route to host") == 1
    assert "not all" not in said
    assert_same(out, there)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ConnectionError("gone")])
def test_what_is_not_mirrored_at_the_end_is_said_with_what_to_do(
    error: Exception, tmp_path: Path, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    fill(out, range(2))
    save_state(out, 1)
    artifacts.write_arrays(out, KEY, {"run/seconds": 1.0})
    before = listed(out)
    Pusher(over(Failing(0, error), out, there)).finish()
    said = capsys.readouterr().err
    assert str(error.args[-1]) in said
    assert f"python -m bench.boards push failing://x {out}" in said
    assert set(before) <= set(listed(out))


@pytest.mark.slow
def test_s3_without_a_network_is_exit_3_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Soon: nothing runs, and nobody waits for minutes."""
    url = "s3://fedkd-bench-test/x?region=eu-west-1&endpoint_override=127.0.0.1:9&scheme=http"
    began = time.monotonic()
    status = sweep.main([*SWEEP, "--out", str(tmp_path / "out"), "--mirror", url])
    assert time.monotonic() - began < 60
    assert status == 3
    said = capsys.readouterr().err
    assert said.startswith("error: mirror s3://fedkd-bench-test/x")
    assert not (tmp_path / "out" / "runs").exists()


def test_a_mirror_that_cannot_be_written_is_exit_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    status = sweep.main(
        [*SWEEP, "--out", str(tmp_path / "out"), "--mirror", str(tmp_path / "file" / "below")]
    )
    assert status == 3
    assert "--mirror" in capsys.readouterr().err


def test_a_mirror_that_is_removed_between_two_pushes_is_filled_anew(
    tmp_path: Path, there: Path
) -> None:
    out, again = tmp_path / "out", tmp_path / "again"
    fill(out, range(1))
    save_state(out, 1)
    mirror = open_mirror(str(there), out)
    mirror.push()
    shutil.rmtree(there)
    with suppress(MirrorProblem):
        mirror.push()
    mirror.push()
    pull(again, there)
    assert_same(out, again)
    assert saved_round(again) == 1


def test_push_and_pull_of_a_folder(
    tmp_path: Path, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, again = tmp_path / "out", tmp_path / "again"
    fill(out, range(2))
    assert boards.main(["push", str(there), str(out)]) == 0
    assert capsys.readouterr().out.endswith(f"2 rows pushed: {out} -> {there}\n")
    assert boards.main(["pull", str(there), str(again), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 2
    assert (again / "leaderboard.parquet").exists()
    assert_same(out, again)
    assert boards.main(["push", str(again), str(out)]) == 2
    assert str(again) in capsys.readouterr().err
    assert boards.main(["push", str(there), str(tmp_path / "nowhere")]) == 2


SCRIPT = """
import sys
from bench.sync import mirror
from bench.sweep.command import main
mirror.EVERY_SECONDS = 0.1
sys.exit(main(sys.argv[1:]))
"""
LONG = ("--algo", "fedgkd,fedcad", "--set", "gamma=0.5", "beta=0.3", "buffer=3", "--rounds", "40")
LONG += ("--local-epochs", "2", "--save-seconds", "0", "--executor", "inline", "-q")


def started(*arguments: str) -> Any:
    """A sweep that pushes every 0.1 s, as a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )


def states_there(there: Path) -> Callable[[], bool]:
    def enough() -> bool:
        found = [
            json.loads(path.read_text()) for path in (there / "state").glob("*/*/manifest.json")
        ]
        return any(content["manifest"]["round"] >= 8 for content in found)

    return enough


@pytest.mark.slow
def test_killed_and_gone_on_from_the_mirror_alone(tmp_path: Path, there: Path) -> None:
    """The folder is lost with the machine; the end is that of an undisturbed sweep, bit for bit."""
    undisturbed, out = tmp_path / "undisturbed", tmp_path / "out"
    assert sweep.main([*LONG, "--out", str(undisturbed)]) == 0
    process = started(*LONG, "--out", str(out), "--mirror", there.as_uri())
    wait_for(states_there(there))
    kill_all(process)
    assert len(Store(there).finished()) < 2
    shutil.rmtree(out)
    assert sweep.main([*LONG, "--out", str(out), "--mirror", there.as_uri()]) == 0
    assert_equal_results(undisturbed, out)
    assert_equal_results(undisturbed, there)
    assert listed(there / "state") == [], "finished runs leave no state"
    shutil.rmtree(out)
    assert sweep.main([*LONG, "--out", str(out), "--mirror", there.as_uri()]) == 0
    assert_equal_results(undisturbed, out)


@pytest.mark.slow
def test_a_sweep_on_a_cluster_that_runs_already(
    tmp_path: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By address and with the cluster's token; its results are those of this process, bit for bit."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    (tmp_path / "token").write_text(secrets.token_hex(32))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    alone, out = tmp_path / "alone", tmp_path / "out"
    assert sweep.main([*SWEEP, "--out", str(alone)]) == 0
    with tempfile.TemporaryDirectory(
        prefix="ray", dir="/tmp"
    ) as short:  # sockets' paths have a limit
        ray = [
            str(Path(sys.executable).with_name("ray")),
            "start",
            "--head",
            "--block",
            "--num-cpus=2",
        ]
        ray += [
            f"--port={port}",
            f"--temp-dir={short}",
            "--include-dashboard=false",
            "--disable-usage-stats",
        ]
        ray += ["--object-store-memory=134217728"]
        with (tmp_path / "ray.log").open("w") as log:
            head = subprocess.Popen(ray, stdout=log, stderr=log, cwd="/", text=True)
        try:
            wait_for(lambda: "Ray runtime started" in (tmp_path / "ray.log").read_text())
            where = ("--executor", "ray", "--address", f"127.0.0.1:{port}", "--mirror", str(there))
            done = command(*SWEEP, *where, "--out", str(out))
        finally:
            kill_all(head)
    assert done.returncode == 0, done.stderr
    assert_equal_results(alone, out)
    assert_equal_results(alone, there)
