"""What all commands share at the terminal: problems on stderr, tables on stdout."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from bench.errors import EXIT_ENVIRONMENT, EXIT_OK, EXIT_USAGE, EnvironmentProblem, UsageError

if TYPE_CHECKING:
    from rich.console import Console


def report_problem(error: BaseException, status: int, verbose: bool = False) -> int:
    """Say it on stderr without a traceback, unless that was asked for; returns `status`."""
    if verbose:
        traceback.print_exception(error)
    sys.stderr.write(f"error: {error}\n")
    return status


def exit_status(action: Callable[[], int | None]) -> int:
    """What a command that works on stored results ends with: what it says, or 0; 2 and 3 for what stops it.

    Args:
        action: the command; its problems are said on stderr without a traceback.
    """
    from leaderboards import StoreError

    try:
        return action() or EXIT_OK
    except UsageError as error:
        return report_problem(error, EXIT_USAGE)
    except (EnvironmentProblem, StoreError, OSError) as error:
        return report_problem(error, EXIT_ENVIRONMENT)


def console(width: int | None = None) -> Console:
    """A console on stdout: styled on a terminal, plain text elsewhere, never cut off there."""
    from rich.console import Console

    if width is None and not sys.stdout.isatty():
        width = 160
    return Console(width=width, highlight=False, soft_wrap=False)
