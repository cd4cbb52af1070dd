"""Successive halving among the configurations of a trial: ASHA's rule if all of them stand at one round.

Nothing is remembered between rungs: the curves alone, also of stored runs, decide which configurations go on. So a
trial that is interrupted at any moment goes on as if it had not been.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.trial.run import Run

FACTOR = 4  # one configuration in so many goes on, as in Tune's ASHA


def rungs_of(rounds: int, every: int = 1) -> tuple[int, ...]:
    """The rounds after which configurations are compared: a tenth of all, then `FACTOR` times as many each.

    Every rung is an evaluated round, one of `every` so many.
    """
    found = [max(1, rounds // 10)]
    while found[-1] * FACTOR < rounds:
        found.append(found[-1] * FACTOR)
    evaluated = [-(-rung // every) * every for rung in found]
    return tuple(dict.fromkeys(rung for rung in evaluated if rung < rounds))


def next_rung(rungs: Iterable[int], round: int) -> float:
    """The first rung after a round; infinite if there is none."""
    return min((rung for rung in rungs if rung > round), default=math.inf)


def losers(runs: Sequence[Run], rungs: Iterable[int]) -> list[Run]:
    """Select the running runs that do not go on after these rungs.

    A rung compares the configurations that have a run with as many rounds, by `objective` over all of their seeds;
    seeds that failed or diverged before count. One in `FACTOR` goes on, the best, rounded up; of equal ones the first.
    """
    found: list[Run] = []
    configurations = by_configuration(runs)
    for rung in rungs:
        standing = {key: seeds for key, seeds in configurations.items() if any(run.round >= rung for run in seeds)}
        values = {key: objective(seeds, rung) for key, seeds in standing.items()}
        best_first = sorted(values, key=lambda key: values[key], reverse=True)
        behind = best_first[math.ceil(len(best_first) / FACTOR) :]
        found += [run for key in behind for run in standing[key] if run.status == "running" and run not in found]
    return found


def by_configuration(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The runs of each configuration, its seeds."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(replace(run.unit, seed=0).key, []).append(run)
    return found


def lost(run: Run) -> bool:
    """Whether a run failed or has an unusable state."""
    return run.status in ("failed", "environment")


def objective(seeds: Sequence[Run], until: float = math.inf) -> float:
    """A configuration's value: the mean over its seeds of the best validation accuracy up to a round.

    Returns:
        -inf if a seed is lost, for a mean over the others would compare with means over all; or if there is no value.
    """
    values = [run.measure("val_accuracy", until) for run in seeds]
    known = [value for value in values if not math.isnan(value)]
    if not known or any(map(lost, seeds)):
        return -math.inf
    return math.fsum(known) / len(known)
