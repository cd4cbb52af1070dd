"""Around the trials of a sweep: its stop file, time budget, leftovers, and order."""

from __future__ import annotations

import builtins
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.errors import EnvironmentProblem, Slower
from bench.execution import Execution
from bench.executors import runner, trials
from bench.executors.progress import Events, Quiet
from bench.executors.runner import RAY_ENVIRONMENT, ray_environment, remove_leftovers, run_plan
from bench.executors.trials import Interruption, divert_warnings, evaluated_round, scheduled
from bench.planning.options import SweepOptions
from bench.planning.planner import make_plan
from search_spaces import Setting

PLAN = make_plan(SweepOptions(("fedavg",)))
TRIALS = [[run_spec] for run_spec in PLAN.run_specs]


# The stop file


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The signals that reach handlers of before; an echo is one for 0.05 seconds."""
    monkeypatch.setattr(trials, "ECHO_SECONDS", 0.05)
    signals: list[int] = []
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, lambda number, _: signals.append(number))
    yield signals
    for number, handler in before.items():
        signal.signal(number, handler)


ROUNDS = "current rounds are finished and saved, or given up if their evaluation takes long"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_makes_the_stop_file(
    number: signal.Signals, received: list[int], tmp_path: Path
) -> None:
    said: list[str] = []
    interruption = Interruption(tmp_path, said.append)
    assert not interruption.raised
    with interruption:
        assert not interruption.path.exists()
        signal.raise_signal(number)
        assert interruption.path.exists()
        if number == signal.SIGTERM:
            signal.raise_signal(number)
    assert interruption.raised
    assert said == [f"stopping ({number.name}): {ROUNDS}; once more to kill"]
    assert received == []
    assert list((tmp_path / "state").iterdir()) == []
    signal.raise_signal(number)
    assert received == [number], "the handler of before is back"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_kills(
    number: signal.Signals, received: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[tuple[int, bool]] = []
    with Interruption(tmp_path, lambda _: None) as interruption:
        signal.raise_signal(number)
        time.sleep(0.06)

        def kill(number: int) -> None:
            killed.append((number, interruption.path.exists()))

        monkeypatch.setattr(trials.signal, "raise_signal", kill)
        os.kill(os.getpid(), signal.SIGINT)
        assert killed == [(signal.SIGINT, False)]
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL


class Clock:
    """A clock that is set by hand, and that keeps what is slept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 50.0
        self.slept: list[float] = []
        monkeypatch.setattr(trials.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(trials.time, "sleep", self.slept.append)


@pytest.mark.parametrize(("after", "slept"), [(0.25, 0.75), (3.0, 0.0)])
def test_an_end_waits_for_the_echo(
    after: float,
    slept: float,
    received: list[int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setattr(trials, "ECHO_SECONDS", 1.0)
    with Interruption(tmp_path, lambda _: None):
        signal.raise_signal(signal.SIGTERM)
        clock.now += after
    assert (clock.slept, received) == ([slept], [])


def test_an_echo_ends_in_time(
    received: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop file may be gone by then."""
    clock = Clock(monkeypatch)
    monkeypatch.setattr(trials, "ECHO_SECONDS", 1.0)
    killed: list[int] = []
    with Interruption(tmp_path, lambda _: None) as interruption:
        signal.raise_signal(signal.SIGTERM)
        monkeypatch.setattr(trials.signal, "raise_signal", killed.append)
        for seconds, kills in ((0.5, 0), (0.5, 1)):
            clock.now += seconds
            interruption._handle(signal.SIGTERM, None)
            assert len(killed) == kills
            interruption.path.unlink(missing_ok=True)
        interruption._handle(signal.SIGTERM, None)


def test_a_stop_without_signal_says_why(tmp_path: Path) -> None:
    said: list[str] = []
    interruption = Interruption(tmp_path, said.append)
    interruption.stop("a reason")
    assert said == [f"stopping (a reason): {ROUNDS}; Ctrl-C twice kills"]
    assert interruption.raised
    assert interruption.path.parent == tmp_path / "state"
    assert interruption.path.name.startswith(".stop-")


def test_a_thread_leaves_signals_alone(received: list[int], tmp_path: Path) -> None:
    handlers: list[Any] = []

    def enter() -> None:
        with Interruption(tmp_path, lambda _: None):
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    before = signal.getsignal(signal.SIGINT)
    thread.start()
    thread.join()
    assert handlers == [before]


# Plans


class Executed:
    """An executor that keeps what it is given and does something."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, action: Any = None) -> None:
        self.executions: list[Execution] = []
        self.stopping: list[bool] = []
        self.action = action
        monkeypatch.setattr(runner, "import_executor", lambda name: self)

    def __call__(self, plan: Any, given: Any, execution: Execution, events: Events) -> None:
        assert (plan, given) == (PLAN, TRIALS)
        self.executions.append(execution)
        if self.action:
            self.action(execution)
        self.stopping.append(execution.stopping)


def wait_until_stopping(execution: Execution) -> None:
    end = time.monotonic() + 10
    while not execution.stopping and time.monotonic() < end:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("budget", "action", "stops"),
    [
        (None, None, False),
        (30.0, None, False),
        (0.0, None, True),
        (0.02, wait_until_stopping, True),
    ],
)
def test_a_time_budget_stops_a_plan(
    budget: float | None,
    action: Any,
    stops: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    executed = Executed(monkeypatch, action)
    execution = Execution(out=str(tmp_path), time_budget=budget)
    before = threading.active_count()
    events = run_plan(PLAN, TRIALS, execution, Quiet())
    assert executed.stopping == [stops]
    assert events.interrupted == stops
    said = capsys.readouterr().err
    assert said.startswith(f"stopping (time budget of {budget or 0:g} s spent): ") == stops
    assert bool(said) == stops
    end = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() == before, "the timer is cancelled"


def test_a_plan_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(execution: Execution) -> None:
        Path(str(execution.notice_file)).write_text("said")

    executed = Executed(monkeypatch, write)
    display = Quiet()
    old = tmp_path / "state" / ".said-old"
    old.parent.mkdir()
    old.touch()
    os.utime(old, (0, 0))
    for observers in ((), (Quiet(),)):
        run_plan(PLAN, TRIALS, Execution(out=str(tmp_path)), display, observers)
        assert list((tmp_path / "state").iterdir()) == []
    first, second = executed.executions
    assert (first.report_curves, second.report_curves) == (False, True)
    assert first.notice_file != second.notice_file
    assert Path(str(first.stop_file)).name.startswith(".stop-")


def test_warnings_of_the_suite_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import warnings

    def warn(execution: Execution) -> None:
        warnings.showwarning("a\n b", Slower, "file", 1)

    Executed(monkeypatch, warn)
    run_plan(PLAN, TRIALS, Execution(out=str(tmp_path)), Quiet())
    assert capsys.readouterr().err == "warning: a b\n"


def test_other_warnings_are_shown_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    import warnings

    shown: list[tuple[Any, ...]] = []
    monkeypatch.setattr(warnings, "showwarning", lambda *given, **more: shown.append(given))
    said: list[str] = []
    divert_warnings(said.append)
    warnings.showwarning("x", DeprecationWarning, "file", 7)
    assert shown == [("x", DeprecationWarning, "file", 7)]
    assert said == []


DAY = 24 * 60 * 60


@pytest.mark.parametrize(("age", "stays"), [(DAY - 60, True), (DAY, True), (DAY + 1, False)])
def test_leftovers_stay_for_a_day(
    age: int, stays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder's age is that of its newest file."""
    now = int(time.time())
    monkeypatch.setattr(runner.time, "time", lambda: now)
    state = tmp_path / "state"
    (state / ".tune-a").mkdir(parents=True)
    kept = [state / "said-x", state / ".other-x", state / ".stop-"]
    old = [state / ".said-a", state / ".stop-b"]
    inner = state / ".tune-a" / "inner"
    for file in (*kept, *old, inner):
        file.touch()
    for path in state.iterdir():
        os.utime(path, (0, 0))
    when = now - age
    for path in (*old, inner):
        os.utime(path, (when, when))
    link = state / ".said-link"
    link.symlink_to(tmp_path)
    os.utime(link, (0, 0), follow_symlinks=False)
    remove_leftovers(tmp_path)
    left = {path.name for path in state.iterdir()}
    always = {"said-x", ".other-x", ".stop-", ".said-link"}
    assert left == always | ({".said-a", ".stop-b", ".tune-a"} if stays else set())


def test_rays_variables_are_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = RAY_ENVIRONMENT
    for name in others:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(first, "mine")
    with ray_environment():
        assert os.environ[first] == "mine"
        assert {name: os.environ[name] for name in others} == {
            name: RAY_ENVIRONMENT[name] for name in others
        }
    assert os.environ[first] == "mine"
    assert not set(others) & os.environ.keys()


def test_without_ray_there_is_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def lacking(name: str, *more: Any) -> Any:
        if name == "bench.executors.ray_executor":
            raise ImportError("no ray")
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", lacking)
    assert runner.import_executor("inline") is runner.run_inline
    with pytest.raises(EnvironmentProblem) as refused:
        runner.import_executor("ray")
    assert str(refused.value) == (
        "Ray cannot be imported: no ray; pip install 'ray[tune]'; a sweep works without it with "
        "--executor inline"
    )


# One after another


class Trials:
    """Runs of which some are claimed elsewhere for a while; the order in which they ran."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, busy: dict[int, int], last: int) -> None:
        self.order: list[tuple[int, bool]] = []
        self.busy = busy
        self.last = last
        monkeypatch.setattr("bench.trial.trial.claim", self.claim)
        monkeypatch.setattr(runner, "_run_trial", self.run)

    def claim(self, run_specs: Any, execution: Any) -> list[Any]:
        """Claim, unless it is claimed elsewhere so many more times."""
        seed = run_specs[0].seed
        self.busy[seed] = self.busy.get(seed, 0) - 1
        return [] if self.busy[seed] >= 0 else [run_specs]

    def run(self, named: Any, execution: Any, events: Any, claimed: Any = ()) -> dict[str, Any]:
        """Record a run; one of them ends the sweep."""
        seed = named.run_specs[0].seed
        self.order.append((seed, bool(claimed)))
        return {"ends_sweep": seed == self.last}


@pytest.mark.parametrize(
    ("busy", "last", "order"),
    [
        ({}, -1, [(0, True), (1, True), (2, True)]),
        ({0: 1}, -1, [(1, True), (2, True), (0, True)]),
        ({0: 9}, -1, [(1, True), (2, True), (0, False)]),
        ({0: 9, 1: 9, 2: 9}, -1, [(0, False), (1, False), (2, False)]),
        ({}, 1, [(0, True), (1, True)]),
    ],
)
def test_what_others_began_comes_last(
    busy: dict[int, int],
    last: int,
    order: list[tuple[int, bool]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    three = make_plan(SweepOptions(("fedavg",), seeds=3))
    ran = Trials(monkeypatch, busy, last)
    each = [[run_spec] for run_spec in three.run_specs]
    runner.run_inline(three, each, Execution(out=""), Events())
    assert ran.order == order


@pytest.mark.parametrize(
    ("statuses", "stop_after", "told"),
    [
        (["finished", "failed", "finished"], 9, [0.25, math.nan, 0.25]),
        (["finished", "finished", "finished"], 1, [0.25]),
        (["environment"], 9, []),
    ],
)
def test_a_sampler_hears_of_finished_trials(
    statuses: list[str],
    stop_after: int,
    told: list[float],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = {"mu": ("0", "1", "2")}
    plan = make_plan(SweepOptions(("fedprox",), values=values, search="optuna", seeds=2))
    heard: list[float] = []
    ran: list[Any] = []
    from bench.executors.optuna_search import Proposer

    tell = Proposer.tell

    def listen(self: Proposer, asked: Any, value: float) -> None:
        heard.append(value)
        tell(self, asked, value)

    def run(named: Any, execution: Any, events: Any) -> dict[str, Any]:
        ran.append(named)
        status = statuses[len(ran) - 1]
        if len(ran) == stop_after:
            (tmp_path / "stop").touch()
        return {"status": status, "ends_sweep": status == "environment", "objective": 0.25}

    monkeypatch.setattr(Proposer, "tell", listen)
    monkeypatch.setattr(runner, "_run_trial", run)
    execution = Execution(out=str(tmp_path), stop_file=str(tmp_path / "stop"))
    runner.run_inline(plan, [], execution, Events())
    assert heard == pytest.approx(told, nan_ok=True)
    assert [len(named.run_specs) for named in ran] == [2] * len(ran)
    assert ran[0].name.startswith("fedprox mu=")


# Schedulers


@pytest.mark.parametrize(
    ("rounds", "every", "parts", "at"),
    [(40, 1, 10, 4), (5, 1, 10, 1), (40, 3, 10, 6), (40, 10, 20, 10), (39, 1, 20, 1)],
)
def test_reports_are_at_evaluated_rounds(rounds: int, every: int, parts: int, at: int) -> None:
    setting = Setting(rounds=rounds, evaluate_every=every)
    assert evaluated_round(setting, parts) == at


def test_a_scheduler_changes_the_execution() -> None:
    execution = Execution(out="")
    setting = Setting(rounds=60)
    plain: Any = SimpleNamespace(options=SweepOptions())
    assert scheduled(plain, setting, execution) is execution
    asha: Any = SimpleNamespace(options=SweepOptions(scheduler="asha"))
    expected = replace(execution, keep_stopped=True, rounds_per_report=3)
    assert scheduled(asha, setting, execution) == expected
