"""What all commands share at the terminal: problems on stderr, tables on stdout."""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def report_problem(error: BaseException, status: int, verbose: bool = False) -> int:
    """Say it on stderr without a traceback, unless that was asked for; returns `status`."""
    if verbose:
        traceback.print_exception(error)
    sys.stderr.write(f"error: {error}\n")
    return status


def console(width: int | None = None) -> Console:
    """A console on stdout: styled on a terminal, plain text elsewhere, never cut off there."""
    from rich.console import Console

    if width is None and not sys.stdout.isatty():
        width = 160
    return Console(width=width, highlight=False, soft_wrap=False)
