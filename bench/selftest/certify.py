"""Runs the checks of one algorithm and says what came of each."""

from __future__ import annotations

import importlib
import time
import traceback
from collections.abc import Iterable, Mapping

from bench.selftest.candidate import Candidate
from bench.selftest.checks import CHECKS
from bench.selftest.outcome import (
    FAILED,
    NOT_APPLICABLE,
    PASSED,
    SAME_ERROR,
    Cause,
    Certificate,
    Finding,
    NotApplicable,
    Outcome,
    cause_of,
)


def certify(candidate: Candidate, checks: Iterable[str] = tuple(CHECKS), verbose: bool = False) -> Certificate:
    """All of these checks, whatever some of them find.

    Args:
        candidate: the algorithm.
        checks: names in `CHECKS`.
        verbose: tracebacks of errors among the problems.
    """
    told: dict[Cause, str] = {}
    outcomes = tuple(run_check(candidate, name, verbose, told) for name in checks)
    entry = candidate.entry
    return Certificate(candidate.name, entry.factory, entry.version, candidate.judged_as, outcomes)


def run_check(candidate: Candidate, name: str, verbose: bool = False, told: dict[Cause, str] | None = None) -> Outcome:
    """One check; an error inside it is a failure that names where it came from.

    Args:
        candidate: the algorithm.
        name: in `CHECKS`.
        verbose: tracebacks of errors among the problems.
        told: errors of the algorithm's own that checks before this one failed by, each with the first of them; they are
            not told again. Takes up those of this check.
    """
    check, began, finding = CHECKS[name], time.perf_counter(), Finding()
    try:
        with finding.case():
            importlib.import_module(f"bench.selftest.{check.module}").check(candidate, finding)
    except NotApplicable as reason:
        return Outcome(name, NOT_APPLICABLE, str(reason), seconds=time.perf_counter() - began)
    seconds, known = time.perf_counter() - began, dict(told or {})
    if told is not None:
        told |= {cause: name for cause in finding.causes.values() if cause not in told}
    problems, elsewhere = _news(finding, known, verbose)
    if problems:
        told_there = [f"and an error: {elsewhere}"] if elsewhere else []
        return Outcome(name, FAILED, finding.measured, (*problems, *told_there), check.look, seconds)
    if elsewhere:
        return Outcome(name, SAME_ERROR, elsewhere, seconds=seconds)
    return Outcome(name, PASSED, finding.measured, seconds=seconds)


def _news(finding: Finding, told: Mapping[Cause, str], verbose: bool) -> tuple[list[str], str]:
    """The problems that no check has told, with their tracebacks; and, if there are others, where they were told."""
    first = dict.fromkeys(told[cause] for cause in finding.causes.values() if cause in told)
    problems = [problem for problem in finding.problems if finding.causes.get(problem) not in told]
    if verbose:
        errors = [error for error in finding.errors if cause_of(error) not in told]
        problems += ["".join(traceback.format_exception(error)).rstrip() for error in errors]
    return problems, f"that of {' and '.join(first)}, told there" if first else ""
