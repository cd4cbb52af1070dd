"""Check `equations`: what each algorithm computes, against the printed formulas written anew.

A comparison sees an algorithm through the hooks of the contract alone. It drives rounds (`run.py`) in a laboratory
whose every number is known (`lab.py`), and compares losses, gradients, broadcast and evaluated models with plain tensor
arithmetic in float64 (`formulas.py`), which shares no code with `algorithms/` but the contract's types.

Each module here may have `CHECKS` and `LIMITS`, by registered name: `CHECKS["fedprox"][0].gap(make)` for a factory
`make(**hyperparameters)`.
"""

from __future__ import annotations

import importlib
import pkgutil

from bench.selftest.candidate import Candidate
from bench.selftest.certify import Finding, NotApplicable
from bench.selftest.equations.checks import TOLERANCE, Check, Limit
from bench.selftest.equations.run import Make

CHECKS: dict[str, tuple[Check, ...]] = {}
LIMITS: dict[str, tuple[Limit, ...]] = {}
for _name in sorted(module.name for module in pkgutil.iter_modules(__path__, f"{__name__}.")):
    _module = importlib.import_module(_name)
    for _algorithm, _checks in getattr(_module, "CHECKS", {}).items():
        CHECKS[_algorithm] = CHECKS.get(_algorithm, ()) + _checks
    LIMITS |= getattr(_module, "LIMITS", {})


def equations(candidate: Candidate, finding: Finding) -> None:
    """Make every comparison that is written for the algorithm; raises NotApplicable for one not in the registry."""
    if not candidate.built_in:
        raise NotApplicable("no paper of this suite prints it")
    largest, checks = 0.0, CHECKS.get(candidate.entry.name, ())
    for check in checks:
        where = f"{check.title} ({check.source})"
        with finding.case(where):
            apart = check.gap(candidate.build)
            largest = max(largest, apart)
            finding.expect(apart <= TOLERANCE, f"{where}: differs by {apart:.1e} > {TOLERANCE:g}")
    finding.expect(bool(checks), "no formula is written for it")
    finding.measured = f"largest gap {largest:.1e} <= {TOLERANCE:g}; {len(checks)} compared"


__all__ = ["CHECKS", "LIMITS", "TOLERANCE", "Check", "Limit", "Make", "equations"]
