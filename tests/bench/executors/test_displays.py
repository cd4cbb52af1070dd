"""Displays of a sweep without a terminal: their lines, bars and counts, and how a sweep ended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.execution import Execution
from bench.executors import progress
from bench.executors.progress import (
    Events,
    Live,
    Observer,
    Plain,
    Quiet,
    Tally,
    Watched,
    ending,
    make_display,
    trouble,
    watched,
    work_of,
)
from bench.executors.runner import run_inline
from bench.planning.options import SweepOptions
from bench.planning.planner import make_plan
from bench.planning.trial_names import Varied
from leaderboards.shell_text import printable

(RUN,) = make_plan(SweepOptions(("fedavg",))).run_specs


def run(rounds: int, seed: int = 0) -> Any:
    """A run of so many rounds."""
    return replace(RUN, setting=replace(RUN.setting, rounds=rounds), seed=seed)


TRIAL = watched([run(10), run(30, 1)], {})
LONE = watched([run(10)], {"fedavg": Varied()})
WORK = work_of(TRIAL.run_specs)


def report(**values: Any) -> dict[str, Any]:
    """A report of ten of forty rounds."""
    running = {"status": "running", "round": 5, "rounds_done": 10, "accuracy": 0.5}
    return running | values


def test_a_trial_has_rounds_and_a_share() -> None:
    assert TRIAL.rounds == 30
    assert TRIAL.key == run(10).key
    assert TRIAL.share(report()) == 0.25
    assert LONE.name == "fedavg seed 0"
    assert LONE.share({"rounds_done": 10}) == 1.0


# How trials ended


@pytest.mark.parametrize(
    ("statuses", "interrupted", "status"),
    [
        ([], False, 0),
        (["finished", "stopped"], False, 0),
        (["finished", "failed"], False, 1),
        (["failed", "interrupted"], False, 130),
        (["failed"], True, 130),
        (["environment", "interrupted"], True, 3),
    ],
)
def test_the_worst_end_decides(statuses: list[str], interrupted: bool, status: int) -> None:
    events = Events()
    events.interrupted = interrupted
    for each in statuses:
        events.note({"status": each})
    assert events.exit_status == status
    assert (events.problems, events.tracebacks) == ([], [])


class Recorder(Observer):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, Any]] = []

    def started(self, trial: Watched) -> None:
        self.told.append(("started", trial.name, None))

    def reported(self, trial: Watched, report: Mapping[str, Any]) -> None:
        self.told.append(("reported", trial.name, report))

    def ended(self, trial: Watched, report: Mapping[str, Any]) -> None:
        self.told.append(("ended", trial.name, report))


def test_events_reach_every_observer() -> None:
    both = (Recorder(), Recorder())
    events = Events(both)
    failed = {"status": "failed", "error": "e", "traceback": "t"}
    events.started(LONE)
    events.reported(LONE, report())
    events.ended(LONE, failed)
    name = "fedavg seed 0"
    told = [("started", name, None), ("reported", name, report()), ("ended", name, failed)]
    assert [observer.told for observer in both] == [told, told]
    assert (events.statuses, events.problems, events.tracebacks) == (["failed"], ["e"], ["t"])
    events.note({})
    assert events.statuses == ["failed", "finished"]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        (
            {"status": "finished", "best_accuracy": 0.625},
            "finished, accuracy 50.00 %, best 62.50 %",
        ),
        ({"status": "finished", "accuracy": math.nan, "best_accuracy": None}, "finished"),
        ({"status": "environment"}, "some of its runs cannot continue, accuracy 50.00 %"),
        ({"status": "interrupted"}, "interrupted, accuracy 50.00 %"),
    ],
)
def test_an_end_is_a_line(values: dict[str, Any], line: str) -> None:
    assert ending(LONE, report(**values)) == f"{line}: fedavg seed 0"
    assert trouble(LONE, report(**values)) == ""


def test_what_never_began_has_no_line() -> None:
    for status in ("interrupted", "environment"):
        assert ending(LONE, {"status": status, "round": 0}) == ""
        assert ending(LONE, {"status": status}) == ""
    assert ending(LONE, {"status": "stopped"}) == "stopped: fedavg seed 0"


def test_trouble_is_told_first() -> None:
    failed = {"status": "failed", "error": "no memory", "diverged": "x"}
    assert trouble(LONE, failed) == ending(LONE, failed) == "failed: fedavg seed 0: no memory"
    diverged = {"status": "finished", "diverged": "round 3"}
    assert ending(LONE, diverged) == "diverged: fedavg seed 0: round 3"


# Counts and time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which a test sets."""
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_time_left_is_at_the_pace(clock: list[float]) -> None:
    tally = Tally(2, 2 * WORK)
    assert math.isnan(tally.seconds_left)
    tally.reported(TRIAL, report())
    assert tally.fraction == pytest.approx(0.125)
    assert math.isnan(tally.seconds_left)
    assert tally.line("news") == "0/2 trials · news"
    clock[0] += 60
    tally.reported(TRIAL, report(rounds_done=20))
    # An eighth of the work in 60 s, and six eighths left.
    assert tally.seconds_left == pytest.approx(360)
    assert tally.line("news") == "0/2 trials, about 6 min left · news"
    almost = Tally(1, WORK)
    for seconds, rounds in ((0, 0), (100, 39.9), (0, 40)):
        clock[0] += seconds
        almost.reported(TRIAL, report(rounds_done=rounds))
        assert (", about " in almost.line("news")) == (rounds == 39.9)


