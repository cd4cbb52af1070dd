"""Runs the checks of one algorithm and says what came of each."""

from __future__ import annotations

import importlib
import time
import traceback
from collections.abc import Iterable

from bench.selftest.candidate import Candidate
from bench.selftest.checks import CHECKS
from bench.selftest.outcome import FAILED, NOT_APPLICABLE, PASSED, Certificate, Finding, NotApplicable, Outcome


def certify(candidate: Candidate, checks: Iterable[str] = tuple(CHECKS), verbose: bool = False) -> Certificate:
    """All of these checks, whatever some of them find.

    Args:
        candidate: the algorithm.
        checks: names in `CHECKS`.
        verbose: tracebacks of errors among the problems.
    """
    outcomes = tuple(run_check(candidate, name, verbose) for name in checks)
    entry = candidate.entry
    return Certificate(candidate.name, entry.factory, entry.version, candidate.judged_as, outcomes)


def run_check(candidate: Candidate, name: str, verbose: bool = False) -> Outcome:
    """One check; an error inside it is a failure that names where it came from."""
    check, began, finding = CHECKS[name], time.perf_counter(), Finding()
    try:
        with finding.case():
            importlib.import_module(f"bench.selftest.{check.module}").check(candidate, finding)
    except NotApplicable as reason:
        return Outcome(name, NOT_APPLICABLE, str(reason), seconds=time.perf_counter() - began)
    problems = tuple(finding.problems)
    if verbose:
        problems += tuple("".join(traceback.format_exception(error)).rstrip() for error in finding.errors)
    seconds = time.perf_counter() - began
    if problems:
        return Outcome(name, FAILED, finding.measured, problems, check.look, seconds)
    return Outcome(name, PASSED, finding.measured, seconds=seconds)
