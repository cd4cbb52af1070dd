"""Errors reported instead of a traceback, their exit status, and their line in an algorithm."""

from __future__ import annotations

import errno
import re
import sysconfig
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

BENCH = Path(__file__).resolve().parent
ALGORITHMS = BENCH.parent / "algorithms"

STDLIB = Path(sysconfig.get_paths()["stdlib"]).resolve()
LIBRARIES = {
    "torch",
    "torchvision",
    "functorch",
    "numpy",
    "scipy",
    "pandas",
    "ray",
    "transformers",
    "optuna",
}
LONGEST = 600  # characters of an error in one line

# Parts of messages by which torch says that cuDNN has no kernel for a convolution.
NO_KERNEL = ("unable to find an engine", "Unable to find a valid cuDNN algorithm")
_PLACE = re.compile(r"\(\S+:\d+\)$")
_REQUEST = re.compile(r"(We don't support that yet, )?[Pp]lease file an issue at \S+\s*\.?")
OTHER_KERNELS = (
    "cuDNN has no kernel for this convolution, or no memory for its workspace: try another "
    "--precision, a smaller --pack, or --backend loop"
)

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_ENVIRONMENT = 3
EXIT_INTERRUPTED = 130


def advice_on(error: OSError) -> str:
    """Return what to do about some errors of the system; empty for others."""
    if isinstance(error, FileNotFoundError) and error.filename is None:
        return "; if the working folder was deleted, change to another one"
    if isinstance(error, PermissionError):
        return "; ask for the right to it, or name another place"
    if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP):
        return (
            "; this disk has no file locks: name a folder on another one with --out, "
            "and a copy here with --mirror"
        )
    return ""


class UsageError(ValueError):
    """A wrong request: an unknown name, a bad value, an impossible combination (exit 2)."""


@contextmanager
def refusing_values(place: str = "") -> Iterator[None]:
    """Raise a ValueError of the context as a UsageError, with `place`, the value's origin."""
    try:
        yield
    except ValueError as error:
        raise UsageError(f"{error}{place}") from None


class Unfit(UsageError):
    """Some algorithms of a command cannot run in its setting, and others can.

    Args:
        needs: by name, what each of these algorithms needs and does not get.
        others: the algorithms that can run.
    """

    def __init__(self, needs: Mapping[str, str], others: Sequence[str]) -> None:
        names: dict[str, list[str]] = {}
        for name, need in needs.items():
            names.setdefault(need, []).append(name)
        texts = []
        for need, group in names.items():
            verb = "need" if len(group) > 1 else "needs"
            texts.append(f"{' and '.join(group)} {verb} {need}")
        them = "them" if len(needs) > 1 else "it"
        super().__init__(f"{'; '.join(texts)}: leave {them} out with --algo {','.join(others)}")
        self.needs = dict(needs)


class EnvironmentProblem(RuntimeError):
    """A machine that is not ready: data missing, a folder not writable, no space (exit 3)."""


class UnusableState(EnvironmentProblem):
    """A saved state that is damaged or of another version: its run cannot go on, others can."""


class Interrupted(RuntimeError):
    """A round given up, because the sweep is stopping: its run goes on from its last save."""


class Slower(UserWarning):
    """Warning of execution slower than planned: uncaptured, of fewer clients, or run by run."""


class Waiting(UserWarning):
    """Warning that this process waits for another one."""


def in_a_line(error: BaseException) -> str:
    """Return an error's text in one line; a long one, such as a compiler's, is cut."""
    text = " ".join(str(error).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} …"


def with_its_kind(error: BaseException) -> str:
    """Return an error's type and text in one line, such as `ValueError: unknown name`."""
    return f"{type(error).__name__}: {in_a_line(error)}"


def describe(error: BaseException) -> str:
    """Describe an error in a line: type, message, and place, an algorithm's if there is one.

    A message that ends with a place, as that of the self-test's monitor, has it already.
    """
    first = error.__cause__ or error
    text = f"{type(first).__name__}: {in_a_line(error)}"
    if _PLACE.search(text):
        return text
    last_frame = traceback.extract_tb(first.__traceback__)[-1:]
    line = own_line(error) or next(iter(last_frame), None)
    place = f" ({Path(line.filename).name}:{line.lineno})" if line else ""
    return f"{text}{place}"


def of_hook(error: Exception, message: Collection[str], memory: Collection[str]) -> str:
    """Return the text of an error in a client's hook.

    For a missing key it has the keys of `message` and `memory`. If cuDNN has no kernel, the text
    says what to try. PyTorch's request to report what it does not support is left out, because that
    is no bug of PyTorch.
    """
    text = str(error)
    if isinstance(error, KeyError) and error.args:
        text = str(error.args[0])  # str() of a KeyError quotes it
    if isinstance(error, KeyError) and " " not in text:  # a key, not a sentence
        received = ", ".join(map(repr, message)) or "nothing"
        stored = ", ".join(map(repr, memory)) or "nothing"
        return (
            f"{error} is missing (the message has {received}; the client's memory {stored}; local "
            "what `start` returns; batch.teacher what `teachers` returns)"
        )
    text = _REQUEST.sub("", text).strip()
    if any(part in text for part in NO_KERNEL):
        return f"{text} ({OTHER_KERNELS})"
    return text


def result_or_error(function: Callable[..., T], *arguments: Any) -> T | Exception:
    """Call a function; return its result, or the error that it raises.

    The error can be kept: neither it nor its causes hold the variables of the call.
    """
    try:
        return function(*arguments)
    except Exception as error:
        for link in chain(error, contexts=True):
            traceback.clear_frames(link.__traceback__)
        # Without the frame of this function, to which those below lead back.
        own_frame = error.__traceback__
        del function, arguments
        return error.with_traceback(own_frame.tb_next if own_frame else None)


def own_line(error: BaseException) -> traceback.FrameSummary | None:
    """Return the innermost line of an algorithm that an error or its causes came through.

    None if there is none. If an algorithm from outside called a helper in `algorithms`, its own
    line is returned.
    """
    frames: list[traceback.FrameSummary] = []
    for link in chain(error):
        frames += traceback.extract_tb(link.__traceback__)
    of_algorithms = [frame for frame in frames if _may_be_algorithm(Path(frame.filename))]
    from_outside = []
    for frame in of_algorithms:
        if ALGORITHMS not in Path(frame.filename).parents:
            from_outside.append(frame)
    innermost = (from_outside or of_algorithms)[-1:]
    return innermost[0] if innermost else None


def _may_be_algorithm(file: Path) -> bool:
    """Return whether a file is neither of `bench`, nor of Python, nor of a library."""
    packages = [package for folder, package in pairwise(file.parts) if folder == "site-packages"]
    in_stdlib = STDLIB in file.parents and not packages
    elsewhere = BENCH in file.parents or in_stdlib or LIBRARIES.intersection(packages)
    return file.is_file() and not elsewhere


def chain(error: BaseException, contexts: bool = False) -> list[BaseException]:
    """List the error and its causes, each once, the first cause last.

    With `contexts` it also has their contexts.
    """
    links = dict[int, BaseException]()
    waiting = [error]
    while waiting:
        link = waiting.pop()
        if id(link) not in links:
            links[id(link)] = link
            if contexts and link.__context__ is not None:
                waiting.append(link.__context__)
            if link.__cause__ is not None:
                waiting.append(link.__cause__)
    return list(links.values())