def test_ends_are_counted(clock: list[float]) -> None:
    tally = Tally(2, 2 * WORK)
    tally.ended(TRIAL, {"status": "interrupted"})
    assert (tally.fraction, tally.counts()) == (0.0, "0/2 trials")
    tally.ended(TRIAL, {"status": "failed"})
    assert (tally.fraction, tally.counts()) == (0.5, "1/2 trials, 1 failed")
    tally.ended(LONE, {"status": "finished"})
    assert tally.counts() == "2/2 trials, 1 failed"
    assert Tally(1, 0.0).fraction == 1.0
    most = Tally(1, WORK / 2)
    most.ended(TRIAL, {})
    assert most.fraction == 1.0


# Displays


def test_plain_lines_come_every_ten_seconds(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    plain = Plain(2, 2 * WORK)
    for seconds in (9.9, 0.2, 9.7, 0.3):
        clock[0] += seconds
        plain.reported(TRIAL, report(round=int(clock[0])))
    name = TRIAL.name
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"0/2 trials · {name} round 1010", f"0/2 trials · {name} round 1020"]
    clock[0] += 9
    plain.ended(TRIAL, report(status="finished"))
    plain.ended(LONE, {"status": "interrupted"})
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("1/2 trials, about ")
    assert line.endswith(f" · finished, accuracy 50.00 %: {name}")
    clock[0] += 9.9
    plain.reported(LONE, report())
    assert capsys.readouterr().err == "", "the last line is a while ago at ten seconds"


def test_quiet_tells_trouble_alone(capsys: pytest.CaptureFixture[str]) -> None:
    quiet = Quiet()
    quiet.started(LONE)
    quiet.reported(LONE, report())
    quiet.ended(LONE, report(status="finished"))
    quiet.close()
    assert capsys.readouterr().err == ""
    quiet.ended(LONE, {"status": "failed", "error": "no\x1b memory"})
    text = printable("failed: fedavg seed 0: no\x1b memory")
    assert capsys.readouterr().err == f"{text}\n"


def test_bars_follow_reports(capsys: pytest.CaptureFixture[str]) -> None:
    live = Live(2, 2 * WORK)
    try:
        (sweep,) = live._progress.tasks
        assert (sweep.description, sweep.total, sweep.completed) == ("starting", 1.0, 0)
        assert sweep.fields == {"round": "", "accuracy": ""}
        live.started(TRIAL)
        bar = live._progress.tasks[1]
        assert (bar.description, bar.total, bar.completed) == (TRIAL.name, 1.0, 0)
        assert bar.fields == {"round": "", "accuracy": ""}
        live.reported(TRIAL, report())
        assert (bar.completed, bar.fields) == (0.25, {"round": "5/30", "accuracy": "50.00 %"})
        assert (sweep.description, sweep.completed) == ("0/2 trials", 0.125)
        live.ended(TRIAL, report(status="finished"))
        assert (sweep.description, sweep.completed) == ("1/2 trials", 0.5)
        assert live._progress.tasks == [sweep]
        live.ended(LONE, {"status": "interrupted"})
        assert sweep.description == "1/2 trials"
        assert live._progress.live.is_started
    finally:
        live.close()
    assert not live._progress.live.is_started
    said = capsys.readouterr().err
    assert f"finished, accuracy 50.00 %: {TRIAL.name}" in said
    assert "interrupted" not in said


@pytest.mark.parametrize(
    ("quiet", "terminal", "term", "kind"),
    [
        (True, True, "xterm", Quiet),
        (False, False, "xterm", Plain),
        (False, True, "dumb", Plain),
        (False, True, "unknown", Plain),
        (False, True, "xterm", Live),
    ],
)
def test_a_terminal_has_bars(
    quiet: bool, terminal: bool, term: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    display = make_display(1, 1.0, quiet)
    display.close()
    assert type(display) is kind


def test_a_trial_is_told_from_start_to_end(tmp_path: Path) -> None:
    values = {"rounds": ("2",), "num_clients": ("2",)}
    plan = make_plan(SweepOptions(("fedavg",), "digits", values=values))
    observer = Recorder()
    run_inline(plan, [plan.run_specs], Execution(out=str(tmp_path)), Events([observer]))
    kinds = [kind for kind, _, _ in observer.told]
    assert (kinds[0], kinds[-1]) == ("started", "ended")
    assert set(kinds[1:-1]) == {"reported"}
