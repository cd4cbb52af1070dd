"""The checks of an algorithm, and the certificate of their outcomes. Imports neither torch nor ray by itself."""

from __future__ import annotations

import importlib
import re
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bench.errors import chain, describe, own_line

if TYPE_CHECKING:
    from bench.selftest.candidate import Candidate

PASSED, FAILED, SAME_ERROR, NOT_APPLICABLE = "passed", "failed", "same error", "not applicable"
Cause = tuple[str, str, str, int | None]


@dataclass(frozen=True)
class Check:
    """A property that every algorithm must have.

    Args:
        module: of this package; its function of the check's name is called with the candidate and a finding.
        summary: what holds.
        look: where to look when it does not.
    """

    module: str
    summary: str
    look: str


CHECKS = {
    "contract": Check(
        "contract",
        "the dataclass and every hook are what the contract says",
        "algorithms/base.py, which describes each hook, and the algorithm's fields",
    ),
    "backends": Check(
        "runs",
        "clients one by one and stacked give the same models and the same traffic",
        "the pure hooks (before_step, local_loss, upload): no draws, no `if` or `.item()` on data, no state",
    ),
    "reductions": Check(
        "runs",
        "at its limits it is another algorithm, bit for bit where the arithmetic is the same",
        "what is added when its weight is 0: a term that is not multiplied by it, a draw that moves the data",
    ),
    "resume": Check(
        "runs",
        "two rounds, a save and two rounds more equal four rounds bit for bit",
        "state outside server.extra and memories, or draws from anything but `generator` and fed.stream(...)",
    ),
    "learns": Check(
        "runs",
        "it beats guessing clearly on a toy problem, and stays finite",
        "the sign and the size of each term of the loss, and the server's step",
    ),
    "communication": Check(
        "communication",
        "messages, uploads and gradient requests are what `about` states, round by round",
        "`down` and `up` of `about`; tensors sent twice as copies, where one object would travel once",
    ),
    "hyperparameters": Check(
        "hyperparameters",
        "each one changes the result, and values out of range are refused in plain words",
        "whether the field is read at all, and its bounds in `hyper(...)`",
    ),
    "memory": Check(
        "communication",
        "what is kept and sent is bounded and holds nobody's data",
        "server.extra and what `upload` returns",
    ),
    "equations": Check(
        "equations",
        "losses, gradients and server steps equal the printed formulas, written anew",
        "the formula's source, named with each difference",
    ),
}
# In a second or two: hooks and draws, state that is not saved. What fails these gives no result to be trusted.
QUICK = ("contract", "resume")


@dataclass
class Finding:
    """Problems and the figure of one check.

    Args:
        measured: the figure, such as `largest gap 3.1e-15 <= 1e-10`.
        problems: in plain words; none is a pass.
        errors: the exceptions among them, by the problem's words.
    """

    measured: str = ""
    problems: list[str] = field(default_factory=list)
    errors: dict[str, Exception] = field(default_factory=dict)

    def expect(self, holds: bool, problem: str) -> None:
        """Note a problem unless it holds."""
        if not holds and problem not in self.problems:
            self.problems.append(problem)

    def failed(self, error: Exception, problem: str) -> None:
        """Note an error, in these words, as a problem."""
        self.errors.setdefault(problem, error)
        self.expect(False, problem)

    @contextmanager
    def case(self, where: str = "") -> Iterator[None]:
        """Note an error in one of several cases as a problem, so that the next case still runs."""
        try:
            yield
        except NotApplicable:
            raise
        except Exception as error:
            self.failed(error, f"{where}{': ' * bool(where)}{describe(error)}")


class NotApplicable(Exception):
    """A check that says nothing of this algorithm; the message says why."""


def cause_of(error: Exception) -> Cause | None:
    """The first error's type, its words without their numbers, and the algorithm's line; None if it has no part in it.

    One error that is met on different ways has one cause.
    """
    line, first = own_line(error), chain(error)[-1]
    return line and (type(first).__name__, re.sub(r"\d+", "#", str(first)), line.filename, line.lineno)


@dataclass(frozen=True)
class Outcome:
    """One line of a certificate.

    `measured` is the figure, or why the check is not applicable, or which check failed by the same error.
    """

    check: str
    status: str
    measured: str
    problems: tuple[str, ...] = ()
    look: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Certificate:
    """All outcomes of one algorithm; `judged_as` is the built-in one whose equations and limits it was held to."""

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


def certify(candidate: Candidate, checks: Iterable[str] = tuple(CHECKS), verbose: bool = False) -> Certificate:
    """Run all of these checks, whatever some of them find; `verbose` adds the errors' tracebacks to the problems."""
    told: dict[Cause, str] = {}
    outcomes = tuple(run_check(candidate, name, verbose, told) for name in checks)
    entry = candidate.entry
    return Certificate(candidate.name, entry.factory, entry.version, candidate.judged_as, outcomes)


def run_check(candidate: Candidate, name: str, verbose: bool = False, told: dict[Cause, str] | None = None) -> Outcome:
    """Run one check; an error inside it is a failure that names where it came from.

    Args:
        candidate: the algorithm.
        name: in `CHECKS`.
        verbose: tracebacks of errors among the problems.
        told: causes of errors, each with the first check that failed by it, which alone tells it. Takes up those of
            this check.
    """
    began, finding, told = time.perf_counter(), Finding(), {} if told is None else told
    try:
        with finding.case():
            getattr(importlib.import_module(f"bench.selftest.{CHECKS[name].module}"), name)(candidate, finding)
    except NotApplicable as reason:
        return Outcome(name, NOT_APPLICABLE, str(reason), seconds=time.perf_counter() - began)
    seconds = time.perf_counter() - began
    causes = {problem: cause for problem, error in finding.errors.items() if (cause := cause_of(error))}
    again = {problem: told[cause] for problem, cause in causes.items() if cause in told}
    for cause in causes.values():
        told.setdefault(cause, name)
    elsewhere = f"that of {' and '.join(dict.fromkeys(again.values()))}, told there" if again else ""
    problems = [problem for problem in finding.problems if problem not in again]
    if not problems:
        status = SAME_ERROR if again else PASSED
        return Outcome(name, status, elsewhere or finding.measured, seconds=seconds)
    if verbose:
        errors = [error for problem, error in finding.errors.items() if problem not in again]
        problems += ["".join(traceback.format_exception(error)).rstrip() for error in errors]
    problems += [f"and an error: {elsewhere}"] if elsewhere else []
    return Outcome(name, FAILED, finding.measured, tuple(problems), CHECKS[name].look, seconds)
