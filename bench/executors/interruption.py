"""The gentle end of a sweep, by a signal or when its time is spent."""

from __future__ import annotations

import signal
import threading
import time
import uuid
from pathlib import Path
from types import FrameType
from typing import Any

from bench.executors.events import Display

ECHO_SECONDS = 1.0  # `timeout` sends SIGTERM to its command, and then to the whole group, which that is in as well


class Interruption:
    """Ends a sweep gently by a file that trials, which are processes of their own, look for after each round.

    As a context it lets the first SIGINT or SIGTERM make the file, and a second one kill; of SIGTERM only a later one.
    """

    def __init__(self, out: Path, display: Display) -> None:
        folder = out / "state"
        folder.mkdir(parents=True, exist_ok=True)
        # A name of its own: several sweeps may write into one folder.
        self.path = folder / f".stop-{uuid.uuid4().hex[:8]}"
        self.raised = False
        self._signalled: float | None = None
        self._display = display
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        self.arm()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self.path.unlink(missing_ok=True)

    def arm(self) -> None:
        """Take the signals; again after a library that takes them for itself has started."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before.setdefault(number, signal.getsignal(number))
            signal.signal(number, self._handle)

    def stop(self, why: str) -> None:
        """Make the file: the sweep ends as interrupted."""
        self.raised = True
        self.path.touch()
        killing = "Ctrl-C twice kills" if self._signalled is None else "once more to kill"
        self._display.say(f"stopping ({why}): rounds in hand are finished and saved; {killing}")

    def _handle(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self._signalled is not None:
            if number == signal.SIGTERM and now - self._signalled < ECHO_SECONDS:
                return
            self.path.unlink(missing_ok=True)
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self._signalled = now
        self.stop(signal.Signals(number).name)
