"""Check `resume`: two rounds, a save, and two rounds more are four rounds, bit for bit."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from bench.engine.state import StateFolder
from bench.selftest.candidate import Candidate, Values
from bench.selftest.certify import Finding
from bench.selftest.toy import identical, largest_gap

FIELDS: dict[str, Any] = {"precision": "fp32", "model": "mlp+bn"}


def check(candidate: Candidate, finding: Finding) -> None:
    """Both backends, and every choice among the algorithm's own forms."""
    runs = 0
    for backend, values in [("loop", {}), ("stacked", {}), *(("loop", other) for other in candidate.other_choices())]:
        where = ", ".join([backend, *(f"{name}={value}" for name, value in values.items())])
        with finding.case(where):
            _compare(candidate, finding, where, backend, values)
        runs += 1
    finding.measured = f"{runs} cases" if finding.problems else f"2 + 2 rounds equal 4 bit for bit, {runs} cases"


def _compare(candidate: Candidate, finding: Finding, where: str, backend: str, values: Values) -> None:
    whole = candidate.run(4, backend, values, **FIELDS)
    with tempfile.TemporaryDirectory() as path:
        folder = StateFolder(Path(path))
        first = candidate.simulate(backend, values, folder=folder, **FIELDS)
        first.advance(2)
        first.save()
        second = candidate.simulate("auto", values, folder=folder, **FIELDS)
        finding.expect(second.load() and second.backend == backend, "the state was not found, or not its backend")
        second.advance(2)
    if not identical(whole, second):
        gap = largest_gap(whole, second)
        finding.expect(False, f"2 + 2 rounds differ from 4 ({where}): models by {gap:.1e}")
