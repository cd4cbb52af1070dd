"""Interrupted in whatever way and started again, a sweep ends as if nothing had happened."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from commands import assert_equal_results, command, kill_all, saved_round, start, wait_for

from bench import compare, sweep
from bench.execution import Execution
from bench.planning.plan import make_plan
from bench.planning.request import Request
from bench.tuning import cluster, runner
from bench.tuning.events import Events
from bench.tuning.interruption import Interruption
from bench.tuning.progress import Quiet
from bench.tuning.run import Run
from leaderboards import Store

# Long enough to be caught in the middle; the state is saved after every round.
LONG = (
    "--algo",
    "fedgkd,fedcad",
    "--set",
    "gamma=0.5",
    "beta=0.3",
    "buffer=3",
    "--rounds",
    "60",
    "--local-epochs",
    "2",
    "--save-seconds",
    "0",
)


def run_here(out: Path, *arguments: str) -> int:
    """The sweep in this process, without Ray."""
    return sweep.main([*LONG, *arguments, "--executor", "inline", "--out", str(out)])


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep, run to its end."""
    out = tmp_path_factory.mktemp("undisturbed")
    assert run_here(out) == 0
    return out


def test_killed_and_started_again_inline(undisturbed: Path, tmp_path: Path) -> None:
    process = start(*LONG, "--executor", "inline", "--out", str(tmp_path))
    wait_for(lambda: saved_round(tmp_path) >= 8)
    kill_all(process)
    assert len(Store(tmp_path).finished()) < 2
    done = command(*LONG, "--executor", "inline", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert_equal_results(undisturbed, tmp_path)
    assert not list((tmp_path / "state").glob("*/manifest.json")), "finished runs leave no state"


def test_killed_with_its_workers_under_ray_and_finished_there(undisturbed: Path, tmp_path: Path) -> None:
    process = start(*LONG, "--max-concurrent", "2", "--out", str(tmp_path))
    wait_for(lambda: saved_round(tmp_path) >= 8)
    kill_all(process)
    assert len(Store(tmp_path).finished()) < 2
    done = command(*LONG, "--max-concurrent", "1", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert_equal_results(undisturbed, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_the_first_signal_saves_and_exits_130(number: signal.Signals, undisturbed: Path, tmp_path: Path) -> None:
    process = start(*LONG, "--executor", "inline", "--out", str(tmp_path))
    wait_for(lambda: saved_round(tmp_path) >= 6)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "stopping" in err
    at = saved_round(tmp_path)
    assert at >= 6
    assert run_here(tmp_path) == 0
    assert_equal_results(undisturbed, tmp_path)
    assert not list((tmp_path / "state").glob(".stop*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_under_ray_reaches_the_workers(number: signal.Signals, undisturbed: Path, tmp_path: Path) -> None:
    process = start(*LONG, "--out", str(tmp_path))
    wait_for(lambda: saved_round(tmp_path) >= 6)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # what a terminal does
    else:
        process.send_signal(number)  # what a batch system does
    _, err = process.communicate(timeout=90)
    assert process.returncode == 130, err
    assert "failed" not in Store(tmp_path).status().values(), "an interruption is no failure"
    assert run_here(tmp_path) == 0
    assert_equal_results(undisturbed, tmp_path)


def test_a_time_budget_stops_resumably(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here(tmp_path, "--rounds", "2000", "--time-budget", "2") == 130
    assert saved_round(tmp_path) > 0
    assert "interrupted: what was under way is saved; the same command goes on from there\n" in capsys.readouterr().err
    assert compare.main(["--out", str(tmp_path)]) == 2
    assert f"no results in {tmp_path}: 1 run saved, none ended; the command that began" in capsys.readouterr().err
    assert run_here(tmp_path, "--rounds", "2000", "--time-budget", "1") == 130
    assert "4 runs, 4 to do (1 from where it was saved)\n" in capsys.readouterr().err


def test_a_time_budget_that_is_too_short_does_not_say_that_anything_is_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ("--algo", "fedavg,fedprox", "--set", "mu=0.1", "--rounds", "1", "--executor", "inline", "-q")
    with monkeypatch.context() as patched:
        patched.setattr(runner, "_budget", lambda _, interruption: interruption.stop("spent before anything began"))
        assert sweep.main([*few, "--time-budget", "0", "--out", str(tmp_path)]) == 130
    said = capsys.readouterr().err
    assert "interrupted before any run had done a round: there is nothing to save; the same command" in said
    assert "saved; the same" not in said
    assert (saved_round(tmp_path), Store(tmp_path).status()) == (0, {})
    assert sweep.main([*few, "--out", str(tmp_path)]) == 0


def test_an_interruption_between_two_runs_says_that_the_first_is_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ("--algo", "fedavg,fedprox", "--set", "mu=0.1", "--rounds", "1", "--executor", "inline", "-q")
    raised: list[Interruption] = []
    monkeypatch.setattr(Interruption, "arm", lambda self: raised.append(self))
    monkeypatch.setattr(Quiet, "ended", lambda *_: raised[0].raised or raised[0].stop("a test"))
    assert sweep.main([*few, "--out", str(tmp_path)]) == 130
    said = capsys.readouterr().err
    assert "interrupted between two runs: those that ended are stored; the same command goes on with the others" in said
    assert len(Store(tmp_path).finished()) == 1


def test_an_interrupted_force_does_not_promise_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[Interruption] = []
    few = ("--algo", "fedavg", "--rounds", "2", "--executor", "inline", "-q", "--out", str(tmp_path))
    assert sweep.main([*few]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(Interruption, "arm", lambda self: raised.append(self))
        settle = Run.settle
        patch.setattr(Run, "settle", lambda self: (raised[0].stop("a test"), settle(self)))
        assert sweep.main([*few, "--force"]) == 130
    said = capsys.readouterr().err
    assert "goes on from there" not in said
    assert "interrupted: with --force the same command begins anew; without, it goes on with the runs that are" in said
    assert sweep.main([*few]) == 0
    assert "1 run, 1 already stored, 0 to do" in capsys.readouterr().err


def test_what_comes_when_all_trials_have_ended_interrupts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A time budget may run out, and a signal come, while Ray shuts down."""

    def shut_down() -> None:
        interruption.stop("time budget of 5 s spent")
        assert not capsys.readouterr().err
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(cluster, "start", lambda resources: None)
    monkeypatch.setattr(cluster, "concurrent", lambda resources: 1)
    monkeypatch.setattr(cluster, "_run_trials", lambda *given: None)
    monkeypatch.setattr(cluster.ray, "shutdown", shut_down)
    plan = make_plan(Request(("fedavg",)))
    with Interruption(tmp_path, Quiet()) as interruption:
        given = Execution(str(tmp_path)), runner.Resources(), Events(), runner.Outcome(), interruption
        cluster.run_ray(plan, [list(plan.units)], *given)
        assert not interruption.raised
        assert not interruption.path.exists()
    assert "all trials have ended and are stored" in capsys.readouterr().err


def test_the_first_signal_after_a_spent_budget_does_not_kill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, Interruption(tmp_path, Quiet()) as interruption:
        interruption.stop("time budget of 1 s spent")
        assert "finished and saved; Ctrl-C twice kills\n" in capsys.readouterr().err
        patch.setattr(signal, "raise_signal", lambda _: pytest.fail("killed by the first signal"))
        os.kill(os.getpid(), signal.SIGINT)
        assert (
            "stopping (SIGINT): rounds in hand are finished and saved; once more to kill\n" in capsys.readouterr().err
        )
        assert interruption.path.exists()
