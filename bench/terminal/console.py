"""The parts of a command at the terminal: options, notes, problems, tables, exit status.

Notes and problems are on stderr, tables on stdout.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, NoReturn

from bench.errors import (
    EXIT_ENVIRONMENT,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    EnvironmentProblem,
    UsageError,
    advice_on,
)

if TYPE_CHECKING:
    from rich.console import Console


NO_MEMORY = (
    "memory does not suffice: free some, read fewer folders at once, or use a larger machine"
)
_NEGATIVE_NUMBER = re.compile(r"-(\d|\.\d|inf$|nan$)")
_UNKNOWN = "unrecognized arguments: "  # argparse's words


class Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviated options and reports a mistake in a line (exit 2).

    `place` says where the words come from, if not from the command line; messages end with it.
    """

    place = ""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        options.setdefault("allow_abbrev", False)
        super().__init__(**options)
        # Values, not options: argparse knows neither -1e-3 nor -inf.
        self._negative_number_matcher = _NEGATIVE_NUMBER

    def error(self, message: str) -> NoReturn:
        """Exit with argparse's message, the nearest known option, and the way to see all."""
        text = f"{message}{self.place}{self._suggestion(message)}"
        self.exit(EXIT_USAGE, f"error: {text}; `{self.prog} --help` shows the options\n")

    def parse_known_args(self, *args: Any, **kwargs: Any) -> Any:
        """Parse as argparse does, but reject unknown words here.

        A sub-command's parser thus suggests its own options.
        """
        namespace, unknown = super().parse_known_args(*args, **kwargs)
        if unknown:
            self.error(f"{_UNKNOWN}{' '.join(unknown)}")
        return namespace, unknown

    def nearest(self, word: str) -> str:
        """Return what was probably meant by an unknown word; empty if nothing is near.

        A field of the setting, a hyper-parameter and `label` become a value of `--set` or
        `--where`, and an algorithm's name one of `--algo`, where the command has these options.
        """
        from difflib import get_close_matches

        from algorithms import ALGORITHMS, entry
        from search_spaces import setting_fields

        options = list(self._option_string_actions)
        if not word.startswith("-"):
            return f"--algo {word}" if word in ALGORITHMS and "--algo" in options else ""
        near = [name for name in options if name.startswith(word)]
        field = word.lstrip("-").replace("-", "_")
        fields = {*setting_fields(), "label"}
        for name in ALGORITHMS:
            fields |= entry(name).defaults().keys()
        if field in fields:
            takers = [name for name in ("--set", "--where") if name in options]
            near = [f"{name} {field}=VALUE" for name in takers]
        near = near or get_close_matches(word, options, cutoff=0.7)
        return near[0] if near else ""

    def _suggestion(self, message: str) -> str:
        if not message.startswith(_UNKNOWN):
            return ""
        words = message.removeprefix(_UNKNOWN).split()
        options = [word for word in words if word.startswith("-") and word.strip("-")]
        near = self.nearest((options or words)[0].split("=")[0])
        return f" (did you mean {near}?)" if near else ""


def report_problem(error: BaseException, status: int, verbose: bool = False) -> int:
    """Write an error to stderr, with its traceback if `verbose`; return `status`."""
    if verbose:
        traceback.print_exception(error)
    text = NO_MEMORY if isinstance(error, MemoryError) else str(error)
    if isinstance(error, OSError):
        text += advice_on(error)
    tell(f"error: {text}")
    return status


def say(*notes: str) -> None:
    """Write notes to stderr, a line each."""
    for note in notes:
        tell(f"note: {note}")


def tell(line: str) -> None:
    """Write a line to stderr without control characters, which names from files may contain."""
    from leaderboards.shell_text import printable  # `--version` does without

    sys.stderr.write(f"{printable(line)}\n")


class UnreadError(Exception):
    """The error that nobody reads standard output any more (`| head`).

    It is no failure of the command.
    """


class _Stream:
    """A stream whose failed writes raise `UnreadError` or `EnvironmentProblem`.

    Failed writes to a stream without a name raise nothing.
    """

    def __init__(self, stream: Any, name: str | None) -> None:
        self._stream = stream
        self._name = name

    def write(self, text: str) -> int:
        """Write, as files do."""
        try:
            self._stream.write(text)
        except OSError as error:
            self._failed(error)
        return len(text)

    def flush(self) -> None:
        """Flush, as files do."""
        try:
            self._stream.flush()
        except OSError as error:
            self._failed(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _failed(self, error: OSError) -> None:
        # The rest of the buffers must not fail again when the process ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        if self._name and isinstance(error, BrokenPipeError):
            raise UnreadError from None
        if self._name:
            why = error.strerror or error
            raise EnvironmentProblem(
                f"{self._name} cannot be written: {why}; send it to a file with room"
            ) from error


@contextmanager
def guarded() -> Iterator[None]:
    """Make writes to standard error never fail, and replace closed streams.

    A sweep outlives its output's readers.

    Raises:
        UnreadError: nobody reads standard output any more.
        EnvironmentProblem: standard output cannot be written.
    """
    standard_output = sys.stdout
    standard_error = sys.stderr
    if isinstance(sys.stdout, TextIOWrapper):
        # Characters such as α, in a locale that lacks them.
        sys.stdout.reconfigure(errors="replace")
    # Python has no streams in a process without a console; then the wrappers stay.
    sys.stdout = _Stream(standard_output or _nowhere(), "standard output")
    sys.stderr = _Stream(standard_error or _nowhere(), None)
    try:
        yield
        sys.stdout.flush()
    finally:
        sys.stdout = standard_output or sys.stdout
        sys.stderr = standard_error or sys.stderr


def _nowhere() -> Any:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 (as long as the process)


def exit_status(action: Callable[[], int | None], verbose: bool = False) -> int:
    """Run a command and return its exit status.

    It is the action's own status (None counts as 0), 2 or 3 after an error, or 130 after an
    interruption. Errors are written to stderr, if `verbose` with their tracebacks.
    """
    status = EXIT_OK
    try:
        with guarded():
            try:
                status = action() or EXIT_OK
            except UsageError as error:
                status = report_problem(error, EXIT_USAGE, verbose)
            except ModuleNotFoundError as error:
                status = report_problem(_lacking(error), EXIT_ENVIRONMENT, verbose)
            except _environment_errors() as error:
                status = report_problem(error, EXIT_ENVIRONMENT, verbose)
    except UnreadError:
        pass
    except EnvironmentProblem as error:  # of the last flush
        status = report_problem(error, EXIT_ENVIRONMENT, verbose)
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    return status


def _lacking(error: ModuleNotFoundError) -> EnvironmentProblem:
    """Return the problem of a Python that lacks a package, often not the suite's environment."""
    problem = EnvironmentProblem(
        f"{sys.executable} has no package {error.name}: activate the environment of the suite "
        "(`. .venv/bin/activate`), or install it there (`pip install -e .`)"
    )
    problem.__cause__ = error
    return problem


def _environment_errors() -> tuple[type[Exception], ...]:
    """Return the errors that end a command with 3.

    An earlier import of them would double the time of `--version`.
    """
    from leaderboards import StoreError

    return EnvironmentProblem, StoreError, OSError, MemoryError


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def console(width: int | None = None) -> Console:
    """Make a console on stdout: styled on a terminal, elsewhere plain text that is never cut."""
    from rich.console import Console

    if width is None and not sys.stdout.isatty():
        width = 160
    return Console(width=width, highlight=False, markup=False, emoji=False)
