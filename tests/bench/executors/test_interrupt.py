"""Interrupted in whatever way and started again, a sweep ends as if nothing had happened."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from commands import assert_equal_results, finish, kill_all, run, saved_round, start, wait_for

from algorithms import ALGORITHMS
from algorithms.base import Params
from bench.compare import command as compare
from bench.engine import evaluate
from bench.engine.evaluate import Evaluator, Score
from bench.execution import Execution
from bench.executors import runner
from bench.executors.progress import Quiet
from bench.executors.trials import Interruption
from bench.planning.run_spec import RunSpec
from bench.provenance import command_columns
from bench.state_files import saved_runs
from bench.sweep import command as sweep
from bench.trial.trial import Trial
from leaderboards import Store
from search_spaces import SETTINGS

# Long enough to be caught in the middle; the state is saved after every round.
LONG = ("--algo", "fedgkd,fedcad", "--set", "gamma=0.5", "beta=0.3", "buffer=3", "--rounds", "30")
LONG += ("--local-epochs", "2", "--save-seconds", "0")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep, run to its end."""
    out = tmp_path_factory.mktemp("undisturbed")
    assert run(out, *LONG) == 0
    return out


@pytest.mark.slow
def test_killed_and_started_again_inline(undisturbed: Path, tmp_path: Path) -> None:
    process = start(*LONG, "--executor", "inline", "--out", str(tmp_path))
    wait_for(lambda: saved_round(tmp_path) >= 5)
    kill_all(process)
    assert len(Store(tmp_path).finished()) < 2
    assert run(tmp_path, *LONG) == 0
    assert_equal_results(undisturbed, tmp_path)
    assert not list((tmp_path / "state").glob("*/manifest.json")), "finished runs leave no state"


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_killed_with_its_workers_under_ray_and_finished_there(
    undisturbed: Path, tmp_path: Path
) -> None:
    process = start(*LONG, "--max-concurrent", "2", "--out", str(tmp_path))
    wait_for(lambda: saved_round(tmp_path) >= 5)
    kill_all(process)
    assert len(Store(tmp_path).finished()) < 2
    assert (
        sweep.main([*LONG, "--executor", "ray", "--max-concurrent", "1", "--out", str(tmp_path)])
        == 0
    )
    assert_equal_results(undisturbed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("executor", "number"),
    [("inline", signal.SIGTERM), ("ray", signal.SIGINT), ("ray", signal.SIGTERM)],
)
def test_the_first_signal_saves_and_exits_130(
    executor: str, number: signal.Signals, undisturbed: Path, tmp_path: Path
) -> None:
    process = start(*LONG, "--executor", executor, "--out", str(tmp_path))
    wait_for(lambda: saved_round(tmp_path) >= 4)
    if number == signal.SIGTERM:  # `timeout` sends it twice: to its command, and then to all
        os.kill(process.pid, number)
        time.sleep(0.02)
    os.killpg(
        process.pid, number
    )  # as terminals and batch systems do: Ray and its workers get it, too
    _, err = process.communicate(timeout=180)
    assert process.returncode == 130, err
    assert "failed" not in Store(tmp_path).status().values(), "an interruption is no failure"
    assert saved_round(tmp_path) >= 4
    assert run(tmp_path, *LONG) == 0
    assert_equal_results(undisturbed, tmp_path)
    assert not list((tmp_path / "state").glob(".stop*"))


