"""The live table of a sweep: what a person sees of it on terminals of several sizes, and that nothing stays behind."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from commands import ROOT, command
from rich.console import Console, ConsoleOptions
from rich.text import Text

from bench.planning.labels import Varied, varied_names
from bench.planning.plan import make_plan
from bench.planning.request import Request
from bench.planning.unit import Unit
from bench.terminal.foot import Foot
from bench.tuning import live
from bench.tuning.events import Events, Watched, watched
from bench.tuning.live import Live, Row, Table, laid_out
from bench.tuning.progress import Ahead, Plain, Quiet, ending
from leaderboards import Store

pyte = pytest.importorskip("pyte", reason="a terminal to look at is pyte: pip install fedkd-bench[dev]")

SWEEP = ("--algo", "fedavg,fedcad", "--set", "gamma=0.5", "beta=0.3,0.5", "--alpha", "0.1", "0.5")
# Every line that a sweep may leave or show on stderr; the rest of a line that was too long is none of them.
LINES = (
    r"\d+ runs, \d+ to do",
    r"finished, accuracy [\d.]+ %, best [\d.]+ %: (fedavg|fedcad) alpha=.*",
    r"━+ +\d+ %  0:\d\d:\d\d(, about \d+ (s|min) left)?",
    r"\d+/\d+ trials? done(, \d+ (failed|running|pending))*",
    r"best (validation|test) so far [\d.]+ %  (fedavg|fedcad).*",
    r"algorithm .*",
    r"(fedavg|fedcad) .*",
    r"interrupted: what was under way .*",
    r"interrupted, accuracy .*",
    r"stopping \(SIGINT\): .*",
    r"warning: .*",
)


class Terminal:
    """A command whose stderr is a terminal of some size.

    Attributes:
        frames: the screens that stood still for a moment, each its lines without the empty ones.
    """

    def __init__(self, *arguments: str, columns: int, lines: int = 24, **environment: str) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        known = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.sweep", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            cwd=ROOT,
            env={**known, "TERM": "xterm-256color", **environment},
            start_new_session=True,
        )
        os.close(theirs)
        self._file, self._columns = ours, columns
        self.screen = pyte.HistoryScreen(columns, lines, history=1000)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.frames: list[list[str]] = []

    def watch(self, until: Callable[[], bool] = lambda: False, seconds: float = 90) -> None:
        """Until the command ends, or something holds."""
        end = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < end, "\n".join(self.lines)
            if not select.select([self._file], [], [], 0.1)[0]:
                self.frames.append(self.lines)
                continue
            try:
                data = os.read(self._file, 65536)
            except OSError:  # what Linux gives at the end
                data = b""
            if not data:
                self.process.wait(timeout=30)
                os.close(self._file)
                return
            self.raw += data
            self._stream.feed(data)

    @property
    def lines(self) -> list[str]:
        """What stands on the screen."""
        return [line.rstrip() for line in self.screen.display if line.strip()]

    @property
    def everything(self) -> list[str]:
        """That, and what scrolled out of it."""
        scrolled = ["".join(line[at].data for at in range(self._columns)).rstrip() for line in self.screen.history.top]
        return [line for line in scrolled if line] + self.lines


def assert_whole(lines: list[str]) -> None:
    """No line is the rest of another."""
    for line in lines:
        assert any(re.fullmatch(known, line) for known in LINES), f"{line!r} in\n" + "\n".join(lines)


@pytest.mark.parametrize(("executor", "columns"), [("inline", 80), ("ray", 60)])
def test_a_sweep_on_a_terminal(executor: str, columns: int, tmp_path: Path) -> None:
    place = ("--executor", executor, "--max-concurrent", "2", "--out", str(tmp_path))
    shown = Terminal(*SWEEP, "--rounds", "20", "--local-epochs", "2", *place, columns=columns, lines=16)
    shown.watch()
    assert shown.process.returncode == 0, "\n".join(shown.everything)
    for frame in [*shown.frames, shown.everything]:
        assert_whole(frame)
    tables = [frame for frame in shown.frames if any(line.startswith("algorithm") for line in frame)]
    assert tables, "no frame with a table"
    head = next(line for line in tables[-1] if line.startswith("algorithm"))
    assert head.split()[:2] == ["algorithm", "α"]
    assert any(re.match(r"fed\w+ +0\.[15] .*\d+/20", line) for frame in tables for line in frame)
    assert any("running" in line for frame in tables for line in frame)
    assert any(line.startswith("best validation so far") for frame in tables for line in frame)

    final = shown.everything
    assert sum(line.startswith("finished, ") for line in final) == 6
    assert not any(line.startswith("algorithm") for line in final), "the table is gone"
    assert [line for line in final if "trials" in line] == ["6/6 trials done"]
    assert not shown.screen.cursor.hidden


def test_ctrl_c_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    shown = Terminal(*SWEEP, "--rounds", "400", "--executor", "inline", "--out", str(tmp_path), columns=80)
    shown.watch(until=lambda: any("/400" in line for line in shown.lines))
    assert not shown.screen.cursor.hidden, "a sweep that is killed can give nothing back"
    os.killpg(shown.process.pid, signal.SIGINT)
    shown.watch()
    assert shown.process.returncode == 130
    assert_whole(shown.everything)
    assert shown.lines[-1].startswith("interrupted: what was under way is saved")
    assert sum(line.startswith("interrupted, ") for line in shown.everything) == 1, "only of what had begun"
    assert not shown.screen.cursor.hidden


def test_warnings_scroll_above_the_table(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    place = ("--executor", "inline", "--out", str(tmp_path), "--log", "tensorboard")
    shown = Terminal(*SWEEP, "--rounds", "5", *place, columns=300)
    shown.watch()
    assert shown.process.returncode == 0
    assert_whole(shown.everything)
    lines = shown.everything
    warning = next(at for at, line in enumerate(lines) if line.startswith("warning: --log tensorboard failed"))
    assert warning < next(at for at, line in enumerate(lines) if "trials" in line)


def test_what_is_said_stands_there_to_the_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "KeyError: 'a:key:b' [bold]at C:100:x"
    screen = Screen(80, 4)
    monkeypatch.setattr(sys, "stderr", screen)
    foot = Foot(lambda width, height: [Text("below")], redraws_per_second=1e-3)
    foot.say(said)
    foot.close()
    assert [line.rstrip() for line in screen.lines if line.strip()] == [said, "below"]


class Screen(io.StringIO):
    """A terminal's stderr within this process."""

    def __init__(self, columns: int, lines: int) -> None:
        super().__init__()
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.Stream(self.screen)

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self._stream.feed(text.replace("\n", "\r\n"))
        return len(text)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display if line.strip()]


