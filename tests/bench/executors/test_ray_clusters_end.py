"""Ray's start and end on this machine: options, signals, processes, and patience of who watches."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.errors import EnvironmentProblem
from bench.execution import Execution
from bench.executors import ray_cluster
from bench.executors.ray_cluster import (
    Watch,
    check_address,
    concurrent,
    give_up,
    leave,
    private_folder,
    start,
)


class Ray:
    """Ray, with its calls kept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, initialized: bool = False) -> None:
        self.calls: list[dict[str, Any]] = []
        self.error: Exception | None = None
        self.blocked: list[bool] = []
        self.initialized = initialized
        self.listed: list[dict[str, Any]] = []
        monkeypatch.setattr(ray_cluster, "ray", self)

    def is_initialized(self) -> bool:
        return self.initialized

    def init(self, **options: Any) -> None:
        """Keep the options, replace SIGTERM's handler as Ray does, and fail if told to."""
        self.calls.append(options)
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        self.blocked.append(signal.SIGTERM in mask)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.error:
            raise self.error

    def nodes(self) -> list[dict[str, Any]]:
        return self.listed

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "here")


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ray:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return Ray(monkeypatch)


def test_a_local_ray_is_private_and_small(
    ray: Ray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster, "cpu_count", lambda: 3)
    handler = signal.getsignal(signal.SIGTERM)
    assert start(Execution(out="", verbose=False))
    (options,) = ray.calls
    assert options == {
        "log_to_driver": False,
        "logging_level": logging.CRITICAL,
        "address": "local",
        "num_cpus": 3,
        "object_store_memory": 128 * 1024 * 1024,
        "include_dashboard": False,
        "_temp_dir": str(tmp_path / f"fedkd-{os.getuid()}" / "ray"),
    }
    assert (tmp_path / ".ray" / "auth_token").exists()
    assert ray.blocked == [True]
    assert signal.getsignal(signal.SIGTERM) == handler
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_cluster_is_joined(ray: Ray, tmp_path: Path) -> None:
    ray.initialized = True
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        assert start(Execution(out="", address=address, verbose=True))
    joined = {"log_to_driver": False, "logging_level": logging.ERROR, "address": address}
    assert ray.calls == [joined]
    assert list(tmp_path.iterdir()) == []


def test_a_ray_of_before_stays(ray: Ray) -> None:
    ray.initialized = True
    assert not start(Execution(out=""))
    assert ray.calls == []


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        (None, "Ray cannot start: broken; --executor inline runs without Ray"),
        (
            "auto",
            "the cluster at auto cannot be reached (RAY_AUTH_MODE=token where it asks for one): "
            "broken; --executor inline runs without Ray",
        ),
    ],
)
def test_a_ray_that_does_not_start(address: str | None, problem: str, ray: Ray) -> None:
    ray.error = ValueError("broken.")
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(EnvironmentProblem) as refused:
        start(Execution(out="", address=address))
    assert str(refused.value) == problem
    assert signal.getsignal(signal.SIGTERM) == handler


def test_another_thread_sets_no_handler(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "init", lambda **options: None)
    started: list[bool] = []
    thread = threading.Thread(target=lambda: started.append(start(Execution(out=""))))
    thread.start()
    thread.join()
    assert started == [True]


@pytest.mark.parametrize("address", [None, "", "auto", "local"])
def test_addresses_without_port_are_rays(address: str | None) -> None:
    check_address(address)


def test_folders_of_sessions_are_where_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert private_folder() == tmp_path / f"fedkd-{os.getuid()}"
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "none"))
    with pytest.raises(EnvironmentProblem) as refused:
        private_folder()
    named = tmp_path / "none" / f"fedkd-{os.getuid()}"
    assert str(refused.value) == (
        f"Ray cannot start: No such file or directory ({named}): name another folder with "
        "RAY_TMPDIR; --executor inline runs without Ray"
    )


# The end


