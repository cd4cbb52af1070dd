"""The `equations` check: each algorithm's numbers against the printed formulas.

The formulas are implemented a second time. A comparison drives rounds by the hooks of the contract
(`lab_run.py`), in a laboratory in which every number is known (`lab.py`). It compares losses,
gradients, broadcast and evaluated models, and the prototypes and generators that an algorithm
keeps, with plain tensor arithmetic in float64 (`formulas.py`), which shares no code with
`algorithms/` but the contract's types.

Each module here may define `CHECKS` and `LIMITS` by registered name:
`CHECKS["fedprox"][0].gap(make)` for a factory `make(**hyperparameters)`.
"""

from __future__ import annotations

import importlib
import pkgutil

from bench.selftest.candidate import Candidate
from bench.selftest.certify import Finding, NotApplicable, compared
from bench.selftest.equations.checks import TOLERANCE, Check, Limit
from bench.selftest.equations.lab_run import Make

CHECKS: dict[str, tuple[Check, ...]] = {}
LIMITS: dict[str, tuple[Limit, ...]] = {}
for _name in sorted(module.name for module in pkgutil.iter_modules(__path__, f"{__name__}.")):
    _module = importlib.import_module(_name)
    for _algorithm, _checks in getattr(_module, "CHECKS", {}).items():
        CHECKS[_algorithm] = CHECKS.get(_algorithm, ()) + _checks
    LIMITS |= getattr(_module, "LIMITS", {})


def equations(candidate: Candidate, finding: Finding) -> None:
    """Run every comparison written for the algorithm.

    Raises NotApplicable if it is not in the registry.
    """
    if not candidate.built_in:
        raise NotApplicable("no paper of this suite has its equations")
    largest = 0.0
    checks = CHECKS.get(candidate.entry.name, ())
    for check in checks:
        where = f"{check.title} ({check.source})"
        with finding.case(where):
            gap = check.gap(candidate.build)
            largest = max(largest, gap)
            finding.expect(gap <= TOLERANCE, f"{where}: differs by {compared(gap, TOLERANCE)}")
    finding.expect(bool(checks), "no formula is written for it")
    finding.measured = f"largest gap {compared(largest, TOLERANCE)}; {len(checks)} compared"


__all__ = ["CHECKS", "LIMITS", "TOLERANCE", "Check", "Limit", "Make", "equations"]
