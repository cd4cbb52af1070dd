"""Check `learns`: fifteen rounds on three classes of different brightness end far above guessing."""

from __future__ import annotations

import math

from bench.selftest.candidate import Candidate
from bench.selftest.certify import Finding
from bench.selftest.toy import INFO, TEST_SAMPLES
from bench.trial.results import at_chance

ROUNDS = 15


def check(candidate: Candidate, finding: Finding) -> None:
    """The last accuracy of every row, personal models included, and finite losses throughout."""
    simulation = candidate.run(ROUNDS, participation=1.0)
    finding.expect(not simulation.progress.diverged, f"it diverges in round {simulation.round}")
    shown = []
    for suffix, curve in simulation.progress.curves.items():
        row = candidate.entry.rows.get(suffix, suffix)
        accuracy = [value for _, metric, value in curve if metric == "accuracy"][-1]
        lost = at_chance(accuracy, INFO.num_classes, TEST_SAMPLES)
        finding.expect(not lost, f"{row}: accuracy {accuracy:.2f} after {ROUNDS} rounds, guessing gives 0.33")
        losses = [value for _, metric, value in curve if metric == "loss"]
        finding.expect(all(map(math.isfinite, losses)), f"{row}: a loss is not finite")
        shown.append(f"{accuracy:.2f}")
    finding.measured = f"accuracy {' and '.join(shown)} after {ROUNDS} rounds; guessing 0.33"
