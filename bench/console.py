"""What all commands share at the terminal: how they are called, problems on stderr, tables on stdout."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from bench.errors import EXIT_ENVIRONMENT, EXIT_OK, EXIT_USAGE, EnvironmentProblem, UsageError

if TYPE_CHECKING:
    from rich.console import Console


class Parser(argparse.ArgumentParser):
    """The options of a command: an option's name is written out, and what is wrong is said in a line (exit 2)."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False, **given})

    def error(self, message: str) -> NoReturn:
        """As argparse words it, with the nearest option for one that does not exist, and where all of them are."""
        self.exit(EXIT_USAGE, f"error: {message}{self._nearest(message)}; `{self.prog} --help` shows the options\n")

    def _nearest(self, message: str) -> str:
        from difflib import get_close_matches

        start, _, words = message.partition("unrecognized arguments: ")
        wrong = next((word.split("=")[0] for word in words.split() if word.startswith("-")), "")
        near = get_close_matches(wrong, self._known(), n=1) if wrong and not start else []
        return f" (did you mean {near[0]}?)" if near else ""

    def _known(self) -> list[str]:
        """Its options, and those of its sub-commands."""
        groups = [action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        below = [parser for group in groups for parser in group.values()]
        return [*self._option_string_actions, *(option for parser in below for option in parser._known())]


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
