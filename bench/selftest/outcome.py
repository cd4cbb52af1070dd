"""What a check finds, and what an algorithm's checks come to. Imports neither torch nor ray."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.errors import chain, own_line

PASSED, FAILED, SAME_ERROR, NOT_APPLICABLE = "passed", "failed", "same error", "not applicable"
_NUMBER = re.compile(r"\d+")

Cause = tuple[str, str, str, int | None]


@dataclass
class Finding:
    """What one check found out; it adds to this as it goes.

    Args:
        measured: the figure that shows it, such as `largest gap 3.1e-15 <= 1e-10`.
        problems: whatever is wrong, in plain words; none is a pass.
        errors: exceptions among them.
        causes: of the problems that are errors of the algorithm's own, equal for one error met on different ways.
    """

    measured: str = ""
    problems: list[str] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    causes: dict[str, Cause] = field(default_factory=dict)

    def expect(self, holds: bool, problem: str) -> None:
        """Note a problem unless it holds."""
        if not holds and problem not in self.problems:
            self.problems.append(problem)

    def failed(self, error: Exception, problem: str) -> None:
        """Note an error, in these words, as a problem."""
        self.errors.append(error)
        self.expect(False, problem)
        cause = cause_of(error)
        if cause:
            self.causes[problem] = cause

    @contextmanager
    def case(self, where: str = "") -> Iterator[None]:
        """One of several cases: an error in it is a problem, and the next case still runs."""
        try:
            yield
        except NotApplicable:
            raise
        except Exception as error:
            self.failed(error, f"{where}: {_told(error)}" if where else _told(error))


class NotApplicable(Exception):
    """A check that says nothing of this algorithm; the message says why."""


def cause_of(error: Exception) -> Cause | None:
    """What raised it first, its words without their numbers, and the algorithm's line; None if it has no part in it."""
    own, first = own_line(error), chain(error)[-1]
    return own and (type(first).__name__, _NUMBER.sub("#", str(first)), own.filename, own.lineno)


def _told(error: Exception) -> str:
    """The error, and the line of the algorithm that it came through."""
    own = own_line(error)
    place = f" ({Path(own.filename).name}, line {own.lineno})" if own else ""
    return f"{type(error).__name__}: {error}{place}"


@dataclass(frozen=True)
class Outcome:
    """One line of a certificate.

    Args:
        check: its name.
        status: `passed`, `failed`, `same error` or `not applicable`.
        measured: the figure; or why it is not applicable, or which check failed by the same error.
        problems: of a failure.
        look: where to look after a failure.
        seconds: that it took.
    """

    check: str
    status: str
    measured: str
    problems: tuple[str, ...] = ()
    look: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Certificate:
    """All outcomes of one algorithm.

    Args:
        algorithm: the name that was asked for.
        factory: `module:function`.
        version: of the registry's entry.
        judged_as: the built-in algorithm whose equations and limits it was held to, or None.
        outcomes: in the order of the checks.
    """

    algorithm: str
    factory: str
    version: int
    judged_as: str | None
    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(outcome.status != FAILED for outcome in self.outcomes)

    @property
    def seconds(self) -> float:
        """That all checks took."""
        return sum(outcome.seconds for outcome in self.outcomes)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "passed": self.passed, "seconds": self.seconds}