def test_a_redrawing_of_fewer_lines_takes_no_line_from_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(40, 16)
    for name, value in {"TERM": "xterm", "COLUMNS": "40", "LINES": "16"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stderr", screen)
    rows = ["below", "one", "two", "three"]
    foot = Foot(lambda width, height: [Text(row) for row in rows], redraws_per_second=1e-3)
    other = threading.Thread(target=foot.redraw)

    class Third:
        """Written when it is known that four lines stand below; meanwhile they become one."""

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[str]:
            del rows[1:]
            other.start()
            other.join(0.5)
            yield "third"

    lines: list[Any] = ["first", "second", Third()]
    for line in lines:
        foot.say(line)
    other.join()
    foot.close()
    assert screen.lines == ["first", "second", "third", "below"]


def test_elsewhere_there_are_plain_lines(tmp_path: Path) -> None:
    done = command(*SWEEP, "--rounds", "2", "--executor", "inline", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stderr + done.stdout
    assert "\r" not in done.stderr
    assert "6/6 trials" in done.stderr


@pytest.mark.parametrize("how", ["dumb", "quiet"])
def test_no_table_where_none_is_wanted(how: str, tmp_path: Path) -> None:
    arguments = ("--algo", "fedavg", "--rounds", "2", "--executor", "inline", "--out", str(tmp_path))
    quiet = ["--quiet"] if how == "quiet" else []
    shown = Terminal(*arguments, *quiet, columns=80, **({"TERM": "dumb"} if how == "dumb" else {}))
    shown.watch()
    assert shown.process.returncode == 0
    assert b"\x1b" not in shown.raw
    assert any("1/1 trial " in line for line in shown.lines) == (how == "dumb")
    assert len(Store(tmp_path).finished()) == 1


def trials(count: int, **values: str) -> list[Watched]:
    """Trials of FedCAD with one seed each."""
    given = {"gamma": ("0.5",), "beta": ("0.3",), **{name: (value,) for name, value in values.items()}}
    units = make_plan(Request(("fedcad",), values=given, seeds=count)).units
    varied = {"fedcad": Varied(("alpha", "lr"), ("beta", "gamma"))}
    return [watched([unit], varied) for unit in units]


def report(round: int, accuracy: float = 0.5, best: float = 0.625) -> dict[str, Any]:
    """A trial's report."""
    return {
        "round": round,
        "rounds_done": round,
        "rounds_before": 0,
        "accuracy": accuracy,
        "best_accuracy": best,
        "status": "running",
    }


def test_a_row_says_what_runs_and_how_far() -> None:
    (trial,) = trials(1, alpha="0.1", lr="0.05", rounds="20")
    table = Table()
    table.started(trial)
    assert [line.split() for line in table.lines(80, 10)] == [
        ["algorithm", "α", "configuration", "seed", "round", "accuracy", "best"],
        ["fedcad", "0.1", "lr=0.05", "beta=0.3", "gamma=0.5", "0", "0/20", "-", "-"],
    ]
    table.reported(trial, report(7))
    assert table.lines(80, 10)[1].split()[-3:] == ["7/20", "50.00", "62.50"]
    table.ended(trial, report(20))
    assert table.lines(80, 10) == []


@pytest.mark.parametrize(("height", "rows", "left_out"), [(10, 6, 0), (7, 6, 0), (6, 4, 2), (3, 1, 5), (-2, 1, 5)])
def test_a_table_fits_the_height(height: int, rows: int, left_out: int) -> None:
    table = Table()
    for trial in trials(6):
        table.started(trial)
    lines = table.lines(80, height)
    assert sum(line.startswith("fedcad") for line in lines) == rows
    assert lines[-1].startswith("fedcad") if not left_out else lines[-1] == f"… and {left_out} more"
    assert len(lines) <= max(3, height)


@pytest.mark.parametrize("width", [200, 80, 60, 40, 20, 1])
def test_lines_fit_the_width(width: int) -> None:
    table = Table()
    for trial in trials(3, alpha="0.1", lr="0.05"):
        table.reported(trial, report(1))
        table.reported(trial, report(2))
    lines = table.lines(width, 10)
    assert len(lines) == 4
    assert all(len(line) <= width for line in lines)
    if width >= 60:
        assert all("gamma=0.5" in line or "beta=" in line for line in lines[1:])
        assert all("2/" in line and "62.50" in line for line in lines[1:])
    assert ("left" in lines[0]) == (width >= 80)


def test_columns_line_up() -> None:
    rows = [{"a": "x", "configuration": "beta=0.3 gamma=0.5", "b": "1"}, {"a": "long", "configuration": "", "b": "22"}]
    assert list(laid_out(rows, ["a", "configuration", "b"], 80)) == [
        "a     configuration       b",
        "x     beta=0.3 gamma=0.5  1",
        "long                      22",
    ]
    assert list(laid_out(rows, ["a", "configuration", "b"], 24)) == [
        "a     configuration   b",
        "x     beta=0.3 gamm…  1",
        "long                  22",
    ]


def test_the_time_left_of_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    (trial,) = trials(1, rounds="20")
    row = Row(trial)
    assert row.cells()["left"] == ""
    row.update(report(4))
    assert row.cells()["left"] == "", "what came before the first report is start-up"
    now[0] = 110.0
    row.update(report(9))
    assert row.seconds_left == pytest.approx(22)  # 2 s a round, 11 rounds
    now[0] = 115.0
    assert row.seconds_left == pytest.approx(17), "it runs down between reports"
    now[0] = 200.0
    assert row.seconds_left == 0


def test_seeds_of_one_trial_share_a_row() -> None:
    units = make_plan(Request(("fedavg",), seeds=3)).units
    table = Table()
    table.started(watched(units, {}))
    assert table.lines(80, 10)[1].split()[:2] == ["fedavg", "0-2"]


def pack_of(seeds: int, **values: tuple[str, ...]) -> tuple[Unit, ...]:
    """Runs of FedCAD, all that are given."""
    return make_plan(Request(("fedcad",), values={"gamma": ("0.5",), **values}, seeds=seeds)).units


def test_a_pack_says_what_its_runs_have_in_common_and_in_what_they_differ() -> None:
    units = pack_of(2, beta=("0.1", "0.3"), alpha=("0.1", "0.5"))
    packed = [unit for unit in units if unit.setting.alpha == 0.1]
    table = Table()
    table.started(watched(packed, varied_names(units)))
    assert [line.split() for line in table.lines(80, 10)] == [
        ["algorithm", "α", "configuration", "seed", "round", "accuracy", "best"],
        ["fedcad", "0.1", "4", "runs", "beta=0.1,0.3", "0-1", f"0/{units[0].setting.rounds}", "-", "-"],
    ]
    table.started(watched(units, varied_names(units)))
    assert table.lines(80, 10)[2].split()[:3] == ["fedcad", "0.1,0.5", "8"]


def test_packs_are_told_apart_by_what_is_in_them() -> None:
    units = pack_of(4, beta=("0.1", "0.2", "0.3", "0.4"))
    early, late = [[unit for unit in units if unit.seed // 2 == half] for half in (0, 1)]
    low = [unit for unit in units if unit.hyperparameters["beta"] in (0.1, 0.2) and unit.seed == 0]
    names = [watched(pack, varied_names(units)).name for pack in (early, late, low)]
    assert names == [
        "fedcad 8 runs (beta=0.1...0.4 seeds 0-1)",
        "fedcad 8 runs (beta=0.1...0.4 seeds 2-3)",
        "fedcad 2 runs of seed 0 (beta=0.1,0.2)",
    ]


def test_a_stopped_trial_says_when(capsys: pytest.CaptureFixture[str]) -> None:
    stopped, never, begun = [
        replace(trial, name=f"fedprox mu={mu}") for trial, mu in zip(trials(3), (15, 1, 2), strict=True)
    ]
    display = Plain(Ahead(3, 3.0, lambda _: 1.0))
    display.ended(stopped, {**report(2), "status": "stopped"})
    assert capsys.readouterr().err == "1/3 trials · stopped after 2 rounds: fedprox mu=15\n"
    display.ended(never, {"status": "interrupted"})
    assert not capsys.readouterr().err, "of trials that never began there may be hundreds"
    display.ended(begun, {**report(2), "status": "interrupted"})
    assert "interrupted: fedprox mu=2" in capsys.readouterr().err
    assert ending({"status": "stopped", "round": 1}) == "stopped after 1 round"
    assert ending({"status": "finished", "round": 20, "stopped": 0}) == "finished"
    assert ending({"status": "finished", "round": 20, "stopped": 3}) == "finished, 3 of its runs stopped early"


def test_trials_of_one_name_are_told_apart() -> None:
    class Named:
        needs_curves = False
        names: ClassVar[list[str]] = []

        def started(self, trial: Watched) -> None:
            self.names.append(trial.name)

        def reported(self, trial: Watched, report: Any) -> None: ...

        def ended(self, trial: Watched, report: Any) -> None:
            self.names.append(trial.name)

    observer = Named()
    events = Events(observer, Quiet())
    first, second = [replace(trial, name="fedcad 4 runs") for trial in trials(2)]
    events.started(first)
    events.started(second)
    events.ended(second, report(5))
    events.ended(first, report(5))
    assert observer.names == ["fedcad 4 runs", "fedcad 4 runs (2)", "fedcad 4 runs (2)", "fedcad 4 runs"]


def test_events_reach_displays_and_observers_alike() -> None:
    told: list[tuple[str, ...]] = []

    class Shown(Quiet):
        def reported(self, trial: Watched, report: Any) -> None:
            told.append(("reported", trial.name, f"{trial.share(report):.2f}"))

        def ended(self, trial: Watched, report: Any) -> None:
            told.append(("ended", trial.name))

    class Curious(Quiet):
        needs_curves = True

    (trial,) = trials(1, rounds="20")
    live = Live(Ahead(1, 1.0, lambda _: 1.0))
    events = Events(live, Shown())
    assert not events.needs_curves
    assert Events(live, Curious()).needs_curves
    events.started(trial)
    assert live.table.running == 1
    events.reported(trial, report(5))
    events.ended(trial, {"status": "failed"})
    live.close()
    assert told == [("reported", trial.name, "0.25"), ("ended", trial.name)]
    assert live.table.running == 0
    assert (live.tally.done, live.tally.failed) == (1, 1)
