"""Check `equations`: the algorithm, seen through its hooks alone, computes what its paper prints."""

from __future__ import annotations

from functools import partial
from typing import Any

from algorithms.base import Algorithm
from bench.selftest.candidate import Candidate
from bench.selftest.outcome import Finding, NotApplicable


def check(candidate: Candidate, finding: Finding) -> None:
    """Every comparison that is written for the built-in algorithm it is held to.

    Raises:
        NotApplicable: an algorithm from outside that is held to none.
    """
    from bench.selftest.equations import CHECKS, TOLERANCE

    if candidate.judged_as is None:
        raise NotApplicable("no paper of this suite prints it; --as NAME takes a built-in's formulas")
    largest, compared, lacking = 0.0, 0, set[str]()
    for item in CHECKS.get(candidate.judged_as, ()):
        asked = set[str]()
        outcome = item.outcome(partial(_make, candidate, asked))
        if missing := candidate.lacks(asked):
            lacking |= missing
            continue
        compared, largest = compared + 1, max(largest, outcome.gap)
        found = outcome.reason or f"differs by {outcome.gap:.1e} > {TOLERANCE:g}"
        finding.expect(outcome.passed, f"{item.title} ({item.source}): {found}")
    finding.expect(bool(compared), f"nothing could be compared with {candidate.judged_as}")
    left_out = f"; left out what asks for {', '.join(sorted(lacking))}" if lacking else ""
    finding.measured = f"largest gap {largest:.1e} <= {TOLERANCE:g}; {compared} compared{left_out}"


def _make(candidate: Candidate, asked: set[str], **hyperparameters: Any) -> Algorithm:
    """The algorithm; `asked` keeps the names that a comparison asks for."""
    asked.update(hyperparameters)
    return candidate.build(**hyperparameters)
