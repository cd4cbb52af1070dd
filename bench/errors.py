"""Errors reported instead of a traceback, each kind with its exit status; and where in an algorithm it was."""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Collection
from pathlib import Path

BENCH = Path(__file__).resolve().parent
ALGORITHMS = BENCH.parent / "algorithms"

STDLIB = Path(sysconfig.get_paths()["stdlib"]).resolve()
LIBRARIES = {"torch", "torchvision", "functorch", "numpy", "scipy", "pandas", "ray", "transformers", "optuna"}
LONGEST = 600  # characters of an error that is told in a line

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_ENVIRONMENT = 3
EXIT_INTERRUPTED = 130


class UsageError(ValueError):
    """The request is wrong: an unknown name, a value out of range, a combination that cannot be (exit 2)."""


class EnvironmentProblem(RuntimeError):
    """The machine is not ready: data missing or altered, a folder not writable, no space (exit 3)."""


class UnusableState(EnvironmentProblem):
    """A run's saved state is damaged or of another version: that run cannot go on, others can."""


class Slower(UserWarning):
    """Something slower runs than was to: uncaptured, in another way, of fewer clients or run by run."""


class Waiting(UserWarning):
    """Nothing goes on, because of what another process does."""


def in_a_line(error: BaseException) -> str:
    """Return an error's text in one line; a long one, such as a compiler's, is cut."""
    said = " ".join(str(error).split())
    return said if len(said) <= LONGEST else f"{said[:LONGEST]} …"


def with_its_kind(error: BaseException) -> str:
    """`ValueError: what it says`, in one line."""
    return f"{type(error).__name__}: {in_a_line(error)}"


def describe(error: BaseException) -> str:
    """Describe an error in a line: type, message, and place, in the algorithm if it came through one."""
    first = error.__cause__ or error
    ended = traceback.extract_tb(first.__traceback__)[-1:]
    line = own_line(error) or next(iter(ended), None)
    place = f" ({Path(line.filename).name}:{line.lineno})" if line else ""
    return f"{type(first).__name__}: {in_a_line(error)}{place}"


def of_hook(error: Exception, message: Collection[str], memory: Collection[str]) -> str:
    """Return the text of an error in a client's hook: of a missing key, with the keys that `message` and `memory` have.

    What PyTorch does not support is no error of PyTorch, to which its text asks to report it.
    """
    if isinstance(error, KeyError):
        received, kept = (", ".join(map(repr, names)) or "nothing" for names in (message, memory))
        return f"{error} is missing (the message has {received}; the client's memory {kept})"
    return re.sub(r"(We don't support that yet, )?[Pp]lease file an issue at \S+\s*\.?", "", str(error)).strip()


def without_variables(error: Exception) -> Exception:
    """Drop the frame locals of an error and its causes before it is stored."""
    for link in chain(error, contexts=True):
        traceback.clear_frames(link.__traceback__)
    return error


def own_line(error: BaseException) -> traceback.FrameSummary | None:
    """The innermost line of an algorithm that an error or its causes came through; None if there is none.

    Of an algorithm from elsewhere its own line, not that of a helper in `algorithms` which it called.
    """

    def of_algorithm(file: Path) -> bool:
        packages = [file.parts[at + 1] for at, part in enumerate(file.parts[:-1]) if part == "site-packages"]
        of_python = STDLIB in file.parents and not packages
        return file.is_file() and BENCH not in file.parents and not of_python and not LIBRARIES & {*packages}

    frames = [frame for link in chain(error) for frame in traceback.extract_tb(link.__traceback__)]
    inner = [frame for frame in reversed(frames) if of_algorithm(Path(frame.filename))]
    return min(inner, key=lambda frame: ALGORITHMS in Path(frame.filename).parents, default=None)


def chain(error: BaseException, contexts: bool = False) -> list[BaseException]:
    """The error and its causes, and if asked for their `contexts`, the first cause last; each once."""
    links, waiting = dict[int, BaseException](), [error]
    while waiting:
        link = waiting.pop()
        if id(link) not in links:
            links[id(link)] = link
            further = [link.__context__ if contexts else None, link.__cause__]
            waiting += [other for other in further if other is not None]
    return list(links.values())