def test_rays_processes_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that it started, whatever they started, and no other child."""
    own = [sys.executable, "-c", "import time; time.sleep(60)"]
    script = f"import subprocess, time; subprocess.Popen({own!r}); print(1); time.sleep(60)"
    name = "/a/ray/program"
    monkeypatch.setattr(ray_cluster, "PROGRAMS", name.encode())
    of_ray = subprocess.Popen(
        [sys.executable, "-c", script, name], stdout=subprocess.PIPE, text=True
    )
    other = subprocess.Popen(own)
    try:
        assert of_ray.stdout is not None
        of_ray.stdout.readline()
        started = ray_cluster._started_by("self")
        assert of_ray.pid in started
        assert len(started) == 2
        assert other.pid not in started
        shut = []
        fake = SimpleNamespace(shutdown=lambda: shut.append(True), is_initialized=lambda: False)
        monkeypatch.setattr(ray_cluster, "ray", fake)
        assert leave()
        assert shut == [True]
        assert of_ray.wait(timeout=10) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in (of_ray, other):
            process.kill()
            process.wait()
        of_ray.stdout.close()


def test_a_head_that_does_not_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    fake = SimpleNamespace(shutdown=released.wait, is_initialized=lambda: True)
    monkeypatch.setattr(ray_cluster, "ray", fake)
    monkeypatch.setattr(ray_cluster, "LEAVE_SECONDS", 0.05)
    monkeypatch.setattr(ray_cluster, "_started_by", lambda parent: [])
    waited: list[float] = []
    join = threading.Thread.join

    def short(thread: threading.Thread, seconds: float | None = None) -> None:
        waited.append(seconds or 0)
        join(thread, 0.01)

    monkeypatch.setattr(threading.Thread, "join", short)
    assert not leave()
    assert waited == [1.0], "it has another second"
    released.set()


@pytest.mark.parametrize("left", [True, False])
def test_a_lost_cluster_hides_rays_errors(left: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[Any] = []
    shown: list[Any] = []
    monkeypatch.setattr(atexit, "register", registered.append)
    monkeypatch.setattr(sys, "unraisablehook", shown.append)
    monkeypatch.setattr(ray_cluster, "leave", lambda: left)
    give_up()
    of_ray = SimpleNamespace(object=SimpleNamespace(__module__="ray.tune.x"))
    others = [SimpleNamespace(object=SimpleNamespace(__module__="rays.x"))]
    others.append(SimpleNamespace(object=None))
    for raised in (of_ray, *others):
        sys.unraisablehook(raised)  # type: ignore[arg-type]
    assert shown == others
    assert registered == ([] if left else [ray_cluster._end_at_once])


def test_an_end_at_once_has_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[Any] = []
    for name in ("stdout", "stderr"):
        stream = SimpleNamespace(flush=lambda name=name: order.append(name))
        monkeypatch.setattr(sys, name, stream)
    monkeypatch.setattr(os, "_exit", order.append)
    ray_cluster._end_at_once()
    monkeypatch.undo()
    assert order == ["stdout", "stderr", 3]


# Room and patience


NODE = {"NodeID": "here", "Alive": True, "Resources": {"CPU": 2.0, "GPU": 1.0}}
DEAD = {"NodeID": "dead", "Alive": False, "Resources": {"CPU": 64.0}}
NO_CPU = {"NodeID": "store", "Alive": True, "Resources": {}}


def test_room_is_on_live_nodes(ray: Ray) -> None:
    ray.listed = [NODE, DEAD, NO_CPU]
    assert concurrent(Execution(out="")) == 2
    assert concurrent(Execution(out="", concurrent=1)) == 1
    assert concurrent(Execution(out="", concurrent=9)) == 2
    assert concurrent(Execution(out="", gpus=1.0)) == 1
    with pytest.raises(EnvironmentProblem) as refused:
        concurrent(Execution(out="", threads=3, gpus=0.5))
    assert str(refused.value) == (
        "no trial of 3 CPU and 0.5 GPU fits a node: the cluster has 2 CPU and 1 GPU on 2 nodes; "
        "lower --cpus-per-trial or --gpus-per-trial"
    )


class Watched:
    """A watch whose clock is set by hand, and which asks when told."""

    def __init__(self, ray: Ray, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.now = 1000.0
        idle = SimpleNamespace(start=lambda: None)
        threads = SimpleNamespace(Event=threading.Event, Thread=lambda **given: idle)
        monkeypatch.setattr(ray_cluster, "threading", threads)
        monkeypatch.setattr(ray_cluster.time, "monotonic", lambda: self.now)
        ray.listed = [NODE]
        self.ray = ray
        self.watch = Watch(Execution(out="", **options))

    def after(self, seconds: float, asks: bool, stopping: bool = False) -> str:
        """The reason after seconds, in each of which it is judged and may ask."""
        reason = ""
        for _ in range(int(seconds)):
            self.now += 1
            if asks:
                self.watch.ask()
            reason = self.watch.lost_reason(stopping)
        return reason


ROOM = "no live node of the Ray cluster has had room for a trial of 1 CPU and 0 GPU for {} s"


@pytest.mark.parametrize(
    ("address", "stopping", "patience"),
    [(None, False, 30), ("head:1", False, 300), (None, True, 5), ("head:1", True, 5)],
)
def test_room_is_waited_for(
    address: str | None,
    stopping: bool,
    patience: int,
    ray: Ray,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = Watched(ray, monkeypatch, address=address)
    assert watched.after(400, asks=True, stopping=stopping) == ""
    ray.listed = [DEAD]
    assert watched.after(patience, asks=True, stopping=stopping) == ""
    assert watched.after(1, asks=True, stopping=stopping) == ROOM.format(patience + 1)


def test_a_silent_head_is_waited_for(ray: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(ray, monkeypatch)
    assert watched.after(20, asks=False) == ""
    silent = "the head of the Ray cluster has not answered for 21 s"
    assert watched.after(1, asks=False) == silent
    watched.watch.ask()
    assert watched.after(1, asks=False) == ""
    ray.listed = [NODE | {"Alive": False}, NODE | {"NodeID": "there"}]
    assert watched.after(1, asks=True) == "Ray's node on this machine died"


@pytest.mark.parametrize(("paused", "lost"), [(5, False), (6, True), (3600, True)])
def test_a_pause_of_this_process_counts_not(
    paused: int, lost: bool, ray: Ray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one that is longer than five questions."""
    watched = Watched(ray, monkeypatch)
    assert watched.after(18, asks=False) == ""
    watched.now += paused
    assert (watched.watch.lost_reason(False) == "") == lost
    assert (watched.after(2, asks=False) == "") == lost
    assert watched.after(1, asks=False) != ""
