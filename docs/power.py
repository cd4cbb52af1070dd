"""Error rate and power of comparisons with FedAvg, on simulated boards like this project's.

    .venv/bin/python docs/power.py              some minutes
    .venv/bin/python docs/power.py --boards 50  fewer boards, rougher

The designs are those of the boards in docs/reference.md and docs/reference-v2.md. A simulated
result is the sum of three parts:

- the partition's effect, common to all methods
- a residual of its own, from Student's t with eight degrees of freedom
- the method's true gain

The spread of the residuals was measured on the first board: it is the standard deviation of a
paired difference in the mean of the last ten evaluations, by alpha. Methods without a gain show the
error rate, one method with a gain shows the power.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

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
            results = effects + scale * random.standard_t(DEGREES, count)
            if number == 0:
                results += gain
            values[alpha][f"method {number}"] = _by_partition(alpha, results)
    return values


def _by_partition(alpha: str, results: np.ndarray) -> dict[object, float]:
    return {(alpha, partition): float(value) for partition, value in enumerate(results)}


def differing_by_cell(values: Values) -> set[str]:
    """Return the methods that differ in some cell by paired t tests.

    The tests are corrected by Holm over the whole table.
    """
    tests = []
    for cell in values.values():
        seeds = {name: dict(enumerate(results.values())) for name, results in cell.items()}
        tests += [paired(seeds, name, REFERENCE) for name in cell if name != REFERENCE]
    return {test.algorithm for test in corrected(tests) if test.separable}


def differing_over_cells(values: Values) -> set[str]:
    """Return the methods that differ over all cells."""
    differences = pooled_differences(values, REFERENCE, FLIPS)
    return {difference.method for difference in differences if difference.separable}


def rates(design: Design, gain: float, boards: int) -> Sequence[tuple[str, float, float]]:
    """Return the name, the error rate and the power of each test.

    The error rate is the share of boards with a false finding, the power the share that shows the
    gain.
    """
    tests = {"paired t by cell, Holm": differing_by_cell, "pooled, max-T": differing_over_cells}
    false = dict.fromkeys(tests, 0)
    true = dict.fromkeys(tests, 0)
    for seed in range(boards):
        values = board(design, gain, seed)
        for name, test in tests.items():
            methods = test(values)
            false[name] += bool(methods - {"method 0"})
            true[name] += "method 0" in methods
    return [(name, false[name] / boards, true[name] / boards) for name in tests]


def main() -> None:
    """Print a line for each design, gain and test."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--boards", type=int, default=400, metavar="N")
    boards = parser.parse_args().boards
    lines = ["| board | true gain, points | test | false findings | power |"]
    lines.append("|---|---:|---|---:|---:|")
    print("\n".join(lines))  # noqa: T201
    for design, gain in product(DESIGNS, GAINS):
        for test, error, power in rates(design, gain, boards):
            percents = f"{100 * error:.1f} % | {100 * power:.0f} %"
            print(f"| {design.name} | {gain:g} | {test} | {percents} |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
