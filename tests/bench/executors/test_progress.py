"""The progress of a sweep on a terminal, elsewhere, and where none is wanted."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import ROOT

from bench.executors.progress import Live
from bench.sweep import command as sweep

pyte = pytest.importorskip(
    "pyte", reason="a terminal to look at is pyte: pip install fedkd-bench[dev]"
)

SWEEP = ("--algo", "fedavg,fedcad", "--set", "gamma=0.5", "beta=0.3", "--executor", "inline")


class Terminal:
    """A command whose stderr is a terminal.

    Attributes:
        frames: the screens that stood still for a moment, each its lines without the empty ones.
    """

    def __init__(self, *arguments: str, columns: int = 80, **environment: str) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in ("COLUMNS", "LINES", "NO_COLOR")
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.sweep", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            cwd=ROOT,
            env={**kept, "TERM": "xterm-256color", **environment},
            start_new_session=True,
        )
        os.close(theirs)
        self._file = ours
        self.screen = pyte.Screen(columns, 24)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.frames: list[list[str]] = []

    def watch(self, until: Callable[[], bool] = lambda: False) -> None:
        """Until the command ends, or something holds."""
        end = time.monotonic() + 90
        while not until():
            assert time.monotonic() < end, "\n".join(self.lines)
            if not select.select([self._file], [], [], 0.1)[0]:
                self.frames.append(self.lines)
                continue
            try:
                data = os.read(self._file, 65536)
            except OSError:  # the end, on Linux
                data = b""
            if not data:
                self.process.wait(timeout=30)
                os.close(self._file)
                return
            self.raw += data
            self._stream.feed(data)

    @property
    def lines(self) -> list[str]:
        """The lines on the screen."""
        return [line.rstrip() for line in self.screen.display if line.strip()]


def test_a_sweep_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    shown = Terminal(
        *SWEEP, "--rounds", "60", "--log", "tensorboard", "--out", str(tmp_path), columns=100
    )
    shown.watch()
    assert shown.process.returncode == 0, "\n".join(shown.lines)
    running = [line for frame in shown.frames for line in frame if line.startswith("fed")]
    assert any("/60" in line and "%" in line for line in running), shown.frames
    assert sum(line.startswith("finished, ") for line in shown.lines) == 2
    assert not any(line.startswith("fed") for line in shown.lines), "bars of trials are gone"
    assert shown.lines[-1].startswith("2/2 trials")
    assert any("--log tensorboard" in line for line in shown.lines[:-1]), "a warning scrolls above"
    assert not shown.screen.cursor.hidden


def test_ctrl_c_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    shown = Terminal(*SWEEP, "--rounds", "400", "--out", str(tmp_path))
    shown.watch(until=lambda: any("/400" in line for line in shown.lines))
    assert not shown.screen.cursor.hidden, "a killed sweep can give nothing back"
    os.killpg(shown.process.pid, signal.SIGINT)
    shown.watch()
    assert shown.process.returncode == 130
    assert sum(line.startswith("interrupted, ") for line in shown.lines) == 1, (
        "only of the trial that had begun"
    )
    assert not shown.screen.cursor.hidden


@pytest.mark.parametrize("quiet", [False, True])
def test_no_bars_where_none_are_wanted(
    quiet: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "--algo",
        "fedavg",
        "--rounds",
        "2",
        "--executor",
        "inline",
        "--out",
        str(tmp_path),
    ]
    assert sweep.main([*arguments, *["--quiet"] * quiet]) == 0
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert ("1/1 trial " in said) == (not quiet)


def test_lines_are_shown_to_the_letter(capsys: pytest.CaptureFixture[str]) -> None:
    live = Live(1, 1.0)
    live.say("KeyError: 'a:key:b' [bold]at C:100:x " + 200 * "x")
    live.close()
    assert "KeyError: 'a:key:b' [bold]at C:100:x " + 200 * "x" + "\n" in capsys.readouterr().err
