"""The checks of an algorithm, and the certificate of their outcomes.

Imports neither torch nor ray by itself.
"""

from __future__ import annotations

import importlib
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from bench.errors import describe

if TYPE_CHECKING:
    from bench.selftest.candidate import Candidate

PASSED = "passed"
FAILED = "failed"
NOT_APPLICABLE = "not applicable"
# Check -> the module of this package whose function of that name is called with the candidate and a
# finding, and where to look when it fails.
CHECKS = {
    "contract": ("contract", "algorithms/base.py, which describes each hook"),
    "backends": (
        "whole_runs",
        "the pure hooks (before_step, local_loss, upload): "
        "no draws, no `if` or `.item()` on data, no state, no mean over a batch that counts "
        "padding (`masked_mean(values, batch.weight)`), no second derivative of BatchNorm in "
        "training; a server's step that jumps at rounding",
    ),
    "reductions": (
        "whole_runs",
        "what is added when its weight is 0: "
        "a term that is not multiplied by it, a draw that moves the data",
    ),
    "resume": (
        "whole_runs",
        "state outside server.extra and memories, "
        "or draws from anything but `generator` and fed.stream(...)",
    ),
    "learns": (
        "whole_runs",
        "the sign and the size of each term of the loss, and the server's step",
    ),
    "communication": (
        "communication",
        "`down` and `up` of `about`; "
        "tensors sent twice as copies, where one object would travel once",
    ),
    "hyperparameters": (
        "hyperparameters",
        "whether the field is read at all, and its bounds in `hyper(...)`",
    ),
    "memory": ("communication", "server.extra and what `upload` returns"),
    "unlike_models": (
        "unlike_models",
        "`by_model`, `fed.nets`, `cohort.groups`, which tell models apart",
    ),
    "equations": ("equations", "the formula's source, named with each difference"),
}
# Take a second or two: hooks and draws, unsaved state. The results of an algorithm that fails them
# cannot be trusted.
QUICK = ("contract", "resume")


@dataclass
class Finding:
    """The problems that one check finds, and its measurement."""

    measured: str = ""  # such as `largest gap 3.1e-15 <= 1e-10`
    problems: list[str] = field(default_factory=list)  # in plain words; empty if the check passed
    errors: list[Exception] = field(default_factory=list)  # the exceptions among the problems

    def expect(self, holds: bool, problem: str) -> None:
        """Record the problem unless `holds` is true."""
        if not holds and problem not in self.problems:
            self.problems.append(problem)

    @contextmanager
    def case(self, where: str = "") -> Iterator[None]:
        """Record an error raised inside the context as a problem: the next case still runs."""
        try:
            yield
        except NotApplicable:
            raise
        except Exception as error:
            self.errors.append(error)
            problem = describe(error)
            self.expect(False, f"{where}: {problem}" if where else problem)


def compared(value: float, bound: float) -> str:
    """Return a figure beside its bound: `3.1e-15 <= 1e-10`, or `2.0e-05 > 1e-10` if too large."""
    relation = "<=" if value <= bound else ">"
    return f"{value:.1e} {relation} {bound:.2g}"


def assignments(values: Mapping[str, Any]) -> str:
    """Return hyper-parameters or fields of a setting in print: `mu=0.5, model=mlp`."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


class NotApplicable(Exception):
    """An exception from a check that does not apply to the algorithm; its message says why."""


@dataclass(frozen=True)
class CheckOutcome:
    """One line of a certificate."""

    check: str
    status: str  # `PASSED`, `FAILED` or `NOT_APPLICABLE`
    measured: str  # the figure, or why the check is not applicable
    seconds: float
    problems: tuple[str, ...] = ()
    look: str = ""  # where to look when it failed
    raised: bool = False  # whether an error is among the problems


@dataclass(frozen=True)
class Certificate:
    """The outcomes of an algorithm's checks."""

    algorithm: str
    factory: str
    version: int
    outcomes: tuple[CheckOutcome, ...]

    @property
    def passed(self) -> bool:
        """Return whether no check failed."""
        return all(outcome.status != FAILED for outcome in self.outcomes)

    def as_dict(self) -> dict[str, Any]:
        """Return the certificate as a dictionary for JSON."""
        return {
            **asdict(self),
            "passed": self.passed,
            "seconds": sum(outcome.seconds for outcome in self.outcomes),
        }


def certify(
    candidate: Candidate, checks: Iterable[str] = tuple(CHECKS), verbose: bool = False
) -> Certificate:
    """Run these checks, even if some fail.

    Stop after an error in `contract`, which all others would raise too. `verbose` adds the errors'
    tracebacks to the problems.
    """
    outcomes: list[CheckOutcome] = []
    for name in checks:
        outcomes.append(run_check(candidate, name, verbose))
        if name == "contract" and outcomes[-1].raised:
            break
    entry = candidate.entry
    return Certificate(candidate.name, entry.factory, entry.version, tuple(outcomes))


def run_check(candidate: Candidate, name: str, verbose: bool = False) -> CheckOutcome:
    """Run one check of `CHECKS`.

    An error inside it is a failure whose problem names the error's origin.
    """
    began = time.perf_counter()
    finding = Finding()
    place, look = CHECKS[name]
    try:
        with finding.case():
            module = importlib.import_module(f"bench.selftest.{place}")
            check = getattr(module, name)
            check(candidate, finding)
    except NotApplicable as reason:
        return CheckOutcome(name, NOT_APPLICABLE, str(reason), time.perf_counter() - began)
    seconds = time.perf_counter() - began
    problems = finding.problems
    if not problems:
        return CheckOutcome(name, PASSED, finding.measured, seconds)
    if verbose:
        for error in finding.errors:
            problems.append("".join(traceback.format_exception(error)).rstrip())
    raised = bool(finding.errors)
    if name == "contract" and raised:
        look += "; no further checks run after an error here"
    return CheckOutcome(name, FAILED, finding.measured, seconds, tuple(problems), look, raised)
