"""Standard output and error as commands need them: what nobody reads, or what cannot be written, costs no result."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.errors import EnvironmentProblem


class UnreadError(Exception):
    """Whoever read standard output has had enough (`| head`): no failure, and nothing more to print."""


class _Stream:
    """A stream as it is, but for what a failed write does.

    Args:
        stream: what is written to.
        name: in words, to raise what went wrong; None where it is of no account, as for progress.
    """

    def __init__(self, stream: Any, name: str | None) -> None:
        self._stream, self._name = stream, name

    def write(self, text: str) -> int:
        """As files have it."""
        try:
            self._stream.write(text)
        except OSError as error:
            self._failed(error)
        return len(text)

    def flush(self) -> None:
        """As files have it."""
        try:
            self._stream.flush()
        except OSError as error:
            self._failed(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _failed(self, error: OSError) -> None:
        # Nothing more reaches it; what waits in buffers must not fail once more when the process ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        if self._name and isinstance(error, BrokenPipeError):
            raise UnreadError from None
        if self._name:
            why = error.strerror or error
            raise EnvironmentProblem(f"{self._name} cannot be written: {why}; send it to a file with room") from error


@contextmanager
def guarded() -> Iterator[None]:
    """Within it, standard error never fails, and standard output says why; closed ones are there again, unread.

    Raises:
        UnreadError: from a write to standard output, likewise:
        EnvironmentProblem: it cannot be written.
    """
    before = sys.stdout, sys.stderr
    sys.stdout = _Stream(before[0] or _nowhere(), "standard output")
    sys.stderr = _Stream(before[1] or _nowhere(), None)
    try:
        yield
        sys.stdout.flush()
    finally:
        sys.stdout, sys.stderr = (old or new for old, new in zip(before, (sys.stdout, sys.stderr), strict=True))


def _nowhere() -> Any:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 (as long as the process)