@pytest.mark.slow
def test_an_echo_of_the_signal_after_a_short_round_is_ignored(tmp_path: Path) -> None:
    """The handler before the sweep's own would end the process."""
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    echo = threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGTERM])
    try:
        with Interruption(tmp_path, lambda _: None):
            signal.raise_signal(signal.SIGTERM)
            echo.start()
        echo.join()
        assert not received
        assert not list(tmp_path.rglob(".stop*"))
        signal.raise_signal(signal.SIGTERM)
        assert received, "the handler before is back"
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.slow
def test_a_time_budget_stops_resumably(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = [
        *LONG[: LONG.index("--rounds")],
        "--rounds",
        "2000",
        "--save-seconds",
        "0",
        "--executor",
        "inline",
    ]
    assert sweep.main([*long, "--time-budget", "2", "--out", str(tmp_path)]) == 130
    assert saved_round(tmp_path) > 0
    assert "the same command goes on" in capsys.readouterr().err
    assert compare.main(["--out", str(tmp_path)]) == 2


def test_an_interruption_between_two_runs_keeps_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = (
        "--algo",
        "fedavg,fedprox",
        "--set",
        "mu=0.1",
        "--rounds",
        "1",
        "--executor",
        "inline",
        "-q",
    )
    raised: list[Interruption] = []
    monkeypatch.setattr(Interruption, "__enter__", lambda self: raised.append(self) or self)
    monkeypatch.setattr(Quiet, "ended", lambda *_: raised[0].raised or raised[0].stop("a test"))
    assert sweep.main([*few, "--out", str(tmp_path)]) == 130
    assert len(Store(tmp_path).finished()) == 1


@pytest.mark.parametrize(
    "algorithms",
    [
        ("local",),
        pytest.param(("fedbn",), marks=pytest.mark.slow),
        pytest.param(("local", "local"), marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("long", [True, False])
def test_a_long_evaluation_is_given_up(
    algorithms: tuple[str, ...], long: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep stops in round 3, after the first of its models was scored."""
    setting = replace(SETTINGS["fedkd", "digits"], rounds=4, local_epochs=1, model="mlp+bn")
    run_specs = [
        RunSpec(name, ALGORITHMS[name].defaults(), setting, seed)
        for seed, name in enumerate(algorithms)
    ]
    stop = tmp_path / "stop"
    execution = Execution(
        str(tmp_path / "out"),
        rounds_per_report=1,
        save_seconds=0,
        stop_file=str(stop),
        provenance=command_columns("test"),
    )
    trial = Trial(run_specs, execution)
    trial.step()
    trial.step()
    if long:
        monkeypatch.setattr(evaluate, "GRACE_SECONDS", 0)
        monkeypatch.setattr(evaluate, "ASK_SECONDS", 0)
    scored = []
    score_whole = Evaluator._score_whole

    def stopping(self: Evaluator, params: Params, part: int) -> Score:
        scored.append(part)
        result = score_whole(self, params, part)
        stop.touch()
        return result

    monkeypatch.setattr(Evaluator, "_score_whole", stopping)
    assert trial.step()["status"] == "interrupted"
    trial.close()
    rounds = [manifest["round"] for manifest in saved_runs(tmp_path / "out").values()]
    if long:
        assert len(scored) == 2, "the second was not finished"
        assert rounds == [2] * len(run_specs)
    else:
        assert rounds == [3] * len(run_specs)
    assert not Store(tmp_path / "out").status()
    monkeypatch.undo()
    stop.unlink()
    finish(Trial(run_specs, execution))
    finish(Trial(run_specs, replace(execution, out=str(tmp_path / "whole"))))
    assert_equal_results(tmp_path / "whole", tmp_path / "out")


def test_leftovers_of_killed_sweeps_go_after_a_day(tmp_path: Path) -> None:
    state = tmp_path / "state"
    for name in (".tune-old", ".tune-new", "0" * 64):
        (state / name).mkdir(parents=True)
    for path in (state / ".said-old", state / ".tune-old"):
        path.touch()
        os.utime(path, (0, 0))
    runner.remove_leftovers(tmp_path)
    assert {path.name for path in state.iterdir()} == {".tune-new", "0" * 64}


def test_what_no_sweep_left_stays(tmp_path: Path) -> None:
    """Hidden files of other programs, and links, however old they are."""
    state = tmp_path / "state"
    (state / ".snapshots").mkdir(parents=True)
    (state / ".DS_Store").touch()
    kept = tmp_path / "kept"
    kept.touch()
    (state / ".tune-link").symlink_to(kept)
    for path in (kept, *state.iterdir()):
        os.utime(path, (0, 0), follow_symlinks=False)
    runner.remove_leftovers(tmp_path)
    assert {path.name for path in state.iterdir()} == {".snapshots", ".DS_Store", ".tune-link"}
