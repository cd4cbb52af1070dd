"""Error rate and power of comparisons with FedAvg, on simulated boards like those of this project.

    .venv/bin/python docs/power.py              the boards of docs/reference.md and docs/reference-v2.md, some minutes
    .venv/bin/python docs/power.py --boards 50  fewer boards, rougher

A simulated result is a partition's effect, common to all methods, plus a residual of its own with
Student's t of eight degrees of freedom, plus the method's true gain. The spread of the residuals is
what was measured on the first board: the standard deviation of a paired difference in the mean of
the last ten evaluations, by alpha. Methods without a gain tell the error rate, one method with a
gain the power.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from leaderboards.stats.pooled import pooled_differences
from leaderboards.stats.seeds import corrected, paired

SPREADS = {"0.1": 2.8, "0.5": 1.84, "5": 0.65}  # points, of a paired difference in last10
DEGREES = 8  # of the residuals' t distribution
GAINS = (0.5, 1.0, 2.0)  # points
REFERENCE = "fedavg"
FLIPS = 999

Values = dict[str, dict[str, dict[object, float]]]


@dataclass(frozen=True)
class Design:
    """A board: partitions by alpha, runs of the reference on each, and methods beside it."""

    name: str
    partitions: Mapping[str, int]
    replicates: int
    methods: int


DESIGNS = (
    Design("first board: 5 partitions an alpha", {"0.1": 5, "0.5": 5, "5": 5}, 1, 24),
    Design("second board: 50, 33, 10; FedAvg four times", {"0.1": 50, "0.5": 33, "5": 10}, 4, 10),
)


def board(design: Design, gain: float, seed: int) -> Values:
    """Simulate a board; the first method has the gain, the others have none."""
    random = np.random.default_rng(seed)
    values: Values = {}
    for alpha, count in design.partitions.items():
        scale = SPREADS[alpha] / math.sqrt(2) / math.sqrt(DEGREES / (DEGREES - 2))
        effects = random.normal(size=count) * SPREADS[alpha]
        residuals = random.standard_t(DEGREES, (design.replicates, count)).mean(axis=0)
        values[alpha] = {REFERENCE: _by_partition(alpha, effects + scale * residuals)}
        for number in range(design.methods):
            own = effects + scale * random.standard_t(DEGREES, count) + gain * (number == 0)
            values[alpha][f"method {number}"] = _by_partition(alpha, own)
    return values


def _by_partition(alpha: str, results: np.ndarray) -> dict[object, float]:
    return {(alpha, partition): float(value) for partition, value in enumerate(results)}


def found_by_cell(values: Values) -> set[str]:
    """Return the methods that differ in some cell by paired t tests, corrected by Holm over the whole table."""
    tests = []
    for cell in values.values():
        seeds = {name: dict(enumerate(results.values())) for name, results in cell.items()}
        tests += [paired(seeds, name, REFERENCE) for name in cell if name != REFERENCE]
    return {test.algorithm for test in corrected(tests) if test.separable}


def found_over_cells(values: Values) -> set[str]:
    """Return the methods that differ over all cells."""
    return {each.method for each in pooled_differences(values, REFERENCE, FLIPS) if each.separable}


def rates(design: Design, gain: float, boards: int) -> Sequence[tuple[str, float, float]]:
    """Return for each test its name, the share of boards with a false finding, and the share that found the gain."""
    tests = {"paired t by cell, Holm": found_by_cell, "pooled, max-T": found_over_cells}
    false = dict.fromkeys(tests, 0)
    true = dict.fromkeys(tests, 0)
    for seed in range(boards):
        values = board(design, gain, seed)
        for name, test in tests.items():
            found = test(values)
            false[name] += bool(found - {"method 0"})
            true[name] += "method 0" in found
    return [(name, false[name] / boards, true[name] / boards) for name in tests]


def main() -> None:
    """Print a line for each design, gain and test."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--boards", type=int, default=400, metavar="N")
    boards = parser.parse_args().boards
    print("| board | true gain, points | test | false findings | power |\n|---|---:|---|---:|---:|")  # noqa: T201
    for design in DESIGNS:
        for gain in GAINS:
            for test, error, power in rates(design, gain, boards):
                line = f"| {design.name} | {gain:g} | {test} | {100 * error:.1f} % | {100 * power:.0f} % |"
                print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
