"""Pushes to the mirror, while runs go on."""

from __future__ import annotations

import threading
from contextlib import suppress

from bench.mirror.mirror import PATIENCE, Mirror
from bench.mirror.place import await_thread, gist
from bench.terminal.console import say
from leaderboards.commands import shell_command

EVERY_SECONDS = 60.0


class Pusher:
    """Pushes in a thread of its own while runs go on; a problem is said once, and the push tried again later.

    Args:
        mirror: what is pushed.
        replace: as of `Mirror.push`.
    """

    def __init__(self, mirror: Mirror, replace: bool = False) -> None:
        self._mirror, self._replace = mirror, replace
        self._problem = ""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name="mirror")
        self._thread.start()

    def finish(self) -> None:
        """Push the rest, and say what could not be pushed."""
        self._ending.set()
        try:
            if not await_thread(self._thread, lambda: self._mirror.place.silent, PATIENCE):
                self._problem = f"no answer for {PATIENCE:g} s"
        except KeyboardInterrupt:
            self._problem = "interrupted"
        if self._problem:
            say(f"not mirrored: {self._left()} ({self._problem}); {_again(self._mirror)}")

    def _work(self) -> None:
        while not self._ending.wait(EVERY_SECONDS):
            known = self._problem
            self._push()
            if self._problem and not known:
                say(f"{self._problem}; runs go on, and it is tried again every {EVERY_SECONDS:g} s")
        self._push()
        if not self._problem:
            with suppress(Exception):  # tidiness can wait for the next push
                self._mirror.tidy()

    def _push(self) -> None:
        try:
            self._mirror.push(self._replace)
            self._problem = ""
        except Exception as error:  # no run must end for its copy, whatever is wrong with that
            self._problem = gist(error)

    def _left(self) -> str:
        try:
            return str(self._mirror.pending())
        except Exception as error:  # the folder itself cannot be read: that is said elsewhere
            return gist(error)


def _again(mirror: Mirror) -> str:
    command = shell_command("bench.boards", "push", mirror.place.url, mirror.out)
    return f"everything is in {mirror.out}; the same command, or `{command}`, pushes it"
