"""Workers, nodes and heads of a Ray cluster die: a sweep goes on, or ends and says why."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import assert_equal_results

from bench.errors import EnvironmentProblem
from bench.execution import Execution
from bench.executors import ray_cluster, ray_executor
from bench.executors.ray_trainable import SweepTrainable
from bench.sweep import command as sweep
from leaderboards import Store

TWO = ("--algo", "fedavg", "fedcad", "--set", "beta=0", "gamma=0.5", "--rounds", "2", "-q")
UNDER_RAY = ("--executor", "ray", "--max-concurrent", "2")


class Mortal(SweepTrainable):
    """Its worker dies at FedCAD's first step, as often as the folder of results has files called `death*`."""

    def step(self) -> dict[str, Any]:
        """Die, or step."""
        run_spec = self.trial.runs[0].run_spec
        for death in sorted(Path(self.trial.execution.out).glob("death*")):
            if run_spec.algorithm == "fedcad":
                death.unlink()
                os._exit(9)
        return super().step()


def test_an_address_is_tried_before_ray_tries_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray_cluster.ray, "init", lambda **_: pytest.fail("Ray tries for minutes"))
    with pytest.raises(EnvironmentProblem, match=r"127\.0\.0\.1:9 cannot be reached"):
        ray_cluster.start(Execution(out=str(tmp_path), address="127.0.0.1:9"))


@pytest.fixture
def mortal(monkeypatch: pytest.MonkeyPatch, shared_ray: None) -> None:
    """Let workers die."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    original = ray_executor.trainable_for

    def mortal_trainable(*given: Any) -> type:
        made = original(*given)
        return type("mortal", (Mortal,), {"resolve": made.resolve, "varied": made.varied})

    monkeypatch.setattr(ray_executor, "trainable_for", mortal_trainable)


def run(out: Path, *more: str, deaths: int = 0) -> int:
    """Run a sweep of two trials, one of whose workers dies so often."""
    for number in range(deaths):
        (out / f"death{number}").touch()
    return sweep.main([*TWO, *more, "--out", str(out)])


@pytest.mark.slow
@pytest.mark.usefixtures("mortal")
def test_a_trial_goes_on_when_its_worker_dies(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, *UNDER_RAY, deaths=3) == 0
    shown = capsys.readouterr()
    assert shown.err.count("warning: fedcad") == 3
    assert "ray" not in (shown.out + shown.err).replace(str(tmp_path), "").lower()
    undisturbed = tmp_path_factory.mktemp("undisturbed")
    assert run(undisturbed, "--executor", "inline") == 0
    assert_equal_results(undisturbed, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("mortal")
def test_a_trial_whose_workers_keep_dying_fails_and_can_be_given_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, *UNDER_RAY, deaths=4) == 1
    assert "died" in capsys.readouterr().err
    assert Store(tmp_path).runs().set_index("algorithm").status.to_dict() == {
        "fedavg": "finished",
        "fedcad": "failed",
    }
    assert run(tmp_path, *UNDER_RAY) == 0
    again = Store(tmp_path).runs(replicates=True)
    assert sorted(again.status) == ["finished", "finished"], "a success replaces the failed row"


NODE = {"NodeID": "here", "Alive": True, "Resources": {"CPU": 2.0}}
ELSEWHERE = {"NodeID": "there", "Alive": True, "Resources": {"CPU": 8.0, "GPU": 1.0}}
DEAD = {"NodeID": "here", "Alive": False, "Resources": {}}


class Cluster(SimpleNamespace):
    """A cluster of these nodes, whose head answers or not, and the clock of who watches it."""

    listed: list[dict[str, Any]]
    answers: bool = True
    now: float = 0.0
    asked: int = 0

    def nodes(self) -> list[dict[str, Any]]:
        """As `ray.nodes`."""
        self.asked += 1
        return self.listed

    def get_runtime_context(self) -> SimpleNamespace:
        """As `ray.get_runtime_context`."""
        return SimpleNamespace(get_node_id=lambda: "here")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster of two nodes."""
    made = Cluster(listed=[NODE, ELSEWHERE], answers=True, now=0.0, asked=0)
    monkeypatch.setattr(ray_cluster, "ray", made)
    return made


@pytest.fixture
def still(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes by `complaint` alone: on a busy machine a thread may not run for seconds."""
    idle = SimpleNamespace(start=lambda: None)
    threads = SimpleNamespace(Event=threading.Event, Thread=lambda **options: idle)
    monkeypatch.setattr(ray_cluster, "threading", threads)
    monkeypatch.setattr(ray_cluster, "time", SimpleNamespace(monotonic=lambda: cluster.now))


def complaint(
    cluster: Cluster, execution: Execution, stopping: bool = False, seconds: int = 60
) -> str:
    """The first complaint of so many seconds, in each of which a cluster that answers is asked."""
    watch = ray_cluster.Watch(execution)
    for _ in range(seconds):
        cluster.now += 1
        if cluster.answers:
            watch.ask()
        if reason := watch.lost_reason(stopping):
            return reason
    return ""


@pytest.mark.usefixtures("still")
def test_a_cluster_is_waited_for_while_it_has_room_or_nodes_may_come(cluster: Cluster) -> None:
    assert complaint(cluster, Execution("", threads=2)) == ""
    assert complaint(cluster, Execution("", threads=8, gpus=1), stopping=True) == ""
    assert "room" in complaint(cluster, Execution("", threads=16))
    assert complaint(cluster, Execution("", threads=16, address="head:1")) == ""
    assert "room" in complaint(cluster, Execution("", threads=16, address="head:1"), seconds=400)
    assert "room" in complaint(cluster, Execution("", threads=16, address="head:1"), stopping=True)


@pytest.mark.usefixtures("still")
def test_dead_nodes_and_a_silent_head_end_a_sweep(cluster: Cluster) -> None:
    cluster.listed = [NODE, ELSEWHERE | {"Alive": False}]
    assert "room" in complaint(cluster, Execution("", gpus=1))
    cluster.listed = [DEAD, ELSEWHERE]
    assert "this machine" in complaint(cluster, Execution("", address="head:1"))
    cluster.answers = False
    assert "head" in complaint(cluster, Execution("", address="head:1"))


@pytest.mark.usefixtures("still")
def test_time_in_which_this_process_was_suspended_does_not_count(cluster: Cluster) -> None:
    watch = ray_cluster.Watch(Execution("", threads=2))
    cluster.now += 3600
    assert watch.lost_reason(stopping=False) == ""
    cluster.now += 1
    assert watch.lost_reason(stopping=False) == "", "it has a second to answer"


def test_a_watched_cluster_is_asked_again_and_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster, "ASK_SECONDS", 0.01)
    watch = ray_cluster.Watch(Execution("", threads=2))
    until = time.monotonic() + 60
    while cluster.asked < 3 and time.monotonic() < until:
        time.sleep(0.01)
    watch.close()
    assert cluster.asked >= 3


def test_as_many_trials_run_as_nodes_hold(cluster: Cluster) -> None:
    assert ray_cluster.concurrent(Execution("", threads=2)) == 5
    assert ray_cluster.concurrent(Execution("", threads=2, concurrent=3)) == 3
    cluster.listed = [NODE] * 4
    with pytest.raises(EnvironmentProblem, match="4 nodes"):
        ray_cluster.concurrent(Execution("", threads=8))
