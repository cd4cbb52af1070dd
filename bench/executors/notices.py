"""The suite's own warnings, said by the sweep: workers are processes whose stderr nobody reads."""

from __future__ import annotations

import os
import threading
import uuid
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from bench.errors import Slower, Waiting

OWN = (Slower, Waiting)
READ_SECONDS = 0.5


class Notices:
    """A context that says the suite's own warnings, each text once.

    Workers, which may be on other machines, add theirs to a file in the results folder (`pass_on`).

    Args:
        out: results folder.
        say: told each of them.
    """

    def __init__(self, out: Path, say: Callable[[str], None]) -> None:
        # A name of its own: several sweeps may write into one folder.
        self.path = out / "state" / f".said-{uuid.uuid4().hex[:8]}"
        self._say, self._said, self._read = say, set[str](), 0
        self._ended = threading.Event()
        self._before = warnings.showwarning
        self._reader = threading.Thread(target=self._read_again_and_again, name="notices", daemon=True)

    def __enter__(self) -> Notices:
        self._before = warnings.showwarning
        with suppress(OSError):  # a folder that nobody can write into ends the sweep elsewhere
            self.path.touch()
        _divert(self._tell)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._reader.join()
        warnings.showwarning = self._before
        with suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _tell(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(f"warning: {text}")

    def _read_again_and_again(self) -> None:
        ended = False
        while not ended:
            ended = self._ended.wait(READ_SECONDS)
            with suppress(OSError), self.path.open("rb") as file:
                file.seek(self._read)
                whole, newline, _ = file.read().rpartition(b"\n")
                self._read += len(whole + newline)
                for line in whole.decode(errors="replace").splitlines():
                    self._tell(line)


@lru_cache(maxsize=1)  # a worker takes on trial after trial
def pass_on(path: str) -> None:
    """Let this process add the suite's own warnings to a file from now on, a line each."""

    def add(text: str) -> None:
        # A worker that outlives the sweep on a cluster makes no new file.
        with suppress(OSError), os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb") as file:
            file.write(f"{' '.join(text.split())}\n".encode())

    _divert(add)


def _divert(tell: Callable[[str], None]) -> None:
    """Give the suite's own warnings to `tell`, and all others to the function that shows them now."""
    before = warnings.showwarning

    def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, OWN):
            tell(str(message))
        else:
            before(message, category, *place, **more)

    warnings.showwarning = show
