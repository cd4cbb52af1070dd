"""Equation checks: what each algorithm computes, against the printed formulas written anew.

A check sees an algorithm through the hooks of the contract alone. It drives rounds (`run.py`) in a laboratory whose
every number is known (`lab.py`), and compares losses, gradients, broadcast and evaluated models with plain tensor
arithmetic in float64 (`formulas.py`), which shares no code with `algorithms/` but the contract's types.

`CHECKS` holds them by registered name: `CHECKS["fedprox"][0].outcome(make)` for a factory `make(**hyperparameters)`.
"""

from __future__ import annotations

from bench.selftest.equations import (
    averaging,
    baselines,
    distillation,
    feddf,
    feddistill,
    feddkd,
    fedgen_client,
    fedgen_server,
    fedgkd,
    fedkf,
    label_counts,
    t1,
)
from bench.selftest.equations.check import TOLERANCE, Check, Make, Outcome

FAMILIES = (
    averaging,
    distillation,
    feddistill,
    fedgen_client,
    fedgen_server,
    fedgkd,
    feddkd,
    fedkf,
    t1,
    baselines,
    feddf,
    label_counts,
)


def _collected() -> dict[str, tuple[Check, ...]]:
    """All families' checks by algorithm; one that several families look at has those of all."""
    found: dict[str, tuple[Check, ...]] = {}
    for family in FAMILIES:
        for name, checks in family.CHECKS.items():
            found[name] = found.get(name, ()) + checks
    return found


CHECKS = _collected()

__all__ = ["CHECKS", "TOLERANCE", "Check", "Make", "Outcome"]
