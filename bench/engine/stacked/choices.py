"""Which program was found fastest for which work, in a file: what was once timed is not timed again."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

from bench.whole import whole_file


class Choices:
    """The fastest program by work; both in words.

    Runs of one folder compute alike, and a run that goes on after an interruption computes as it began: the file is
    its folder's, and its state says what it used.

    Args:
        path: the file, which other processes use, too; None for none.

    Attributes:
        used: the programs that this run has asked for, or that its state brought; the file is not asked for them again.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.used: dict[str, str] = {}
        self._path = path

    def get(self, work: str) -> str | None:
        """The program for this work; None if nobody has measured it."""
        if work not in self.used and work in (known := self._read()):
            self.used[work] = known[work]["fastest"]
        return self.used.get(work)

    def adopt(self, used: Mapping[str, str]) -> None:
        """Take what was used before, unless something else is used already."""
        self.used = {**used, **self.used}

    def put(self, work: str, seconds: Mapping[str, float]) -> str:
        """Keep what was measured, and say which program to take: that of whoever was first.

        Args:
            work: what was timed.
            seconds: a step, by program; infinite for what failed.
        """
        microseconds = {name: round(value * 1e6, 1) for name, value in seconds.items() if math.isfinite(value)}
        measured = {"fastest": min(seconds, key=lambda name: seconds[name]), "microseconds": microseconds}
        self.used[work] = self._written(work, measured, seconds)["fastest"]
        return self.used[work]

    def _written(self, work: str, measured: dict[str, Any], programs: Collection[str]) -> dict[str, Any]:
        """What the file says of this work from now on: what it said, if that is one of these programs."""
        if self._path is None:
            return measured
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self._path}.lock"):
                known = self._read()
                if known.get(work, {}).get("fastest") not in programs:
                    known[work] = measured
                _write(self._path, known)
        except OSError as problem:
            warnings.warn(f"{self._path} cannot be written, so others measure again: {problem}", stacklevel=2)
            return measured
        found: dict[str, Any] = known[work]
        return found

    def _read(self) -> dict[str, Any]:
        """What the file has; nothing if there is none, or one that nobody can read: it can be measured again."""
        try:
            found = json.loads(self._path.read_text()) if self._path else {}
        except (OSError, ValueError):
            return {}
        return {work: one for work, one in found.items() if _is_choice(one)} if isinstance(found, dict) else {}


class Always(Choices):
    """One program, whatever the work."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = program

    def get(self, work: str) -> str:
        """That program."""
        return self._program


def _is_choice(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("fastest"), str)


def _write(path: Path, known: Mapping[str, Any]) -> None:
    with whole_file(path) as file:
        file.write(f"{json.dumps(known, indent=1, sort_keys=True)}\n".encode())
