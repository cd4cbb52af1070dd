"""Which program was found fastest for which work, in a file: what was once timed is not timed again."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock


class Choices:
    """The fastest program by work; both in words.

    Runs of one folder compute alike, and a run that goes on after an interruption computes as it began: the file is
    its folder's, and its state says what it used.

    Args:
        path: the file, which other processes use, too; None keeps them in memory.

    Attributes:
        used: the programs that were asked for.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.used: dict[str, str] = {}
        self._path = path
        self._known: dict[str, Any] = {}

    def get(self, work: str) -> str | None:
        """The program for this work; None if nobody has measured it."""
        if work not in self._known:
            self._known = self._read() | self._known
        return self._use(work) if work in self._known else None

    def adopt(self, used: Mapping[str, str]) -> None:
        """Take what was used before, whatever the file says."""
        self._known |= {work: {"fastest": program} for work, program in used.items()}
        self.used |= used

    def put(self, work: str, seconds: Mapping[str, float]) -> str:
        """Keep what was measured, and say which program to take: that of whoever was first.

        Args:
            work: what was timed.
            seconds: a step, by program; infinite for what failed.
        """
        microseconds = {name: round(value * 1e6, 1) for name, value in seconds.items() if math.isfinite(value)}
        measured = {"fastest": min(seconds, key=lambda name: seconds[name]), "microseconds": microseconds}
        if self._path is None:
            self._known.setdefault(work, measured)
            return self._use(work)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{self._path}.lock"):
            self._known = {work: measured} | self._known | self._read()
            _write(self._path, self._known)
        return self._use(work)

    def _use(self, work: str) -> str:
        self.used[work] = self._known[work]["fastest"]
        return self.used[work]

    def _read(self) -> dict[str, Any]:
        """What the file has; nothing if there is none, or one that nobody can read: it can be measured again."""
        try:
            found = json.loads(self._path.read_text()) if self._path else {}
        except (OSError, ValueError):
            return {}
        return {work: one for work, one in found.items() if _is_choice(one)} if isinstance(found, dict) else {}


@lru_cache
def choices_in(path: Path) -> Choices:
    """Those of a file, the same for all runs of a process: one program serves several."""
    return Choices(path)


def _is_choice(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("fastest"), str)


def _write(path: Path, known: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    made = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    made.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    made.replace(path)
